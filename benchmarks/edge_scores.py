"""Scores of edges on a payments graph: of an edge after its event, and before it exists.

Two graphs of accounts, and of payments with two columns: `payments` has the 20,000 accounts of AMLSim and the
first transfer between any two (tests/data), `arxiv` the ends of that shape (graphs.py). The model is
SAGE-mean, 16 -> 64 -> 64 with a ReLU between; the decoder is a perceptron on both embeddings and the columns
of a payment, 130 -> 64 -> 1. Payments arrive one by one, and the first have happened: before an engine's
first batch, each what-if would measure the units of rounding as that batch does.

- *LiveGNN*: the embeddings are kept, and a score is computed from them when it is read.
- *torch, the edge's neighbourhood*: the peer (peers.py) adds the edge to its lists, recomputes the two hops
  of both ends, applies the decoder, and takes the edge out again: what a service without a live engine does,
  in plain torch.
- *Over HTTP*: `POST /v1/edge-scores` with one event and the pair that it joins, from 32 connections of wrk
  (https://github.com/wg/wrk), on the same two cores as the server.

What a score must cost
----------------------
The decoder is 2 x (130 x 64 + 64) flops, 17 kflop: 1 us on one core with few pairs, 0.3 us in blocks of 32.
The rows of the ends are two cache misses. The rest of a call, some microseconds, is Python. A what-if stages
an event (7 us) and computes what it reaches, here two hops ahead of one edge: the target, and the targets of
its out-edges, some 7 rows of 64, and ten times as many where the target pays many others.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import Namespace
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import livegnn as lg
from graphs import SHAPES, Batch, make
from http_load import listening, load
from livegnn.log.sqlite import SqliteLog
from livegnn.model import EdgeInput, Step
from livegnn.runtime import Runtime
from livegnn.server import create_app, listen, serve
from livegnn.types import DEFAULT_EDGE_TYPE
from peers import SAGE, NeighborhoodRecomputation
from report import Report, arguments
from stopwatch import median_ms, p99_ms, time_each

FEATURES, HIDDEN, COLUMNS = 16, 64, 2
AIM_AFTER_EVENT, AIM_WHAT_IF = 0.1, 0.15  # ms
AIM_HTTP = 5000  # a second
LIVE = 20  # payments that happen first
MANY = 4096
TRANSFERS = Path(__file__).parents[1] / "tests" / "data" / "amlsim_20k.npz"
WHAT_IFS = """
local bodies, at = {{}}, 0
for line in io.lines("{bodies}") do bodies[#bodies + 1] = line end
local headers = {{["content-type"] = "application/json"}}
request = function()
  at = at % #bodies + 1
  return wrk.format("POST", nil, headers, bodies[at])
end
"""


def ends_of(shape: str) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Source and target of each payment, the number of accounts, and the order of the payments."""
    if shape == "payments":
        given = np.load(TRANSFERS)
        order = np.argsort(given["step"], kind="stable")
        ends = np.stack([given["src"], given["dst"]]).astype(np.int64)[:, order]
        _, first = np.unique(ends, axis=1, return_index=True)  # no pair pays twice
        src, dst = ends[:, np.sort(first)]
        return src, dst, int(ends.max()) + 1, np.arange(len(src))
    made = make(shape)
    return made.src, made.dst, SHAPES[shape].nodes, np.random.default_rng(0).permutation(len(made.src))


class Payments:
    """The graph, the model, and payments that have not happened yet."""

    def __init__(self, options: Namespace, shape: str) -> None:
        rng = np.random.default_rng(0)
        self.src, self.dst, accounts, order = ends_of(shape)
        known, fresh = order[: -options.payments - LIVE], order[-options.payments :]
        self.x = rng.standard_normal((accounts, FEATURES)).astype(np.float32)
        self.attr = rng.standard_normal((len(order), COLUMNS)).astype(np.float32)
        self.fresh = fresh
        torch.manual_seed(0)
        self.layers = SAGE(FEATURES, HIDDEN, HIDDEN).eval()
        self.decoder = torch.nn.Sequential(
            torch.nn.Linear(2 * HIDDEN + COLUMNS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 1)
        )
        graph = lg.Graph.from_edges(
            self.src[known],
            self.dst[known],
            x=self.x,
            num_nodes=accounts,
            edge_attr=self.attr[known],
        )
        self.engine = lg.Engine(graph, self._model(), threads=options.threads)
        self.peer = NeighborhoodRecomputation(self.layers, self.x, self.src[known], self.dst[known], False)
        for edge in order[-options.payments - LIVE : -options.payments].tolist():
            self.engine.apply(self.event(edge), seq=0)  # as the log of the server begins after them
            self.peer.apply(self._batch(edge))

    def _model(self) -> lg.Model:
        layers = lg.Model.from_pyg(self.layers)
        first, _, last = self.decoder
        edge_type = {"edge_type": DEFAULT_EDGE_TYPE}
        decoder = (
            Step("source", (layers.output,), "payer", attrs=edge_type),
            Step("target", (layers.output,), "payee", attrs=edge_type),
            Step("concat", ("payer", "payee", "payment"), "read"),
            Step("linear", ("read",), "first", {"weight": "d1", "bias": "b1"}),
            Step("relu", ("first",), "rectified"),
            Step("linear", ("rectified",), "risk", {"weight": "d2", "bias": "b2"}),
        )
        tensors = {"d1": first.weight, "b1": first.bias, "d2": last.weight, "b2": last.bias}
        return replace(
            layers,
            steps=(*layers.steps, *decoder),
            tensors={**layers.tensors, **{name: one.detach().numpy() for name, one in tensors.items()}},
            edge_inputs={"payment": EdgeInput(DEFAULT_EDGE_TYPE, COLUMNS)},
            edge_outputs={"risk": "risk"},
        )

    def event(self, edge: int) -> lg.Events:
        return lg.Events().add_edges(self.src[edge], self.dst[edge], edge_attr=self.attr[edge])

    def score(self, edge: int) -> np.ndarray:
        return self.engine.score(self.src[edge], self.dst[edge], edge_attr=self.attr[edge])

    def suppose(self, edge: int) -> np.ndarray:
        supposed = self.engine.what_if(self.event(edge))
        return supposed.score(self.src[edge], self.dst[edge], edge_attr=self.attr[edge])

    def apply_and_score(self, edge: int) -> np.ndarray:
        self.engine.apply(self.event(edge))
        return self.engine.predict_edges(self.src[edge], self.dst[edge])

    @torch.inference_mode()
    def ask_peer(self, edge: int) -> np.ndarray:
        added = self._batch(edge)
        self.peer.apply(added)
        rows = self.peer.query(np.concatenate([added.add_src, added.add_dst])).reshape(1, -1)
        score = self.decoder(torch.cat([rows, torch.from_numpy(self.attr[edge : edge + 1])], dim=1))
        self.peer.apply(self._batch(edge, removed=True))
        return score.numpy()

    def _batch(self, edge: int, *, removed: bool = False) -> Batch:
        none, ends = np.zeros(0, np.int64), (self.src[edge : edge + 1], self.dst[edge : edge + 1])
        no_x = np.zeros((0, FEATURES), np.float32)
        return Batch(none, none, *ends, none, no_x) if removed else Batch(*ends, none, none, none, no_x)


def serve_payments(options: Namespace, shape: str, folder: Path) -> None:
    """A server of the graph; writes the bodies of requests into `folder`, and prints its address."""
    payments = Payments(options, shape)
    with (folder / "bodies").open("w", encoding="utf-8") as bodies:
        for edge in payments.fresh.tolist():
            src, dst, attr = (
                payments.src[edge].item(),
                payments.dst[edge].item(),
                payments.attr[edge].tolist(),
            )
            event = {"event": "add_edge", "src": src, "dst": dst, "edge_attr": attr}
            body = {"sources": [src], "targets": [dst], "edge_attr": [attr], "events": [event]}
            bodies.write(json.dumps(body) + "\n")
    with closing(SqliteLog(folder / "events.db")) as log:
        runtime = Runtime(log, payments.engine.graph, payments.engine)
        runtime.start()
        try:
            serve(create_app(runtime), listen("127.0.0.1", 0), ready=lambda url: print(url, flush=True))
        finally:
            runtime.stop()


def measure_http(report: Report, options: Namespace, shape: str) -> None:
    words = [sys.executable, "edge_scores.py", "--serve", shape]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = [*words, "--folder", name, *(["--quick"] if options.quick else [])]
        with listening(given) as server:
            found = load(
                f"{server.address}/v1/edge-scores",
                WHAT_IFS.format(bodies=folder / "bodies"),
                connections=32,
                seconds=3 if options.quick else 15,
                folder=folder,
            )
    report.add(
        f"{shape}: what-ifs with scores over HTTP",
        found.rate,
        "a second",
        aim=AIM_HTTP,
        higher_is_better=True,
    )


def measure(report: Report, options: Namespace, shape: str) -> None:
    payments = Payments(options, shape)
    rng = np.random.default_rng(1)
    fresh = payments.fresh.tolist()
    half = fresh[: len(fresh) // 2]

    peer_s, expected = time_each(payments.ask_peer, half, warm_up=3)
    peer = {"peer": "torch, the edge's neighbourhood", "peer_value": median_ms(peer_s)}
    seconds, supposed = time_each(payments.suppose, half, warm_up=3)
    largest = float(np.abs(np.concatenate(supposed) - np.concatenate(expected)).max())
    report.add(
        f"{shape}: what-if and score of a new edge, median", median_ms(seconds), "ms", aim=AIM_WHAT_IF, **peer
    )
    report.add(f"{shape}: what-if and score of a new edge, p99", p99_ms(seconds), "ms")
    seconds, _ = time_each(payments.score, half, warm_up=3)
    report.add(f"{shape}: score of a pair, median", median_ms(seconds), "ms", floor=0.001)
    seconds, _ = time_each(payments.apply_and_score, fresh, warm_up=3)
    report.add(f"{shape}: an event, and the score of its edge, median", median_ms(seconds), "ms", **peer)
    seconds, _ = time_each(
        lambda edge: payments.engine.predict_edges(payments.src[edge], payments.dst[edge]), fresh, warm_up=3
    )
    report.add(
        f"{shape}: score of an edge after an event, median",
        median_ms(seconds),
        "ms",
        aim=AIM_AFTER_EVENT,
        **peer,
    )
    edges = rng.integers(0, len(payments.src), (20, MANY))
    seconds, _ = time_each(
        lambda some: payments.engine.score(
            payments.src[some], payments.dst[some], edge_attr=payments.attr[some]
        ),
        edges,
        warm_up=2,
    )
    report.add(
        f"{shape}: scores of {MANY:,} pairs",
        MANY / float(np.median(seconds)),
        "scores/s",
        higher_is_better=True,
    )
    report.note(f"{shape}: largest difference between LiveGNN and the peer: {largest:.1e}.")
    report.note(f"{shape}: against the oracle: {payments.engine.verify(1000, output='risk')}.")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shapes", nargs="*", default=["payments", "arxiv"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--serve", metavar="SHAPE", help="serve a graph, for the measurement over HTTP")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    options.payments = 300 if options.quick else 2000
    torch.set_num_threads(options.threads)
    if options.serve:
        serve_payments(options, options.serve, options.folder)
        return
    report = Report("edge scores")
    for shape in options.shapes:
        measure(report, options, shape)
        measure_http(report, options, shape)
    report.finish(options.json)


if __name__ == "__main__":
    main()
