"""Scores of edges by predictors without an `Engine`: their rows of both ends, and the compiled decoder."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.compiler.edge_outputs import add_edge_outputs
from livegnn.inference.edge_pairs import Pairs, PairSettings, check_pairs, find_edge_output
from livegnn.inference.row_predictor import WantedRows
from livegnn.network import Model
from livegnn.network.outputs import EdgeOutput, EdgeOutputs, Outputs
from livegnn.schema import Schema
from livegnn.texts import Texts
from livegnn.types import FloatArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64
    from numpy.typing import ArrayLike, NDArray

    from livegnn.inference.row_predictor import ListedIds


class Ends(NamedTuple):
    """The ends of pairs. nodes: of the type of the sources, and then of that of the targets, if it is
    another, each once if ids are integers or texts; of a type that is not read, without outputs. sources,
    targets: where each end is among the nodes of its type."""

    nodes: Sequence[WantedRows]
    sources: "Int64[NDArray[np.int64], 'pairs']"
    targets: "Int64[NDArray[np.int64], 'pairs']"


class EdgeDecoder:
    """The edge outputs of a model, computed from rows of its outputs, with the bits that an engine with these
    rows computes. Raises `ModelError` if the schema lacks a node type at an end of the edges.

    Thread safety: any number of calls at once.
    """

    def __init__(self, model: Model, schema: Schema) -> None:
        self._schema, self._outputs = schema, Outputs(model)
        self.edge_outputs = EdgeOutputs(model)
        self._program = _core.Program()
        add_edge_outputs(model, schema, self._program)

    def check(self, src: "ArrayLike", dst: "ArrayLike", settings: PairSettings) -> tuple[EdgeOutput, Pairs]:
        """The edge output that a caller has named, and the arguments of its score. Raises `InputError`."""
        chosen = find_edge_output(self.edge_outputs, settings)
        return chosen, check_pairs(self._schema, chosen, src, dst, settings)

    def outputs_of(self, chosen: EdgeOutput) -> dict[NodeType, list[str]]:
        """The outputs that an edge output reads, by the type of their nodes, each once."""
        read: dict[NodeType, dict[int, str]] = {}
        for name in (*chosen.scores.sources.values(), *chosen.scores.targets.values()):
            found = self._outputs.find(name)
            read.setdefault(found.node_type, {}).setdefault(found.position, name)
        return {node_type: [*names.values()] for node_type, names in read.items()}

    def ends(self, chosen: EdgeOutput, pairs: Pairs) -> Ends:
        """The nodes whose rows `decode` needs, all of one moment."""
        (source_type, _, target_type), read = chosen.scores.edge_type, self.outputs_of(chosen)
        if source_type == target_type:
            ids, places = _distinct([pairs.sources, pairs.targets])
            nodes = WantedRows(source_type, ids, read.get(source_type, ()))
            return Ends([nodes], places[: len(pairs.sources)], places[len(pairs.sources) :])
        source_ids, sources = _distinct([pairs.sources])
        target_ids, targets = _distinct([pairs.targets])
        nodes_of_both = [
            WantedRows(node_type, ids, read.get(node_type, ()))
            for node_type, ids in ((source_type, source_ids), (target_type, target_ids))
        ]
        return Ends(nodes_of_both, sources, targets)

    def decode(
        self, chosen: EdgeOutput, pairs: Pairs, ends: Ends, rows: Sequence[Sequence[FloatArray]]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """The scores of pairs. rows: of the nodes of `ends`, for each of their outputs [ids, channels]."""
        given = [
            (self._outputs.find(name).position, np.ascontiguousarray(one))
            for nodes, found in zip(ends.nodes, rows, strict=True)
            for name, one in zip(nodes.outputs, found, strict=True)
        ]
        return self._program.score_rows(
            chosen.position,
            ends.sources.astype(np.uint32),
            ends.targets.astype(np.uint32),
            given,
            pairs.edge_attr,
            pairs.edge_weight,
        )


def _distinct(ends: "Sequence[ListedIds]") -> "tuple[ListedIds, Int64[NDArray[np.int64], 'ids']]":
    """Ids of nodes, and where each of `ends` is among them. Integers and texts are named once."""
    if any(isinstance(one, Texts) for one in ends):
        at: dict[str, int] = {}
        named = Texts.join(ends).tolist()
        places = np.array([at.setdefault(text, len(at)) for text in named], np.int64)
        return Texts.of(list(at)), places
    arrays = [one for one in ends if isinstance(one, np.ndarray)]
    if all(one.dtype.kind in "iu" for one in arrays):
        arrays = [one.astype(np.int64, copy=False) for one in arrays]
    elif not all(one.dtype.kind == "U" for one in arrays):
        joined = np.concatenate(arrays)
        return joined, np.arange(len(joined))
    return np.unique(np.concatenate(arrays), return_inverse=True)
