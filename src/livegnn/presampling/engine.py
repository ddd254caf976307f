"""An engine that predicts on samples: they are ready before the request (Helios, sections 4 to 6).

A model that was trained on sampled neighbourhoods gets the same kind of input at inference. Every batch
updates the samples; a prediction is a few look-ups and a forward pass over the sample of the node, and costs
the same for a hub as for any other node.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, Unpack

import numpy as np

from livegnn.errors import InputError, ModelError
from livegnn.graph import Graph
from livegnn.inference import Engine, EngineOptions, RowPredictor, SampledForward
from livegnn.inference.edge_decoding import EdgeDecoder
from livegnn.inference.edge_pairs import PairSettings
from livegnn.inference.native_engine import check_pair, lay_out
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.inference.supposed_scores import MostOfRequest
from livegnn.model import Model
from livegnn.network.outputs import Output, Outputs
from livegnn.presampling.presampler import SamplesView
from livegnn.query import Query
from livegnn.sampling import HeteroSubgraph
from livegnn.sampling.model_query import fit_query
from livegnn.sampling.request import given_ids, native_ids
from livegnn.texts import Texts
from livegnn.types import FloatArray, NodeType, State
from livegnn.wording import kind_of, never_raises

_TEXTS: Final = 1024  # ids of a request that are an array of texts at a time

if TYPE_CHECKING:
    from jaxtyping import Float32, Shaped
    from numpy.typing import ArrayLike, NDArray


class SampledEngine(SamplesView):
    """Predicts with `model` on the samples of its query, drawn from the graph as it is now.

    Each node has a sample of its own, which is a function of the graph and of `sample_seed` of the options:
    equal graphs give equal predictions. An `Engine` reads all neighbours instead; `Comparison` measures the
    difference between the two.

    options: `threads` draw the samples of all nodes at the beginning; `mode` must be "presampled"; options
    about rows that an engine keeps do not apply. state: the result of `state()`.

    Raises `ModelError` if the model carries no query, does not fit it or the graph, or if the query draws
    edges in a direction that carries no messages to the node; `InputError`; `FileFormatError` if the state
    does not fit.

    Thread safety: a read waits only for the moment in which a batch becomes visible.
    """

    keeps_rows: Literal[False] = False

    def __init__(
        self,
        graph: Graph,
        model: Model,
        options: EngineOptions | None = None,
        *,
        state: State | None = None,
        name: str = "engine",
        **settings: Unpack[EngineSettings],
    ) -> None:
        if options is None:
            settings.setdefault("mode", "presampled")
        options = choose_options(options, settings)
        if not isinstance(state, (State, NoneType)):
            raise InputError(f"state must be what SampledEngine.state() returned, got {kind_of(state)}")
        query = check_sampled(graph, model, options)
        self.model, self.options = model, options
        self.output_type_name: NodeType = model.node_type(model.output)
        self.outputs = Outputs(model)
        self._forward, self._decoder = SampledForward(model), EdgeDecoder(model, graph.schema)
        self.edge_outputs = self._decoder.edge_outputs
        super().__init__(
            graph, query, seed=options.sample_seed, threads=options.threads, state=state, name=name
        )
        edges = graph.schema.edge_types
        self._places = self._forward.places_of(
            graph.schema.node_types, {name: edges[name].edge_dim for name in self._edge_types}
        )

    @cached_property
    def digest(self) -> str:
        """That of the model, as `Model.digest`."""
        return self.model.digest

    @never_raises
    def __repr__(self) -> str:
        graph = repr(self.graph).replace("\n", "\n  ")
        return f"SampledEngine(\n  {graph},\n  {self.model!r},\n  {self.query!r}, seq={self.seq:,}\n)"

    def guard(self, refuse: bool) -> None:
        """Does nothing: no row is kept that a batch could make infinite."""

    def predict(
        self, ids: "ArrayLike", *, output: str | None = None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes on their samples, float32 [ids, outputs].

        output: the name of one of the model's `outputs`, by default the first; it must be of the query's seed
        type. Raises `UnknownNodeError`, and `InputError` if the model has no such output.
        """
        if isinstance(ids, Texts) and len(ids) > _TEXTS:
            parts = (ids[at : at + _TEXTS] for at in range(0, len(ids), _TEXTS))
            return np.concatenate([self.predict(part, output=output) for part in parts])
        nodes = given_ids(ids)
        if len(nodes) > 1 and nodes.dtype.kind in "iuU":  # anything else is refused where samples are drawn
            distinct, places = np.unique(nodes, return_inverse=True)
            if len(distinct) < len(nodes):
                return self._predict_each(distinct, output)[places]
        return self._predict_each(nodes, output)

    def predict_at_once(self, ids: "ArrayLike", *, output: str | None = None) -> None:
        """None: a prediction is always computed. For callers that must not block, as of `Engine`."""
        self._check_output(output)

    def answer_at_once(self, request: bytes, parameters: bool, seq: int, most_numbers: int) -> None:
        """None, for the same reason."""

    def score(
        self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of the pairs src[i] -> dst[i], float32 [pairs, channels], with the arguments and errors of
        `Engine.score`: the rows of each end are predicted on its own sample.

        Raises `InputError`, too, if the edge output reads rows of nodes from which the query does not draw.
        """
        chosen, pairs = self._decoder.check(src, dst, settings)
        for node_type in self._decoder.outputs_of(chosen):
            if node_type != self.query.seed_type:
                raise InputError(
                    f"an edge output must read rows of {self.query.seed_type!r} nodes, from which the query "
                    f"draws, got {chosen.name!r}, which reads rows of {node_type!r} nodes: score it with an "
                    "engine of another mode"
                )
        ends = self._decoder.ends(chosen, pairs)
        rows = [self._predict_all(one.ids, one.outputs) if one.outputs else () for one in ends.nodes]
        return self._decoder.decode(chosen, pairs, ends, rows)

    def score_at_once(self, src: "ArrayLike", dst: "ArrayLike", **settings: Unpack[PairSettings]) -> None:
        """None, as `predict_at_once`."""
        self._decoder.check(src, dst, settings)

    def answer_scores_at_once(self, request: bytes, seq: int, most: MostOfRequest) -> None:
        """None: a model that answers from samples scores no edges as if events had happened."""

    def _predict_all(
        self, ids: "NDArray[np.generic] | Texts", outputs: Sequence[str | None]
    ) -> list[FloatArray]:
        """Rows of several outputs, on the same samples."""
        if len(outputs) == 1:
            return [self.predict(ids, output=outputs[0])]
        samples = self.samples_for(ids)
        return [self.predict_from(samples, output=output) for output in outputs]

    def samples_for(self, ids: "ArrayLike") -> list[HeteroSubgraph]:
        """The sample of each node by itself, all of one moment, with the columns that the model reads."""
        nodes = given_ids(ids)
        if len(nodes) == 1:
            return [self.sample(nodes)]
        return self._samples_of_each(nodes)

    def predict_from(
        self, samples: Sequence[HeteroSubgraph], *, output: str | None = None
    ) -> "Float32[FloatArray, 'samples channels']":
        """Returns the rows of `predict` for nodes whose samples `samples_for` has returned."""
        self._check_output(output)
        rows = [self._forward.predict(sample, output=output) for sample in samples]
        width = self.model.width(self.outputs.find(output).value)
        return np.concatenate(rows) if rows else np.empty((0, width), np.float32)

    def _predict_each(
        self, ids: "Shaped[NDArray[np.generic], 'ids']", output: str | None
    ) -> "Float32[FloatArray, 'ids channels']":
        """Samples and predicts in one native call. An id that it refuses is sampled again, for the error."""
        wanted = self._check_output(output)
        if self._places is not None:
            values, done = self.native.predict(
                self._forward.native, wanted.position, *self._places, native_ids(self.graph, ids)
            )
            if done == len(ids):
                return values
            self.predict_from(self.samples_for(ids[done : done + 1]), output=output)
        # Here a batch has mended what was refused, or the query draws too little for the model.
        return self.predict_from(self.samples_for(ids), output=output)

    def _check_output(self, output: str | None) -> Output:
        wanted = self.outputs.find(output)
        if wanted.node_type != self.query.seed_type:
            raise InputError(
                f"output must be one of {self.query.seed_type!r} nodes, from which the query draws, got "
                f"{output!r} of {wanted.node_type!r} nodes"
            )
        return wanted


def check_sampled(graph: Graph, model: Model, options: EngineOptions) -> Query:
    """The query that a `SampledEngine` of `model` draws by. Raises `ModelError` or `InputError` if none can
    follow the graph."""
    check_pair(graph, model)
    if options.mode != "presampled":
        raise InputError(f"the mode of a SampledEngine must be 'presampled', got {options.mode!r}")
    query = fit_query(model, graph.schema)
    if model.node_type(model.output) != query.seed_type:
        raise ModelError(
            f"the query must draw from the nodes that the model predicts, {model.node_type(model.output)!r}, "
            f"got {query.seed_type!r}"
        )
    for given in model.inputs.values():
        width = graph.schema.node_types.get(given.node_type, given.width)
        if graph.schema.growths and width != given.width:
            raise ModelError(
                f"a model that answers from samples must read all {width} features of {given.node_type!r} "
                f"nodes, got one that reads {given.width}: the schema has grown since it was trained"
            )
    return query


Predictor: TypeAlias = RowPredictor | SampledEngine
PredictorFactory: TypeAlias = Callable[[Graph, State | None], Predictor]


def predictor_factory(model: Model, options: EngineOptions, *, name: str = "engine") -> PredictorFactory:
    """Returns a function that makes the engine of `options.mode` from a graph and an optional saved state.

    Samples that it draws again have the seed of its earlier samples.
    """
    if options.mode != "presampled":
        return Engine.factory(model, options, name=name)
    seeds = [] if options.sample_seed is None else [options.sample_seed]

    def make(graph: Graph, state: State | None) -> SampledEngine:
        own = options if state is not None or not seeds else replace(options, sample_seed=seeds[-1])
        engine = SampledEngine(graph, model, own, state=state, name=name)
        seeds.append(engine.seed)
        return engine

    return make


def check_predictor(graph: Graph, model: Model, options: EngineOptions) -> None:
    """Raises `ModelError` or `InputError` if no such predictor of `model` can follow the graph."""
    if options.mode == "presampled":
        check_sampled(graph, model, options)
    else:
        lay_out(graph, model, options)
