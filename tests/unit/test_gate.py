"""What the gate leaves to a run that explores."""

import os
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

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
    assert gate.share(CASES, 0) == CASES


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_tests_share_all_cases(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(gate, "EXPLORING", False)
    taken = [gate.share(iter(CASES), part, parts) for part in range(parts)]
    assert max(map(len, taken)) - min(map(len, taken)) <= 1
    assert sorted(case for each in taken for case in each) == sorted(CASES)


DRAWS = """
import sys
import conftest
from hypothesis import given, seed, settings, strategies as st
for name in sys.argv[1:]:
    __import__(name)
conftest.load_profile()
drawn = []
@seed(3)
@settings(max_examples=300)
@given(st.tuples(st.floats(), st.integers(), st.text()))
def draw(case):
    drawn.append(case)
draw()
print(drawn)
"""


def test_the_gate_draws_the_same_whatever_is_loaded() -> None:
    """Hypothesis draws constants of modules that lie in no environment, such as those of benchmarks/."""
    tests = Path(gate.__file__).parent

    def drawn(*modules: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(tests), "PYTHONHASHSEED": "random"}
        environment.pop(gate.EXPLORE_VARIABLE, None)
        command = [sys.executable, "-c", DRAWS, *modules]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert drawn() == drawn("graphs", "models", "peers", "report")


def test_temporary_files_of_a_run_end_with_it() -> None:
    assert Path(tempfile.gettempdir()).name.startswith("livegnn-")
    assert os.environ["TMPDIR"] == tempfile.gettempdir()


def test_what_is_explored_is_left_out_of_the_gate_in_each_process(request: pytest.FixtureRequest) -> None:
    """Those of pytest-xdist too, which read the command line themselves."""
    if gate.EXPLORING or request.config.args_source.name != "TESTPATHS":
        return  # those that are named run
    explored = [item.nodeid for item in request.session.items if item.get_closest_marker("explored")]
    assert explored == []


def test_each_line_of_the_slow_tests_names_one(request: pytest.FixtureRequest) -> None:
    """An error while tests are collected would end each process of pytest-xdist without a word.

    Elsewhere than in CI, options may leave some tests out.
    """
    if request.config.args_source.name == "TESTPATHS" and os.environ.get("CI"):
        assert request.config.stash[gate.NOT_THERE] == []


def test_a_slow_test_is_named_by_itself_or_with_all_cases_of_its_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "LISTED", frozenset({"tests/a.py::test_all", "tests/a.py::test_one[x[1]]"}))
    assert gate.listed_as("tests/a.py::test_all") == "tests/a.py::test_all"
    assert gate.listed_as("tests/a.py::test_all[x]") == "tests/a.py::test_all"
    assert gate.listed_as("tests/a.py::test_one[x[1]]") == "tests/a.py::test_one[x[1]]"
    assert gate.listed_as("tests/a.py::test_one[x]") is None
    assert gate.listed_as("tests/a.py::test_one") is None


def test_the_gate_leaves_out_slow_tests_unless_they_are_named() -> None:
    listed = sorted(gate.LISTED)
    assert listed == Path(gate.__file__).with_name("explored.txt").read_text(encoding="utf-8").splitlines()
    cases = [case.rstrip("]") for _, _, case in (line.partition("[") for line in listed)]
    assert not [
        case for case in cases if case.startswith("/") and os.path.exists(case)
    ]  # of one machine alone
    named = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", listed[0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 test collected" in named.stdout or "tests collected" in named.stdout, named.stdout
