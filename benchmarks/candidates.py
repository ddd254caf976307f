"""The best ten partners of a node among a million, before and after half of the rows have changed.

Users and items have 64 features, and a linear layer makes their embeddings; the score of a pair is the inner
product. The features are like trained embeddings: 24 directions, squashed, with noise, and lengths that
differ. Half of the items change, batch by batch, and a tenth is removed.

- *brute force*: the peer. Products of the query with a matrix of all embeddings, in NumPy, and the best ten
  of them.
- *usearch*, if `--usearch ROWS` asks for it: a graph of neighbors (HNSW) of so many rows, in 16-bit floats.

What it must cost
-----------------
A search reads 10 bytes of each row, 10 MB: 0.2 ms at the 50 GB/s of two cores, 0.5 ms at 20 GB/s of one. It
takes 2 instructions for a row, which are 0.2 ms on one core, and reads 36 bytes more of one or two rows in a
hundred, in no order: 0.1 ms. Scoring 256 found nodes exactly takes 60 us, Python's part of a call 40 us.
Brute force reads 256 MB. A changed row is read, computed and written: 0.4 us.
"""

from __future__ import annotations

from argparse import Namespace

import numpy as np

import livegnn as lg
from livegnn.model import Input, Step
from report import Report, arguments
from stopwatch import median_ms, p99_ms, time_each

CHANNELS, DIRECTIONS, K = 64, 24, 10
AIM_MS, AIM_RECALL = 1.0, 0.95
LIKES = ("user", "likes", "item")


def make_model(weight: np.ndarray) -> lg.Model:
    """The inner product of features of users and items, after a linear layer with these weights."""
    at = {"edge_type": LIKES}
    steps = (
        Step("linear", ("u",), "user", {"weight": "weight"}),
        Step("linear", ("i",), "item", {"weight": "weight"}),
        Step("source", ("user",), "from", attrs=at),
        Step("target", ("item",), "to", attrs=at),
        Step("multiply", ("from", "to"), "product"),
        Step("sum_channels", ("product",), "score", attrs={"heads": 1}),
    )
    return lg.Model(
        {"u": Input("user", len(weight)), "i": Input("item", len(weight))},
        steps,
        {"weight": weight},
        "user",
        ("u", "user"),
        outputs={"user": "user", "item": "item"},
        edge_outputs={"score": "score"},
    )


class Shop:
    """Users, items, and an engine; the embeddings again in NumPy."""

    def __init__(self, options: Namespace) -> None:
        self.random = np.random.default_rng(0)
        self.directions = self.random.standard_normal((DIRECTIONS, CHANNELS))
        self.weight = np.linalg.qr(self.random.standard_normal((CHANNELS, CHANNELS)))[0].astype(np.float32)
        graph = lg.Graph(lg.Schema({"user": CHANNELS, "item": CHANNELS}, {LIKES: lg.EdgeSchema()}))
        self.items, self.users = np.arange(options.items), np.arange(options.queries)
        self.x = self.draw(options.items)
        graph.apply(lg.Events().add_nodes(self.users, self.draw(options.queries), node_type="user"))
        graph.apply(lg.Events().add_nodes(self.items, self.x, node_type="item"))
        self.graph, self.engine = graph, lg.Engine(graph, make_model(self.weight), threads=options.threads)

    def draw(self, count: int) -> np.ndarray:
        rows = np.tanh(self.random.standard_normal((count, DIRECTIONS)) @ self.directions)
        rows += 0.2 * self.random.standard_normal(rows.shape)
        return (rows * self.random.lognormal(0, 0.2, (count, 1))).astype(np.float32)

    def change(self, items: np.ndarray) -> None:
        self.x[items] = self.draw(len(items))
        self.engine.apply(lg.Events().set_features(items, self.x[items], node_type="item"))

    def remove(self, items: np.ndarray) -> None:
        self.engine.apply(lg.Events().remove_nodes(items, node_type="item"))
        self.x = np.delete(self.x, np.searchsorted(self.items, np.sort(items)), axis=0)
        self.items = np.setdiff1d(self.items, items)


class Recall:
    """The best items of each user, by brute force on the embeddings."""

    def __init__(self, shop: Shop) -> None:
        self.rows = shop.x @ shop.weight.T
        self.queries = shop.engine.predict(shop.users, output="user")
        self.items = shop.items
        self.seconds, self.best = time_each(self.search, self.queries, warm_up=0)

    def keep(self, count: int) -> None:
        """Leaves out all rows but the first."""
        self.rows, self.items = self.rows[:count], self.items[:count]
        self.best = [self.search(query) for query in self.queries]

    def search(self, query: np.ndarray) -> set[int]:
        products = self.rows @ query
        return {*self.items[np.argpartition(-products, K)[:K]].tolist()}

    def of(self, found: list[np.ndarray]) -> float:
        pairs = zip(found, self.best, strict=True)
        return float(np.mean([len({*ids.tolist()} & best) / K for ids, best in pairs]))


def measure(shop: Shop, report: Report, when: str, *, aims: bool = False) -> Recall:
    recall = Recall(shop)
    ask = [int(user) for user in shop.users]
    seconds, found = time_each(lambda user: shop.engine.candidates(user, K).ids, ask, warm_up=0)
    peer = {"peer": "brute force", "peer_value": median_ms(recall.seconds)}
    aim = AIM_MS if aims else None
    floor = 0.3 * len(shop.items) / 1e6
    report.add(f"candidates(k=10) {when}, median", median_ms(seconds), "ms", aim=aim, floor=floor, **peer)
    report.add(f"candidates(k=10) {when}, p99", p99_ms(seconds), "ms")
    value = recall.of(found)
    report.add(f"recall {when}", value, "of 1", higher_is_better=True, aim=AIM_RECALL if aims else None)
    return recall


def build_graph(recall: Recall, options: Namespace) -> str:
    """The recall of a graph of neighbors of the first rows, the time of a search, and that to build it."""
    from usearch.index import Index

    recall.keep(options.usearch)
    index = Index(ndim=CHANNELS, metric="ip", dtype="f16", expansion_search=128)

    def build(rows: np.ndarray) -> None:
        index.add(np.arange(len(rows), dtype=np.uint64), rows, threads=options.threads)

    (built,), _ = time_each(build, [recall.rows], warm_up=0)
    seconds, found = time_each(
        lambda query: index.search(query, 64, threads=1).keys, recall.queries, warm_up=0
    )
    best = []
    for query, keys in zip(recall.queries, found, strict=True):
        keys = keys.astype(np.int64)
        best.append(recall.items[keys[np.argsort(-(recall.rows[keys] @ query))[:K]]])
    return (
        f"usearch, {len(recall.rows):,} rows: recall {recall.of(best):.3f}, a search "
        f"{median_ms(seconds):.3f} ms, {built * 1e6 / len(recall.rows):.0f} us to add a row, by "
        f"{options.threads} thread(s)."
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--usearch", type=int, default=0, metavar="ROWS", help="rows of the graph of usearch")
    options = parser.parse_args()
    if options.quick:
        options.items, options.queries = 20_000, 100
    shop, report = Shop(options), Report("candidates")
    parts = np.array_split(shop.random.permutation(options.items)[: options.items // 2], 50)
    rows = len(parts[0])
    bare, _ = time_each(shop.change, parts[:5])
    report.add(f"a batch that changes {rows:,} rows, without an index, median", median_ms(bare), "ms")
    index = shop.engine.candidate_index()
    (made,), _ = time_each(lambda _: index.refresh(), [None], warm_up=0)
    report.add("making the index", made, "s", floor=0.3 * options.items / 1e6)
    measure(shop, report, "at first")
    batches, _ = time_each(shop.change, parts)
    report.add(f"a batch that changes {rows:,} rows, with the index, median", median_ms(batches), "ms")
    shop.remove(shop.random.choice(shop.items, options.items // 10, replace=False))
    recall = measure(shop, report, "after half changed and a tenth removed", aims=not options.quick)
    memory = shop.engine.memory()["candidates"] / len(shop.items)
    report.add("memory of the index", memory, "bytes/row", floor=CHANNELS * 5 / 8 + 6)
    if options.usearch:
        report.note(build_graph(recall, options))
    report.finish(options.json)


if __name__ == "__main__":
    main()
