"""What the gate draws, and what a run that explores draws instead.

The gate, `make test`, draws the same cases on every machine: all of them follow from `GATE_SEED`. A run
with LIVEGNN_EXPLORE=1 draws new cases, and more of them, from a seed that it prints; `explore.py` repeats
such runs for as long as it is asked to. A case that exploring finds becomes a named case of its test.
"""

import os
import random
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis.internal.conjecture import providers

SEED_VARIABLE = "LIVEGNN_TEST_SEED"
EXPLORE_VARIABLE = "LIVEGNN_EXPLORE"
WHOLE_VARIABLE = "LIVEGNN_WHOLE"

GATE_SEED = 20261125
"""Another seed draws other cases."""

EXPLORING = os.environ.get(EXPLORE_VARIABLE, "0") != "0"

WHOLE = EXPLORING or os.environ.get(WHOLE_VARIABLE, "0") != "0"
"""Whether a run of all tests has those that are marked `explored`, or listed in explored.txt."""

LISTED = frozenset(Path(__file__).with_name("explored.txt").read_text(encoding="utf-8").splitlines())
"""Slow tests: the ids of tests, and of functions all of whose cases are slow."""

NOT_THERE = pytest.StashKey[list[str]]()
"""Of a run: lines of explored.txt that name no test of it."""

Case = TypeVar("Case", bound=tuple[object, ...])
Shared = TypeVar("Shared")


def seed_of_run() -> int:
    """The seed that LIVEGNN_TEST_SEED names; else the gate's, or a new one for a run that explores."""
    given = os.environ.get(SEED_VARIABLE)
    if given is not None:
        return int(given)
    return random.SystemRandom().randrange(2**32) if EXPLORING else GATE_SEED


def listed_as(node_id: str) -> str | None:
    """The line of explored.txt that names a test, None if there is none."""
    return next((one for one in (node_id, node_id.partition("[")[0]) if one in LISTED), None)


def draws(gate: int, explored: int) -> int:
    """How many cases a test draws: `gate` in each run of the gate, `explored` in a run that explores."""
    return explored if EXPLORING else gate


def in_gate(cases: Iterable[object], gate: int = 1) -> list[object]:
    """Parameters of a test that starts processes: the first `gate` of the cases in each run of the gate, the
    others in a run that explores."""
    listed = list(cases)
    return [*listed[:gate], *(_explored(case) for case in listed[gate:])]


def _explored(case: object) -> object:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.explored)


def some(cases: Iterable[Case]) -> list[Case]:
    """Of cases that are tuples of hashable values, few that hold every value of every place; a run that
    explores has all of them.

    Values are spread evenly: of the cases that add as many new ones, the first is taken whose pairs of
    values, and then whose values, have been taken least.
    """
    left = list(cases)
    if EXPLORING:
        return left
    taken: list[Case] = []
    times: Counter[object] = Counter()
    missing = {value for case in left for value in enumerate(case)}

    def rank(place: int) -> tuple[int, int, int]:
        values = list(enumerate(left[place]))
        pairs = sum(times[pair] for pair in combinations(values, 2))
        return -len(missing.intersection(values)), pairs, sum(times[value] for value in values)

    while missing:
        case = left.pop(min(range(len(left)), key=rank))
        values = list(enumerate(case))
        times.update([*values, *combinations(values, 2)])
        missing.difference_update(values)
        taken.append(case)
    return taken


def share(cases: Iterable[Shared], part: int, parts: int = 2) -> list[Shared]:
    """One case in `parts`, from the case `part` on; a run that explores has all of them.

    For cases that several tests have in common: the gate looks at each case in some of them.
    """
    listed = list(cases)
    return listed if EXPLORING else listed[part::parts]


def ignore_local_constants() -> None:
    """Hypothesis draws no constant of a module of this checkout.

    By default it draws from the constants of those that are loaded, so that a test's cases would depend on
    the tests that ran before it in the same process. Hypothesis has no setting for this, and is pinned for
    it.
    """
    nothing = providers.Constants()
    assert callable(providers._get_local_constants)
    providers._get_local_constants = lambda: nothing
