"""Over several types of nodes and edges too, the engine equals the oracle and PyG on the rebuilt graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import HeteroData

from gate import draws
from livegnn import Engine, Events, Graph, Model
from livegnn.graph import EdgeSchema, Schema
from livegnn.types import EdgeType
from mirror import assert_close, assert_exact, frozen
from modules import fill

SEQUENCES = draws(3, 80)
"""How many random sequences each kind of model goes through."""

WIDTHS = {"user": 3, "item": 2, "shop": 4}
KNOWS = ("user", "knows", "user")
FOLLOWS = ("user", "follows", "user")
BLOCKS = ("user", "blocks", "user")
BUYS = ("user", "buys", "item")
BOUGHT = ("item", "bought by", "user")
SELLS = ("shop", "sells", "item")
SOLD = ("item", "sold by", "shop")
EDGES = {
    KNOWS: EdgeSchema(undirected=True, weighted=True, edge_dim=2),
    FOLLOWS: EdgeSchema(edge_dim=2),
    BLOCKS: EdgeSchema(edge_dim=2),
    BUYS: EdgeSchema(weighted=True, edge_dim=3),
    BOUGHT: EdgeSchema(),
    SELLS: EdgeSchema(),
    SOLD: EdgeSchema(),
}
SCHEMA = Schema(WIDTHS, EDGES)
TYPES, METADATA = list(WIDTHS), (list(WIDTHS), list(EDGES))
CHOICES = np.random.default_rng(3).standard_normal((8, max(WIDTHS.values()))).astype(np.float32)
CHOICES[0] = 0
"""Features to choose from; a node type, or an edge type, takes as many channels as it has."""


class Mixed(nn.Module):
    """Two layers of HeteroConv with another convolution for each edge type, weights where edges have them."""

    def __init__(self, aggr: str, output: str) -> None:
        super().__init__()
        self.output = output
        self.encoders = nn.ModuleDict({name: nn.Linear(width, 5) for name, width in WIDTHS.items()})
        # Concatenated, a row is as wide as edge types reach its node.
        wide = {name: sum(e[2] == name for e in EDGES) * 5 if aggr == "cat" else 5 for name in WIDTHS}
        self.first = self.layer(aggr, dict.fromkeys(WIDTHS, 5), 5)
        self.second = self.layer(aggr, wide, 5)
        self.norm = nn.LayerNorm(wide[output])

    @staticmethod
    def layer(aggr: str, widths: dict[str, int], out: int) -> nn.Module:
        def ends(edge_type: EdgeType) -> tuple[int, int]:
            return widths[edge_type[0]], widths[edge_type[2]]

        return pyg.HeteroConv(
            {
                KNOWS: pyg.GCNConv(widths["user"], out),
                FOLLOWS: pyg.SAGEConv(ends(FOLLOWS), out),
                BLOCKS: pyg.GraphConv(ends(BLOCKS), out, aggr="max"),
                BUYS: pyg.GraphConv(ends(BUYS), out),
                BOUGHT: pyg.SAGEConv(ends(BOUGHT), out, aggr="max", root_weight=False),
                SELLS: pyg.SAGEConv(ends(SELLS), out, aggr="min"),
                SOLD: pyg.GraphConv(ends(SOLD), out, aggr="mean"),
            },
            aggr=aggr,
        )

    def forward(self, x_dict, edge_index_dict, edge_weight_dict):
        x_dict = {name: self.encoders[name](x) for name, x in x_dict.items()}
        h_dict = self.first(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
        h_dict = {name: h.relu() for name, h in h_dict.items()}
        out = self.second(h_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)[self.output]
        return self.norm(out + h_dict[self.output])


class Attentive(nn.Module):
    """Two layers of HeteroConv, of attention with features of edges and without, beside plain sums."""

    def __init__(self, aggr: str, output: str) -> None:
        super().__init__()
        self.output = output
        wide = {name: sum(e[2] == name for e in EDGES) * 4 if aggr == "cat" else 4 for name in WIDTHS}
        self.first, self.second = self.layer(aggr, WIDTHS), self.layer(aggr, wide)
        self.encoder = nn.Linear(EDGES[BUYS].edge_dim, 2)

    @staticmethod
    def layer(aggr: str, widths: dict[str, int]) -> nn.Module:
        def ends(edge_type: EdgeType) -> tuple[int, int]:
            return widths[edge_type[0]], widths[edge_type[2]]

        return pyg.HeteroConv(
            {
                KNOWS: pyg.GATConv(widths["user"], 2, heads=2, edge_dim=2),
                FOLLOWS: pyg.SAGEConv(ends(FOLLOWS), 4),
                BLOCKS: pyg.TransformerConv(ends(BLOCKS), 4, edge_dim=2),
                BUYS: pyg.GATConv(ends(BUYS), 2, heads=2, edge_dim=2, add_self_loops=False),
                BOUGHT: pyg.SAGEConv(ends(BOUGHT), 4, aggr="max"),
                SELLS: pyg.GATv2Conv(ends(SELLS), 4, add_self_loops=False),
                SOLD: pyg.TransformerConv(ends(SOLD), 2, heads=2),
            },
            aggr=aggr,
        )

    def forward(self, x_dict, edge_index_dict, edge_attr_dict):
        edge_attr_dict = {**edge_attr_dict, BUYS: self.encoder(edge_attr_dict[BUYS]).tanh()}
        h_dict = self.first(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        h_dict = {name: h.tanh() for name, h in h_dict.items()}
        return self.second(h_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)[self.output]


class Sage(nn.Module):
    """What ``to_hetero`` is given; the layers' widths are found when it first runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 5), pyg.SAGEConv((-1, -1), 4, aggr="sum")
        self.linear = pyg.Linear(-1, 4)

    def forward(self, x, edge_index):
        h = self.first(x, edge_index).relu()
        return self.second(h, edge_index) + self.linear(x)


class Relational(nn.Module):
    """Two relational layers over the users."""

    def __init__(self, aggr: str, **settings: int) -> None:
        super().__init__()
        self.first = pyg.RGCNConv(WIDTHS["user"], 6, 3, aggr=aggr)
        self.second = (pyg.RGCNConv if aggr == "max" else pyg.FastRGCNConv)(6, 4, 3, aggr=aggr, **settings)

    def forward(self, x, edge_index, edge_type):
        return self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)


class RelationalAttention(nn.Module):
    """Two layers of attention over the users' relations, the second with features of the edges."""

    def __init__(self, mechanism: str, mode: str) -> None:
        super().__init__()
        settings = {"attention_mechanism": f"{mechanism}-relation", "attention_mode": mode}
        self.first = pyg.RGATConv(WIDTHS["user"], 2, 3, heads=2, **settings)
        self.second = pyg.RGATConv(4, 2, 3, heads=2, edge_dim=3, concat=False, **settings)
        self.encoder = nn.Linear(2, 3)

    def forward(self, x, edge_index, edge_type, edge_attr):
        h = self.first(x, edge_index, edge_type).tanh()
        return self.second(h, edge_index, edge_type, self.encoder(edge_attr).tanh())


RELATIONS = [KNOWS, FOLLOWS, BLOCKS]


@lru_cache
def make(kind: str, aggr: str, output: str) -> tuple[nn.Module, Model]:
    """A module in float64, and the model imported from it."""
    if kind == "HeteroConv":
        module = fill(Mixed(aggr, output), 1)
        weighted = [edge_type for edge_type, edges in EDGES.items() if edges.weighted]
        model = Model.from_pyg(module, metadata=METADATA, edge_weight=weighted)
    elif kind == "attention":
        module = fill(Attentive(aggr, output), 4)
        model = Model.from_pyg(module, metadata=METADATA)
    elif kind == "RGAT":
        mode = "multiplicative-self-attention" if output == "item" else "additive-self-attention"
        module = fill(RelationalAttention(aggr, mode), 5)
        model = Model.from_pyg(module, relations=RELATIONS, node_type="user")
    elif kind == "to_hetero":
        module = pyg.to_hetero(Sage(), METADATA, aggr=aggr)
        module(*Mirror().arguments({name: np.arange(0) for name in WIDTHS}, torch.float32)[:2])
        model = Model.from_pyg(fill(module, 2), metadata=METADATA, output_type=output)
    else:
        module = fill(Relational(aggr, **({"num_bases": 2} if output == "item" else {"num_blocks": 2})), 3)
        model = Model.from_pyg(module, relations=RELATIONS, node_type="user")
    return module.double(), model


@dataclass
class Mirror:
    """The graph once more. nodes: type -> id -> features; edges: type -> (source, target) -> weight;
    features: the same keys -> the edge's."""

    nodes: dict[str, dict[int, np.ndarray]] = field(default_factory=lambda: {name: {} for name in WIDTHS})
    edges: dict[EdgeType, dict[tuple[int, int], float]] = field(
        default_factory=lambda: {edge_type: {} for edge_type in EDGES}
    )
    features: dict[EdgeType, dict[tuple[int, int], np.ndarray]] = field(
        default_factory=lambda: {edge_type: {} for edge_type in EDGES}
    )

    def key(self, edge_type: EdgeType, u: int, v: int) -> tuple[int, int]:
        return (min(u, v), max(u, v)) if EDGES[edge_type].undirected else (u, v)

    def remove_node(self, name: str, node: int) -> None:
        del self.nodes[name][node]
        for (source, _, target), edges in self.edges.items():
            for u, v in list(edges):
                if (source == name and u == node) or (target == name and v == node):
                    del edges[u, v]
        for edge_type, edges in self.edges.items():
            self.features[edge_type] = {key: self.features[edge_type][key] for key in edges}

    def data(self, ids: dict[str, np.ndarray]) -> HeteroData:
        """The graph as PyG has it, in float64; row i of a type is node ``ids[type][i]``."""
        data = HeteroData()
        position = {name: {node: i for i, node in enumerate(ids[name].tolist())} for name in WIDTHS}
        for name, width in WIDTHS.items():
            rows = [self.nodes[name][node] for node in ids[name].tolist()]
            data[name].x = torch.tensor(np.array(rows, dtype=np.float64).reshape(-1, width))
        for edge_type, edges in self.edges.items():
            source, target = position[edge_type[0]], position[edge_type[2]]
            directed = dict(edges)
            if EDGES[edge_type].undirected:
                directed |= {(v, u): weight for (u, v), weight in edges.items()}
            if EDGES[edge_type].edge_dim:
                rows = [self.features[edge_type][self.key(edge_type, u, v)] for u, v in directed]
                attr = np.array(rows, dtype=np.float64).reshape(-1, EDGES[edge_type].edge_dim)
                data[edge_type].edge_attr = torch.tensor(attr)
            pairs = np.array([(source[u], target[v]) for u, v in directed], dtype=np.int64).reshape(-1, 2).T
            data[edge_type].edge_index = torch.from_numpy(pairs.copy())
            if EDGES[edge_type].weighted:
                weight = np.array([np.float32(w) for w in directed.values()], dtype=np.float64)
                data[edge_type].edge_weight = torch.from_numpy(weight)
        return data

    def arguments(self, ids: dict[str, np.ndarray], dtype: torch.dtype = torch.float64) -> tuple:
        data = self.data(ids)
        x_dict = {name: x.to(dtype) for name, x in data.x_dict.items()}
        return x_dict, data.edge_index_dict, data.edge_weight_dict


picks = st.integers(0, 9)  # the n-th node there is, modulo their number
rows = st.integers(0, len(CHOICES) - 1)
types = st.sampled_from(TYPES)
pairs = st.lists(
    st.tuples(
        st.sampled_from(list(EDGES)), picks, picks, st.sampled_from([0.0, 0.25, 1.0, 2.0]), st.none() | rows
    ),
    min_size=1,
    max_size=6,
)
operations = st.one_of(
    st.tuples(st.just("add_edges"), pairs),
    st.tuples(st.just("remove_edges"), pairs, st.booleans()),
    st.tuples(st.just("set_features"), types, picks, rows),
    st.tuples(st.just("add_node"), types, rows, st.booleans()),
    st.tuples(st.just("remove_node"), types, picks),
)


class LiveGraph(RuleBasedStateMachine):
    """A small graph of several types that lives, and what must stay equal to it."""

    def __init__(self, kind: str, designs: list[tuple[str, str]]) -> None:
        """designs: aggregations, and types of nodes whose rows are the output."""
        super().__init__()
        self.kind, self.designs = kind, designs

    @initialize(
        design=st.integers(0, 11),
        nodes=st.lists(st.tuples(types, rows), max_size=12),
        edges=st.lists(pairs, max_size=6),
    )
    def begin(self, design, nodes, edges):
        self.module, self.model = make(self.kind, *self.designs[design % len(self.designs)])
        self.output = self.model.node_type(self.model.output)
        self.mirror = Mirror()
        self.named = dict.fromkeys(WIDTHS, 0)
        self.removed: dict[str, list[int]] = {name: [] for name in WIDTHS}
        self.graph = Graph(SCHEMA)
        events = Events()
        for name, row in nodes:
            self.write(events, ("add_node", name, row, False))
        for some in edges:
            self.write(events, ("add_edges", some))
        self.graph.apply(events)
        self.engine = Engine(self.graph, self.model, threads=1)

    def write(self, events: Events, operation: tuple) -> None:
        """Appends what an operation means on the mirror's graph, and applies it there."""
        kind, *arguments = operation
        if kind in ("add_edges", "remove_edges"):
            for edge_type, a, b, weight, row in arguments[0]:
                sources, targets = (list(self.mirror.nodes[edge_type[end]]) for end in (0, 2))
                there = list(self.mirror.edges[edge_type])
                if not sources or not targets:
                    continue
                u, v = sources[a % len(sources)], targets[b % len(targets)]
                if kind == "add_edges":
                    given = weight if EDGES[edge_type].weighted else 1.0
                    width, key = EDGES[edge_type].edge_dim, self.mirror.key(edge_type, u, v)
                    features = CHOICES[row, :width] if width and row is not None else None
                    column = given if EDGES[edge_type].weighted else None
                    events.add_edges(u, v, weight=column, edge_attr=features, edge_type=edge_type)
                    self.mirror.edges[edge_type][key] = given
                    kept = self.mirror.features[edge_type].get(key, np.zeros(width, dtype=np.float32))
                    self.mirror.features[edge_type][key] = kept if features is None else features
                    continue
                if arguments[1] and there:
                    u, v = there[(a + b) % len(there)]
                events.remove_edges(u, v, edge_type=edge_type)
                self.mirror.edges[edge_type].pop(self.mirror.key(edge_type, u, v), None)
                self.mirror.features[edge_type].pop(self.mirror.key(edge_type, u, v), None)
            return
        name, *rest = arguments
        present = list(self.mirror.nodes[name])
        if kind == "add_node":
            row, again = rest
            if again and self.removed[name]:
                node = self.removed[name][-1]
            else:
                node, self.named[name] = self.named[name], self.named[name] + 1
            x = CHOICES[row, : WIDTHS[name]]
            events.add_nodes(node, x, node_type=name)
            self.mirror.nodes[name][node] = x
        elif present and kind == "set_features":
            node, x = present[rest[0] % len(present)], CHOICES[rest[1], : WIDTHS[name]]
            events.set_features(node, x, node_type=name)
            self.mirror.nodes[name][node] = x
        elif present:
            node = present[rest[0] % len(present)]
            events.remove_nodes(node, node_type=name)
            self.mirror.remove_node(name, node)
            self.removed[name].append(node)

    def predictions(self) -> dict[int, bytes]:
        ids = self.graph.ids(self.output)
        rows = self.engine.predict(ids) if len(ids) else []
        return {node: row.tobytes() for node, row in zip(ids.tolist(), rows, strict=True)}

    @rule(operations=st.lists(operations, min_size=1, max_size=8))
    def events_come(self, operations):
        events, before = Events(), self.predictions()
        for operation in operations:
            self.write(events, operation)
        ids = np.array(list(self.mirror.nodes[self.output]), dtype=np.int64)
        imagined = self.engine.what_if(events).predict(ids).tobytes() if len(ids) else b""
        assert self.predictions() == before
        changed = self.engine.apply(events).changed.tolist()
        now = self.predictions()
        assert b"".join(now[node] for node in ids.tolist()) == imagined
        removed = {
            node
            for chunk in events.chunks
            if chunk.kind == "remove_nodes" and chunk.type == self.output
            for node in chunk.ids.tolist()
        }
        assert sorted(changed) == sorted(n for n in now if n in removed or now[n] != before.get(n))

    @rule(pick=picks, edge_type=st.sampled_from([KNOWS, FOLLOWS, BLOCKS]))
    def a_loop_comes(self, pick, edge_type):
        self.events_come([("add_edges", [(edge_type, pick, pick, 1.0, pick % len(CHOICES))])])

    @rule(name=types, row=rows, some=pairs)
    def a_node_comes_with_edges_and_goes(self, name, row, some):
        self.events_come([("add_node", name, row, False), ("add_edges", some), ("remove_node", name, 0)])

    @rule()
    def restart(self):
        state, kept = self.graph.state(), self.engine.state()
        self.graph = Graph.from_state(state)
        self.engine = Engine(self.graph, self.model, threads=1, state=kept)
        assert frozen(self.engine.state()) == frozen(kept)

    @invariant()
    def it_is_the_graph_of_the_mirror(self):
        if not hasattr(self, "engine"):
            return
        self.graph.native.check()
        for name, nodes in self.mirror.nodes.items():
            ids = self.graph.ids(name)
            assert sorted(ids.tolist()) == sorted(nodes)
            assert all(map(np.array_equal, self.graph.features(ids, name), [nodes[i] for i in ids.tolist()]))
        for edge_type, edges in self.mirror.edges.items():
            assert self.graph.num_edges(edge_type) == len(edges)

    @invariant()
    def it_is_exact(self):
        if not hasattr(self, "engine"):
            return
        assert_exact(self.engine)
        ids = {name: self.graph.ids(name) for name in WIDTHS}
        if not len(ids[self.output]):
            return
        data = self.mirror.data(ids)
        with torch.no_grad():
            if self.kind == "HeteroConv":
                expected = self.module(data.x_dict, data.edge_index_dict, data.edge_weight_dict)
            elif self.kind == "attention":
                features = {e: x for e, x in data.edge_attr_dict.items() if e != FOLLOWS}  # SAGEConv
                expected = self.module(data.x_dict, data.edge_index_dict, features)
            elif self.kind == "to_hetero":
                expected = self.module(data.x_dict, data.edge_index_dict)[self.output]
            else:
                edges = [data.edge_index_dict[edge_type] for edge_type in RELATIONS]
                numbers = torch.arange(3).repeat_interleave(torch.tensor([e.shape[1] for e in edges]))
                given = (data.x_dict["user"], torch.cat(edges, dim=1), numbers)
                if self.kind == "RGAT":
                    given = (*given, torch.cat([data.edge_attr_dict[e] for e in RELATIONS]))
                expected = self.module(*given)
        features = data.x_dict[self.output].numpy()
        assert_close(self.engine.embeddings(-1), expected.numpy(), features, "PyG")


# The first ones are the gate's: an import takes longer than a sequence of events.
DESIGNS = {
    "HeteroConv": (1, [("max", "shop"), ("cat", "user"), ("mean", "item"), ("sum", "user")]),
    "to_hetero": (1, [("mean", "item"), ("min", "shop"), ("sum", "user")]),
    "RGCN": (1, [("mean", "user"), ("max", "item"), ("sum", "user"), ("mean", "item")]),
    "attention": (1, [("sum", "user"), ("cat", "item")]),
    "RGAT": (1, [("across", "user"), ("within", "item")]),
}


@pytest.mark.parametrize("kind", DESIGNS)
def test_any_sequence_of_events(kind):
    count, designs = DESIGNS[kind]
    run_state_machine_as_test(
        lambda: LiveGraph(kind, designs[: draws(count, len(designs))]),
        settings=settings(
            max_examples=SEQUENCES, stateful_step_count=12, suppress_health_check=list(HealthCheck)
        ),
    )
