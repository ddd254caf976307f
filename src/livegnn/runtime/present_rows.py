"""Predictions of nodes, and scores of edges, of which some may have been removed, for readers of very many:
part by part, so that none of them delays a batch.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from livegnn.graph import Graph
from livegnn.inference import Engine, RowPredictor
from livegnn.inference.followed_edges import EdgeNames
from livegnn.runtime.predictions import Runtime
from livegnn.texts import Texts
from livegnn.types import NO_INDEX, EdgeType, FloatArray, Ids, IntArray, Keys, NodeType

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, Shaped, UInt32
    from numpy.typing import NDArray


class PresentRows(NamedTuple):
    """The predictions of the nodes that are in the graph at event `seq`, and which nodes these are."""

    seq: int
    values: "Float32[FloatArray, 'present channels']"
    present: "Bool[NDArray[np.bool_], 'ids']"


def list_ids(graph: Graph, node_type: NodeType) -> "Shaped[Ids, 'nodes'] | Texts":
    """All ids of a type, texts in the room of their own bytes."""
    names = graph.native.ids(graph.node_type_index(node_type))
    return Texts.of(names) if isinstance(names, list) else names


def read_present(
    runtime: Runtime, engine: RowPredictor, ids: "Shaped[Ids, 'ids'] | Texts", output: str | None = None
) -> PresentRows:
    """The predictions of `ids`, all at one event. output: of the model, by default the first."""
    if (apart := engine.predict_apart(ids, [output], present=True)) is not None:
        return PresentRows(apart.seq, apart.rows[0], apart.present[0])
    node_type = engine.outputs.find(output).node_type

    def read() -> "tuple[FloatArray, NDArray[np.bool_]]":
        present = runtime.graph.contains(ids, node_type)
        return engine.predict(ids if present.all() else _select(ids, present), output=output), present

    seq, (values, present) = runtime.read(read)
    return PresentRows(seq, values, present)


class ListedEdges:
    """The edges from some nodes, named part by part: an array of text gives each the room of the longest.

    sources: how many nodes were read.
    """

    def __init__(
        self,
        sources: "Shaped[Ids, 'sources']",
        degrees: "Int64[IntArray, 'sources']",
        targets: "Shaped[Ids, 'edges'] | Texts",
        keys: "UInt32[Keys, 'edges'] | None",
    ) -> None:
        self.sources = len(sources)
        self._sources, self._targets, self._keys = sources, targets, keys
        self._at = np.repeat(np.arange(len(sources), dtype=np.int32), degrees)

    def __len__(self) -> int:
        return len(self._at)

    def names(self, begin: int, end: int) -> EdgeNames:
        """Those from `begin` to `end`."""
        keys = None if self._keys is None else self._keys[begin:end]
        return EdgeNames(self._sources[self._at[begin:end]], _as_array(self._targets[begin:end]), keys)


def list_edges(
    graph: Graph, edge_type: EdgeType, sources: "Shaped[Ids, 'ids'] | Texts", most: int
) -> ListedEdges:
    """The edges from the first of `sources`, all at one event: of as many nodes as have `most` edges
    together, of one at least. A node that is not in the graph has none; an undirected edge is listed in both
    directions.
    """
    degrees, names, keys = graph.native.edges_from(
        graph.edge_type_index(edge_type), graph.node_ids.given(sources), most
    )
    targets = Texts.of(names) if isinstance(names, list) else names
    keyed = graph.schema.edge_types[edge_type].duplicates == "keep"
    return ListedEdges(_as_array(sources[: len(degrees)]), degrees, targets, keys if keyed else None)


def read_present_edges(runtime: Runtime, engine: Engine, edges: EdgeNames, output: str) -> PresentRows:
    """The scores of `edges`, of which each has the type of the edge output, all at one event."""
    edge_type = engine.edge_outputs.find(output).scores.edge_type

    def read() -> "tuple[FloatArray, NDArray[np.bool_]]":
        present = _find_edges(runtime.graph, edge_type, edges)
        source, target, key = (None if column is None else column[present] for column in edges)
        assert source is not None
        assert target is not None
        return engine.predict_edges(source, target, key=key, output=output), present

    seq, (values, present) = runtime.read(read)
    return PresentRows(seq, values, present)


def _find_edges(graph: Graph, edge_type: EdgeType, edges: EdgeNames) -> "Bool[NDArray[np.bool_], 'edges']":
    """Whether each of the edges is in the graph."""
    source, target = (
        graph.native.indices_of(graph.node_type_index(name), graph.to_numbers(ids))
        for name, ids in ((edge_type[0], edges.source), (edge_type[2], edges.target))
    )
    present = np.zeros(len(source), np.bool_)
    left = np.flatnonzero((source != NO_INDEX) & (target != NO_INDEX))
    while len(left):
        keys = None if edges.key is None else edges.key[left]
        *_, found = graph.native.edge_columns(
            graph.edge_type_index(edge_type), source[left], target[left], keys
        )
        present[left[:found]] = True
        left = left[found + 1 :]  # it stops at the first that is not there
    return present


def _as_array(ids: "Shaped[Ids, 'ids'] | Texts") -> "Shaped[Ids, 'ids']":
    return np.array(ids.tolist(), np.str_) if isinstance(ids, Texts) else ids


def _select(
    ids: "Shaped[Ids, 'ids'] | Texts", chosen: "Bool[NDArray[np.bool_], 'ids']"
) -> "Shaped[Ids, 'chosen'] | Texts":
    if isinstance(ids, Texts):
        return Texts.of([id for id, one in zip(ids.tolist(), chosen.tolist(), strict=True) if one])
    return ids[chosen]
