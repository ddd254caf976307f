"""Creates the native engine of a plan, and checks the graph and the model first."""

from typing import NoReturn

from livegnn import _core
from livegnn.arguments import as_path
from livegnn.compiler.plan import Plan
from livegnn.errors import InputError, ViewMissingError
from livegnn.graph import Graph
from livegnn.graph.core import chosen_threads
from livegnn.inference.options import EngineOptions
from livegnn.model import Model
from livegnn.wording import kind_of


class Retired:
    """In the place of a native engine whose graph goes on without it: its rows belong to other nodes now."""

    def __getattr__(self, name: str) -> NoReturn:
        raise missing_engine()


def missing_engine() -> ViewMissingError:
    """What is raised of an engine whose graph goes on without it."""
    return ViewMissingError(
        "expected an engine that follows its graph, got one that has failed: its runtime builds another, "
        "ask runtime.engine"
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


def make_core(graph: Graph, plan: Plan, options: EngineOptions) -> _core.Engine:
    threads = chosen_threads(options.threads)
    if options.state_dir is None:
        return _core.Engine(graph.native, plan.program, threads, "", options.keep_degree)
    directory = as_path(options.state_dir, "state_dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _core.Engine(graph.native, plan.program, threads, str(directory), options.keep_degree)
    except _core.ThreadError:
        raise
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"state_dir must be a directory in which files can be made, got {options.state_dir!r}: {error}"
        ) from error
