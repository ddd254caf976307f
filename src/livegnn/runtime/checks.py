"""What a loop is made with and what is appended to it, checked."""

from collections.abc import Mapping, Sequence

from livegnn.errors import InputError
from livegnn.events import Chunk
from livegnn.graph import Graph, View, check_columns
from livegnn.wording import kind_of


def views_by_name(graph: Graph, views: Sequence[View]) -> Mapping[str, View]:
    """Raises `InputError` for what is no view of the graph, and for a name that is taken."""
    named: dict[str, View] = {}
    for view in views:
        if not isinstance(view, View):
            raise InputError(f"expected views of the graph, such as an Engine, got {kind_of(view)}")
        if view.graph is not graph:
            raise InputError(
                f"expected a view of the runtime's graph, got {view.name!r} of another: write "
                "Runtime(log, view.graph, view)"
            )
        if not view.name or view.name in View.reserved_names or view.name in named:
            raise InputError(
                f"a view's name must be its own, and neither empty nor one of {sorted(View.reserved_names)}, "
                f"got {view.name!r}"
            )
        named[view.name] = view
    return named


def check_schema(graph: Graph, chunk: Chunk) -> None:
    """Raises InputError for a type that the graph does not have, ids of the other kind, or columns."""
    if isinstance(chunk.type, str):
        graph.node_type_index(chunk.type)
    else:
        graph.edge_type_index(chunk.type)
    check_columns(graph.schema, chunk)
    expected = "text" if graph.schema.text_ids else "integers"
    for ids in (chunk.ids, chunk.dst):
        if ids is not None and (ids.dtype.kind == "U") != graph.schema.text_ids:
            raise InputError(f"ids must be {expected} in this graph, got {ids[0].item()!r}")
