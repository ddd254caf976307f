"""Events that a graph could never take, whatever comes before them."""

from livegnn.errors import InputError
from livegnn.events import Chunk
from livegnn.graph import Graph, check_columns


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
