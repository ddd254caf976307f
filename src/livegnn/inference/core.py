"""Creates the native engine of a plan, and checks the graph and the model first."""

import logging
from typing import NoReturn

from livegnn import _core
from livegnn.arguments import as_path
from livegnn.compiler.plan import Plan
from livegnn.errors import InputError, ViewMissingError
from livegnn.graph import Graph
from livegnn.graph.core import chosen_threads
from livegnn.graph.defaults import left_out
from livegnn.inference.options import EngineOptions
from livegnn.network import Model, Propagate
from livegnn.network.renaming import renamed
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)


class Retired:
    """In the place of a native engine whose graph goes on without it: its rows belong to other nodes now."""

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_engine()


def missing_engine() -> ViewMissingError:
    """What is raised of an engine whose graph goes on without it."""
    return ViewMissingError(
        "expected an engine that follows its graph, got one without which its graph goes on, because it "
        "failed or was taken off: ask runtime.engine for the one that answers"
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
    if len(graph.schema.node_types) == 1:
        model = renamed(model, left_out(graph.schema))
    plan = Plan(model, graph, options.keep, partial=options.partial)
    eager_steps = plan.eager_steps(options.mode)
    if eager_steps is not None and (options.keep != "all" or options.partial):
        raise InputError(
            'a lazy engine must keep every row, since its queries go on from them, got keep="aggregates" '
            'or keep_degree: leave these out, or use mode="eager"'
        )
    return model, plan, eager_steps


def warn_of_missing_weights(graph: Graph, model: Model) -> None:
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


def make_core(graph: Graph, plan: Plan, options: EngineOptions) -> _core.Engine:
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
