"""Tables as events: mappings, and the readers that follow them. Only the mappings load without pyarrow."""

from typing import TYPE_CHECKING

import livegnn.lazy_names as lazy_names
from livegnn.tables.mapping import EdgeRows, NodeRows, TableMapping

if TYPE_CHECKING:
    from livegnn.tables.reader import TableReader as TableReader

__all__ = ["EdgeRows", "NodeRows", "TableMapping", "TableReader"]

lazy_names.register(__name__, {"TableReader": "livegnn.tables.reader"})


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *lazy_names.names(__name__)})
