"""Describes a graph: how many nodes and edges of each type, which columns, and the memory of each part."""

from livegnn.graph.native_graph import NativeGraph
from livegnn.schema import EdgeSchema
from livegnn.wording import format_count, format_edge_type, format_size


def describe(graph: NativeGraph, taken: int) -> str:
    """One line for a graph of one node type and one edge type, else a line for each type.

    taken: bytes of all its parts. It reads only counters and holds the graph's lock briefly for each, so it
    never waits while a batch is prepared.
    """
    schema = graph.schema
    nodes = {
        name: [
            format_count(graph.native.num_nodes(index), "node"),
            *([f"x={width}"] if width else []),
            *(["timed"] if name in schema.timed_features else []),
        ]
        for index, (name, width) in enumerate(schema.node_types.items())
    }
    edges = {
        edge_type: [format_count(graph.native.num_edges(index), "edge"), *columns_of(carried)]
        for index, (edge_type, carried) in enumerate(schema.edge_types.items())
    }
    whole = [*(["text ids"] if schema.text_ids else []), f"seq={graph.seq:,}", format_size(taken)]
    if len(nodes) == 1 and len(edges) <= 1:
        parts = [part for found in (*nodes.values(), *edges.values()) for part in found]
        return f"Graph({', '.join(parts + whole)})"
    lines = [f"{name}: {', '.join(parts)}" for name, parts in nodes.items()]
    lines += [f"{format_edge_type(name)}: {', '.join(parts)}" for name, parts in edges.items()]
    return "Graph(\n" + "".join(f"  {line}\n" for line in [*lines, ", ".join(whole)]) + ")"


def columns_of(edges: EdgeSchema) -> list[str]:
    """The columns and the special settings of an edge type, as words."""
    said = {
        "undirected": edges.undirected,
        "weighted": edges.weighted,
        "timed": edges.timed,
        f"edge_dim={edges.edge_dim}": edges.edge_dim > 0,
        f"time_to_live={edges.time_to_live}": edges.time_to_live is not None,
    }
    return [words for words, holds in said.items() if holds]


def measure_parts(graph: NativeGraph) -> dict[str, int]:
    """Bytes of each part, for `Graph.memory`. The caller must hold `Graph.writer`."""
    nodes, edges, updates, samples = graph.native.memory()
    texts = graph.node_ids.texts
    parts = {} if texts is None else {"texts of ids": texts.bytes()}
    for name, (ids, x, mapped) in zip(graph.schema.node_types, nodes, strict=True):
        parts[f"ids of {name}"], parts[f"features of {name}"] = ids, x
        if mapped:
            parts[f"mapped features of {name}"] = mapped
    for (edge_type, carried), (lists, batches, x, mapped) in zip(
        graph.schema.edge_types.items(), edges, strict=True
    ):
        name = format_edge_type(edge_type)
        parts[f"edges of {name}"], parts[f"batches of {name}"] = lists, batches
        if carried.edge_dim:
            parts[f"features of {name}"] = x
        if mapped:
            parts[f"mapped features of {name}"] = mapped
    beside = {"changes of batches": updates, "samples": samples}
    return parts | {name: taken for name, taken in beside.items() if taken}
