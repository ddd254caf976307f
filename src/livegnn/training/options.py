"""The options of PyG's and torch's loaders that mean something else on a live graph, or nothing; and what
cannot leave the process of its graph."""

import multiprocessing
from typing import Final, NoReturn

import livegnn._core as _core
from livegnn.arguments import check_bool
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.wording import quoted

_INSTEAD: Final = {
    "data": "leave it out: the graph is the first argument",
    "directed": "leave it out: subgraphs are PyG's 'directional' ones",
    "is_sorted": "leave it out: edges are drawn where they are",
    "link_sampler": "leave it out, or use PyG's LinkLoader with it, LiveFeatureStore and LiveGraphStore",
    "node_sampler": "leave it out, or use PyG's NodeLoader with it, LiveFeatureStore and LiveGraphStore",
    "sample_direction": "leave it out: edges are drawn against their direction, as PyG does by default",
    "share_memory": "leave it out: the graph is not copied",
    "subgraph_type": (
        "leave it out for PyG's 'directional' subgraphs; for both directions of each drawn edge, pass "
        "transform=torch_geometric.transforms.ToUndirected(reduce='mean'); for induced ones, copy the graph, "
        "with graph.snapshot(), for PyG's own loader"
    ),
    "temporal_strategy": "leave it out for 'uniform', or pass by='latest' for 'last'",
    "time_attr": (
        "leave it out: edges bring their times, and are drawn by them if seeds have times, input_time=[...] "
        "of NodeLoader, edge_label_time=[...] of LinkLoader. Nodes have no times"
    ),
    "weight_attr": "leave it out, and pass by='weight' to draw by the weights of the edges",
}
_SWITCHES: Final = {
    "drop_last", "filter_per_worker", "in_order", "persistent_workers", "pin_memory", "shuffle"
}  # fmt: skip


class OneProcess:
    """An object of a live graph. It cannot be sent to another process, which would have a copy of it."""

    def __reduce__(self) -> NoReturn:
        raise InputError(
            f"{type(self).__name__} belongs to the graph of this process and cannot be sent to another: fork "
            "the workers of a loader, with multiprocessing_context='fork', or leave num_workers at 0"
        )


def checked_options(graph: Graph, options: dict[str, object]) -> dict[str, object]:
    """The options that PyG and torch get. Raises `InputError` for one that they do not know or would break a
    promise with, and says what to write instead."""
    for name in options:
        if name in _INSTEAD:
            raise InputError(f"{name} is an option of PyG's own samplers: {_INSTEAD[name]}")
    for name in _SWITCHES & options.keys():
        if options[name] is not None:
            options = {**options, name: check_bool(options[name], name)}
    if options.get("persistent_workers"):
        raise InputError(
            "persistent_workers would keep the graph of the first epoch for ever: leave it out, and workers "
            "are forked when an epoch begins; or leave num_workers at 0, for batches of the latest graph"
        )
    if not options.get("num_workers"):
        return options
    if _core.is_divided(graph.native):
        raise InputError(
            "num_workers must be 0 over a divided graph, whose parts answer the process that leads them, "
            f"got {options['num_workers']!r}: the parts draw at once"
        )
    if options.get("filter_per_worker") is False:
        raise InputError(
            "filter_per_worker=False would read features in this process, of another moment than the sample: "
            "leave it out, or leave num_workers at 0"
        )
    return {**options, "multiprocessing_context": _fork(options.get("multiprocessing_context"))}


def _fork(context: object) -> object:
    """`context`, or "fork" for None: from Python 3.14 on, the default is another."""
    method = context
    if context is not None and not isinstance(context, str) and hasattr(context, "get_start_method"):
        method = context.get_start_method()
    if "fork" not in multiprocessing.get_all_start_methods():
        raise InputError("num_workers must be 0 here, where processes cannot be forked: sampling has threads")
    if method not in (None, "fork"):
        raise InputError(
            f"multiprocessing_context must be 'fork', since workers share the graph of this process, got "
            f"{quoted(method)}: leave it out, or leave num_workers at 0"
        )
    return "fork" if context is None else context
