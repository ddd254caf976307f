"""The native engine of a model on a graph, with the plan that it runs, and the checks of both.

Functions that save, measure or check an engine take a `NativeEngine`. `Engine` has one, and calls them.
"""

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

import numpy as np

import livegnn._core as _core
from livegnn.arguments import as_path, chosen_threads
from livegnn.compiler.edge_outputs import add_edge_outputs, vector_outputs
from livegnn.compiler.plan import Plan
from livegnn.errors import InputError, ModelError, ViewMissingError
from livegnn.graph import Graph
from livegnn.graph.defaults import left_out
from livegnn.inference.options import EngineOptions
from livegnn.network import Model, Propagate
from livegnn.network.outputs import EdgeOutputs, Outputs
from livegnn.network.renaming import renamed
from livegnn.schema import Schema
from livegnn.types import FloatArray, NodeType
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Float32

_logger = logging.getLogger(__name__)


class NativeEngine:
    """Raises the errors of `Engine`. `native` computes nothing until it is initialized or filled.

    model: in the graph's names. eager_steps: how many steps a lazy engine computes at once; None if it is not
    lazy. output_type, output_type_name: the type of the nodes of the first output.
    """

    def __init__(self, graph: Graph, model: Model, options: EngineOptions) -> None:
        self.graph, self.options = graph, options
        self.model, self.plan, self.eager_steps = lay_out(graph, model, options)
        _warn_of_missing_weights(graph, self.model)
        _keep_narrower(graph, self.model)
        self.native = _make_native(graph, self.plan, options)
        self.view = _core.EngineView(self.native)
        self.outputs, self.edge_outputs = Outputs(self.model), EdgeOutputs(self.model)
        self.vectors = vector_outputs(self.model)
        self.output_type_name: NodeType = self.model.node_type(self.model.output)
        self.output_type = graph.node_type_index(self.output_type_name)

    @cached_property
    def digest(self) -> str:
        """As `Engine.digest`."""
        return self.model.digest

    @property
    def epoch(self) -> int:
        """As `Engine.epoch`."""
        return self.view.commits

    def memory(self, *, lazy: bool, history: int | None) -> dict[str, int]:
        """The bytes of each part, as `Engine.memory` names them, without the graph's. history: the bytes
        of the engine's history, None if it has none. The caller holds `Graph.writer`.
        """
        parts, native = dict.fromkeys(("aggregates", "layer outputs", "contexts"), 0), self.native
        for kept in self.plan.kept.values():
            if kept.stored:
                parts[kept.part] += native.bytes(kept.index)
        parts["contexts"] += native.sums_bytes()
        parts["errors"] = native.errors_bytes()
        parts["weights"] = native.program_bytes()
        if rows := self.view.bytes():
            parts["rows of batches"] = rows
        if self.options.partial:
            parts["residents"] = native.residents_bytes()
        if slots := native.slots_bytes():
            parts["slots"] = slots
        if lazy:
            parts["overlay"], parts["record"] = native.lazy_bytes()
        if history is not None:
            parts["history"] = history
        if mapped := native.mapped_bytes():
            parts["mapped state"] = mapped
        return parts

    def retire(self) -> None:
        """Refuses all calls from now on: the graph no longer updates this engine."""
        self.native.retire()  # for callers that have it already
        self.native = _Retired()  # type: ignore[assignment]


class _Retired:
    """Replaces a native engine that its graph no longer updates: its rows belong to other nodes now."""

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_engine()


def missing_engine() -> ViewMissingError:
    """Returns the error for a call of an engine that its graph no longer updates."""
    return ViewMissingError(
        "expected an engine that follows its graph, got one that its graph no longer updates, because it "
        "failed or was removed: runtime.engine is the one that answers"
    )


def check_pair(graph: object, model: object) -> None:
    """Raises `InputError` if the arguments are not a graph and a model, in this order."""
    if isinstance(graph, Graph) and isinstance(model, Model):
        return
    if isinstance(graph, Model) and isinstance(model, Graph):
        raise InputError("expected a graph and then a model, got them swapped: write Engine(graph, model)")
    if not isinstance(graph, Graph):
        raise InputError(
            f"expected a Graph, got {kind_of(graph)}: Graph.from_pyg(data) makes one of PyG's data"
        )
    raise InputError(
        f"expected a Model, got {kind_of(model)}: Model.from_pyg(module) imports a trained module, "
        "Model.load(path) reads a file"
    )


def lay_out(graph: Graph, model: Model, options: EngineOptions) -> tuple[Model, Plan, int | None]:
    """The model in the graph's names, its plan, and how many steps a lazy engine computes at once; None if it
    is not lazy. Raises `ModelError`, and `InputError` where the mode does not fit.
    """
    check_pair(graph, model)
    if len(graph.schema.origin.node_types) == 1:
        model = renamed(model, left_out(graph.schema))
    plan = Plan(model, graph.schema, options.keep, partial=options.partial)
    add_edge_outputs(model, graph.schema, plan.program)
    eager_steps = plan.eager_steps(options.mode)
    if eager_steps is not None and (options.keep != "all" or options.partial):
        raise InputError(
            'a lazy engine must keep every row, since its queries go on from them, got keep="aggregates" '
            'or keep_degree: leave these out, or use mode="eager"'
        )
    return model, plan, eager_steps


def refuse_lost(engine: NativeEngine, delta: _core.Delta, node_type: int, index: int, step: int) -> NoReturn:
    """Raises an `InputError` that names a node for which the prepared batch gives a row that is not finite,
    and the propagation in which it is computed.

    The row may be one of the node's aggregates, a layer's output or the prediction; features are always
    finite.
    """
    graph, plan = engine.graph, engine.plan
    added = delta.added(node_type)[delta.added_indices(node_type) == index]
    numbers = added[added >= 0]
    if not len(numbers):
        numbers = graph.native.ids_of(node_type, np.array([index], dtype=np.uint32))
    id = graph.to_user_ids(numbers)[0].item()
    name = list(graph.schema.node_types)[node_type]
    raise InputError(
        "expected events after which every value is finite, but what the model computes for node "
        f"{id!r} of type {name!r} would be infinite or not a number in propagation "
        f"{plan.propagation_of(step)} of {plan.depths}: send smaller features and weights, or, to go on as "
        'the framework would, set non_finite of the engine to "allow"'
    )


def _warn_of_missing_weights(graph: Graph, model: Model) -> None:
    """Says in the log which edges count 1 each because the graph has no weights that the model reads."""
    read = {given.edge_type for given in model.edge_inputs.values() if given.column == "weight"}
    for step in model.steps:
        if step.op == "propagate" and "weight" in (operators := Propagate.from_step(step)).message_local:
            read.update(operators.edge_types)
    lacking = sorted(name for name in read if not graph.schema.edge_types[name].weighted)
    if lacking:
        _logger.warning(
            "the model reads weights of edges of type %s, and the graph has none: each counts 1. If it was "
            "trained with weights, make the graph with them (an array 'weight'; in Python also weighted=True "
            "in an EdgeSchema); if without, import it in Python with edge_weight=False",
            ", ".join(map(str, lacking)),
        )


def narrowed(
    model: Model, schema: Schema, x: "Mapping[NodeType, Float32[FloatArray, '_ _']]"
) -> "Mapping[NodeType, Float32[FloatArray, '_ _']]":
    """Features of nodes, without columns that a growth has added, and that the model does not read."""
    if not schema.growths:
        return x
    widths = {given.node_type: given.width for given in model.inputs.values()}
    return {name: rows[:, : widths.get(name, rows.shape[1])] for name, rows in x.items()}


def _keep_narrower(graph: Graph, model: Model) -> None:
    """Lets the graph keep rows of the columns that the model reads, where a growth has added others.

    Raises `ModelError` if the graph is in parts, which hold rows with all columns alone.
    """
    for given in model.inputs.values():
        if given.width == graph.schema.node_types[given.node_type]:
            continue
        if _core.is_part(graph.native) or graph.names_only:
            raise ModelError(
                f"the model reads {given.width} features of {given.node_type!r} nodes, which have "
                f"{graph.schema.node_types[given.node_type]} since the schema has grown: in a graph in parts "
                "only models that read all of them can answer"
            )
        index = graph.node_type_index(given.node_type)
        _core.holding(graph.writer, graph.native.keep_narrower, index, given.width)


def _make_native(graph: Graph, plan: Plan, options: EngineOptions) -> _core.Engine:
    threads = chosen_threads(options.threads)
    if options.state_dir is None:
        return _core.Engine(graph.native, plan.program, threads, "", options.keep_degree)
    directory = as_path(options.state_dir, "state_dir")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _core.Engine(graph.native, plan.program, threads, str(directory), options.keep_degree)
    except _core.ThreadError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"state_dir must be a directory in which files can be made, got {options.state_dir!r}: {error}"
        ) from error
