"""The constraints of `make lowest` are the bounds of pyproject.toml."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "toolchain"))
import lowest  # noqa: E402 (beside what runs before anything is installed)


def project_of(*dependencies: str, **extras: list[str]) -> dict[str, object]:
    return {
        "build-system": {"requires": []},
        "project": {"dependencies": list(dependencies), "optional-dependencies": extras},
    }


def test_every_requirement_has_one_lowest_release() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    printed = subprocess.run(
        [sys.executable, ROOT / "toolchain" / "lowest.py"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed == list(lowest.constraints(project))
    extras = project["project"]["optional-dependencies"].values()
    listed = {one for each in (project["project"]["dependencies"], *extras) for one in each}
    names = {line.partition("==")[0] for line in printed}
    assert len(names) == len(printed)
    for requirement in listed:
        assert any(requirement.lower().replace("_", "-").startswith(name) for name in names), requirement


def test_a_bound_is_read_wherever_it_stands() -> None:
    project = project_of(
        "a>=1.26", "b>=0.19; sys_platform != 'win32'", x=["c_d<2.14,>=2.6", "e[f]==3", "a>=1.26"]
    )
    assert list(lowest.constraints(project)) == ["a==1.26", "b==0.19", "c-d==2.6", "e==3"]


@pytest.mark.parametrize("requirement", ["a", "a<2", "a==2.*", "a!=1"])
def test_a_requirement_without_a_lowest_release_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="must have a lowest release"):
        lowest.constraints(project_of(requirement))


def test_two_bounds_on_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="the bounds on a must be one, got 1 and 2"):
        lowest.constraints(project_of("a>=1", x=["a>=2"]))
