"""Keeps the predictions of a trained graph neural network exact while its graph changes.

Names are loaded when they are first used: `import livegnn` imports neither the native core nor the server.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from livegnn.errors import (
    FileFormatError,
    InputError,
    LiveGNNError,
    LogError,
    ModelError,
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
    from livegnn.graph import Schema as Schema
    from livegnn.inference import Engine as Engine
    from livegnn.inference import EngineOptions as EngineOptions
    from livegnn.inference import Update as Update
    from livegnn.model import Model as Model

__version__ = "0.1.0"

_HOMES = {
    "EdgeSchema": "livegnn.graph",
    "Engine": "livegnn.inference",
    "EngineOptions": "livegnn.inference",
    "Events": "livegnn.events",
    "Graph": "livegnn.graph",
    "GraphDelta": "livegnn.graph",
    "Model": "livegnn.model",
    "Schema": "livegnn.graph",
    "Update": "livegnn.inference",
    "Work": "livegnn.inference",
}

__all__ = [
    "EdgeSchema",
    "Engine",
    "EngineOptions",
    "Events",
    "FileFormatError",
    "Graph",
    "GraphDelta",
    "InputError",
    "LiveGNNError",
    "LogError",
    "Model",
    "ModelError",
    "Schema",
    "TimeoutExpired",
    "UnknownEdgeError",
    "UnknownNodeError",
    "UnknownTypeError",
    "Update",
    "Work",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
