"""The form of a CSV file whose lines are not a header and rows with commas."""

from collections.abc import Sequence
from dataclasses import dataclass

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.wording import quoted


@dataclass(frozen=True)
class CsvForm:
    """The lines of a CSV file: which are read, and where they are cut.

    delimiter: the character between fields; None for a comma, or for a tab in files that end in .tsv. skip:
    lines at the beginning that are not read. columns: the names of all columns, in place of a header: the
    first line that is read is then a row.
    """

    delimiter: str | None = None
    skip: int = 0
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        given = self.delimiter
        if given is not None and (
            not isinstance(given, str) or len(given) != 1 or not given.isascii() or given in '"\r\n'
        ):
            raise InputError(
                f"delimiter must be one ASCII character, no quote and no end of a line, got {quoted(given)}"
            )
        check_int(self.skip, "skip", 0)
        names = self.columns
        if names is None:
            return
        if (
            not isinstance(names, (list, tuple))
            or not names
            or not all(isinstance(one, str) and one for one in names)
        ):
            raise InputError(f"columns must be the names of all columns, got {quoted(names)}")
        again = next((one for at, one in enumerate(names) if one in names[:at]), None)
        if again is not None:
            raise InputError(f"columns must be different names, got {again!r} twice")
        object.__setattr__(self, "columns", tuple(names))
