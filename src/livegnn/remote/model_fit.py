"""Whether a model fits the graph of a snapshot, and what is read and run if it does."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from livegnn.arguments import listed_ids
from livegnn.errors import ModelError, UnknownNodeError
from livegnn.graph.defaults import left_out
from livegnn.inference.edge_decoding import EdgeDecoder
from livegnn.inference.forward import SampledForward
from livegnn.network.hops import reads_of
from livegnn.network.model import Model
from livegnn.network.outputs import Outputs, without_edge_outputs
from livegnn.network.renaming import renamed
from livegnn.query import Query
from livegnn.remote.cached_index import NotedIndex
from livegnn.remote.subgraph import (
    Known,
    Lists,
    Neighborhood,
    drawn_neighborhood,
    whole_neighborhood,
)
from livegnn.sampling.model_query import fit_query
from livegnn.schema import Schema
from livegnn.snapshots.snapshot import Snapshot
from livegnn.types import EdgeType, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Int64
    from numpy.typing import ArrayLike


def check_fit(model: Model, schema: Schema) -> None:
    """Raises `ModelError` if a model reads what graphs of this schema do not have."""
    for given in model.inputs.values():
        have = schema.node_types.get(given.node_type)
        if have != given.width:
            raise ModelError(
                f"the model reads {given.width} features of {given.node_type!r} nodes, the snapshot has "
                f"{'no such nodes' if have is None else have}: write it of the graph that the model is for"
            )
    for name in model.edge_types:
        if name not in schema.edge_types:
            have_types = ", ".join(map(str, schema.edge_types))
            raise ModelError(f"the model propagates along {name}, the snapshot has {have_types}")
    for read in model.edge_inputs.values():
        width = schema.edge_types[read.edge_type].edge_dim
        if read.column == "edge_attr" and width != read.width:
            raise ModelError(
                f"the model reads {read.width} features of {read.edge_type} edges, the snapshot has {width}"
            )


class FittedModel:
    """A model for graphs of one schema: what is read for one of its outputs, and what computes it.

    output: its name, by default the first. Raises `ModelError` as `check_fit` does.
    """

    def __init__(self, model: Model, schema: Schema, output: str | None) -> None:
        self.model = model = renamed(model, left_out(schema))
        self._schema = schema
        check_fit(without_edge_outputs(model), schema)
        self.output = found = Outputs(model).find(output)
        self.node_type: NodeType = found.node_type
        self.edge_types: Sequence[EdgeType] = model.edge_types
        self.query: Query | None = None if model.query is None else fit_query(model, schema)
        self.reads = reads_of(model.steps, found.value)
        self.widths = {given.node_type: given.width for given in model.inputs.values()}
        self.forward = SampledForward(model)
        self.noted = NotedIndex(self.reads, self.widths if self.query is None else {}, schema)

    @cached_property
    def decoder(self) -> EdgeDecoder:
        """The decoder of scores of edges. Raises `ModelError` if the graph lacks nodes at their ends."""
        return EdgeDecoder(self.model, self._schema)

    def seeds(self, snapshot: Snapshot, ids: "ArrayLike") -> "Int64[IntArray, 'seeds']":
        """The row numbers of ids. Raises `UnknownNodeError`."""
        listed = np.asarray(listed_ids(ids))
        if not listed.size:
            return np.zeros(0, np.int64)
        rows = snapshot.rows_of(cast("Ids", listed), self.node_type)
        if rows.min() < 0:
            raise UnknownNodeError(
                f"expected ids of {self.node_type!r} nodes of the snapshot that shows event "
                f"{snapshot.seq}, got {listed[rows < 0][0].item()!r}"
            )
        return rows

    def sample(
        self,
        snapshot: Snapshot,
        seeds: "Int64[IntArray, 'seeds']",
        sample_seed: int,
        find: Callable[[Lists, IntArray], Known] | None,
        *,
        later: bool,
    ) -> Neighborhood:
        """The neighbourhood that the predictions of some rows read: the draws of the query, or all
        neighbours. find: returns known records of the index of lists. later: whether degrees may be pending.
        """
        if self.query is not None:
            return drawn_neighborhood(snapshot, seeds, self.query, sample_seed, self.edge_types)
        return whole_neighborhood(
            snapshot, self.node_type, seeds, self.reads, self.edge_types, find, later=later
        )

    def feature_bytes(self, found: Neighborhood) -> int:
        """Bytes of the features of all nodes of a neighbourhood."""
        return sum(4 * width * len(found.rows[name]) for name, width in self.widths.items())
