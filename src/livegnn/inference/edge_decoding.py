"""Scores of edges by predictors without an `Engine`: their rows of both ends, and the compiled decoder."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.compiler.edge_outputs import add_edge_outputs
from livegnn.inference.edge_pairs import Pairs, PairSettings, check_pairs, find_edge_output
from livegnn.network import Model
from livegnn.network.outputs import EdgeOutput, EdgeOutputs, Outputs
from livegnn.schema import Schema
from livegnn.texts import Texts
from livegnn.types import FloatArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, Shaped
    from numpy.typing import ArrayLike, NDArray

    AskedIds: TypeAlias = "Shaped[NDArray[np.generic], 'ids'] | Texts"

ReadRows: TypeAlias = "Callable[[AskedIds, Sequence[str]], Sequence[FloatArray]]"
"""From ids of nodes, and names of outputs of their type, to a matrix [ids, channels] for each output, all of
one moment."""


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

    def decode(
        self, chosen: EdgeOutput, pairs: Pairs, read: ReadRows
    ) -> "Float32[FloatArray, 'pairs channels']":
        """The scores of pairs. read: is called once for each type of nodes that is read, with each id once if
        ids are integers. Raises what it raises.
        """
        source_type, _, target_type = chosen.scores.edge_type
        rows: list[tuple[int, FloatArray]] = []
        places: list[Int64[NDArray[np.int64], ids]] = [np.zeros(len(pairs.sources), np.int64)] * 2
        for node_type, names in self.outputs_of(chosen).items():
            ends = [
                ids
                for ids, end in ((pairs.sources, source_type), (pairs.targets, target_type))
                if end == node_type
            ]
            asked, at = _distinct(ends)
            of_ends = iter(np.split(at, len(ends)))
            places = [
                next(of_ends) if end == node_type else before
                for end, before in zip((source_type, target_type), places, strict=True)
            ]
            found = read(asked, names)
            rows += [
                (self._outputs.find(name).position, np.ascontiguousarray(one))
                for name, one in zip(names, found, strict=True)
            ]
        sources, targets = (one.astype(np.uint32) for one in places)
        return self._program.score_rows(
            chosen.position, sources, targets, rows, pairs.edge_attr, pairs.edge_weight
        )


def _distinct(ends: "Sequence[AskedIds]") -> "tuple[AskedIds, Int64[NDArray[np.int64], 'ids']]":
    """Ids of nodes, and where each of `ends` is among them. Only integers are named once."""
    if any(isinstance(one, Texts) for one in ends):
        ids: AskedIds = ends[0] if len(ends) == 1 else Texts.join(ends)
        return ids, np.arange(len(ids))
    arrays = [one for one in ends if isinstance(one, np.ndarray)]
    if all(one.dtype.kind in "iu" for one in arrays):
        distinct, places = np.unique(np.concatenate(arrays), return_inverse=True)
        return distinct, places
    joined = np.concatenate(arrays)
    return joined, np.arange(len(joined))
