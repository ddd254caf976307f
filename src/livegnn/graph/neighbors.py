"""The neighbours of a node, as reads of a graph return them."""

from typing import TYPE_CHECKING, NamedTuple

from livegnn.types import DoubleArray, FloatArray, Ids, Keys

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Shaped, UInt32


class Neighbors(NamedTuple):
    """The neighbours of a node: their ids, and the weights, times and features (`edge_attr`, [ids, channels])
    of the edges, if the edge type has them; `key` if it keeps parallel edges."""

    ids: "Shaped[Ids, 'neighbors']"
    weight: "Float32[FloatArray, 'neighbors'] | None"
    time: "Float64[DoubleArray, 'neighbors'] | None"
    edge_attr: "Float32[FloatArray, 'neighbors channels'] | None"
    key: "UInt32[Keys, 'neighbors'] | None" = None
