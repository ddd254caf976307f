"""Each protection that `mutants.py` takes out is where it says, and so is the test that must fail then."""

import re
from pathlib import Path

import pytest
from mutants import MUTANTS, ROOT, Mutant, copy_tree

import livegnn._core as _core

_README = Path(__file__).with_name("README.md")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_taken_out_is_in_the_sources_once(mutant: Mutant) -> None:
    source = (ROOT / "src" / "livegnn" / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.file} must have this once: {mutant.old!r}"
    assert mutant.new != mutant.old
    compile(source.replace(mutant.old, mutant.new), mutant.file, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_must_fail_exists(mutant: Mutant) -> None:
    file, _, name = mutant.test.partition("::")
    source = Path(__file__).parent.joinpath(file).read_text(encoding="utf-8")
    assert name == "" or re.search(rf"^def {name}\(", source, re.MULTILINE)


def test_the_copy_of_the_sources_has_the_native_core(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    assert (tmp_path / "src" / "livegnn" / Path(_core.__file__).name).exists()


def test_the_page_lists_each_protection_and_its_test() -> None:
    rows = re.findall(r"^\| ([^|]+) \| `([^`]+)` \|", _README.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row for row in rows if "test_" in row[1]] == [(one.name, one.test) for one in MUTANTS]
