"""Train GraphSAGE on a graph whose edges are still arriving, and watch it get better.

    python examples/train_on_stream.py [--data tolokers.npz] [--slices N]

The graph: 11,758 workers of a crowdsourcing platform; an edge says that two of them worked on the same task.
The question: who gets banned (21.8 % do)? At first the model knows every worker's ten features, and no edge.
Then the 519,000 edges come, in random order, a thousand after each step of training: PyG's own `NodeLoader`
draws each batch from the graph as it is in that moment. After each slice of the stream the scores of all
workers are computed exactly (`lg.Engine`), and compared with what became of those in the test set, which
stays the same and is never trained on. Seeded; takes under a minute on two cores.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GraphSAGE

import livegnn as lg
from livegnn.training import LiveFeatureStore, LiveGraphStore, LiveSampler
from train_bitcoin_otc import area_under_curve, average_precision

SEED = 0
SLICES = 8
STEPS = 100  # of training in a slice
BATCH = 512
NUM_NEIGHBORS = [15, 10]
HIDDEN = 64
DATA = Path(__file__).parents[1] / "tests" / "data" / "tolokers.npz"


class Workers(NamedTuple):
    """x: float32 [workers, channels]. banned: bool [workers]. src, dst: [edges]. train, test: ids."""

    x: np.ndarray
    banned: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    train: np.ndarray
    test: np.ndarray


class Score(NamedTuple):
    """Of the test set, with so many edges."""

    edges: int
    roc_auc: float
    average_precision: float


def load(path: Path) -> Workers:
    data = np.load(path)
    order = np.random.default_rng(SEED).permutation(len(data["edges"]))
    src, dst = data["edges"][order].T.astype(np.int64)
    return Workers(
        data["x"],
        data["y"] == 1,
        src,
        dst,
        np.flatnonzero(data["train_mask"]),
        np.flatnonzero(data["test_mask"]),
    )


def train_on_stream(workers: Workers, slices: int = SLICES, steps: int = STEPS) -> Iterator[Score]:
    """Yields a score before the first edge, then one after each slice of the stream."""
    torch.manual_seed(SEED)
    graph = lg.Graph.from_edges([], [], x=workers.x, undirected=True)
    features = LiveFeatureStore(graph)
    features.put_tensor(torch.from_numpy(workers.banned), group_name="node", attr_name="banned", index=None)
    loader = NodeLoader(
        (features, LiveGraphStore(graph)),
        LiveSampler(graph, NUM_NEIGHBORS),
        input_nodes=torch.from_numpy(workers.train),
        batch_size=BATCH,
        shuffle=True,
    )
    model = GraphSAGE(workers.x.shape[1], HIDDEN, num_layers=2, out_channels=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = nn.BCEWithLogitsLoss()

    def train(batch_of_edges: Iterator[tuple[np.ndarray, np.ndarray]]) -> None:
        for batch, (src, dst) in zip(epochs(loader), batch_of_edges, strict=False):
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index)[: batch.batch_size, 0]
            loss(logits, batch.banned[: batch.batch_size].float()).backward()
            optimizer.step()
            graph.apply(lg.Events().add_edges(src, dst))  # the next batch sees these edges

    def score() -> Score:
        logits = lg.Engine(graph, lg.Model.from_pyg(model.eval())).predict(workers.test)[:, 0]
        model.train()
        banned = workers.banned[workers.test]
        return Score(graph.num_edges(), area_under_curve(banned, logits), average_precision(banned, logits))

    none = (workers.src[:0], workers.dst[:0])
    train(iter([none] * steps))
    yield score()
    for src, dst in zip(
        np.array_split(workers.src, slices), np.array_split(workers.dst, slices), strict=True
    ):
        train(zip(np.array_split(src, steps), np.array_split(dst, steps), strict=True))
        yield score()


def epochs(loader: NodeLoader) -> Iterator[object]:
    while True:
        yield from loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="tolokers.npz (default: the one of the tests)"
    )
    parser.add_argument("--slices", type=int, default=SLICES, help="scores to print")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        parser.error(f"{arguments.data} is not there: give the path of tolokers.npz with --data")
    print("edges so far   ROC AUC   average precision")
    for score in train_on_stream(load(arguments.data), arguments.slices):
        print(f"{score.edges:12,}   {score.roc_auc:7.3f}   {score.average_precision:17.3f}", flush=True)


if __name__ == "__main__":
    main()
