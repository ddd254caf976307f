"""Train a network that completes a knowledge graph, and compare live completions with nightly ones.

    python examples/complete_knowledge.py [--data bitcoin_otc.npz] [--every N] [--save FOLDER]

The graph: who trusts and who distrusts whom among the members of Bitcoin OTC, a marketplace, as they rated
each other from 2010 to 2016. The question is that of a knowledge graph with a missing end: (member, trusts,
?), or (member, distrusts, ?). Nothing is known of a member but a vector of random numbers. The encoder adds
these up by relation, over the ratings of the last 30 days, so that a member is recognised in the sums of
those that it rates and of those by whom it is rated. Ratings of that age expire (`time_to_live`), while
counts are of all ratings. The decoder is a perceptron. It reads the products of these sums with the vector of
another member, and the counts of both, and has an output for each relation.

The network learns from the first three quarters of the ratings, with rows as they were just before each. The
others are a stream: before each, all members that the graph has and the member has not rated yet are ranked.
Rows of the last night, or week, lack the ratings since then. If the graph does not have the rated member yet,
that counts as not found. Two rules, also live, are beside: those who have rated the member, and are not rated
by it, before all others; and the members with the most ratings. Seeded; takes some minutes on two cores.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

import livegnn as lg
from saved_service import save_service

SEED = 0
CHANNELS = 128  # random numbers of a member, after a one, of which the sums count its ratings
HIDDEN = 32
TAUGHT = 6000  # ratings, the last of those that the network may know
EPOCHS = 6
BATCH = 64
OTHERS = 48  # members, of whom the decoder learns to tell the one that was rated
WAYS, COUNTS = 4, 8  # sums and counts of a member: those who have rated it and whom it has rated
TRAINED = 0.75
DAY = 86_400.0
DELAYS = {"live": 0, "last night": 1, "last week": 7, "last month": 30}  # days
TRUSTS, DISTRUSTS = ("member", "trusts", "member"), ("member", "distrusts", "member")
LATELY = (("member", "trusts lately", "member"), ("member", "distrusts lately", "member"))
RELATIONS = (TRUSTS, DISTRUSTS, *LATELY)
SCHEMA = lg.Schema(
    {"member": 1 + CHANNELS},
    dict.fromkeys((TRUSTS, DISTRUSTS), lg.EdgeSchema())
    | dict.fromkeys(LATELY, lg.EdgeSchema(timed=True, time_to_live=30 * DAY)),
)
DATA = Path(__file__).parents[1] / "src" / "livegnn" / "demo" / "data" / "bitcoin_otc.npz"


class Facts(NamedTuple):
    """src, dst: members, by numbers in the order in which they appear. relation: 0 if the first trusts the
    second, 1 if it distrusts it. time: in seconds."""

    src: np.ndarray
    dst: np.ndarray
    relation: np.ndarray
    time: np.ndarray

    def part(self, begin: int, end: int) -> "Facts":
        return Facts(*(column[begin:end] for column in self))


def load(path: Path) -> Facts:
    data = np.load(path)
    order = np.argsort(data["time"], kind="stable")
    both = np.stack([data["src"][order], data["dst"][order]], axis=1).reshape(-1)
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    number = np.argsort(np.argsort(first))[inverse].reshape(-1, 2)
    return Facts(
        number[:, 0], number[:, 1], (data["rating"][order] < 0).astype(np.int64), data["time"][order]
    )


def rows_of(members: int) -> np.ndarray:
    """The features of the members with these numbers: a member's are the same however many there are."""
    x = np.ones((members, 1 + CHANNELS), np.float32)
    x[:, 1:] = np.random.default_rng(SEED).standard_normal((members, CHANNELS)) / CHANNELS**0.5
    return x


class Sums(MessagePassing):
    """The sums of the neighbours' rows by some relations, side by side."""

    def __init__(self, *relations: int) -> None:
        super().__init__(aggr="sum")
        self.relations = relations

    def forward(self, h: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        kinds = torch.stack([(edge_type == number).float() for number in self.relations], dim=-1)
        return self.propagate(edge_index, h=h, kinds=kinds)

    def message(self, h_j: Tensor, kinds: Tensor) -> Tensor:
        return torch.cat([h_j * kinds[:, [at]] for at in range(len(self.relations))], dim=-1)


class Completion(nn.Module):
    """An encoder of sums, without weights, and a trained decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.counts = Sums(2, 3), Sums(0, 1, 2, 3)
        self.hidden = nn.Sequential(
            nn.Linear(WAYS + 2 * COUNTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.kinds = nn.Parameter(torch.randn(len(RELATIONS), HIDDEN) * 0.1)

    def encode(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Of each member: the sums of the vectors of those who rated it lately, and of those that it rated;
        and how often it was rated and has rated, by each relation."""
        directions = edge_index, edge_index.flip(0)
        sums = [self.sums(x[:, 1:], ends, edge_type) for ends in directions]
        counts = [self.counts(x[:, :1], ends, edge_type) for ends in directions]
        return torch.cat([*sums, torch.cat(counts, dim=-1).log1p()], dim=-1)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_type: Tensor,
        edge_label_index: Tensor,
        edge_label_type: Tensor,
    ) -> Tensor:
        rows = self.encode(x, edge_index, edge_type)
        member, other = edge_label_index
        return self.decode(rows[member], rows[other], x[other], edge_label_type)

    def decode(self, member: Tensor, other: Tensor, x: Tensor, kind: Tensor) -> Tensor:
        """The logits of pairs: of the rows of both members, the features of the second, and the relation."""
        ways = (member[:, :-COUNTS].reshape(-1, WAYS, CHANNELS) * x[:, None, 1:]).sum(-1)
        hidden = self.hidden(torch.cat([ways, member[:, -COUNTS:], other[:, -COUNTS:]], dim=-1))
        return (hidden * self.kinds[kind]).sum(-1)


def read_examples(known: Facts, x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """For each rating of a member by another that the graph had: the row of the one, the rows of the other
    and of OTHERS more members, as they were just before, the features of these, and the relation."""
    encoder = lg.Model.from_pyg(
        Completion().eval(),
        relations=RELATIONS,
        node_type="member",
        in_channels=1 + CHANNELS,
        method="encode",
    )
    random, graph = np.random.default_rng(SEED), Ranking(encoder, x)
    begin = max(0, len(known.src) - TAUGHT)
    graph.add(known.part(0, begin))
    for at in range(begin, len(known.src)):
        one = known.part(at, at + 1)
        member, other = int(one.src[0]), int(one.dst[0])
        if max(member, other) < graph.members:
            rated_by = graph.engine.graph.neighbors(member, edge_type=TRUSTS).ids[-OTHERS // 4 :]
            others = random.choice(known.dst[:at], OTHERS - len(rated_by))
            ids = np.concatenate([[other], rated_by, others])
            ids = ids[(ids == other) | ~np.isin(ids, graph.rated_by(member))]
            ids = np.concatenate([ids[:1], ids[1:][ids[1:] != other]])
            rows = graph.engine.predict(np.concatenate([[member], ids]))
            yield rows[0], rows[1:], x[ids], int(one.relation[0])
        graph.add(one)


def train(known: Facts) -> lg.Model:
    """A model of the ratings, whose decoder learns to tell the rated member from others."""
    torch.manual_seed(SEED)
    network, x = Completion(), rows_of(int(max(known.src.max(), known.dst.max())) + 2)
    examples = list(read_examples(known, x))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.005)
    random = np.random.default_rng(SEED)
    for _ in range(EPOCHS):
        order = random.permutation(len(examples))
        for begin in range(0, len(order), BATCH):
            batch = [examples[at] for at in order[begin : begin + BATCH]]
            counts = torch.tensor([len(one[1]) for one in batch])
            member = torch.from_numpy(np.stack([one[0] for one in batch])).repeat_interleave(counts, dim=0)
            other, features = (
                torch.from_numpy(np.concatenate([one[part] for one in batch])) for part in (1, 2)
            )
            kind = torch.tensor([one[3] for one in batch]).repeat_interleave(counts)
            logits = network.decode(member, other, features, kind).split(counts.tolist())
            padded = nn.utils.rnn.pad_sequence(logits, batch_first=True, padding_value=-1e9)
            optimizer.zero_grad()
            nn.functional.cross_entropy(padded, torch.zeros(len(batch), dtype=torch.int64)).backward()
            optimizer.step()
    return lg.Model.from_pyg(
        network.eval(), relations=RELATIONS, node_type="member", in_channels=1 + CHANNELS
    )


def events_of(facts: Facts) -> lg.Events:
    events = lg.Events()
    for number in (0, 1):
        of_it = Facts(*(column[facts.relation == number] for column in facts))
        events.add_edges(of_it.src, of_it.dst, edge_type=RELATIONS[number])
        events.add_edges(of_it.src, of_it.dst, time=of_it.time, edge_type=LATELY[number])
    return events


class Ranking:
    """The members that the graph has, in the order of their scores. unknown: the number of a member without
    ratings, who stands for each that the graph does not have."""

    def __init__(self, model: lg.Model, x: np.ndarray) -> None:
        self.engine = lg.Engine(lg.Graph(SCHEMA), model)
        self._x, self._unknown = x, len(x) - 1
        self.engine.apply(lg.Events().add_nodes(self._unknown, x[-1:]))
        self.members = 0
        self._rated: dict[int, list[int]] = {}

    def add(self, facts: Facts) -> None:
        """Adds ratings, and the members that they name first."""
        if not len(facts.src):
            return
        members = max(self.members, int(facts.src.max()) + 1, int(facts.dst.max()) + 1)
        events = lg.Events()
        if members > self.members:
            new = np.arange(self.members, members)
            events.add_nodes(new, self._x[new])
        self.engine.apply(lg.Events.concatenate([events, events_of(facts)]))
        self.engine.graph.expire(float(facts.time[-1]))
        self.members = members
        for src, dst in zip(facts.src.tolist(), facts.dst.tolist(), strict=True):
            self._rated.setdefault(src, []).append(dst)

    def rated_by(self, member: int) -> list[int]:
        return self._rated.get(member, [])

    def rank(self, src: int, dst: int, relation: int) -> float:
        """The place of a member among those that `src` has not rated, from 1 on; infinite if it is not in the
        graph."""
        if dst >= self.members:
            return np.inf
        member = src if src < self.members else self._unknown
        everyone = np.arange(self.members)
        scores = self.engine.score(
            np.full(self.members, member), everyone, output=f"output:{RELATIONS[relation]}"
        )[:, 0]
        return place_of(scores, dst, [*self._rated.get(src, []), src])


def place_of(scores: np.ndarray, dst: int, left_out: list[int]) -> float:
    """The place of `dst` by its score; among equal ones, that in the middle."""
    wanted = scores[dst]
    scores = scores.copy()
    scores[[one for one in left_out if one != dst and one < len(scores)]] = -np.inf
    return 1 + float((scores > wanted).sum()) + 0.5 * float((scores == wanted).sum() - 1)


def rank_stream(model: lg.Model, facts: Facts, begin: int, delay: int, every: int) -> np.ndarray:
    """The places of the members that are rated from `begin` on, of each of `every` ratings. With a delay of 0
    days by the graph of all ratings before; else by one that ends so many nights before."""
    graph, places, added = Ranking(model, rows_of(int(max(facts.src.max(), facts.dst.max())) + 2)), [], 0
    for at in range(begin, len(facts.src), every):
        visible = at
        if delay:
            night = (facts.time[at] // DAY - (delay - 1)) * DAY
            visible = min(at, int(np.searchsorted(facts.time, night)))
        if visible > added:
            graph.add(facts.part(added, visible))
            added = visible
        places.append(graph.rank(int(facts.src[at]), int(facts.dst[at]), int(facts.relation[at])))
    return np.array(places)


def rank_by_rule(facts: Facts, begin: int, every: int, *, rate_back: bool) -> np.ndarray:
    """A baseline, live: the members with the most ratings first; before all, if `rate_back`, those who have
    rated the member and whom it has not rated."""
    rated_by: dict[int, list[int]] = {}
    given: dict[int, list[int]] = {}
    count, places, members = np.zeros(int(max(facts.src.max(), facts.dst.max())) + 1), [], 0
    for at, (src, dst) in enumerate(zip(facts.src.tolist(), facts.dst.tolist(), strict=True)):
        if at >= begin and (at - begin) % every == 0:
            scores = count[:members].copy()
            if rate_back:
                scores[rated_by.get(src, [])] += len(facts.src)
            left_out = [*given.get(src, []), src]
            places.append(place_of(scores, dst, left_out) if dst < members else np.inf)
        rated_by.setdefault(dst, []).append(src)
        given.setdefault(src, []).append(dst)
        count[dst] += 1
        members = max(members, src + 1, dst + 1)
    return np.array(places)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="bitcoin_otc.npz (default: that of the demo)")
    parser.add_argument("--every", type=int, default=40, help="rank one of so many ratings (default: 40)")
    parser.add_argument("--save", type=Path, help="the folder of a model and a deployment that serves it")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        parser.error(f"{arguments.data} is not there: give the path of bitcoin_otc.npz with --data")
    facts = load(arguments.data)
    begin = int(TRAINED * len(facts.src))
    known = facts.part(0, begin)
    model = train(known)
    if arguments.save:
        graph = Ranking(model, rows_of(int(max(known.src.max(), known.dst.max())) + 2))
        graph.add(known)
        save_service(arguments.save, "knowledge", model, graph.engine.graph)
    print(f"{len(facts.src) - begin:,} ratings after the first {begin:,}, one of {arguments.every} is ranked")
    print("rows of                   MRR   hits@10")
    measured = {
        **{name: partial(rank_stream, model, facts, begin, delay) for name, delay in DELAYS.items()},
        "rated back first": partial(rank_by_rule, facts, begin, rate_back=True),
        "most rated": partial(rank_by_rule, facts, begin, rate_back=False),
    }
    for name, rank in measured.items():
        places = rank(every=arguments.every)
        print(f"{name:<20}   {(1 / places).mean():6.3f}   {(places <= 10).mean():7.3f}", flush=True)


if __name__ == "__main__":
    main()
