"""Train a network that scores payments before they are made, and compare live scores with nightly ones.

    python examples/score_payments.py [--data amlsim_20k.npz] [--save FOLDER]

The graph: 20,000 bank accounts and 120,000 transfers between them in 149 days, with rings of money laundering
planted by the simulator AMLSim. A transfer between two accounts of a ring is laundering (6.5 % are). The
network learns from the first days: two convolutions on the payers and payees of each account, and a decoder
that reads the rows of both accounts and the amount. The amounts of the graph are raw; their logarithm and
scale are the first steps of the model (`lg.Model.with_transforms`).

Then the other days are a stream. Each payment is scored before it is made (`engine.score`), and added to the
graph. A score that is computed from rows of the last night, week or month lacks the payments since then. A
logistic regression reads the amount alone. People look at the hundred payments of a day with the highest
scores: the precision is the share of laundering among them. `--save` writes the model, the graph of the first
days and a deployment, and prints the command that serves them. Seeded; takes a minute on two cores.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn
from torch_geometric.nn import MessagePassing

import livegnn as lg
from livegnn.model import Transforms
from saved_service import save_service
from train_bitcoin_otc import area_under_curve, average_precision

SEED = 0
HIDDEN = 32
EPOCHS = 60
TRAIN_DAYS = 90  # of which the network knows the labels
HORIZON = 10  # days whose payments are scored with the graph of the day before them, in training
CHECKED = 100  # payments that people look at each day
DELAYS = {"live": 0, "last night": 1, "last week": 7, "last month": 30}  # days
PAYS = ("account", "pays", "account")
SCHEMA = lg.Schema(
    {"account": 1}, {PAYS: lg.EdgeSchema(duplicates="keep", edge_dim=1)}, auto_add={"account": (1.0,)}
)
DATA = Path(__file__).parents[1] / "tests" / "data" / "amlsim_20k.npz"


class Payments(NamedTuple):
    """src, dst: ids. amount, day, is_laundering: of each payment, by day."""

    src: np.ndarray
    dst: np.ndarray
    amount: np.ndarray
    day: np.ndarray
    is_laundering: np.ndarray

    def between(self, first: int, last: int) -> "Payments":
        """Those of the days from `first` on, before `last`."""
        begin, end = np.searchsorted(self.day, [first, last])
        return Payments(*(column[begin:end] for column in self))


def load(path: Path) -> Payments:
    data = np.load(path)
    order = np.argsort(data["step"], kind="stable")
    src, dst = (data[name][order].astype(np.int64) for name in ("src", "dst"))
    is_fraud = data["is_fraud_account"] == 1
    return Payments(src, dst, data["amount"][order], data["step"][order], is_fraud[src] & is_fraud[dst])


class Neighbors(MessagePassing):
    """The payments of an account in one direction: sums of what the other accounts and the amounts say."""

    def __init__(self, channels: int) -> None:
        super().__init__(aggr="sum")
        self.message_of = nn.Linear(channels + 1, HIDDEN)

    def forward(self, h: torch.Tensor, edge_index: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        return self.propagate(edge_index, h=h, amount=amount).log1p()

    def message(self, h_j: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        return self.message_of(torch.cat([h_j, amount], dim=-1)).relu()


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.received = nn.ModuleList([Neighbors(1), Neighbors(HIDDEN)])
        self.paid = nn.ModuleList([Neighbors(1), Neighbors(HIDDEN)])
        self.joined = nn.ModuleList([nn.Linear(1 + 2 * HIDDEN, HIDDEN), nn.Linear(3 * HIDDEN, HIDDEN)])
        self.decoder = nn.Sequential(nn.Linear(2 * HIDDEN + 1, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def encode(self, h: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        for received, paid, joined in zip(self.received, self.paid, self.joined, strict=True):
            near = [received(h, edge_index, edge_attr), paid(h, edge_index.flip(0), edge_attr)]
            h = joined(torch.cat([h, *near], dim=-1)).relu()
        return h

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, edge_attr: torch.Tensor) -> torch.Tensor:
        return self.decode(self.encode(x, edge_index, edge_attr), edge_index, edge_attr).sigmoid()

    def decode(self, h: torch.Tensor, pairs: torch.Tensor, amount: torch.Tensor) -> torch.Tensor:
        payer, payee = pairs
        return self.decoder(torch.cat([h[payer], h[payee], amount], dim=-1)).squeeze(-1)


def train(known: Payments, accounts: int, epochs: int = EPOCHS) -> lg.Model:
    """A model of raw amounts. known: payments whose labels are known."""
    torch.manual_seed(SEED)
    scaled = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
    transforms = Transforms.from_sklearn(scaled.fit(known.amount[:, None].astype(np.float64)))
    amount = torch.from_numpy(transforms(known.amount[:, None]))
    pairs = torch.from_numpy(np.stack([known.src, known.dst]))
    is_laundering = torch.from_numpy(known.is_laundering).float()
    network = Network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    loss = nn.BCEWithLogitsLoss()
    x = torch.ones(accounts, 1)
    days = np.arange(HORIZON, TRAIN_DAYS, HORIZON)
    for day in np.random.default_rng(SEED).permutation(np.tile(days, epochs // len(days) + 1))[:epochs]:
        begin, end = np.searchsorted(known.day, [day, day + HORIZON])
        optimizer.zero_grad()
        h = network.encode(x, pairs[:, :begin], amount[:begin])
        logits = network.decode(h, pairs[:, begin:end], amount[begin:end])
        loss(logits, is_laundering[begin:end]).backward()
        optimizer.step()
    model = lg.Model.from_pyg(
        network.eval(), node_type="account", edge_type=PAYS, in_channels=1, edge_channels=1
    )
    return model.with_transforms({"edge_attr": transforms})


def events_of(payments: Payments) -> lg.Events:
    return lg.Events().add_edges(
        payments.src,
        payments.dst,
        edge_attr=payments.amount[:, None],
        edge_type=PAYS,
    )


def graph_of(payments: Payments, accounts: int) -> lg.Graph:
    graph = lg.Graph(SCHEMA)
    graph.apply(lg.Events().add_nodes(np.arange(accounts), np.ones((accounts, 1)), node_type="account"))
    graph.apply(events_of(payments))
    return graph


def score_stream(
    model: lg.Model, payments: Payments, accounts: int, delays: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Scores of the payments after the days of training. With a delay of 0 days each is scored before it is
    added; with another one by the rows of a graph that ends so many days before the payment's."""
    scores = {}
    last = int(payments.day[-1])
    for name, delay in delays.items():
        engine = lg.Engine(graph_of(payments.between(0, TRAIN_DAYS - max(delay - 1, 0)), accounts), model)
        found = []
        for day in range(TRAIN_DAYS, last + 1):
            of_day = payments.between(day, day + 1)
            if delay == 0:
                for at in range(len(of_day.day)):
                    one = Payments(*(column[at : at + 1] for column in of_day))
                    found.append(engine.score(one.src, one.dst, edge_attr=one.amount[:, None])[:, 0])
                    engine.apply(events_of(one))
            elif len(of_day.day):
                found.append(engine.score(of_day.src, of_day.dst, edge_attr=of_day.amount[:, None])[:, 0])
            if delay:
                engine.apply(events_of(payments.between(day - delay + 1, day - delay + 2)))
        scores[name] = np.concatenate(found)
    return scores


def by_amount(known: Payments, later: Payments) -> np.ndarray:
    """The baseline: a logistic regression on the logarithm of the amount."""
    regression = LogisticRegression().fit(np.log1p(known.amount)[:, None], known.is_laundering)
    return regression.decision_function(np.log1p(later.amount)[:, None])


def precision_at(payments: Payments, scores: np.ndarray, count: int = CHECKED) -> float:
    """The share of laundering among the payments with the highest scores of each day, of all days."""
    checked = []
    for day in np.unique(payments.day):
        begin, end = np.searchsorted(payments.day, [day, day + 1])
        highest = np.argsort(-scores[begin:end], kind="stable")[:count]
        checked.append(payments.is_laundering[begin:end][highest])
    return float(np.concatenate(checked).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="amlsim_20k.npz (default: the one of the tests)"
    )
    parser.add_argument("--save", type=Path, help="the folder of a model and a deployment that serves it")
    arguments = parser.parse_args()
    if not arguments.data.exists():
        parser.error(f"{arguments.data} is not there: give the path of amlsim_20k.npz with --data")
    payments = load(arguments.data)
    accounts = int(max(payments.src.max(), payments.dst.max())) + 1
    known, later = payments.between(0, TRAIN_DAYS), payments.between(TRAIN_DAYS, 10**6)
    model = train(known, accounts)
    if arguments.save:
        save_service(arguments.save, "payments", model, graph_of(known, accounts))
    print(f"{len(later.day):,} payments after day {TRAIN_DAYS}, {later.is_laundering.mean():.1%} laundering")
    print(f"rows of         precision at {CHECKED} a day   ROC AUC   average precision")
    scores = {"amount alone": by_amount(known, later), **score_stream(model, payments, accounts, DELAYS)}
    for name, found in scores.items():
        print(
            f"{name:<14}   {precision_at(later, found):22.3f}   "
            f"{area_under_curve(later.is_laundering, found):7.3f}   "
            f"{average_precision(later.is_laundering, found):17.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
