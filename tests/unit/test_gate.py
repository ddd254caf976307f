"""What the gate leaves to a run that explores."""

from itertools import product

import pytest

import gate

CASES = [case for case in product("abcdefg", [False, True], [1, 30]) if case != ("c", True, 1)]


def test_some_cases_hold_every_value_and_meet_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "EXPLORING", False)
    taken = gate.some(CASES)
    assert len(taken) == len(set(taken)) == 7
    assert set(taken) <= set(CASES)
    assert [set(values) for values in zip(*taken, strict=True)] == [
        set(values) for values in zip(*CASES, strict=True)
    ]
    assert len({case[1:] for case in taken}) == 4
    assert gate.some([]) == []


def test_a_run_that_explores_takes_all_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "EXPLORING", True)
    assert gate.some(CASES) == CASES
