"""What `make` does anew and what it leaves, and what of the user's settings reaches its steps."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing was made, as far as `make` looks at it."""
    folder = tmp_path / "a checkout"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "CMakeLists.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "toolchain", folder / "toolchain")
    for name in ("src", "cpp", "benchmarks/native", ".venv/bin"):
        (folder / name).mkdir(parents=True)
    return folder


def make(
    folder: Path, *arguments: str, rules: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs make with rules added to the Makefile; no make above it has a say."""
    given = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    return subprocess.run(
        ["make", "-f", "-", *arguments],
        cwd=folder,
        input=f"include Makefile\n{rules}",
        env={**given, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def steps(folder: Path, *arguments: str) -> str:
    """What would be done."""
    done = make(folder, "-n", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


MAKES_IT, INSTALLS_TOOLS, INSTALLS = "-m venv --clear", "--group native", "installing livegnn"


def test_an_environment_that_was_left_half_made_is_made_anew(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "python").symlink_to("/usr/bin/env")
    assert MAKES_IT in steps(checkout, "demo")


def test_what_is_made_stays_until_the_folder_is_moved(checkout: Path) -> None:
    assert make(checkout, "-t", ".venv/installed-native").returncode == 0
    assert MAKES_IT not in steps(checkout, ".venv/installed-native")
    moved = checkout.rename(checkout.with_name("elsewhere"))
    assert MAKES_IT in steps(moved, ".venv/installed-native")


def test_a_change_of_what_builds_need_is_installed(checkout: Path) -> None:
    assert make(checkout, "-t", ".venv/installed-native").returncode == 0
    later = (checkout / ".venv" / "installed-native").stat().st_mtime_ns + 10**9
    os.utime(checkout / "pyproject.toml", ns=(later, later))
    said = steps(checkout, "test-cpp-threads")
    assert INSTALLS_TOOLS in said
    assert MAKES_IT not in said


def test_another_python_that_is_named_makes_the_environment_anew(checkout: Path) -> None:
    assert make(checkout, "-t", ".venv/installed-native").returncode == 0
    assert MAKES_IT not in steps(checkout, ".venv/installed-native", "PYTHON=python3")
    assert MAKES_IT in steps(checkout, ".venv/installed-native", "PYTHON=sh")


def test_an_environment_stays_whichever_python_it_was_made_with(checkout: Path) -> None:
    assert make(checkout, "-t", ".venv/installed-native", "PYTHON=sh").returncode == 0
    assert MAKES_IT not in steps(checkout, ".venv/installed-native", "PYTHON=sh")
    assert MAKES_IT not in steps(checkout, ".venv/installed-native")


@pytest.mark.parametrize("name", ["src/module.py", "cpp/unit.cc"])
def test_a_source_that_is_added_or_removed_is_installed(checkout: Path, name: str) -> None:
    def install() -> None:
        assert make(checkout, "-t", ".venv/installed-native").returncode == 0
        assert make(checkout, "named", rules="named: $(SOURCES_NAMED)\n").returncode == 0
        assert make(checkout, "-t", demo).returncode == 0
        assert INSTALLS not in steps(checkout, demo)

    demo = ".venv/installed-demo"
    (checkout / "cpp" / "another.cc").touch()
    install()
    (checkout / name).touch()
    assert INSTALLS in steps(checkout, demo)
    install()
    (checkout / name).unlink()
    said = steps(checkout, demo)
    assert INSTALLS in said
    assert MAKES_IT not in said


@pytest.mark.parametrize(
    "name",
    [
        *("PYTHONHOME", "PYTHONSAFEPATH", "PYTHONWARNINGS"),
        *("PIP_DRY_RUN", "PIP_NO_DEPS", "PIP_PREFIX", "PIP_TARGET", "PIP_USER"),
    ],
)
def test_what_is_set_for_other_environments_does_not_reach_this_one(checkout: Path, name: str) -> None:
    said = make(checkout, "show", rules="show:\n\t@env\n", **{name: "/nowhere", "PIP_INDEX_URL": "kept"})
    assert f"{name}=" not in said.stdout
    assert "PIP_INDEX_URL=kept" in said.stdout


HALF = """#!/bin/sh
case $1 in
  --part=1/2) echo begun > begun; exec sleep 600 ;;
  *) until [ -e begun ]; do :; done; exit {status} ;;
esac
"""


def test_a_half_of_the_tests_that_fails_ends_the_other(checkout: Path) -> None:
    program = checkout / "program"
    program.write_text(HALF.format(status=3))
    program.chmod(0o755)
    # The first half holds the output open: this returns once it has ended.
    done = make(checkout, "halves", rules="halves:\n\t$(call HALVES,./program,)\n")
    assert done.returncode != 0
    assert "Error 3" in done.stderr


@pytest.mark.parametrize(("first", "second", "status"), [(0, 0, 0), (1, 0, 2), (0, 1, 2)])
def test_both_halves_of_the_tests_must_pass(checkout: Path, first: int, second: int, status: int) -> None:
    rules = f"PROGRAM = sh -c 'test $$1 = --part=1/2 && exit {first} || exit {second}' sh\n"
    done = make(checkout, "halves", rules=f"{rules}halves:\n\t$(call HALVES,$(PROGRAM),)\n")
    assert done.returncode == status, done.stderr
