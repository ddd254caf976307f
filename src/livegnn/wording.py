"""Formats counts, sizes and values for people, in messages and the `repr` of graphs, models and engines."""

from collections.abc import Callable
from functools import wraps
from typing import Final, TypeVar

from livegnn.errors import shortened

Shown = TypeVar("Shown")

_UNITS = ("kB", "MB", "GB", "TB", "PB")
_QUOTED: Final = 120
_LEVELS: Final = 6
_BRACKETS: Final = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def format_count(number: int, what: str) -> str:
    """``format_count(1200, "node")`` is "1,200 nodes"."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_edge_type(edge_type: tuple[str, str, str]) -> str:
    """As on the command line and in URLs: "user,buys,item"."""
    return ",".join(edge_type)


def format_size(number: int) -> str:
    """A number of bytes in three digits: "812 bytes", "4.0 kB", "13.1 MB"."""
    if number < 1000:
        return format_count(number, "byte")
    value, unit = number / 1000, 0
    while value >= 999.5 and unit + 1 < len(_UNITS):
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if value < 99.95 else f"{value:.0f} {_UNITS[unit]}"


def needs(what: str, package: str, error: ImportError, extra: str) -> str:
    """Says that `what` needs a package, and how to install it. error: of its import."""
    missing = isinstance(error, ModuleNotFoundError)
    state = "is not installed" if missing else f"cannot be imported ({shortened(str(error))})"
    return f"{what} needs {package}, which {state}: pip install 'livegnn[{extra}]'"


def never_raises(show: Callable[[Shown], str]) -> Callable[[Shown], str]:
    """Makes a `__repr__` safe for debuggers, which may call it on an object that is not yet initialised."""

    @wraps(show)
    def shown(self: Shown) -> str:
        try:
            return show(self)
        except Exception:
            return f"<{type(self).__name__} that is not ready>"

    return shown


def kind_of(value: object) -> str:
    """The name of a value's type, for an error message: "list", "torch_geometric.data.data.Data"."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def show(value: object) -> str:
    """The `repr` of a plain value if it is short, else the name of its type."""
    plain = isinstance(value, str | int | float | None) or (
        isinstance(value, tuple | list) and all(isinstance(one, str | int | float | None) for one in value)
    )
    text = repr(value) if plain else ""
    return text if 0 < len(text) <= 200 else kind_of(value)


def quoted(value: object, longest: int = _QUOTED) -> str:
    """The `repr` of a value that a stranger sent: at most `longest` characters of it, and six levels.

    It never fails, and costs no more than the shown text, however long or deep the value is.
    """
    text = _quote(value, _LEVELS, longest)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _quote(value: object, levels: int, room: int) -> str:
    """`quoted`, without the cut at the end. room: characters after which no further part is shown."""
    if type(value) is str or type(value) is bytes:
        return repr(value[: room + 1])
    if type(value) is int and value.bit_length() > 4 * room:  # Python refuses to write very long ones
        return f"an integer of {value.bit_length():,} bits"
    if type(value) in _BRACKETS:
        return _quote_parts(value, levels, room)  # type: ignore[arg-type]
    try:
        return repr(value)
    except Exception:
        return f"a {kind_of(value)} that cannot be shown"


def _quote_parts(
    value: "list[object] | tuple[object, ...] | dict[object, object]", levels: int, room: int
) -> str:
    begin, end = _BRACKETS[type(value)]
    if not value or levels == 0:
        return f"{begin}...{end}" if value else f"{begin}{end}"
    parts: list[str] = []
    for part in value:
        if room < 0:
            parts.append("...")
            break
        text = _quote(part, levels - 1, room)
        if type(value) is dict:
            text = f"{text}: {_quote(value[part], levels - 1, room)}"
        parts.append(text)
        room -= len(text) + len(", ")
    comma = "," if type(value) is tuple and len(parts) == 1 else ""
    return f"{begin}{', '.join(parts)}{comma}{end}"
