"""Tables as events: mappings, and the readers that follow them. Only the mappings load without pyarrow."""

from typing import TYPE_CHECKING

import livegnn.lazy_names as lazy_names
from livegnn.tables.csv_form import CsvForm
from livegnn.tables.entries import check_mappings
from livegnn.tables.mapping import EdgeRows, NodeRows, TableMapping

if TYPE_CHECKING:
    from livegnn.tables.changes import RowChanges as RowChanges
    from livegnn.tables.changes import read_changes as read_changes
    from livegnn.tables.changes import read_each_change as read_each_change
    from livegnn.tables.files import list_files as list_files
    from livegnn.tables.files import read_file as read_file
    from livegnn.tables.reader import TableReader as TableReader

__all__ = [
    "CsvForm",
    "EdgeRows",
    "NodeRows",
    "RowChanges",
    "TableMapping",
    "TableReader",
    "check_mappings",
    "list_files",
    "read_changes",
    "read_each_change",
    "read_file",
]

lazy_names.register(
    __name__,
    {
        "RowChanges": "livegnn.tables.changes",
        "TableReader": "livegnn.tables.reader",
        "list_files": "livegnn.tables.files",
        "read_changes": "livegnn.tables.changes",
        "read_each_change": "livegnn.tables.changes",
        "read_file": "livegnn.tables.files",
    },
)


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *lazy_names.names(__name__)})
