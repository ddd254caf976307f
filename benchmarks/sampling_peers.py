"""What pre-sampling is compared with: a graph database that is asked for the sample, and PyG's sampler.

Both hold the graph in memory and return the ids and the features of the sampled nodes. Both take further
edges (`append`), from another thread than the one that samples.

`KuzuSampler`: Kuzu, an embedded database, in Cypher. Its dialect has no LIMIT for each row and sorts no list
of structures, so there are three ways to draw so many neighbours of each node (`FORMS`); the benchmark takes
the one that is fastest on the data set. Ids are literals and no parameters, because Kuzu finds a literal by
its primary key and scans the table for a parameter. A random draw takes the smallest hashes of the times, of
which no two are equal, with another salt each time. Edges are appended with COPY, two hundred times as fast
as with CREATE. Edges are stored in the direction of the query only.

`PyGSampler`: `NeighborSampler` over the CSR that it makes of all edges, with pyg-lib. It can take no edge, so
`append` makes another one of the old edges and the new ones, and then samples come from that.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graphs import Int64
from livegnn.query import NeighborsBy
from livegnn.types import EdgeType, NodeType
from presampling_shapes import Batch, Edges, TimedGraph

Sampled = Mapping[NodeType, Mapping[int, Any]]
"""The features of each sampled node, by type and id."""

Form = Literal["a query a node", "a query a hop, scan", "a query a hop, look-ups"]
FORMS: tuple[Form, ...] = ("a query a node", "a query a hop, scan", "a query a hop, look-ups")
PACK = 1 << 22
"""Two integers in one, so that a list of them can be sorted: the second is below this."""


class KuzuSampler:
    """A query, once per call, on a Kuzu database in memory; `form` may be set between calls."""

    def __init__(self, graph: TimedGraph, *, form: Form = FORMS[0], seed: int = 0) -> None:
        import kuzu

        self.graph, self.form = graph, form
        database = kuzu.Database(":memory:")
        # One thread each: a sample is too small for several.
        self._reader = kuzu.Connection(database, num_threads=1)
        self._writer = kuzu.Connection(database, num_threads=1)
        self._salts = np.random.default_rng(seed)
        assert max(graph.num_nodes.values()) <= PACK
        for type, x in graph.x.items():
            self._make(f"NODE TABLE {type}(id INT64 PRIMARY KEY, x FLOAT[{x.shape[1]}])")
            self._copy(type, {"id": np.arange(len(x)), "x": x})
        for source, name, target in graph.edges:
            ends = f"FROM {source} TO {target}"
            self._make(f"REL TABLE {name}({ends}, time INT64) WITH (storage_direction='fwd')")
        self.append(graph.edges)

    def append(self, batch: Batch) -> None:
        for (_, name, _), edges in batch.items():
            self._copy(name, {"from": edges.source, "to": edges.target, "time": edges.time})

    def sample(self, seed: int, by: NeighborsBy = "latest") -> Sampled:
        seed_type = self.graph.seed_type
        found: dict[NodeType, dict[int, Any]] = {type: {} for type in self.graph.num_nodes}
        found[seed_type].update(self._look_up(seed_type, [seed]))
        keys = [seed]
        for edge_type, count in self.graph.hops:
            salt = int(self._salts.integers(1 << 40))
            of_type = found[edge_type[2]]
            drawn = self._draw(edge_type, keys, count, by, salt)
            keys = [id for id in drawn if id not in of_type]
            of_type.update((id, drawn[id]) for id in keys)
        return found

    def _draw(
        self, edge_type: EdgeType, keys: Sequence[int], count: int, by: NeighborsBy, salt: int
    ) -> dict[int, Any]:
        """The neighbours drawn for all of `keys`, with their features."""
        if not keys:
            return {}
        source, name, target = edge_type
        if self.form == "a query a node":
            order = "e.time DESC" if by == "latest" else f"hash(e.time + {salt})"
            drawn: dict[int, Any] = {}
            for key in keys:
                start = f"MATCH (a:{source} {{id: {key}}})-[e:{name}]->(b:{target})"
                drawn.update(self._ask(f"{start} RETURN b.id, b.x ORDER BY {order} LIMIT {count}"))
            return drawn
        where = f"a.id = {keys[0]}" if len(keys) == 1 else f"a.id IN {list(keys)}"
        if by == "latest":
            best = f"list_reverse_sort(collect(e.time * {PACK} + offset(id(b))))"
        else:
            drawn_by = f'CAST(hash(e.time + {salt}) % {1 << 40}, "INT64")'
            best = f"list_sort(collect({drawn_by} * {PACK} + offset(id(b))))"
        start = f"MATCH (a:{source})-[e:{name}]->(b:{target}) WHERE {where}"
        rows = self._ask(f"{start} WITH a.id AS key, {best}[1:{count}] AS best RETURN best")
        # Nodes were copied in the order of their ids, so an offset is an id.
        ids = list(dict.fromkeys(packed % PACK for (best,) in rows for packed in best))
        return self._look_up(target, ids)

    def _look_up(self, type: NodeType, ids: Sequence[int]) -> dict[int, Any]:
        """Features of nodes."""
        if self.form == "a query a hop, scan" and len(ids) > 1:
            return dict(self._ask(f"MATCH (a:{type}) WHERE a.id IN {list(ids)} RETURN a.id, a.x"))
        found: dict[int, Any] = {}
        for id in ids:
            found.update(self._ask(f"MATCH (a:{type} {{id: {id}}}) RETURN a.id, a.x"))
        return found

    def _ask(self, text: str) -> list[Any]:
        return self._reader.execute(text).get_all()

    def _make(self, text: str) -> None:
        self._writer.execute(f"CREATE {text}")

    def _copy(self, table: str, columns: dict[str, Any]) -> None:
        import pyarrow as pa

        arrays = {}
        for name, column in columns.items():
            values = pa.array(column.ravel())
            rows = column.ndim == 2
            arrays[name] = pa.FixedSizeListArray.from_arrays(values, column.shape[1]) if rows else values
        self._writer.execute(f"COPY {table} FROM $columns", {"columns": pa.table(arrays)})


class PyGSampler:
    """Samples for one query with PyG's `NeighborSampler`, from the CSR of the last `append`."""

    def __init__(self, graph: TimedGraph, by: NeighborsBy) -> None:
        import torch

        self.graph, self.by = graph, by
        self._edges = dict(graph.edges)
        self._x = {type: torch.from_numpy(x) for type, x in graph.x.items()}
        self._now = torch.tensor([np.iinfo(np.int64).max])
        self._sampler = self._make()

    def append(self, batch: Batch) -> None:
        for edge_type, new in batch.items():
            old = self._edges[edge_type]
            self._edges[edge_type] = Edges(
                np.concatenate([old.source, new.source]),
                np.concatenate([old.target, new.target]),
                np.concatenate([old.time, new.time]),
            )
        self._sampler = self._make()

    def sample(self, seed: int) -> Mapping[NodeType, tuple[Any, Any]]:
        """Ids and features of the sampled nodes, by type."""
        import torch
        from torch_geometric.sampler import NodeSamplerInput

        asked = NodeSamplerInput(
            input_id=None,
            node=torch.tensor([seed]),
            time=self._now if self.by == "latest" else None,
            input_type=self.graph.seed_type,
        )
        drawn = self._sampler.sample_from_nodes(asked)
        return {type: (ids, self._x[type][ids]) for type, ids in drawn.node.items()}

    def _make(self) -> Any:
        import torch
        from torch_geometric.data import HeteroData
        from torch_geometric.sampler import NeighborSampler

        data = HeteroData()
        for type, n in self.graph.num_nodes.items():
            data[type].num_nodes = n
        fan_outs: dict[EdgeType, list[int]] = {}
        for edge_type, edges in self._edges.items():
            # PyG draws against the direction of edges.
            source, name, target = edge_type
            backwards = (target, name, source)
            ends: Int64 = np.stack([edges.target, edges.source])
            data[backwards].edge_index = torch.from_numpy(ends)
            fan_outs[backwards] = [count if hop == edge_type else 0 for hop, count in self.graph.hops]
            if self.by == "latest":
                data[backwards].time = torch.from_numpy(edges.time)
        if self.by == "latest":
            return NeighborSampler(data, fan_outs, temporal_strategy="last", time_attr="time", disjoint=True)
        return NeighborSampler(data, fan_outs)


def why_not(package: str) -> str | None:
    """Why a peer cannot run; None if it can."""
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    return None
