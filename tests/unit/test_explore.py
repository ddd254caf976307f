"""What a run that explores draws, and what it keeps of what it finds."""

import json
import subprocess
import sys
from pathlib import Path

import explore

FAILING = """
import os
from hypothesis import given, strategies as st

@given(st.integers())
def test_numbers_are_small(number):
    assert number < 100

def test_a_run_explores():
    assert os.environ["LIVEGNN_EXPLORE"] == "1"
"""


def test_a_find_is_kept_with_the_command_that_shows_it_again(tmp_path: Path) -> None:
    path, finds = tmp_path / "test_numbers.py", tmp_path / "kept" / "finds.jsonl"
    path.write_text(FAILING, encoding="utf-8")
    options = [
        "--rounds",
        "2",
        "--processes",
        "1",
        "--seed",
        "7",
        "--finds",
        str(finds),
        "--no-cpp",
        str(path),
    ]
    ran = subprocess.run(
        [sys.executable, explore.__file__, *options], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.splitlines()[-1] == f"2 finds, in {finds}"
    kept = [json.loads(line) for line in finds.read_text(encoding="utf-8").splitlines()]
    assert [find["test"].rpartition("::")[2] for find in kept] == ["test_numbers_are_small"] * 2
    assert [
        f"LIVEGNN_TEST_SEED={seed} " in find["again"] for seed, find in zip((7, 8), kept, strict=True)
    ] == [
        True,
        True,
    ]
    assert "number=100" in kept[0]["text"]


def test_the_tests_that_draw_are_found() -> None:
    names = {path.name for path in explore.files_that_draw()}
    assert {"test_engine.py", "test_wild.py", "test_pace.py", "test_power_loss.py"} <= names
    assert "test_code_sizes.py" not in names
