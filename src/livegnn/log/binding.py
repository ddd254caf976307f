"""Properties that bind a log to what it belongs to: a schema, the graph that it began with, settings.

A property that the log has no value of is adopted; one of another value is refused, because the same events
would lead to another graph. A value that is the empty text says that there is none yet: one may come later,
and must stay then.
"""

from collections.abc import Mapping
from itertools import takewhile
from typing import Final

from livegnn.errors import InputError, LogError
from livegnn.log.arguments import check_text

_SHOWN: Final = 160  # characters of a value


def new_properties(
    log: str, known: Mapping[str, str], properties: Mapping[str, str], replace: bool
) -> Mapping[str, str]:
    """Those that `log`, as errors call it, does not have yet.

    Raises LogError if it has another value of one already, unless `replace`.
    """
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


def _difference(ours: str, theirs: str) -> str:
    """Both values, of long ones the part around the first character that differs."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))
    begin = max(0, same - _SHOWN // 4) if max(len(ours), len(theirs)) > _SHOWN else 0

    def part(text: str) -> str:
        before, after = "... " if begin else "", " ..." if len(text) > begin + _SHOWN else ""
        return f"{before}{text[begin : begin + _SHOWN]}{after}"

    return f"{part(ours)}, got {part(theirs)}"
