"""Workers and links that are slow or lost, as `diagnose` names them."""

from collections.abc import Sequence

import pytest

from livegnn.channels.channel import Round
from livegnn.channels.health import Diagnosis, LinkHealth, Patience, Pulse, Report, Trouble, diagnose
from livegnn.errors import InputError


def report(
    round: int, *, waits_for: Sequence[int] = (), seconds: float = 0.0, silent: float = 0.0, echo: float = 0.0
) -> Report:
    pulse = Pulse(Round(1, 0, round), bool(waits_for), seconds, frozenset(waits_for))
    return Report(pulse, {peer: LinkHealth(silent, echo, Pulse()) for peer in range(3)})


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([report(1), report(1), report(1)], []),
        ([report(1, waits_for=[1], seconds=0.5), report(0, seconds=0.5), report(1)], []),
        (
            [report(1, waits_for=[1], seconds=9), report(0, seconds=9), report(1, waits_for=[1], seconds=9)],
            [(Trouble.SLOW_WORKER, (1,))],
        ),
        (
            [
                report(1, waits_for=[1], seconds=9),
                report(1, waits_for=[0], seconds=9),
                report(1, seconds=0.1),
            ],
            [(Trouble.SLOW_LINK, (0, 1))],
        ),
        ([report(1), report(1, echo=2.0), None], [(Trouble.DEAD_WORKER, (2,)), (Trouble.SLOW_LINK, (0, 1))]),
        (
            [report(1, silent=20.0), None, report(1)],
            [(Trouble.DEAD_WORKER, (1,)), (Trouble.DEAD_LINK, (0, 2))],
        ),
        ([None, report(1, silent=20.0), None], [(Trouble.DEAD_WORKER, (0,)), (Trouble.DEAD_WORKER, (2,))]),
    ],
)
def test_the_slow_and_the_lost_are_told_apart(
    reports: list[Report | None], expected: list[tuple[Trouble, tuple[int, ...]]]
) -> None:
    found = diagnose(dict(enumerate(reports)), Patience())
    assert [(one.trouble, one.workers) for one in found] == expected


def test_a_diagnosis_is_a_line() -> None:
    assert str(Diagnosis(Trouble.DEAD_LINK, (0, 2), "nothing was received")) == (
        "dead link, workers 0 and 2: nothing was received"
    )
    (slow,) = diagnose({0: report(1, waits_for=[1], seconds=9), 1: report(0, seconds=8)}, Patience())
    assert str(slow) == (
        "slow worker, worker 1: it has computed for 8.0 seconds since round 0 of turn 1 (seq 0), and 1 "
        "worker waits for it"
    )


def test_patience_is_positive() -> None:
    with pytest.raises(InputError, match="silent_seconds must be a number above 0, got 0"):
        Patience(silent_seconds=0)
