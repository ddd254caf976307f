"""A model's predictions on samples: a forward pass over a sampled subgraph, without a graph."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_bool
from livegnn.compiler.plan import Plan
from livegnn.errors import InputError, ModelError
from livegnn.inference.degrees import DegreeColumns, Degrees
from livegnn.inference.sample_arrays import TypedSample, integers, places_of, read_edges, read_nodes, typed
from livegnn.network import Model
from livegnn.network.outputs import Outputs, without_edge_outputs
from livegnn.sampling import Direction, HeteroSubgraph, Subgraph
from livegnn.schema import EdgeSchema, Schema
from livegnn.types import EdgeType, FloatArray, IntArray, NodeType
from livegnn.wording import kind_of, never_raises

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike


GivenDegrees: TypeAlias = Literal["sample"] | Degrees | Mapping[tuple[EdgeType, Direction], Degrees]


class SampledForward:
    """Computes predictions of `model` on sampled subgraphs, as PyG's module does on the batch of a loader.

    It computes only the rows that the seeds need: the first layer for the nodes within L - 1 hops, the last
    layer for the seeds. The arithmetic is the engine's, so results are as exact as an engine's are.

    Raises `ModelError` if the engine could not run the model either.

    Thread safety: any number of calls at once, from any threads; they run beside each other, without the
    interpreter's lock.
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise InputError(
                f"expected a Model, got {kind_of(model)}: Model.from_pyg(module) imports a trained module, "
                "Model.load(path) reads a file"
            )
        self.model = model
        self.outputs = Outputs(model)
        model = without_edge_outputs(model)  # samples need not have what only they read
        self._schema = _schema_of(model)
        self._node_types = list(self._schema.node_types)
        self._edge_types = list(self._schema.edge_types)
        program, keyed = _compile(model, self._schema)
        place = self._node_types.index
        ends = [(place(source), place(target), keyed) for source, _, target in self._edge_types]
        self.native = _core.Forward(program, ends)

    @never_raises
    def __repr__(self) -> str:
        return f"SampledForward({self.model!r})"

    def predict(
        self,
        sample: Subgraph | HeteroSubgraph,
        *,
        degrees: GivenDegrees = "sample",
        output: str | None = None,
        all_nodes: bool = False,
    ) -> "Float32[FloatArray, 'nodes channels']":
        """Returns the predictions of the seeds of a sample that was drawn with ``attributes=True``, float32
        [seeds, channels], in the order in which the seeds were given.

        degrees: ``"sample"``: the degrees in the sample, as PyG computes them; or the degrees in the whole
        graph, by edge type and direction, or one `Degrees` for the in-edges of a sample of one edge type.
        Directions that are left out keep the degrees in the sample. output: the name of one of the model's
        outputs, by default the first; the seeds are the seeds of its node type. all_nodes: return the rows of
        all nodes of that type, in the order of ``sample.node``.

        Raises `InputError` if the sample lacks a type or column that the model reads, or has it in another
        shape, if a position is not a node of the sample, and if a feature or a weight is not finite.
        """
        found = self.outputs.find(output)
        given = typed(sample, self._schema)
        positions = self._positions(given, found.node_type, all_nodes=check_bool(all_nodes, "all_nodes"))
        return self._run(given, degrees, [(found.position, positions)])[0]

    def places_of(
        self, node_widths: Mapping[NodeType, int], edge_widths: Mapping[EdgeType, int]
    ) -> tuple[list[int], list[int]] | None:
        """Returns the positions of the model's types in samples of these types, for the calls of the native
        core that sample and predict in one. Returns None if `predict` refuses every such sample.

        node_widths, edge_widths: the types of the samples in their order, with the widths of their features.
        """
        return places_of(self._schema, node_widths, edge_widths)

    @property
    def last_bytes(self) -> int:
        """The bytes of working memory of the call that ended last, with memory kept from earlier calls. The
        sample and the rows are not counted."""
        return self.native.last_bytes

    @property
    def held_bytes(self) -> int:
        """The working memory that is kept for the next call."""
        return self.native.held_bytes

    def release(self) -> None:
        """Frees the working memory that is kept for the next call."""
        self.native.release()

    def predict_pairs(
        self,
        sample: Subgraph | HeteroSubgraph,
        pairs: "ArrayLike",
        *,
        degrees: GivenDegrees = "sample",
        outputs: tuple[str, str] | None = None,
    ) -> "Float32[FloatArray, 'pairs']":
        """Returns the scores of pairs of seeds: the dot products of their predictions, float32 [pairs], as
        PyG's models for link prediction score an edge.

        pairs: integers [2, pairs], as PyG's `edge_label_index`: places among the seeds of the first and of
        the second output's node type. outputs: the names of the two outputs, of equal width; by default the
        first output for both. degrees: as in `predict`. Raises the errors of `predict`.
        """
        names = outputs if outputs is not None else (None, None)
        if not isinstance(names, tuple) or len(names) != 2:
            raise InputError(f"outputs must be the names of two outputs, got {outputs!r}")
        first, second = self.outputs.find(names[0]), self.outputs.find(names[1])
        if self.model.width(first.value) != self.model.width(second.value):
            raise InputError(
                f"the rows of both outputs must be equally wide, got {self.model.width(first.value)} and "
                f"{self.model.width(second.value)} channels"
            )
        given = typed(sample, self._schema)
        ends = integers(pairs, "pairs")
        if ends.ndim != 2 or len(ends) != 2:
            raise InputError(f"pairs must be [2, pairs], got {list(ends.shape)}")
        asked = {it.position: self._positions(given, it.node_type, all_nodes=False) for it in (first, second)}
        for places, it in zip(ends, (first, second), strict=True):
            seeds = len(asked[it.position])
            if places.size and not (places.min() >= 0 and places.max() < seeds):
                raise InputError(
                    f"pairs must be places among the {seeds} seeds of type {it.node_type!r}, got one of "
                    f"{places.min()} to {places.max()}"
                )
        rows = dict(zip(asked, self._run(given, degrees, list(asked.items())), strict=True))
        scores: FloatArray = np.einsum(
            "ij,ij->i", rows[first.position][ends[0]], rows[second.position][ends[1]]
        )
        return scores

    def _run(
        self, sample: TypedSample, degrees: GivenDegrees, asked: list[tuple[int, IntArray]]
    ) -> list[FloatArray]:
        nodes = read_nodes(sample, self._schema)
        edges = read_edges(sample, self._schema)
        given = self._degrees(sample, degrees)
        try:
            return self.native.predict(nodes, edges, given, asked)
        except _core.SampledGraphError as error:
            self._explain(sample, *error.args)

    @staticmethod
    def _positions(sample: TypedSample, node_type: NodeType, *, all_nodes: bool) -> IntArray:
        if node_type not in sample.node:
            raise InputError(f"the model predicts {node_type!r} nodes, the sample has {list(sample.node)}")
        if all_nodes:
            return np.arange(len(sample.node[node_type]), dtype=np.int64)
        seeds = sample.inverse.get(node_type)
        return np.zeros(0, np.int64) if seeds is None else integers(seeds, "inverse")

    def _degrees(self, sample: TypedSample, degrees: GivenDegrees) -> list[DegreeColumns | None]:
        if isinstance(degrees, str):
            if degrees != "sample":
                raise InputError(f"degrees must be 'sample' or Degrees, got {degrees!r}")
            return []
        if isinstance(degrees, Degrees):
            if len(self._edge_types) != 1:
                raise InputError(
                    "one Degrees is for a model of one edge type: give them by edge type and direction"
                )
            (called,) = sample.edge_types.values()
            degrees = {(called, "in"): degrees}
        if not isinstance(degrees, Mapping):
            raise InputError(f"degrees must be 'sample' or Degrees, got {kind_of(degrees)}")
        places: dict[object, int] = {}
        for i, name in enumerate(self._edge_types):
            called = sample.edge_types.get(name, name)
            places[called, "in"] = i
            places[called, "out"] = i + len(self._edge_types)
        given: list[DegreeColumns | None] = [None] * len(places)
        for key, each in degrees.items():
            place = places.get(key)
            if place is None or not isinstance(each, Degrees):
                raise InputError(
                    "degrees must be Degrees by edge type of the model and direction, 'in' or 'out', got "
                    f"{key!r}: {kind_of(each)}"
                )
            edge_type = self._edge_types[place % len(self._edge_types)]
            receiver = edge_type[2 if place < len(self._edge_types) else 0]
            nodes = len(sample.node[receiver]) if receiver in sample.node else 0
            if len(each) != nodes:
                raise InputError(
                    f"the degrees of {key} must be one for each of {nodes} {receiver!r} nodes of the sample, "
                    f"got {len(each)}"
                )
            given[place] = each.columns
        return given

    def _explain(self, sample: TypedSample, kind: int, type_: int, position: int) -> NoReturn:
        """Raises the `InputError` for the fault that the native pass has found."""
        if kind in (0, 1):
            edge_type = self._edge_types[type_]
            end = edge_type[0 if kind == 0 else 2]
            column = sample.row[edge_type] if kind == 0 else sample.col[edge_type]
            name = "row" if kind == 0 else "col"
            raise InputError(
                f"{name} of {edge_type} must hold positions of {end!r} nodes, of which the sample has "
                f"{len(sample.node[end])}, got {column[position]} for edge {position}"
            )
        if kind == 2:
            node_type = self._node_types[type_]
            node = sample.node[node_type][position].item()
            raise InputError(
                f"the features of {node_type!r} nodes must be finite, got "
                f"{sample.x[node_type][position].tolist()!r} for node {node!r}"
            )
        if kind in (3, 4):
            what = "weight" if kind == 3 else "features"
            raise InputError(
                f"the {what} of {self._edge_types[type_]} edges must be finite, got another for edge "
                f"{position}"
            )
        if kind == 5:
            edge_type = self._edge_types[type_]
            raise InputError(
                f"a maximum of weighted messages with self-loops takes one loop of {edge_type} a node, got "
                f"several for node {sample.node[edge_type[0]][position].item()!r}"
            )
        node_type = self._node_types[type_]
        raise InputError(
            f"inverse must hold positions of {node_type!r} nodes, of which the sample has "
            f"{len(sample.node[node_type])}, got another for seed {position}"
        )


def _schema_of(model: Model) -> Schema:
    """The types that a model reads. Edges may be parallel, as those that are drawn with replacement are."""
    nodes: dict[NodeType, int] = {given.node_type: given.width for given in model.inputs.values()}
    edges: dict[EdgeType, int] = dict.fromkeys(model.edge_types, 0)
    for given in model.edge_inputs.values():
        edges[given.edge_type] = max(
            edges.get(given.edge_type, 0), given.width if given.column == "edge_attr" else 0
        )
    for source, _, target in edges:
        nodes.setdefault(source, 0)
        nodes.setdefault(target, 0)
    return Schema(
        nodes,
        {name: EdgeSchema(weighted=True, duplicates="keep", edge_dim=width) for name, width in edges.items()},
    )


def _compile(model: Model, schema: Schema) -> tuple[_core.Program, bool]:
    """Returns the program, and whether it is for parallel edges. A maximum of weighted messages with
    self-loops does not distinguish parallel loops; its program is for samples without them."""
    try:
        return Plan(model, schema, sampled=True).program, True
    except ModelError:
        alone = {
            name: EdgeSchema(weighted=True, edge_dim=it.edge_dim) for name, it in schema.edge_types.items()
        }
        return Plan(model, Schema(schema.node_types, alone), sampled=True).program, False
