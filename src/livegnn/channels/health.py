"""Workers and links that are slow or lost, as functions of reports and times, without a clock.

Each worker sends beats on each link, and echoes those of its peer with its own `Pulse`: the round that it is
in, and whether it computes or waits. From one end of a link a lost link and a lost worker look the same, so
`diagnose` reads the reports of all workers, as the leader has them.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from itertools import combinations
from typing import Final, NamedTuple

from livegnn.arguments import check_positive
from livegnn.channels.channel import Round
from livegnn.wording import format_count


@dataclass(frozen=True)
class Patience:
    """Seconds. beat_seconds: between two beats. slow_seconds: that an echo may take. silent_seconds: after
    which a peer that sends nothing is lost. round_seconds: that a round may take. hello_seconds: until all
    peers have answered at the start.
    """

    beat_seconds: float = 0.2
    slow_seconds: float = 1.0
    silent_seconds: float = 10.0
    round_seconds: float = 60.0
    hello_seconds: float = 30.0

    def __post_init__(self) -> None:
        for it in fields(Patience):
            check_positive(getattr(self, it.name), it.name)


class Pulse(NamedTuple):
    """The work of a worker. seconds: for how long it has computed since its last round (`is_waiting` is
    false), or waits in this round, for the workers `waits_for`.
    """

    round: Round = Round(0, 0, 0)
    is_waiting: bool = False
    seconds: float = 0.0
    waits_for: frozenset[int] = frozenset()

    def to_bytes(self) -> bytes:
        """The pulse as it is in beats and echoes (docs/channels.md)."""
        ended = sorted(self.waits_for)
        fixed = _PULSE.pack(
            self.round.turn, self.round.seq, self.seconds, self.round.attempt, self.round.number,
            self.is_waiting, 0, len(ended),
        )  # fmt: skip
        return fixed + struct.pack(f"<{len(ended)}H", *ended)

    @staticmethod
    def from_bytes(given: bytes) -> "Pulse":
        turn, seq, seconds, attempt, number, waiting, _, count = _PULSE.unpack_from(given)
        waits_for = frozenset(struct.unpack_from(f"<{count}H", given, _PULSE.size))
        return Pulse(Round(turn, attempt, number, seq), bool(waiting), seconds, waits_for)


_PULSE: Final = struct.Struct("<QQdBBBBI")


class LinkHealth(NamedTuple):
    """One end of a link. silent_seconds: since the peer has sent anything. echo_seconds: that the last echo
    took, or that the oldest beat without one waits, if that is longer. pulse: the last one of the peer.
    """

    silent_seconds: float
    echo_seconds: float
    pulse: Pulse


class Report(NamedTuple):
    """The work of a worker, and its end of each link, by peer."""

    pulse: Pulse
    links: Mapping[int, LinkHealth]


class Trouble(Enum):
    """A reason why others wait."""

    DEAD_WORKER = "dead worker"
    DEAD_LINK = "dead link"
    SLOW_LINK = "slow link"
    SLOW_WORKER = "slow worker"


class Diagnosis(NamedTuple):
    """A trouble, and the worker or the two ends of the link that have it."""

    trouble: Trouble
    workers: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        names = " and ".join(str(number) for number in self.workers)
        noun = "workers" if len(self.workers) > 1 else "worker"
        return f"{self.trouble.value}, {noun} {names}: {self.why}"


def diagnose(reports: Mapping[int, Report | None], patience: Patience) -> list[Diagnosis]:
    """The troubles of a cluster. reports: of each worker of the plan; None if it has not answered the leader
    for `silent_seconds`.

    A worker without a report is dead or cut off, and its links are not judged. A link is dead if one end has
    received nothing for `silent_seconds`; slow if its echoes take longer than `slow_seconds`, or if both ends
    wait for each other in the same round. A worker is slow if another waits for it, it computes, and both
    last longer than `slow_seconds`.
    """
    found = [
        Diagnosis(Trouble.DEAD_WORKER, (number,), "it does not answer the leader")
        for number, report in sorted(reports.items())
        if report is None
    ]
    answering = {number: report for number, report in sorted(reports.items()) if report is not None}
    for (a, one), (b, other) in combinations(answering.items(), 2):
        found.extend(_judge_link((a, one), (b, other), patience))
    found.extend(_slow_workers(answering, patience))
    return found


def _judge_link(a: tuple[int, Report], b: tuple[int, Report], patience: Patience) -> Iterator[Diagnosis]:
    ends = [report.links[peer] for (_, report), (peer, _) in ((a, b), (b, a)) if peer in report.links]
    pair = (a[0], b[0])
    silent = max((end.silent_seconds for end in ends), default=0.0)
    echo = max((end.echo_seconds for end in ends), default=0.0)
    if silent > patience.silent_seconds:
        yield Diagnosis(
            Trouble.DEAD_LINK,
            pair,
            f"both answer the leader, and nothing was received for {silent:.1f} seconds",
        )
    elif echo > patience.slow_seconds:
        yield Diagnosis(Trouble.SLOW_LINK, pair, f"an echo takes {echo:.1f} seconds")
    elif _wait_for_each_other(a, b, patience):
        yield Diagnosis(Trouble.SLOW_LINK, pair, f"both wait for each other in {a[1].pulse.round}")


def _wait_for_each_other(a: tuple[int, Report], b: tuple[int, Report], patience: Patience) -> bool:
    one, other = a[1].pulse, b[1].pulse
    return (
        one.round == other.round
        and b[0] in one.waits_for
        and a[0] in other.waits_for
        and min(one.seconds, other.seconds) > patience.slow_seconds
    )


def _slow_workers(reports: Mapping[int, Report], patience: Patience) -> Iterator[Diagnosis]:
    for number, report in reports.items():
        pulse = report.pulse
        waiting = [
            other
            for other, its in reports.items()
            if number in its.pulse.waits_for and its.pulse.seconds > patience.slow_seconds
        ]
        if waiting and not pulse.is_waiting and pulse.seconds > patience.slow_seconds:
            yield Diagnosis(
                Trouble.SLOW_WORKER,
                (number,),
                f"it has computed for {pulse.seconds:.1f} seconds since {pulse.round}, and "
                f"{format_count(len(waiting), 'worker')} {'waits' if len(waiting) == 1 else 'wait'} for it",
            )
