"""What a request or a message costs in memory: at most four times its bytes and 32 MiB, whatever they are."""

import subprocess
import sys
from pathlib import Path

import memory_of_bodies
from hurtful_bodies import cases, large_answers


def test_what_a_body_costs_is_bounded_by_its_size() -> None:
    ran = subprocess.run(
        [sys.executable, memory_of_bodies.__file__, "0.5", "/"], capture_output=True, text=True, check=True
    )
    found = [line for line in ran.stdout.splitlines() if " MiB for " in line]
    assert [line.rpartition(": ")[2] for line in found if line.startswith("!!")] == [], ran.stdout
    statuses = [int(line.split(", ")[2].partition(":")[0]) for line in found]
    assert len(found) == len(memory_of_bodies.GATE)
    assert {*statuses} <= {0, 200, 400, 404, 413}, ran.stdout


def test_the_gate_takes_cases_that_there_are() -> None:
    assert {*memory_of_bodies.GATE} <= {case.name for case in [*cases(), *large_answers()]}
    assert Path(memory_of_bodies.__file__).name == "memory_of_bodies.py"
