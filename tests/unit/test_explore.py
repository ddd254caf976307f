"""What a run that explores draws, and what it keeps of what it finds."""

import json
import subprocess
import sys
from pathlib import Path

import explore

OF_ONE_SEED = """
import os

def test_a_run_explores():
    assert os.environ["LIVEGNN_EXPLORE"] == "1"

def test_it_holds_for_one_seed():
    assert os.environ["LIVEGNN_TEST_SEED"] == "7"
"""


def test_a_find_is_kept_with_the_command_that_shows_it_again(tmp_path: Path) -> None:
    path, finds = tmp_path / "test_numbers.py", tmp_path / "kept" / "finds.jsonl"
    path.write_text(OF_ONE_SEED, encoding="utf-8")
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
    assert ran.stdout.splitlines()[-1] == f"1 find, in {finds}"
    kept = [json.loads(line) for line in finds.read_text(encoding="utf-8").splitlines()]
    (find,) = kept
    assert find["test"].endswith("::test_it_holds_for_one_seed")
    assert "LIVEGNN_EXPLORE=1 LIVEGNN_TEST_SEED=8 " in find["again"]
    assert "assert '8' == '7'" in find["text"]


def test_the_tests_that_draw_are_found() -> None:
    names = {path.name for path in explore.files_that_draw()}
    assert {"test_engine.py", "test_wild.py", "test_pace.py", "test_power_loss.py"} <= names
    assert "test_code_sizes.py" not in names
