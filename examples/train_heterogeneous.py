"""Train a model of two node types on a social network that is still happening.

    python examples/train_heterogeneous.py [--data ldbc_snb_sf01.npz] [--slices N]

The graph: persons who know each other, posts that they wrote, and likes, from the LDBC social network
benchmark (synthetic, scale factor 0.1). The question: who will like a post? Nothing is known of a person but
a vector of random numbers, nothing of a post at all; so whatever the model learns, it learns from the edges.
(Nearly all likes come from people who know the author. A person can be recognised by the random numbers of
those they know.)

Friendships and likes come in the order of their times. The likes of a slice are first predicted, before the
model or the graph has seen any of them: for each post, who liked it against a person drawn at random. Then
the model is trained on them: PyG's own `LinkLoader` draws the neighbourhoods of both ends from the graph as
it is, along all edge types. The edges are applied while that goes on, those of a step after the step, so no
like is trained on that the graph shows already. Seeded; takes about a minute on two cores.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.nn import HeteroConv, SAGEConv

import livegnn as lg
from livegnn.training import LiveFeatureStore, LiveGraphStore, LiveSampler
from train_bitcoin_otc import area_under_curve, average_precision

SEED = 0
SLICES = 8
BATCH = 64
NUM_NEIGHBORS = [50]
CHANNELS, HIDDEN = 128, 128
KNOWS = ("person", "knows", "person")
WROTE = ("person", "wrote", "post")
LIKES = ("person", "likes", "post")
LIKED_BY = ("post", "liked by", "person")
SCHEMA = lg.Schema(
    {"person": CHANNELS, "post": 1},
    {
        KNOWS: lg.EdgeSchema(undirected=True),
        WROTE: lg.EdgeSchema(),
        LIKES: lg.EdgeSchema(),
        LIKED_BY: lg.EdgeSchema(),
    },
)
DATA = Path(__file__).parents[1] / "tests" / "data" / "ldbc_snb_sf01.npz"


class Network(NamedTuple):
    """Pairs are [2, edges]: who knows whom, author and post, who likes which post; the first and the last
    with a time for each."""

    persons: int
    posts: int
    knows: np.ndarray
    knows_time: np.ndarray
    wrote: np.ndarray
    likes: np.ndarray
    likes_time: np.ndarray


class Score(NamedTuple):
    """Of the likes of a slice, predicted before it; `edges` were in the graph."""

    edges: int
    roc_auc: float
    average_precision: float


def load(path: Path) -> Network:
    data = np.load(path)

    def pairs(name: str, *ends: str) -> np.ndarray:
        return np.stack([data[f"edge__{name}__{end}"] for end in ends]).astype(np.int64)

    return Network(
        len(data["node__Person"]),
        len(data["node__Post"]),
        pairs("Person__knows__Person", "src", "dst"),
        data["edge__Person__knows__Person__time"],
        pairs("Post__hasCreator__Person", "dst", "src"),
        pairs("Person__likes__Post", "src", "dst"),
        data["edge__Person__likes__Post__time"],
    )


class LikeModel(nn.Module):
    """Whom a person knows, and who a post is of, are seen in the same way: so a like is likely where the two
    are alike. Who liked a post before adds to what it is; some persons like more than others."""

    def __init__(self) -> None:
        super().__init__()
        known, liked = (SAGEConv(CHANNELS, HIDDEN, root_weight=False, bias=False) for _ in range(2))
        self.convolution = HeteroConv({KNOWS: known, WROTE: known, LIKES: liked})
        self.eager = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, batch: HeteroData) -> Tensor:
        """Logits [2, links]: that the one who liked a post does, and that a person drawn at random does."""
        h = self.convolution(batch.x_dict, batch.edge_index_dict)
        persons = torch.stack([batch["person"].dst_pos_index, batch["person"].dst_neg_index])
        person, post = h["person"][persons], h["post"][batch["post"].src_index]
        return (person * post).sum(dim=2) + self.eager(person)[:, :, 0]


def train_on_network(network: Network, slices: int = SLICES) -> Iterator[Score]:
    """Yields the score of each slice of the likes."""
    torch.manual_seed(SEED)
    random = np.random.default_rng(SEED)
    graph = lg.Graph(SCHEMA)
    x = random.standard_normal((network.persons, CHANNELS), dtype=np.float32)
    graph.apply(
        lg.Events()
        .add_nodes(np.arange(network.persons), x, node_type="person")
        .add_nodes(np.arange(network.posts), np.ones((network.posts, 1)), node_type="post")
        .add_edges(*network.wrote, edge_type=WROTE)
    )
    sampler = LiveSampler(graph, NUM_NEIGHBORS)
    stores = LiveFeatureStore(graph), LiveGraphStore(graph)

    def batches(likes: np.ndarray) -> LinkLoader:
        return LinkLoader(
            stores,
            sampler,
            edge_label_index=(LIKED_BY, torch.from_numpy(likes[::-1].copy())),
            neg_sampling="triplet",
            batch_size=BATCH,
        )

    model = LikeModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loss = nn.BCEWithLogitsLoss()
    truth = torch.tensor([[1.0], [0.0]])
    befriended = np.argsort(network.knows_time, kind="stable")
    knows, knows_time = network.knows[:, befriended], network.knows_time[befriended]
    liked = np.argsort(network.likes_time, kind="stable")
    known = 0
    for part in np.array_split(liked, slices):
        likes, time = network.likes[:, part], network.likes_time[part]
        edges = graph.num_edges(KNOWS) + graph.num_edges(LIKES)
        with torch.no_grad():
            logits = torch.cat([model(batch) for batch in batches(likes)], dim=1)
        label, score = truth.expand_as(logits).flatten().numpy(), logits.flatten().numpy()
        yield Score(edges, area_under_curve(label, score), average_precision(label, score))

        for step, batch in enumerate(batches(likes)):
            optimizer.zero_grad()
            logits = model(batch)
            loss(logits, truth.expand_as(logits)).backward()
            optimizer.step()
            arrived = slice(step * BATCH, (step + 1) * BATCH)
            friends = slice(known, int(np.searchsorted(knows_time, time[arrived][-1], "right")))
            known = friends.stop
            src, dst = likes[:, arrived]
            graph.apply(
                lg.Events()
                .add_edges(*knows[:, friends], edge_type=KNOWS)
                .add_edges(src, dst, edge_type=LIKES)
                .add_edges(dst, src, edge_type=LIKED_BY)
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="ldbc_snb_sf01.npz (default: the one of the tests)"
    )
    parser.add_argument("--slices", type=int, default=SLICES, help="scores to print")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        parser.error(f"{arguments.data} is not there: give the path of ldbc_snb_sf01.npz with --data")
    print("edges so far   ROC AUC   average precision")
    for score in train_on_network(load(arguments.data), arguments.slices):
        print(f"{score.edges:12,}   {score.roc_auc:7.3f}   {score.average_precision:17.3f}", flush=True)


if __name__ == "__main__":
    main()
