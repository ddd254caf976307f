"""Properties that bind a log to what it belongs to: a schema, the graph that it began with, settings.

They are rows of the table `properties` under names with a prefix. A property that the log has no value of is
adopted; one of another value is refused, because the same events would lead to another graph. A value that is
the empty text says that there is none yet: one may come later, and must stay then. Thread safety:
none, the caller has the connection to itself.
"""

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import apsw

from livegnn.errors import InputError, LogError
from livegnn.log.arguments import check_text
from livegnn.log.checksums import add_checksum, check_row

_PREFIX: Final = "bound/"
_SHOWN: Final = 160  # characters of a value


def bound_properties(connection: apsw.Connection) -> dict[str, str]:
    """What a log is bound to, by name. Raises LogError for a damaged row."""
    rows: list[Any] = connection.execute(
        "SELECT name, value, row_crc32 FROM properties WHERE substr(name, 1, ?) = ? ORDER BY name",
        (len(_PREFIX), _PREFIX),
    ).fetchall()
    values = [check_row(row, "properties", connection.filename) for row in rows]
    return {name.removeprefix(_PREFIX): value for name, value in values}


def bind_properties(
    connection: apsw.Connection, path: Path, properties: Mapping[str, str], replace: bool
) -> None:
    """Stores properties; raises LogError if one has another value already, unless `replace`."""
    new = new_properties(str(path), bound_properties(connection), properties, replace)
    connection.executemany(
        "REPLACE INTO properties VALUES (?, ?, ?)",
        [add_checksum((_PREFIX + name, value)) for name, value in new.items()],
    )


def new_properties(
    log: str, known: Mapping[str, str], properties: Mapping[str, str], replace: bool
) -> Mapping[str, str]:
    """Those that `log`, as errors call it, does not have yet; as `bind_properties` raises."""
    if not isinstance(properties, Mapping):
        raise InputError(f"properties of a log must be texts by name, got {properties!r:.80}")
    for name, value in properties.items():
        check_text(name, "the name of a property of a log")
        check_text(value, f"the property {name!r} of a log")
    new = {name: value for name, value in properties.items() if known.get(name, "") != value}
    differing = [name for name in new if known.get(name)]
    if differing and not replace:
        said = "; ".join(f"{name} must be {_difference(known[name], new[name])}" for name in differing)
        raise LogError(
            f"{log} belongs to something else, and its events would lead to another graph: {said}. Start "
            "it with what it began with; or, if the change is meant, accept it: livegnn log bind "
            "DEPLOYMENT.TOML (in Python, log.bind(..., replace=True))"
        )
    return new


def check_properties(connection: apsw.Connection, path: Path, properties: Mapping[str, str]) -> None:
    """Raises LogError if a log has another value of one of `properties`."""
    new_properties(str(path), bound_properties(connection), properties, replace=False)


def _difference(ours: str, theirs: str) -> str:
    """Both values, of long ones the part around the first character that differs."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
    begin = max(0, same - _SHOWN // 4) if max(len(ours), len(theirs)) > _SHOWN else 0

    def part(text: str) -> str:
        before, after = "... " if begin else "", " ..." if len(text) > begin + _SHOWN else ""
        return f"{before}{text[begin : begin + _SHOWN]}{after}"

    return f"{part(ours)}, got {part(theirs)}"
