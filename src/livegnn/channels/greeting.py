"""The greeting of the two processes of a link, before they exchange anything else.

Each process draws a random *session* for each link. A hello has the session of its sender, and names that of
the process whose hello it answers. So a hello that names this process is of one that lives: one that a
process left in a socket before it was lost names none. A process *accepts* the first process of its plan
that answers it, and from then on takes messages of that one alone. Another with the same number and
incarnation is refused: the answer to its hello names the accepted one.
"""

import logging
import secrets
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from livegnn.channels.errors import ChannelRefusedError
from livegnn.channels.frames import ACCEPTED, Header, Kind
from livegnn.channels.terms import check_same, from_note, to_note

_logger = logging.getLogger(__name__)
_NAMED: Final = struct.Struct("<I")
_NOBODY: Final = 0
_MOST_SESSION: Final = 0xFFFF_FFFF
_MOST_ANSWERS: Final = 64  # to different connections, at a time
MOST_REFUSED: Final = 3
"""Of those that were refused, an error names as many."""


class End(NamedTuple):
    """A worker's process. incarnation: how many processes the worker has had, this one included."""

    number: int
    incarnation: int


class Greeting:
    """One end's part in the greeting of a link. Thread safety: none.

    route: the connection of the accepted process, as `Link.receive` has it. answers: the flags and the note
    of the hellos that other connections are to be answered with, by their routes. told: the last such hello
    of each connection whose process cannot be accepted. is_greeted: whether both processes have accepted each
    other. refused: processes that are not those of the plan, as texts.
    """

    def __init__(self, here: End, there: End, epoch: int, terms: Mapping[str, str]) -> None:
        self.session = 1 + secrets.randbelow(_MOST_SESSION)
        self.route = b""
        self.answers: dict[bytes, tuple[int, bytes]] = {}
        self.told: dict[bytes, tuple[int, bytes]] = {}
        self.is_greeted = False
        self.refused: list[str] = []
        self._here, self._there, self._epoch, self._terms = here, there, epoch, terms
        self._accepted = _NOBODY

    def hello(self) -> tuple[int, bytes]:
        """The flags and the note of the hello that is to be repeated until the other end has answered."""
        return self._hello(self._accepted)

    @staticmethod
    def _named(note: bytes) -> int:
        (named,) = _NAMED.unpack_from(note)
        return int(named)

    def _hello(self, named: int) -> tuple[int, bytes]:
        return ACCEPTED if self._accepted else 0, _NAMED.pack(named) + to_note(self._terms)

    def is_of_plan(self, header: Header, note: bytes, route: bytes) -> bool:
        """Whether a message is of the two processes and the epoch of this plan. A hello of another process is
        answered by one whose header has the processes that this end expects.

        Raises `ChannelRefusedError` if this process itself has an earlier plan, or another address.
        """
        here, there = self._here, self._there
        of = (header.sender, header.receiver, header.epoch, header.incarnation, header.known)
        if of == (there.number, here.number, self._epoch, there.incarnation, here.incarnation):
            return True
        if header.kind is Kind.HELLO and self._named(note) == _NOBODY:  # no answer is answered again
            self._tell(route, header.session)
        if header.receiver != here.number or header.sender != there.number:
            raise ChannelRefusedError(
                f"worker {there.number} must answer at its address in the plan, got worker {header.sender} "
                f"that addresses worker {header.receiver}: give each worker the addresses of the same plan"
            )
        if header.epoch > self._epoch or (header.epoch == self._epoch and header.known > here.incarnation):
            raise ChannelRefusedError(
                f"worker {here.number} was replaced: it is process {here.incarnation} of epoch "
                f"{self._epoch}, and worker {there.number} knows process {header.known} of epoch "
                f"{header.epoch}. End this process"
            )
        if header.epoch == self._epoch and header.incarnation > there.incarnation:
            raise ChannelRefusedError(
                f"worker {there.number} must be process {there.incarnation}, got {header.incarnation}: it "
                "was replaced. Make a new listener, and connect it by the plan of now"
            )
        self._refuse(
            f"process {header.incarnation} of worker {there.number}, whose plan is of epoch {header.epoch} "
            f"and has process {header.known} of worker {here.number}"
        )
        return False

    def is_accepted(self, header: Header) -> bool:
        """Whether a message of the plan is of the process that was accepted."""
        return self._accepted != _NOBODY and header.session == self._accepted

    def take_hello(self, header: Header, note: bytes, route: bytes) -> None:
        """Takes a hello of the plan, and answers it.

        Raises `ChannelRefusedError` if the processes have other terms, or if the other end has accepted
        another process instead of this one; `ChannelError` and `struct.error` for another note.
        """
        named = self._named(note)
        terms = from_note(note[_NAMED.size :], self._there.number)
        if self._accepted not in (_NOBODY, header.session):
            self._refuse(f"a second process {header.incarnation} of worker {header.sender}")
            self._tell(route, self._accepted)
        elif named == _NOBODY:
            self._answer(route, header.session)
        elif named == self.session:
            self._accept(header, terms, route)
        elif header.flags & ACCEPTED and not self.is_greeted:
            raise ChannelRefusedError(
                f"worker {header.sender} exchanges rows with another process {self._here.incarnation} of "
                f"worker {self._here.number}: end this one, or give all workers a plan in which a new "
                "process has the next incarnation"
            )

    def _accept(self, header: Header, terms: Mapping[str, str], route: bytes) -> None:
        is_new, self._accepted = self._accepted == _NOBODY, header.session
        self.route = route
        if is_new or not header.flags & ACCEPTED:
            self._answer(route, header.session)
        check_same(self._here.number, self._terms, self._there.number, terms)
        self.is_greeted = self.is_greeted or bool(header.flags & ACCEPTED)

    def tell_once(self, route: bytes) -> None:
        """Answers a message of another version."""
        if route not in self.told and len(self.told) < _MOST_ANSWERS:
            self._tell(route, _NOBODY)

    def tell_again(self) -> None:
        """Answers again those that cannot be accepted, as this end closes: ZeroMQ may drop messages that
        arrived just before a connection ends. `forget` is called for those that have ended theirs.
        """
        self.answers |= {route: hello for route, hello in self.told.items() if route}

    def forget(self, route: bytes) -> None:
        """Forgets a connection that has ended."""
        self.answers.pop(route, None)
        self.told.pop(route, None)

    @property
    def has_told_all(self) -> bool:
        """Whether all connections have ended whose processes cannot be accepted, as far as that is known: a
        connection without a route is of the end that began it, whose messages outlive it.
        """
        return not any(self.told)

    def _tell(self, route: bytes, named: int) -> None:
        self._answer(route, named)
        if route in self.answers and (route in self.told or len(self.told) < _MOST_ANSWERS):
            self.told[route] = self.answers[route]

    def _answer(self, route: bytes, named: int) -> None:
        if route in self.answers or len(self.answers) < _MOST_ANSWERS:
            self.answers[route] = self._hello(named)

    def _refuse(self, what: str) -> None:
        if what not in self.refused and len(self.refused) < MOST_REFUSED:
            self.refused.append(what)
            _logger.warning("worker %d has refused %s", self._here.number, what)
