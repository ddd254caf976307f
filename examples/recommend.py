"""Train a recommender on a marketplace, stream it, and compare live recommendations with those of last night.

    python examples/recommend.py [--save FOLDER]

The graph: who gave whom a positive rating on the marketplace Bitcoin OTC, 2010 to 2016, with times (shipped
with the demo). A rating follows a trade, so the next member that somebody rates is the next partner. At each
rating of a member that the graph knows, the recommender names ten members (`engine.candidates`), and then the
rating is added. Members whom one has rated already are not recommended again.

The network is light, as LightGCN is: it averages the rows of neighbors and has no layers. A member has four
rows: its own, the mean of those by whom it was rated, the mean of those whom it rated, and the direction of
the difference of both sums, in which members who rated each other cancel out, so that those are left whom it
has not rated back. The score of a pair is the sum of the inner products of all rows of the rater with all
rows of the ratee, each times a factor, and how active the ratee is lately. The factors, 18 numbers, are all
that is learned. The rows of members are random numbers, which tell them apart, so a newcomer needs no
training (LightGCN learns them).

Each rating weighs e times as much as one that is `FADES` days older, by the exponential of its time. So means
are of recent partners, and old edges need no update. The zero of time is the middle of the stream: weights
have room in float32 for about 900 days before and after it. A service that runs for longer begins again with
another zero.

    |-- train ------------------------------|-- stream ---------|
    0                                      65 %               100 %   of the ratings, in order of time

Recommendations of the last night, week or month are computed from the graph of that time. The baselines know
all earlier ratings: the most popular members, those that are popular lately, and those who rated the member
last and were not rated back (then the popular ones). Seeded; takes minutes on two cores.
"""

import argparse
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import livegnn as lg
from livegnn.demo import ratings as demo_ratings
from saved_service import save_service

SEED = 0
CHANNELS = 64
K = 10
FADES = 14.0  # days
STEPS = 1000
TOGETHER = 20  # ratings whose scores are of one state of the graph, in training
BEGINNING = 2000  # ratings before the first that the network learns from
DELAYS = {"live": 0, "last night": 1, "last week": 7, "last month": 30}  # days
NOTHING = 1e-30  # a weight below those of all ratings
DAY = 86_400.0
RATES = ("member", "rates", "member")
SCHEMA = lg.Schema({"member": CHANNELS}, {RATES: lg.EdgeSchema(weighted=True)})


class Ratings(NamedTuple):
    """src, dst: ids of members. day: when, in days after the middle of the stream. By time."""

    src: np.ndarray
    dst: np.ndarray
    day: np.ndarray

    def between(self, first: int, last: int) -> "Ratings":
        return Ratings(*(column[first:last] for column in self))

    def weight_at(self, day: float) -> np.ndarray:
        """The weights, 1 for a rating of this day. Of another day, all are multiplied by the same factor."""
        return np.exp((self.day - day) / FADES).astype(np.float32)


def load() -> tuple[Ratings, int]:
    """The positive ratings, and how many of them are for the training."""
    data = demo_ratings.load()
    positive = data.rating > 0
    cutoff = int(positive[: data.cutoff].sum())
    middle = (data.time[data.cutoff] + data.time[-1]) / 2  # so that weights have room in float32
    day = (data.time - middle) / DAY
    return Ratings(data.src[positive], data.dst[positive], day[positive]), cutoff


def rows_of(members: np.ndarray) -> np.ndarray:
    """Random numbers that tell members apart: float32 [members, CHANNELS], each of its id alone."""
    rows = [np.random.default_rng([SEED, int(member)]).standard_normal(CHANNELS) for member in members]
    return np.array(rows, np.float32).reshape(-1, CHANNELS) / np.float32(np.sqrt(CHANNELS))


class Sum(MessagePassing):
    """The sum of the rows of neighbors, each times the weight of its edge."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_weight=edge_weight)

    def message(self, x_j: Tensor, edge_weight: Tensor) -> Tensor:
        return edge_weight.view(-1, 1) * x_j


class Recommender(nn.Module):
    """The scores of edges, by four rows of each member."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = Sum()
        self.factors = nn.Parameter(torch.ones(4, 4))
        self.activity, self.share = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The rows of members as raters and as ratees, and how active they are lately."""
        ones = torch.ones_like(x[:, :1])
        received = self.sum(ones, edge_index, edge_weight) + NOTHING
        given = self.sum(ones, edge_index.flip(0), edge_weight) + NOTHING
        raters = self.sum(x, edge_index, edge_weight)
        ratees = self.sum(x, edge_index.flip(0), edge_weight)
        # Of members who rated each other at about the same time nothing is left.
        unanswered = nn.functional.normalize((raters - ratees) / (received + given), dim=-1)
        rows = x, raters / received, ratees / given, unanswered
        as_rater = [sum(self.factors[i, j] * rows[i] for i in range(4)) for j in range(4)]
        active = self.activity * (received + given).log() + self.share * received / (received + given)
        return torch.cat(as_rater, dim=-1), torch.cat(rows, dim=-1), active

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """The score of each edge."""
        rater, ratee, activity = self.encode(x, edge_index, edge_weight)
        src, dst = edge_index
        return (rater[src] * ratee[dst]).sum(-1) + activity[dst].squeeze(-1)


def train(known: Ratings, steps: int = STEPS) -> lg.Model:
    """Learns which member, of all that were there, each rating was for, from the ratings before it."""
    torch.manual_seed(SEED)
    network = Recommender()
    members, places = np.unique(np.concatenate([known.src, known.dst]), return_inverse=True)
    edges = torch.from_numpy(places.reshape(2, -1))
    x = torch.from_numpy(rows_of(members))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    loss = nn.CrossEntropyLoss()
    # When each member rated each other one.
    when = torch.full((len(members), len(members)), len(known.day), dtype=torch.int32)
    when[edges[0], edges[1]] = torch.arange(len(known.day), dtype=torch.int32)
    when.fill_diagonal_(-1)  # nobody is recommended to itself
    starts = np.random.default_rng(SEED).integers(BEGINNING, len(known.day) - TOGETHER, steps)
    for start in starts.tolist():
        src, dst = edges[:, start : start + TOGETHER]
        weight = torch.from_numpy(known.between(0, start).weight_at(known.day[start]))
        rater, ratee, activity = network.encode(x, edges[:, :start], weight)
        logits = rater[src] @ ratee.T + activity.T
        logits = logits.masked_fill(when[src] < start, -torch.inf)
        is_there = torch.isin(dst, edges[:, :start])  # others cannot be recommended
        optimizer.zero_grad()
        loss(logits[is_there], dst[is_there]).backward()
        optimizer.step()
    return lg.Model.from_pyg(network.eval(), node_type="member", edge_type=RATES, in_channels=CHANNELS)


class Market:
    """An engine on the graph of some ratings, to which others are added."""

    def __init__(self, model: lg.Model, ratings: Ratings) -> None:
        self.known: set[int] = set()
        self.graph = lg.Graph(SCHEMA)
        self.graph.apply(self.events_of(ratings))
        self.engine = lg.Engine(self.graph, model)

    def events_of(self, ratings: Ratings) -> lg.Events:
        members = dict.fromkeys([*ratings.src.tolist(), *ratings.dst.tolist()])
        fresh = [member for member in members if member not in self.known]
        self.known.update(fresh)
        events = lg.Events().add_nodes(fresh, rows_of(np.array(fresh)), node_type="member")
        return events.add_edges(ratings.src, ratings.dst, weight=ratings.weight_at(0), edge_type=RATES)

    def add(self, ratings: Ratings) -> None:
        self.engine.apply(self.events_of(ratings))

    def rank(self, src: int, dst: int) -> int:
        """The rank of a member among the recommendations of another, from 1; 0 if it is none."""
        if src not in self.known:
            return 0
        found = np.flatnonzero(self.engine.candidates(src, K).ids == dst)
        return int(found[0]) + 1 if len(found) else 0


def ranks(model: lg.Model, ratings: Ratings, cutoff: int, delay: int) -> np.ndarray:
    """The rank of each partner after the training among recommendations that are `delay` days old."""

    def seen(i: int) -> int:
        """How many ratings are known when a rating is made."""
        return int(np.searchsorted(ratings.day, np.floor(ratings.day[i]) - delay + 1)) if delay else i

    added = seen(cutoff)
    market = Market(model, ratings.between(0, added))
    found = []
    for i in range(cutoff, len(ratings.day)):
        until = seen(i)
        if until > added:
            market.add(ratings.between(added, until))
            added = until
        found.append(market.rank(int(ratings.src[i]), int(ratings.dst[i])))
    return np.array(found)


class Baselines:
    """What is known of earlier ratings without a network."""

    def __init__(self, size: int) -> None:
        self.received, self.lately = np.zeros(size), np.zeros(size)
        self.raters: dict[int, deque[int]] = {}
        self.rated: dict[int, set[int]] = {}

    def add(self, src: int, dst: int, weight: float) -> None:
        self.received[dst] += 1
        self.lately[dst] += weight
        self.rated.setdefault(src, set()).add(dst)
        self.raters.setdefault(dst, deque()).appendleft(src)

    def recommendations(self, src: int) -> Iterator[tuple[str, list[int]]]:
        rated = self.rated.get(src, set()) | {src}
        popular, lately = (self._highest(scores, rated) for scores in (self.received, self.lately))
        unanswered = [one for one in self.raters.get(src, ()) if one not in rated]
        yield "popular", popular
        yield "popular lately", lately
        yield "not rated back", [*dict.fromkeys([*unanswered[:K], *lately])][:K]

    def _highest(self, scores: np.ndarray, without: set[int]) -> list[int]:
        some = np.argpartition(-scores, K + len(without))[: K + len(without)]
        order = some[np.argsort(-scores[some], kind="stable")]
        return [one for one in order.tolist() if one not in without][:K]


def baseline_ranks(ratings: Ratings, cutoff: int) -> dict[str, np.ndarray]:
    """The rank of each partner after the training among those that a baseline names, 0 if it is none."""
    baselines = Baselines(int(max(ratings.src.max(), ratings.dst.max())) + 1)
    found: dict[str, list[int]] = {}
    weight = ratings.weight_at(0).tolist()
    for i, (src, dst) in enumerate(zip(ratings.src.tolist(), ratings.dst.tolist(), strict=True)):
        if i >= cutoff:
            for name, best in baselines.recommendations(src):
                found.setdefault(name, []).append(best.index(dst) + 1 if dst in best else 0)
        baselines.add(src, dst, weight[i])
    return {name: np.array(ranks) for name, ranks in found.items()}


class Kinds(NamedTuple):
    """Of each rating after the training: whether the rater was known before, and whether the ratee had rated
    the rater."""

    known: np.ndarray
    reply: np.ndarray


def kinds(ratings: Ratings, cutoff: int) -> Kinds:
    pairs: set[tuple[int, int]] = set()
    members: set[int] = set()
    found = []
    for i, (src, dst) in enumerate(zip(ratings.src.tolist(), ratings.dst.tolist(), strict=True)):
        if i >= cutoff:
            found.append((src in members, (dst, src) in pairs))
        pairs.add((src, dst))
        members.update((src, dst))
    return Kinds(*np.array(found).T)


def figures(ranks: np.ndarray, of: Kinds) -> tuple[float, float, float, float]:
    """The share of partners among the ten, the mean reciprocal rank, and the share for replies and others."""
    hit = ranks > 0
    reciprocal = np.where(hit, 1 / np.maximum(ranks, 1), 0.0)
    groups = (hit, of.known), (reciprocal, of.known), (hit, of.reply), (hit, of.known & ~of.reply)
    return tuple(float(values[group].mean()) for values, group in groups)  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path, help="the folder of a model and a deployment that serves it")
    arguments = parser.parse_args()
    ratings, cutoff = load()
    model = train(ratings.between(0, cutoff))
    if arguments.save:
        save_service(arguments.save, "partners", model, Market(model, ratings.between(0, cutoff)).graph)
    of = kinds(ratings, cutoff)
    print(f"{of.known.sum():,} ratings of known members, {of.reply.sum():,} of them replies")
    print("recommendations    recall of the ten   mean reciprocal rank   recall, replies   recall, others")
    found = baseline_ranks(ratings, cutoff)
    for name in (*found, *DELAYS):
        each = found[name] if name in found else ranks(model, ratings, cutoff, DELAYS[name])
        recall, reciprocal, replies, others = figures(each, of)
        print(
            f"{name:<16}   {recall:17.3f}   {reciprocal:20.3f}   {replies:15.3f}   {others:14.3f}", flush=True
        )


if __name__ == "__main__":
    main()
