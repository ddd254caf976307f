"""Checks of the events that callers append, the properties that they bind, and the ranges that they read.

A log is bound to properties: a schema, the graph that it began with, settings. A property that the log does
not have yet is added. Another value of one that it has is refused, because the same events would lead to
another graph. An empty text means that there is no value yet: a later one is added, and may not change.
"""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

from livegnn.arguments import check_int, check_not_negative
from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.log import Batch, Origin, Rejection
from livegnn.wording import quoted

LARGEST_SEQ: Final = 2**63 - 1
_SHOWN: Final = 160  # characters of a property


def check_events(events: object) -> Events:
    """Raises InputError for other values than events."""
    if not isinstance(events, Events):
        raise InputError(f"a log stores Events, got {type(events).__name__}")
    return events


def check_entries(
    entries: Sequence[Events | InputError],
    keys: Sequence[str | None] | None,
    origins: Sequence[Origin | None] | None,
) -> tuple[Sequence[str | None], Sequence[Origin | None]]:
    """`keys` and `origins`, one for each entry. Raises InputError for keys or origins that do not fit."""
    _check_list(entries, "entries")
    for entry in entries:
        if not isinstance(entry, InputError):
            check_events(entry)
    nothing = [None] * len(entries)
    for given, name in ((keys, "keys"), (origins, "origins")):
        if given is None:
            continue
        _check_list(given, name)
        if len(given) != len(entries):
            raise InputError(f"{name} must have one for each of {len(entries)} entries, got {len(given)}")
    return (nothing if keys is None else keys), (nothing if origins is None else origins)


def check_range(after: object, up_to: object = None, max_events: object = None) -> tuple[int, int]:
    """`after`, and `up_to` or the largest number there is. Raises InputError for other values than numbers of
    events."""
    if max_events is not None:
        check_int(max_events, "max_events", 0, LARGEST_SEQ)
    return (
        check_int(after, "after", 0, LARGEST_SEQ),
        LARGEST_SEQ if up_to is None else check_int(up_to, "up_to", 0, LARGEST_SEQ),
    )


def deadline(timeout: float | None) -> float:
    """The end of a wait of `timeout` seconds, on the monotonic clock. Raises InputError for other values."""
    seconds = math.inf if timeout is None else check_not_negative(timeout, "timeout, in seconds,")
    return time.monotonic() + seconds


def check_rejections(log: str, batch: Batch, rejections: Sequence[Rejection]) -> None:
    """Raises LogError, about `log`, for rejected events outside of `batch`."""
    for one in rejections:
        if not batch.after < one.seq <= batch.seq:
            raise LogError(f"cannot record a batch in {log}: {one} must be of an entry of {batch}")


def check_text(value: object, name: str) -> str:
    """`value`, if it is text that can be stored. Raises InputError."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise InputError(f"{name} must be text of valid Unicode, got {quoted(value)}")


def _check_list(value: object, name: str) -> None:
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise InputError(f"{name} must be a list, got {type(value).__name__}")


def new_properties(
    log: str, known: Mapping[str, str], properties: Mapping[str, str], replace: bool
) -> Mapping[str, str]:
    """Those that `log`, as errors call it, does not have yet.

    Raises LogError if it has another value of one already, unless `replace`.
    """
    if not isinstance(properties, Mapping):
        raise InputError(f"properties of a log must be texts by name, got {quoted(properties, 80)}")
    for name, value in properties.items():
        check_text(name, "the name of a property of a log")
        check_text(value, f"the property {name!r} of a log")
    new = {name: value for name, value in properties.items() if known.get(name, "") != value}
    differing = [name for name in new if known.get(name)]
    if differing and not replace:
        said = "; ".join(f"{name} must be {_difference(known[name], new[name])}" for name in differing)
        raise LogError(
            f"{log} has other properties, and its events would make another graph: {said}. Start it with "
            "the properties that it has; or, if the change is intended, accept it: livegnn log bind "
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
