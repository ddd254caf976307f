"""Keeps the predictions of a trained graph neural network exact while its graph changes.

Names are loaded on first use: `import livegnn` imports neither the native core nor the server.
"""

from typing import TYPE_CHECKING

import livegnn.lazy_names as lazy_names
from livegnn.errors import (
    DiskFullError,
    FileFormatError,
    InputError,
    LiveGNNError,
    LogError,
    ModelError,
    OverloadedError,
    TimeoutExpired,
    UnknownEdgeError,
    UnknownNodeError,
    UnknownTypeError,
)

if TYPE_CHECKING:
    from livegnn.events import Events as Events
    from livegnn.graph import EdgeSchema as EdgeSchema
    from livegnn.graph import Graph as Graph
    from livegnn.graph import GraphDelta as GraphDelta
    from livegnn.graph import Growth as Growth
    from livegnn.graph import Schema as Schema
    from livegnn.inference import Engine as Engine
    from livegnn.inference import EngineOptions as EngineOptions
    from livegnn.inference import Update as Update
    from livegnn.model import Model as Model
    from livegnn.query import Query as Query
    from livegnn.tables import CsvForm as CsvForm
    from livegnn.tables import EdgeRows as EdgeRows
    from livegnn.tables import NodeRows as NodeRows
    from livegnn.tables import TableMapping as TableMapping
    from livegnn.types import MISSING as MISSING

__version__ = "0.1.0"

_HOMES = {
    "CsvForm": "livegnn.tables",
    "EdgeRows": "livegnn.tables",
    "EdgeSchema": "livegnn.graph",
    "Engine": "livegnn.inference",
    "EngineOptions": "livegnn.inference",
    "Events": "livegnn.events",
    "Graph": "livegnn.graph",
    "GraphDelta": "livegnn.graph",
    "Growth": "livegnn.graph",
    "MISSING": "livegnn.types",
    "Model": "livegnn.model",
    "NodeRows": "livegnn.tables",
    "Query": "livegnn.query",
    "Schema": "livegnn.graph",
    "TableMapping": "livegnn.tables",
    "Update": "livegnn.inference",
    "Work": "livegnn.inference",
}

__all__ = [
    "MISSING",
    "CsvForm",
    "DiskFullError",
    "EdgeRows",
    "EdgeSchema",
    "Engine",
    "EngineOptions",
    "Events",
    "FileFormatError",
    "Graph",
    "GraphDelta",
    "Growth",
    "InputError",
    "LiveGNNError",
    "LogError",
    "Model",
    "ModelError",
    "NodeRows",
    "OverloadedError",
    "Query",
    "Schema",
    "TableMapping",
    "TimeoutExpired",
    "UnknownEdgeError",
    "UnknownNodeError",
    "UnknownTypeError",
    "Update",
    "Work",
    "__version__",
]

lazy_names.register(__name__, _HOMES)


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *lazy_names.names(__name__)})
