"""Checks of what callers append to a log, and of numbers and names that they ask for."""

from collections.abc import Sequence
from typing import Final

from livegnn.arguments import check_int
from livegnn.errors import InputError, LogError
from livegnn.events import Events
from livegnn.log import Batch, Origin, Rejection
from livegnn.wording import quoted

LARGEST_SEQ: Final = 2**63 - 1


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
