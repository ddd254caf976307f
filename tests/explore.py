"""Runs the tests that draw at random on new cases, for as long as it is asked to: `make explore`.

A round runs every such file once, in an order of its own, with a seed that is printed, and the C++ tests
where they are built. A failure is a find: it is appended to build/explore/finds.jsonl at once, with the
command that shows it again, so that a run may be stopped at any time. Mend a find, and make its case a named
case of its test.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate import LISTED

ROOT = Path(__file__).parents[1]
FINDS = ROOT / "build" / "explore" / "finds.jsonl"
FINDS_VARIABLE = "LIVEGNN_FINDS"
DRAWS = re.compile(
    r"@given|\brng\b|RuleBasedStateMachine|run_state_machine|LIVEGNN_TEST_SEED|from gate import"
    r"|mark\.explored"
)
AT_ONCE = 8
"""Files in one run of pytest: importing torch takes seconds, and a run that is cut short is lost."""


def files_that_draw() -> list[Path]:
    """Those with tests that draw, and those with tests that the gate leaves out."""
    listed = {ROOT / one.partition("::")[0] for one in LISTED}
    files = sorted((ROOT / "tests").glob("*/test_*.py"))
    return [path for path in files if path in listed or DRAWS.search(path.read_text())]


# -- inside pytest, as a plugin -----------------------------------------------------------------------------


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Appends a failure to the finds, in the process that collects the reports."""
    if report.failed and FINDS_VARIABLE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        seed = os.environ["LIVEGNN_TEST_SEED"]
        again = f"LIVEGNN_EXPLORE=1 LIVEGNN_TEST_SEED={seed} .venv/bin/pytest '{report.nodeid}'"
        append_find(report.nodeid, again, report.longreprtext)


def append_find(test: str, again: str, text: str) -> None:
    path = Path(os.environ[FINDS_VARIABLE])
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as finds:
        finds.write(json.dumps({"test": test, "again": again, "text": text[-20_000:]}) + "\n")


# -- outside ------------------------------------------------------------------------------------------------


def chunks_of_round(paths: list[Path], seed: int) -> Iterator[list[Path]]:
    order = random.Random(seed).sample(paths, len(paths))
    for first in range(0, len(order), AT_ONCE):
        yield order[first : first + AT_ONCE]


def explore_python(paths: list[Path], seed: int, processes: int, seconds: float) -> str:
    """Runs some files on the cases of a seed; the last line of pytest."""
    environment = os.environ | {
        "LIVEGNN_EXPLORE": "1",
        "LIVEGNN_TEST_SEED": str(seed),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "tests"),
    }
    environment.pop("PYTEST_XDIST_WORKER", None)  # of a run that this one is part of
    # A test may take long where it draws much; one that hangs ends with the run.
    options = f"-m pytest -p explore -q -n {processes if processes > 1 else 0} --dist loadgroup --timeout 0"
    command = [sys.executable, *options.split()]
    process = subprocess.Popen(
        [*command, *map(str, paths)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        out, _ = process.communicate(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        process.terminate()
        process.communicate()
        return "stopped at the end of the time"
    if process.returncode not in (0, 1, 5):
        append_find(" ".join(path.name for path in paths), " ".join(command), out)
    return out.rstrip().rpartition("\n")[2]


def explore_cpp(seed: int) -> str:
    """Runs the C++ tests on the cases of a seed, where they are built."""
    program = ROOT / "build" / "cpp-explored" / "livegnn_tests"
    if not program.exists():
        return "C++ tests: not built (make compile-cpp-explored)"
    ran = subprocess.run(
        [program],
        env=os.environ | {"LIVEGNN_SEED": str(seed), "LIVEGNN_EXPLORE": "1"},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        append_find("livegnn_tests", f"LIVEGNN_SEED={seed} {program.relative_to(ROOT)}", ran.stderr)
    return f"C++ tests: {ran.stderr.rstrip().rpartition(chr(10))[2]}"


def read_finds(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=1, help="how long (1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at the same time (all cores)")
    parser.add_argument("--seed", type=int, help="of the first round, the next has the next one (random)")
    parser.add_argument("files", nargs="*", type=Path, help="test files (all that draw at random)")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="at most so many (any number)")
    parser.add_argument(
        "--finds", type=Path, default=FINDS, help="file to append to (build/explore/finds.jsonl)"
    )
    parser.add_argument("--no-cpp", action="store_true", help="leave out the C++ tests")
    given = parser.parse_args()
    os.environ[FINDS_VARIABLE] = str(given.finds.absolute())
    end = time.monotonic() + given.hours * 3600
    first = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    paths = given.files or files_that_draw()
    before = len(read_finds(given.finds))
    for seed in range(first, first + given.rounds):
        if time.monotonic() >= end:
            break
        if not given.no_cpp:
            print(f"seed {seed}: {explore_cpp(seed)}", flush=True)
        for chunk in chunks_of_round(paths, seed):
            if time.monotonic() >= end:
                break
            last = explore_python(chunk, seed, given.processes, end - time.monotonic())
            print(f"seed {seed}: {' '.join(path.stem for path in chunk)}: {last}", flush=True)
    finds = read_finds(given.finds)[before:]
    for find in finds:
        print(f"find: {find['test']}\n  again: {find['again']}")
    print(f"{len(finds)} {'find' if len(finds) == 1 else 'finds'}" + (f", in {given.finds}" if finds else ""))
    return 1 if finds else 0


if __name__ == "__main__":
    sys.exit(main())
