"""One link between two workers: the messages to send next, and the new ones among those that arrive.

A `Link` has no socket and no clock: its caller passes frames and times. Messages with a number arrive in
order, each once, however often they are lost, doubled, delayed or damaged:

- The sender keeps them until the peer has received them. On request it begins another *sweep*: it sends them
  all again, in order.
- The receiver takes the next number alone. Every message has its sweep, and messages without a number have
  that of the last one before them. So any message that follows a lost one, a beat at the latest, shows the
  loss, and the receiver requests another sweep. Requests that are based on an earlier sweep are ignored.

Numbers begin at 1 for two processes and an epoch, which have found each other by `Greeting`. Messages of
others are dropped.
"""

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from livegnn.channels.channel import Arrived, Inbox, Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.frames import (
    LAST,
    MOST_PART_BYTES,
    NUMBERED,
    Buffer,
    DamagedMessage,
    Header,
    Kind,
    Message,
    Section,
    cut,
    decode,
    encode,
    join,
)
from livegnn.channels.greeting import End, Greeting
from livegnn.channels.health import LinkHealth, Patience, Pulse
from livegnn.wording import quoted

_STAMP: Final = struct.Struct("<d")
_SWEEP: Final = struct.Struct("<I")
_MOST_BEATS: Final = 64  # whose echoes are waited for
_NO_ROUND: Final = Round(0, 0, 0)


class Limits(NamedTuple):
    """part_bytes: of the sections in one message. window_bytes: of messages that the peer has not received
    yet, except one that is larger."""

    part_bytes: int = MOST_PART_BYTES
    window_bytes: int = 64 << 20


class Counts(NamedTuple):
    """The messages of a link since its begin. resent: sent again. dropped: received and of no use. damaged:
    of those, with other bytes than they were sent with."""

    sent: int = 0
    sent_bytes: int = 0
    resent: int = 0
    received: int = 0
    received_bytes: int = 0
    dropped: int = 0
    damaged: int = 0


class _Kept(NamedTuple):
    """A message that the peer has perhaps not received."""

    number: int
    kind: Kind
    round: Round
    sections: list[Section]
    note: bytes
    flags: int
    num_bytes: int


def _size_of(sections: Sequence[Section], note: bytes) -> int:
    return sum([section.num_bytes for section in sections]) + len(note)


class Link:
    """One end of a link. Thread safety: none.

    A *route* is the connection by which a message has arrived or is to be sent, in the bytes of the caller;
    it is empty where a link has one alone.
    """

    def __init__(
        self,
        here: End,
        there: End,
        epoch: int,
        terms: Mapping[str, str],
        patience: Patience,
        limits: Limits,
        now: float,
    ) -> None:
        self.inbox = Inbox(there.number)
        self._counts = dict.fromkeys(Counts._fields, 0)
        self.is_closed = False
        self._greeting = Greeting(here, there, epoch, terms)
        self._here, self._there, self._epoch = here, there, epoch
        self._patience, self._limits = patience, limits
        self._controls: dict[Kind, tuple[int, bytes]] = {}  # to be sent: the newest of each kind
        self._kept: deque[_Kept] = deque()
        self._unsent = 0  # the place in `_kept` of the next one to send
        self._in_flight = 0  # bytes of those before it
        self._sweep = 0
        self._next = 1
        self._highest = 0  # the last number that was ever sent
        self._outgoing: list[Buffer] | None = None
        self._sending: _Kept | Kind | bytes | None = (
            None  # what `_outgoing` is: bytes for an answer, its route
        )
        self._is_leaving = False
        self._is_cut = False  # there is no way to the peer until it sends again
        self._received = 0
        self._heard = self._beat_at = now
        self._echo_seconds = 0.0
        self._beats: deque[float] = deque()  # times of those without an echo
        self._pulse = Pulse()

    # -- sending

    def divide(self, sections: Sequence[Section]) -> list[list[Section]]:
        """The parts of a round's sections. Raises `InputError`."""
        return list(cut(sections, self._limits.part_bytes))

    def send_round(self, round: Round, parts: list[list[Section]]) -> None:
        """Sends a round, a message for each part."""
        for part in parts[:-1]:
            self._keep(Kind.ROUND, round, part)
        self._keep(Kind.ROUND, round, parts[-1], flags=LAST)

    def send_abort(self, turn: int, reason: str) -> None:
        """Says that this worker ends a turn."""
        self._keep(Kind.ABORT, Round(turn, 0, 0), [], reason.encode(errors="replace"))

    def send_bye(self) -> None:
        """Says that this worker closes its channel: its last message."""
        self._keep(Kind.BYE, _NO_ROUND, [])
        self._is_leaving = True
        self._greeting.tell_again()

    def has_parted(self, now: float) -> bool:
        """Whether the peer has received everything, or cannot: it has closed, is lost, or was never there."""
        is_lost = now - self._heard > self._patience.silent_seconds
        if not self._greeting.has_told_all:
            return False
        return not self._kept or not self.is_greeted or self.is_closed or is_lost

    @property
    def is_greeted(self) -> bool:
        """Whether the processes at both ends have accepted each other."""
        return self._greeting.is_greeted

    @property
    def refused(self) -> Sequence[str]:
        """The processes that were refused because they are not those of the plan, as texts."""
        return self._greeting.refused

    def _keep(
        self, kind: Kind, round: Round, sections: list[Section], note: bytes = b"", flags: int = 0
    ) -> None:
        size = _size_of(sections, note)
        self._kept.append(_Kept(self._next, kind, round, sections, note, flags, size))
        self._next += 1

    def outgoing(self) -> list[Buffer] | None:
        """The frames of the next message, the same ones until `note_sent`; None if there is none to send."""
        if self._outgoing is None:
            answers = self._greeting.answers
            if answers:
                self._sending = route = next(iter(answers))
                self._outgoing = self._control(Kind.HELLO, *answers[route])
            elif self._controls:
                self._sending = kind = next(iter(self._controls))
                self._outgoing = self._control(kind, *self._controls[kind])
            elif self.is_greeted and self.has_unsent and not self._is_cut:
                kept = self._kept[self._unsent]
                if self._in_flight and self._in_flight + kept.num_bytes > self._limits.window_bytes:
                    return None
                self._sending = kept
                header = self._header(kept.kind, kept.number, kept.flags, kept.round)
                self._outgoing = join(encode(header, kept.sections, kept.note))
        return self._outgoing

    def _control(self, kind: Kind, flags: int, note: bytes) -> list[Buffer]:
        before = self._kept[self._unsent].number if self.has_unsent else self._next
        return join(encode(self._header(kind, before - 1, flags), note=note))

    @property
    def route(self) -> bytes:
        """By which the message of `outgoing` is to be sent. Empty at first: the peer is not there yet."""
        return self._sending if isinstance(self._sending, bytes) else self._greeting.route

    @property
    def is_answering(self) -> bool:
        """Whether the message of `outgoing` is an answer to a hello, which another hello would repeat."""
        return isinstance(self._sending, bytes)

    def note_cut(self) -> None:
        """Notes that there is no connection by which the message of `outgoing` can be sent: it is kept if it
        has a number, else it is lost. Messages with numbers wait until the peer has sent one.
        """
        if isinstance(self._sending, _Kept):
            self._outgoing, self._sending, self._is_cut = None, None, True
            return
        if isinstance(self._sending, bytes):
            self._greeting.forget(self._sending)
        self.note_sent()

    def note_sent(self) -> None:
        """Notes that the message that `outgoing` has returned is on its way."""
        sending = self._sending
        self._outgoing = self._sending = None
        if isinstance(sending, _Kept):
            self._unsent += 1
            self._in_flight += sending.num_bytes
            self._counts["sent"] += 1
            self._counts["sent_bytes"] += sending.num_bytes
            self._counts["resent"] += sending.number <= self._highest
            self._highest = max(self._highest, sending.number)
        elif isinstance(sending, bytes):
            self._greeting.answers.pop(sending, None)
        elif sending is not None:
            del self._controls[sending]

    @property
    def has_unsent(self) -> bool:
        """Whether a message with a number is to be sent."""
        return self._unsent < len(self._kept)

    def _header(self, kind: Kind, number: int, flags: int, round: Round = _NO_ROUND) -> Header:
        here, there = self._here, self._there
        return Header(
            kind, self._epoch, here.number, there.number, here.incarnation, there.incarnation, round.turn,
            round.seq, number, self._received, round.number, round.attempt, self._sweep,
            self._greeting.session, flags,
        )  # fmt: skip

    # -- receiving

    def receive(
        self, frames: list[Buffer], now: float, pulse: Callable[[float], Pulse], route: bytes = b""
    ) -> None:
        """Takes a message that has arrived. pulse: returns this worker's, for an echo.

        Raises `ChannelRefusedError` for a peer with other terms, and if this process was replaced or is not
        the one that the peer has accepted; `ChannelError` for a peer that speaks otherwise than this one.
        """
        try:
            message = decode(frames)
        except DamagedMessage:
            self._counts["damaged"] += 1
            self._drop()
            return
        except ChannelError:  # of another version, which may read a hello of this one
            self._greeting.tell_once(route)
            raise
        header, greeting = message.header, self._greeting
        try:
            if greeting.is_of_plan(header, message.note, route) and header.kind is Kind.HELLO:
                greeting.take_hello(header, message.note, route)
            if not greeting.is_accepted(header):
                self._drop()
                return
            self._take(message, now, pulse)
        except struct.error as error:
            raise ChannelError(
                f"worker {header.sender} must send notes as docs/channels.md describes them, got "
                f"{quoted(message.note)} in a message of kind {header.kind.name}"
            ) from error
        greeting.route, self._is_cut = route, False

    def _drop(self) -> None:
        self._counts["dropped"] += 1

    def _take(self, message: Message, now: float, pulse: Callable[[float], Pulse]) -> None:
        """Takes a message of the process that was accepted."""
        header = message.header
        self._heard = now
        self._release(header.received)
        if header.kind in NUMBERED:
            self._take_numbered(message)
        elif header.number > self._received:
            self._request(header.sweep)
        if header.kind is not Kind.HELLO:  # which it sends to a process that it has accepted alone
            self._greeting.is_greeted = True
            self._take_control(message.header.kind, message.note, now, pulse)

    def _take_numbered(self, message: Message) -> None:
        header = message.header
        if header.number != self._received + 1:
            self._drop()
            if header.number > self._received:
                self._request(header.sweep)
            return
        self._received += 1
        last = bool(header.flags & LAST)
        if header.kind is Kind.ROUND:
            round = Round(header.turn, header.attempt, header.round, header.seq)
            self.inbox.put(Arrived(round, message.sections, last))
        elif header.kind is Kind.ABORT:
            self.inbox.ended.end(header.turn, message.note.decode(errors="replace"))
        else:
            self.is_closed = True
        if not last:  # the next message of this worker may be far away
            self._controls[Kind.RECEIVED] = (0, b"")
        self._counts["received"] += 1
        self._counts["received_bytes"] += _size_of(message.sections, message.note)

    def _take_control(self, kind: Kind, note: bytes, now: float, pulse: Callable[[float], Pulse]) -> None:
        if kind is Kind.RESEND:
            self._sweep_again(*_SWEEP.unpack(note))
        elif kind is Kind.BEAT:
            self._controls[Kind.ECHO] = (0, note[: _STAMP.size] + pulse(now).to_bytes())
            self._pulse = Pulse.from_bytes(note[_STAMP.size :])
        elif kind is Kind.ECHO:
            (stamp,) = _STAMP.unpack_from(note)
            self._pulse = Pulse.from_bytes(note[_STAMP.size :])
            self._echo_seconds = now - stamp
            while self._beats and self._beats[0] <= stamp:
                self._beats.popleft()

    def _request(self, sweep: int) -> None:
        """Requests what follows the last number that was received, of which this sweep has lost a message."""
        self._controls[Kind.RESEND] = (0, _SWEEP.pack(sweep))

    def _sweep_again(self, lost: int) -> None:
        """Sends all messages again that the peer has not received, if `lost` is the sweep of now."""
        if lost == self._sweep and self._unsent:
            self._sweep += 1
            self._unsent = self._in_flight = 0
            if isinstance(self._sending, _Kept):
                self._outgoing = self._sending = None

    def _release(self, received: int) -> None:
        """Forgets the messages that the peer has received."""
        while self._kept and self._kept[0].number <= received:
            kept = self._kept.popleft()
            if self._unsent:
                self._unsent -= 1
                self._in_flight -= kept.num_bytes
            elif kept is self._sending:
                self._outgoing = self._sending = None

    # -- time

    def tick(self, now: float, pulse: Callable[[float], Pulse]) -> None:
        """Sends a hello until the peer has answered, then beats, each when it is due."""
        if now < self._beat_at:
            return
        self._beat_at = now + self._patience.beat_seconds
        if self._is_leaving:
            self._greeting.tell_again()
        if not self.is_greeted:
            self._controls[Kind.HELLO] = self._greeting.hello()
            return
        if len(self._beats) < _MOST_BEATS:
            self._beats.append(now)
        self._controls[Kind.BEAT] = (0, _STAMP.pack(now) + pulse(now).to_bytes())

    def forgive(self, now: float) -> None:
        """Counts the peer as heard: this process itself has stood still until now."""
        self._heard = now
        self._beats.clear()

    def counts(self) -> Counts:
        """The messages of this link since its begin."""
        return Counts(**self._counts)

    def health(self, now: float) -> LinkHealth:
        """The health of the link, as this end sees it."""
        waits = now - self._beats[0] if self._beats else 0.0
        return LinkHealth(now - self._heard, max(self._echo_seconds, waits), self._pulse)
