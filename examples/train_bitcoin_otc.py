"""Train the model of the demo with PyTorch Geometric: how likely is a member's next rating to be negative?

    python examples/train_bitcoin_otc.py [--output FOLDER] [--compare]

The graph: an edge from rater to ratee, its weight the rating / 10. The features: each member's standing
(`livegnn.demo.standing`). One training example is a rating: its ratee, described by the graph and the
standings as they were before it (at most `SNAPSHOT` ratings older), and whether it turned out negative. So
nothing that is learned from or looked at comes after what it predicts.

    |-- train -----------|-- validate --|-- test ---------|
    0                   50 %           65 % (cut-off)   100 %   of the ratings, in order of time

The number of epochs is chosen on the validation part; then the model is trained anew on everything before
the cut-off. The test part decides nothing. In it every rating is scored by what the model says
of its ratee just before it arrives, by LiveGNN itself, one rating at a time. Seeded; takes about two minutes
on a CPU, more with --compare, which tries other convolutions on the validation part.

The demo uses GraphConv with the mean: the mean of what the raters are, each weighted by the rating it gave,
which may be negative. It does best on the validation part, a little before the maximum (0.585 and 0.582), and
lets every rater have a say.
"""

import argparse
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch_geometric.nn import GINConv, GraphConv, SAGEConv

import livegnn as lg
from livegnn.demo import ratings as demo_ratings
from livegnn.demo.ratings import Ratings
from livegnn.demo.standing import FEATURES, Standings

SEED = 0
SNAPSHOT = 20
VALIDATION_SHARE = 0.5
EPOCHS = 8
HIDDEN = 16
KIND = "GraphConv mean"
OTHER_KINDS = ("GraphConv max", "SAGEConv mean", "GINConv")


class RiskModel(nn.Module):
    """Two convolutions over who rated whom, beside the member's own standing."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.encode = nn.Linear(len(FEATURES), HIDDEN)
        self.conv1 = convolution(kind)
        self.conv2 = convolution(kind)
        self.weighted = kind.startswith("GraphConv")
        self.score = nn.Sequential(nn.Linear(HIDDEN + len(FEATURES), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def logits(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        h = self.encode(x).relu()
        if self.weighted:
            h = self.conv1(h, edge_index, edge_weight).relu()
            h = self.conv2(h, edge_index, edge_weight).relu()
        else:
            h = self.conv1(h, edge_index).relu()
            h = self.conv2(h, edge_index).relu()
        return self.score(torch.cat([h, x], dim=1))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return torch.sigmoid(self.logits(x, edge_index, edge_weight))


def convolution(kind: str) -> nn.Module:
    """A convolution that ratings may go through: none takes a degree from weights, which may be negative."""
    if kind == "GINConv":
        return GINConv(nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN)))
    name, aggregate = kind.split()
    return {"GraphConv": GraphConv, "SAGEConv": SAGEConv}[name](HIDDEN, HIDDEN, aggr=aggregate)


class WithoutGraph(nn.Module):
    """The same features without the graph: logistic regression, or with `hidden` a small network."""

    def __init__(self, hidden: int = 0) -> None:
        super().__init__()
        layers = (
            [nn.Linear(len(FEATURES), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
            if hidden
            else []
        )
        self.network = nn.Sequential(*layers, nn.Linear(hidden or len(FEATURES), 1))

    def logits(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.network(x)


class Snapshot(NamedTuple):
    """The network before the rating `start`, and what the ratings until the next one turned out to be."""

    start: int
    x: Tensor
    ratee: Tensor
    negative: Tensor


class Network(NamedTuple):
    members: np.ndarray
    edge_index: Tensor
    edge_weight: Tensor
    snapshots: list[Snapshot]

    def between(self, start: int, stop: int) -> list[Snapshot]:
        return [snapshot for snapshot in self.snapshots if start <= snapshot.start < stop]


def observe(ratings: Ratings, stop: int) -> Network:
    """Walk through the first `stop` ratings, with a snapshot of all standings every `SNAPSHOT` ratings."""
    members, position = np.unique(
        np.concatenate([ratings.src[:stop], ratings.dst[:stop]]), return_inverse=True
    )
    edge_index = torch.from_numpy(position.reshape(2, stop))
    standings = Standings()
    snapshots = []
    for start in range(0, stop, SNAPSHOT):
        end = min(start + SNAPSHOT, stop)
        negative = torch.from_numpy((ratings.rating[start:end] < 0).astype(np.float32))
        x = torch.from_numpy(standings.features(members.tolist()))
        snapshots.append(Snapshot(start, x, edge_index[1, start:end], negative))
        for i in range(start, end):
            standings.record(*rating_at(ratings, i))
    return Network(members, edge_index, torch.from_numpy(ratings.weight[:stop]), snapshots)


def rating_at(ratings: Ratings, i: int) -> tuple[int, int, float, float]:
    return int(ratings.src[i]), int(ratings.dst[i]), float(ratings.rating[i]), float(ratings.time[i])


def logits_at(model: nn.Module, network: Network, snapshot: Snapshot) -> Tensor:
    past = slice(0, snapshot.start)
    every = model.logits(snapshot.x, network.edge_index[:, past], network.edge_weight[past])
    return every[snapshot.ratee, 0]


def train(model: nn.Module, network: Network, snapshots: list[Snapshot], epochs: int) -> Iterator[nn.Module]:
    """Train the model, yielding after each epoch the running mean of its weights, which wavers less."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-3)
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.998))
    order = np.random.default_rng(SEED)
    loss = nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for i in order.permutation(len(snapshots)):
            optimizer.zero_grad()
            loss(logits_at(model, network, snapshots[i]), snapshots[i].negative).backward()
            optimizer.step()
            mean.update_parameters(model)
        yield mean.module


def validate(kind: str, network: Network, validation: int, cutoff: int) -> list[float]:
    """Average precision on the validation part after each epoch, trained on what comes before it."""
    seen, unseen = network.between(0, validation), network.between(validation, cutoff)
    negative = torch.cat([snapshot.negative for snapshot in unseen]).numpy()
    torch.manual_seed(SEED)
    precisions = []
    for model in train(RiskModel(kind), network, seen, EPOCHS):
        with torch.no_grad():
            scores = torch.cat([logits_at(model, network, snapshot) for snapshot in unseen]).numpy()
        precisions.append(average_precision(negative, scores))
    return precisions


def area_under_curve(positive: np.ndarray, score: np.ndarray) -> float:
    """The probability that a positive scores above a negative, ties counting half (the ROC's area)."""
    _, rank, ties = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[rank]
    positives = float(positive.sum())
    above = ranks[positive > 0].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(positive) - positives)))


def average_precision(positive: np.ndarray, score: np.ndarray) -> float:
    """The mean, over the positives, of the precision at their score (ties together)."""
    _, place = np.unique(-score, return_inverse=True)
    hits, found = np.bincount(place, positive), np.bincount(place)
    return float((hits * np.cumsum(hits) / np.cumsum(found)).sum() / positive.sum())


def test(model: lg.Model, baselines: dict[str, nn.Module], ratings: Ratings) -> dict[str, np.ndarray]:
    """Score each rating after the cut-off by what is known of its ratee just before it arrives."""
    cutoff = ratings.cutoff
    standings = Standings()
    for i in range(cutoff):
        standings.record(*rating_at(ratings, i))
    src, dst = ratings.src[:cutoff], ratings.dst[:cutoff]
    members = np.unique(np.concatenate([src, dst]))
    graph = lg.Graph.from_edges(
        src, dst, x=standings.features(members.tolist()), ids=members, weight=ratings.weight[:cutoff]
    )
    engine = lg.Engine(graph, model)
    frozen = dict(zip(members.tolist(), engine.predict(members)[:, 0].tolist(), strict=True))
    known = set(members.tolist())
    stranger = np.zeros((1, len(FEATURES)), np.float32)
    newcomer = float(engine.what_if(lg.Events().add_nodes(0, stranger)).predict(np.array([0]))[0, 0])

    scores: dict[str, list[float]] = {
        "share": [],
        "live": [],
        "frozen": [],
        **{name: [] for name in baselines},
    }
    nowhere = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)
    tally = {member: [0, 0] for member in known}
    for member, rating in zip(dst.tolist(), ratings.rating[:cutoff].tolist(), strict=True):
        tally[member][0] += rating < 0
        tally[member][1] += 1
    prior = float((ratings.rating[:cutoff] < 0).mean())
    rows = []
    for i in range(cutoff, len(ratings)):
        rater, ratee, rating, time = rating_at(ratings, i)
        negative, received = tally.setdefault(ratee, [0, 0])
        scores["share"].append((negative + 3 * prior) / (received + 3))
        scores["live"].append(float(engine.predict(np.array([ratee]))[0, 0]) if ratee in known else newcomer)
        scores["frozen"].append(frozen.get(ratee, newcomer))
        rows.append(standings.features([ratee]))
        engine.apply(standings.events(rater, ratee, rating, time))
        known.update((rater, ratee))
        tally[ratee] = [negative + (rating < 0), received + 1]
    x = torch.from_numpy(np.concatenate(rows))
    with torch.no_grad():
        for name, baseline in baselines.items():
            scores[name] = baseline.logits(x, *nowhere)[:, 0].tolist()
    return {name: np.array(values) for name, values in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the model of the demo.")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("src/livegnn/demo/data"),
        help="folder of the model and its figures",
    )
    parser.add_argument(
        "--compare", action="store_true", help="also try other convolutions on the validation part"
    )
    arguments = parser.parse_args()
    output: Path = arguments.output
    torch.set_num_threads(1)  # sums in one order: the same bits each time
    ratings = demo_ratings.load()
    cutoff, validation = ratings.cutoff, int(len(ratings) * VALIDATION_SHARE)
    network = observe(ratings, cutoff)

    print("Average precision on the validation part:", flush=True)
    precisions = validate(KIND, network, validation, cutoff)
    epochs = int(np.argmax(precisions)) + 1
    print(f"  {KIND:<16} {max(precisions):.3f} after {epochs} epochs", flush=True)
    for kind in OTHER_KINDS if arguments.compare else ():
        others = validate(kind, network, validation, cutoff)
        print(f"  {kind:<16} {max(others):.3f} after {int(np.argmax(others)) + 1} epochs", flush=True)
    print(f"Training for {epochs} epochs on the {cutoff:,} ratings before the cut-off.", flush=True)
    torch.manual_seed(SEED)
    module, *others = (
        deque(train(model, network, network.snapshots, epochs), maxlen=1).pop()
        for model in (RiskModel(KIND), WithoutGraph(), WithoutGraph(HIDDEN))
    )
    baselines = dict(zip(("logistic", "network"), others, strict=True))
    model = lg.Model.from_pyg(module.eval())
    output.mkdir(parents=True, exist_ok=True)
    model.save(output / "bitcoin_otc.lgnn")

    negative = (ratings.rating[cutoff:] < 0).astype(np.float64)
    names = {
        "share": "share of negative ratings so far, with a prior",
        "logistic": "logistic regression on the same features, no graph",
        "network": "neural network on the same features, no graph",
        "frozen": "the GNN as it stood at the cut-off",
        "live": "the GNN, kept live",
    }
    figures = [
        {
            "name": names[name],
            "roc_auc": round(area_under_curve(negative, score), 4),
            "average_precision": round(average_precision(negative, score), 4),
        }
        for name, score in sorted(
            test(model, baselines, ratings).items(), key=lambda item: list(names).index(item[0])
        )
    ]
    report = {
        "convolution": KIND,
        "epochs": epochs,
        "validation_average_precision": round(max(precisions), 4),
        "test": {"ratings": len(negative), "negative_share": round(float(negative.mean()), 4)},
        "figures": figures,
    }
    (output / "bitcoin_otc.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(f"On the {len(negative):,} ratings after the cut-off, {negative.mean():.1%} of them negative:")
    print(f"  {'ROC AUC':>60}  average precision")
    for row in figures:
        print(f"  {row['name']:<52}  {row['roc_auc']:.3f}  {row['average_precision']:>8.3f}")


if __name__ == "__main__":
    main()
