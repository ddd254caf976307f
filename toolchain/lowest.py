"""Prints the lowest release of each requirement in pyproject.toml as a constraint for pip, a line each.

    python toolchain/lowest.py > constraints.txt

`make lowest` installs these. They are read from the bounds themselves, so the two cannot get out of step: a
requirement without a lowest release is refused.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

_BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?:[^;]*,)?\s*(?:>=|==)\s*(?P<version>[\w.!+]+)")


def constraints(project: dict[str, Any]) -> Iterator[str]:
    """`name==version` for each requirement of a pyproject.toml, sorted; each name once. Raises
    ValueError for a requirement without a lower bound, and for a name with several."""
    listed = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    listed += [one for named in project["project"].get("optional-dependencies", {}).values() for one in named]
    listed += [one for named in project.get("dependency-groups", {}).values() for one in named]
    found: dict[str, str] = {}
    for requirement in listed:
        bound = _BOUND.match(requirement)
        if bound is None or "*" in requirement:
            raise ValueError(
                f"a requirement must have a lowest release, as in numpy>=1.26, got {requirement!r}"
            )
        name = re.sub(r"[-_.]+", "-", bound["name"]).lower()
        if found.setdefault(name, bound["version"]) != bound["version"]:
            raise ValueError(
                f"the bounds on {name} must be one, got {found[name]} and {bound['version']}: both may be "
                "installed together"
            )
    return (f"{name}=={version}" for name, version in sorted(found.items()))


if __name__ == "__main__":
    for line in constraints(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))):
        print(line)
