"""Names of node and edge types, and the array types in the signatures of public functions."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

NodeType: TypeAlias = str
EdgeType: TypeAlias = tuple[str, str, str]
"""(source node type, relation, target node type), as in PyG."""

DEFAULT_NODE_TYPE: NodeType = "node"
DEFAULT_EDGE_TYPE: EdgeType = ("node", "to", "node")

NO_INDEX = 0xFFFFFFFF
"""The dense index, uint32, of a node that is not in the graph."""

MISSING = -3.4028234663852886e38
"""A number that is missing, among features: the lowest of float32, which events, logs and files carry like
any other. Transforms of a model replace it."""

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

if TYPE_CHECKING:
    import numpy.typing as npt

    Ids: TypeAlias = npt.NDArray[np.int64] | npt.NDArray[np.str_]
    FloatArray: TypeAlias = npt.NDArray[np.float32]
    DoubleArray: TypeAlias = npt.NDArray[np.float64]
    IntArray: TypeAlias = npt.NDArray[np.int64]
    Keys: TypeAlias = npt.NDArray[np.uint32]
    Array: TypeAlias = npt.NDArray[np.generic]
else:
    Ids = FloatArray = DoubleArray = IntArray = Keys = Array = np.ndarray


class State(NamedTuple):
    """The saved state of a part of the system: JSON metadata and named arrays."""

    meta: Mapping[str, JSON]
    arrays: Mapping[str, Array]
