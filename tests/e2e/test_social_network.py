"""A social network of several node and edge types, streamed: models imported from PyG stay exact on it.

The LDBC sample (tests/data): persons who know each other, posts and comments on them, likes, tags. The last
friendships and likes come as events in the order of their times, between them events of every other kind.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from gate import EXPLORING, draws
from livegnn import Engine, Events, Graph, Model
from livegnn.graph import EdgeSchema, Schema
from livegnn.types import EdgeType
from mirror import assert_close
from modules import fill

DATA = Path(__file__).parents[1] / "data" / "ldbc_snb_sf01.npz"
WIDTHS = {"Person": 8, "Post": 6, "Comment": 4, "Tag": 4, "Place": 2}
KNOWS = ("Person", "knows", "Person")
LIKES = ("Person", "likes", "Post")
LIKES_COMMENT = ("Person", "likes", "Comment")
IN_FILE = [
    KNOWS,
    LIKES,
    LIKES_COMMENT,
    ("Post", "hasCreator", "Person"),
    ("Comment", "hasCreator", "Person"),
    ("Comment", "replyOf", "Post"),
    ("Comment", "replyOf", "Comment"),
    ("Post", "hasTag", "Tag"),
    ("Person", "hasInterest", "Tag"),
    ("Person", "isLocatedIn", "Place"),
    ("Place", "isPartOf", "Place"),
]
INTERESTS = ("Tag", "interests", "Person")  # the other way round
TAGS = ("Tag", "is on", "Post")
HOMES = ("Place", "is home of", "Person")
REVERSED = {
    INTERESTS: ("Person", "hasInterest", "Tag"),
    TAGS: ("Post", "hasTag", "Tag"),
    HOMES: ("Person", "isLocatedIn", "Place"),
}
EDGE_TYPES = [*IN_FILE, *REVERSED]
METADATA = (list(WIDTHS), EDGE_TYPES)
STREAMED = 3000
BATCH = 250


class Sage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv((-1, -1), 8), pyg.SAGEConv((-1, -1), 4)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Relational(nn.Module):
    """RGCN over several node types: a mean and a matrix for each edge type, and one for the node itself."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.convs = nn.ModuleList(), nn.ModuleList()
        for widths in (WIDTHS, dict.fromkeys(WIDTHS, 8))[: draws(1, 2)]:
            self.own.append(nn.ModuleDict({name: nn.Linear(width, 8) for name, width in widths.items()}))
            plain = {"root_weight": False, "bias": False}
            convs = {e: pyg.SAGEConv((widths[e[0]], widths[e[2]]), 8, **plain) for e in EDGE_TYPES}
            self.convs.append(pyg.HeteroConv(convs))

    def forward(self, x_dict, edge_index_dict):
        for own, conv in zip(self.own, self.convs, strict=True):
            out = conv(x_dict, edge_index_dict)
            x_dict = {name: (own[name](x) + out[name]).relu() for name, x in x_dict.items()}
        return x_dict


class Network:
    """The arrays of the file, and the part of them that the graph begins with."""

    def __init__(self, random: np.random.Generator) -> None:
        data = np.load(DATA)
        self.random = random
        self.counts = {name: len(data[f"node__{name}"]) for name in WIDTHS}
        self.edges: dict[EdgeType, np.ndarray] = {}
        stream = []
        for edge_type in IN_FILE:
            key = "edge__" + "__".join(edge_type)
            self.edges[edge_type] = np.stack([data[f"{key}__{end}"] for end in ("src", "dst")]).astype(
                np.int64
            )
            if f"{key}__time" in data:
                stream += [(time, edge_type, i) for i, time in enumerate(data[f"{key}__time"].tolist())]
        self.edges |= {e: self.edges[other][::-1].copy() for e, other in REVERSED.items()}
        self.stream = [(e, *self.edges[e][:, i].tolist()) for _, e, i in sorted(stream)[-STREAMED:]]
        for edge_type in (KNOWS, LIKES, LIKES_COMMENT):
            late = [i for _, e, i in sorted(stream)[-STREAMED:] if e == edge_type]
            self.edges[edge_type] = np.delete(self.edges[edge_type], late, axis=1)

    def rows(self, name: str, count: int) -> np.ndarray:
        return self.random.standard_normal((count, WIDTHS[name]), dtype=np.float32)

    def make_graph(self) -> Graph:
        edge_types = {e: EdgeSchema(undirected=e == KNOWS) for e in EDGE_TYPES}
        graph = Graph(Schema(WIDTHS, edge_types))
        events = Events()
        for name, count in self.counts.items():
            events.add_nodes(np.arange(count), self.rows(name, count), node_type=name)
        for edge_type, edges in self.edges.items():
            events.add_edges(*edges, edge_type=edge_type)
        graph.apply(events)
        return graph

    def batches(self, graph: Graph) -> list[Events]:
        """Friendships and likes as they came; between them other events, new persons and leavers included."""
        random, batches = self.random, []
        gone: dict[str, set[int]] = {name: set() for name in WIDTHS}
        for first in range(0, len(self.stream), BATCH):
            events = Events()
            for edge_type, u, v in self.stream[first : first + BATCH]:
                if u not in gone[edge_type[0]] and v not in gone[edge_type[2]]:
                    events.add_edges(u, v, edge_type=edge_type)
            for edge_type in random.permutation(np.array(EDGE_TYPES, dtype=object))[:4]:
                edges = self.edges[tuple(edge_type)]
                for u, v in edges[:, random.integers(0, edges.shape[1], 10)].T.tolist():
                    if u not in gone[edge_type[0]] and v not in gone[edge_type[2]]:
                        events.remove_edges(u, v, edge_type=tuple(edge_type))
            for name, count in self.counts.items():
                ids = [i for i in random.integers(0, count, 8).tolist() if i not in gone[name]]
                events.set_features(ids, self.rows(name, len(ids)), node_type=name)
            name = list(WIDTHS)[first // BATCH % len(WIDTHS)]
            new = np.arange(self.counts[name], self.counts[name] + 5)
            self.counts[name] += 5
            events.add_nodes(new, self.rows(name, 5), node_type=name)
            for edge_type in EDGE_TYPES:
                if edge_type[0] == name and not gone[edge_type[2]]:
                    others = random.integers(0, self.counts[edge_type[2]], 5)
                    events.add_edges(new, others, edge_type=edge_type)
            if first // BATCH % 3 == 2:  # hubs by preference, so that much goes with them
                edge_type = EDGE_TYPES[int(random.integers(len(EDGE_TYPES)))]
                node = int(random.choice(self.edges[edge_type][1]))
                if node not in gone[edge_type[2]]:
                    events.remove_nodes(node, node_type=edge_type[2])
                    gone[edge_type[2]].add(node)
            batches.append(events)
        return batches


@pytest.mark.explored
def test_models_of_several_types_stay_exact_on_a_stream(rng):
    network = Network(rng)
    graph = network.make_graph()
    snapshot = graph.snapshot()
    x_dict = {name: torch.from_numpy(x) for name, x in snapshot.x.items()}
    sage = pyg.to_hetero(Sage(), METADATA, aggr="mean")
    empty = {edge_type: torch.zeros((2, 0), dtype=torch.long) for edge_type in EDGE_TYPES}
    sage(x_dict, empty)
    modules = {"Post": fill(sage, 0), "Person": fill(Relational(), 1)}
    engines = {
        name: Engine(graph, Model.from_pyg(module, metadata=METADATA, output_type=name))
        for name, module in modules.items()
    }
    read = set(EDGE_TYPES) if EXPLORING else {e for e in EDGE_TYPES if e[2] == "Person"}
    assert set(engines["Person"].model.edge_types) == read

    count, changed = 0, 0
    for events in network.batches(graph):
        count += len(events)
        update = engines["Post"].apply(events)  # and with it the other view of the graph
        changed += len(update.changed)
    assert count > STREAMED
    assert changed > 0

    snapshot = graph.snapshot()
    x_dict = {name: torch.from_numpy(x).double() for name, x in snapshot.x.items()}
    edge_index_dict = {e: torch.from_numpy(edges) for e, edges in snapshot.edge_index.items()}
    for name, engine in engines.items():
        verification = engine.verify()
        assert verification.ok, (name, verification)
        assert verification.checked == graph.num_nodes(name)
        with torch.no_grad():
            expected = modules[name].double()(x_dict, edge_index_dict)[name].numpy()
        assert_close(engine.embeddings(-1), expected, x_dict[name].numpy(), f"{name}, PyG")
        assert engine.scrub() < 1e-4
