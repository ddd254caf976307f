"""The rounds of one worker over its links: all of `ZmqChannel` except its sockets and its clock.

The caller passes frames that arrive (`receive`), sends those that each link has to send, and calls `tick`
often. `finish` returns the sections of a round when it is complete. A failure that a message causes is raised
by the next `finish`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from livegnn.channels.channel import Round, Turns
from livegnn.channels.errors import ChannelError, DeadLinkError, SlowLinkError, SlowWorkerError
from livegnn.channels.frames import Buffer, Section
from livegnn.channels.greeting import End
from livegnn.channels.health import LinkHealth, Patience, Pulse, Report
from livegnn.channels.link import Counts, Limits, Link
from livegnn.errors import InputError, LiveGNNError

_CHECK_SECONDS: Final = 0.02  # between two looks at times in a round
_STILL: Final = 0.5  # of `silent_seconds`: a longer pause of this process counts for nobody


class Exchange:
    """One worker's rounds. Thread safety: none.

    peers: the incarnation of each other worker. epoch: of the leader. terms: see `terms`. now: seconds, as
    all times here, by a clock of the caller that is never set back.
    """

    def __init__(
        self,
        here: End,
        peers: Mapping[int, int],
        epoch: int,
        terms: Mapping[str, str],
        *,
        patience: Patience,
        limits: Limits,
        now: float,
    ) -> None:
        if here.number in peers:
            raise InputError(f"peers must be the other workers, got {here.number} among {sorted(peers)}")
        terms = {**terms, "workers": str(len(peers) + 1)}
        self.here = here
        self.links: dict[int, Link] = {
            peer: Link(here, End(peer, peers[peer]), epoch, terms, patience, limits, now)
            for peer in sorted(peers)
        }
        self._patience = patience
        self._turns = Turns(here.number, peers)
        self._round: Round | None = None  # in which this worker waits
        self._found: dict[int, list[Section]] = {}
        self._since = self._ticked = self._check_at = now
        self._failure: ChannelError | None = None

    # -- messages

    def receive(self, peer: int, frames: list[Buffer], now: float, route: bytes = b"") -> None:
        """Takes a message that has arrived on the link of `peer`. route: see `Link`."""
        try:
            self.links[peer].receive(frames, now, self._pulse, route)
        except ChannelError as error:
            self._failure = self._failure or error

    def tick(self, now: float) -> None:
        """Has each link send what is due."""
        pause = now - self._ticked
        if pause > _STILL * self._patience.silent_seconds:
            self._since += pause
            for link in self.links.values():
                link.forgive(now)
        self._ticked = now
        for link in self.links.values():
            link.tick(now, self._pulse)

    def say_bye(self) -> None:
        """Says to all peers that the channel is closed."""
        for link in self.links.values():
            link.send_bye()

    def has_parted(self, now: float) -> bool:
        """Whether all peers have received everything, the bye included, or cannot."""
        return all(link.has_parted(now) for link in self.links.values())

    # -- the start

    def is_greeted(self) -> bool:
        """Whether this worker and all peers have accepted each other. Raises `ChannelRefusedError` if one
        differs, `DeadLinkError` if one has closed its channel.
        """
        self._raise_failure()
        if all(link.is_greeted for link in self.links.values()):
            return True
        for peer, link in self.links.items():
            if link.is_closed:
                raise DeadLinkError(
                    f"worker {peer} has closed its channel before all workers have said hello"
                )
        return False

    # -- rounds

    def begin(self, round: Round, sections: Mapping[int, Sequence[Section]], now: float) -> None:
        """Begins a round. Raises as `Channel.swap` does."""
        self._raise_failure()
        parts = {peer: link.divide(sections.get(peer, ())) for peer, link in self.links.items()}
        self._turns.begin(round, sections)
        for peer, link in self.links.items():
            link.send_round(round, parts[peer])
        self._round, self._found, self._since = round, {}, now
        self._check_at = now + _CHECK_SECONDS

    def finish(self, now: float) -> dict[int, list[Section]] | None:
        """The sections of all peers when all have arrived, and this worker's are sent. Raises as
        `Channel.swap` does; the round has ended then.
        """
        assert self._round is not None
        try:
            self._raise_failure()
            self._turns.ended.check(self._round)
            missing = self._take(self._round)
            if missing:
                if now >= self._check_at:
                    self._check_patience(missing, self._round, now)
                return None
        except LiveGNNError:
            self._leave(now)
            raise
        found = {peer: self._found[peer] for peer in self.links}
        self._leave(now)
        return found

    def abort(self, turn: int, reason: str) -> None:
        """Ends a turn for all workers."""
        if self._turns.ended.end(turn, reason):
            for link in self.links.values():
                link.send_abort(turn, reason)

    def _leave(self, now: float) -> None:
        self._round, self._found, self._since = None, {}, now

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _take(self, round: Round) -> list[int]:
        """Takes the sections that have arrived; the peers that have to send or to receive some."""
        missing = []
        for peer, link in self.links.items():
            link.inbox.check(round)
            if peer not in self._found and (sections := link.inbox.take(round)) is not None:
                self._found[peer] = sections
            if peer not in self._found or link.has_unsent:
                if link.is_closed:
                    link.inbox.ended.check(round)
                    raise DeadLinkError(f"worker {peer} has closed its channel before {round}")
                missing.append(peer)
        return missing

    def _check_patience(self, missing: Sequence[int], round: Round, now: float) -> None:
        """Raises if messages have not arrived in time."""
        self._check_at = now + _CHECK_SECONDS
        for peer in missing:
            silent = self.links[peer].health(now).silent_seconds
            if silent > self._patience.silent_seconds:
                raise DeadLinkError(
                    f"worker {peer} must answer within {self._patience.silent_seconds} seconds, got nothing "
                    f"for {silent:.1f} in {round}: its process or the network to it is lost"
                )
        waited = now - self._since
        if waited > self._patience.round_seconds:
            raise self._judge(missing[0], round, waited, now)

    def _judge(self, peer: int, round: Round, waited: float, now: float) -> ChannelError:
        """Whether a peer that answers has not sent its part of a round, or the link has not brought it."""
        health = self.links[peer].health(now)
        pulse = health.pulse
        said = f"{round} must end within {self._patience.round_seconds} seconds, got {waited:.1f}: "
        said += f"worker {peer} "
        if health.echo_seconds > self._patience.slow_seconds:
            return SlowLinkError(
                said + f"is reached in {health.echo_seconds:.1f} seconds, so the link is slow"
            )
        if pulse.round >= round:
            return SlowLinkError(said + f"is in {pulse.round} and has sent its part, so the link is slow")
        doing = "waits" if pulse.is_waiting else "has computed"
        return SlowWorkerError(
            said + f"answers, and {doing} for {pulse.seconds:.1f} seconds since {pulse.round}"
        )

    # -- state

    def _pulse(self, now: float) -> Pulse:
        waits_for = (
            frozenset(self.links.keys() - self._found.keys()) if self._round is not None else frozenset()
        )
        return Pulse(self._turns.last, self._round is not None, now - self._since, waits_for)

    def report(self, now: float) -> Report:
        """The work of this worker, and its end of each link."""
        links: dict[int, LinkHealth] = {peer: link.health(now) for peer, link in self.links.items()}
        return Report(self._pulse(now), links)

    def counts(self) -> dict[int, Counts]:
        """The messages of each link since its begin."""
        return {peer: link.counts() for peer, link in self.links.items()}
