"""What is left of a million events that come and go: memory must depend on what lives, on nothing else.

Two graphs of 1,000 nodes, one with integer ids and one with text, each under an eager engine (with history)
and a lazy one. Every turn adds nodes under names that never were, with edges, weights, times and features,
and the next turn removes them; it changes edges and features of those that stay, tries what-ifs, has batches
refused, draws samples, asks questions, subscribes and unsubscribes. Every tenth turn also applies a batch
twenty times as large, draws a sample of everything, and makes an engine, a view and a copy of the graph
that it drops again.

After each twentieth of the turns the graph is as it was at the start but for its values, and everything is
counted: the process's resident memory, what `memory()` says, and what it says of a copy made from the
graph's state, which knows nothing of the past. The copy lacks the room that tables keep for the most nodes
that there were at once, the history, and slabs of the store that wait for the next batch.

What must come out
------------------
Resident memory after the last turn is what it was after half of them (the first half warms allocators up,
and the store keeps up to a megabyte of free blocks a list): a leak of two bytes an event would be a megabyte.
`memory()` is what it was then, too.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np

import livegnn as lg
from livegnn.graph import View
from livegnn.model import Input, Step
from livegnn.sampling import sample_neighbors, sample_nodes, sample_subgraph
from report import Report, arguments

NODES, NEW, WIDTH, EDGE_WIDTH = 1_000, 60, 8, 3
PAYS, KNOWS = ("node", "pays", "node"), ("node", "knows", "node")
COUNTS = 20  # of memory
OFTEN, LARGE = 10, 20  # turns from one large batch to the next; times the size of a turn
TIME_TO_LIVE = 50.0
GROWTH_AIM = 0.02


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def make_model() -> lg.Model:
    """A weighted GCN layer along payments, then the mean of acquaintances with a root term."""
    rng = np.random.default_rng(0)
    gcn = {
        "edge_type": PAYS,
        "message_local": ("weight", "source_rsqrt"),
        "neighbor_context": "sum",
        "combine": "rsqrt",
        "aggregate": "sum",
        "self_loops": 1.0,
    }
    mean = {
        "edge_type": KNOWS,
        "message_local": (),
        "neighbor_context": "count",
        "combine": "divide",
        "aggregate": "sum",
        "self_loops": None,
    }
    shapes = {"w1": (16, WIDTH), "w2": (4, 16), "w3": (4, 16)}
    return lg.Model(
        inputs={"x": Input("node", WIDTH)},
        steps=(
            Step("linear", ("x",), "projected", {"weight": "w1"}),
            Step("propagate", ("projected",), "gathered", attrs=gcn),
            Step("relu", ("gathered",), "hidden"),
            Step("propagate", ("hidden",), "mean", attrs=mean),
            Step("linear", ("mean",), "of_others", {"weight": "w2"}),
            Step("linear", ("hidden",), "own", {"weight": "w3"}),
            Step("add", ("of_others", "own"), "out"),
        ),
        tensors={name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()},
        output="out",
        layers=("x", "hidden", "out"),
    )


class Listener(View):
    """A view that only counts batches."""

    name = "listener"

    def __init__(self, graph: lg.Graph) -> None:
        super().__init__(graph)
        self.batches = 0

    def commit(self, change: lg.GraphDelta) -> None:
        self.batches += change.num_events > 0


class World:
    """One graph with all that happens to it."""

    def __init__(self, text: bool, seed: int) -> None:
        self.text = text
        self.rng = np.random.default_rng([seed, text])
        schema = lg.Schema(
            {"node": WIDTH},
            {
                PAYS: lg.EdgeSchema(weighted=True, timed=True, time_to_live=TIME_TO_LIVE),
                KNOWS: lg.EdgeSchema(undirected=True, edge_dim=EDGE_WIDTH, capacity=4),
            },
            text_ids=text,
        )
        self.model = make_model()
        self.graph = lg.Graph(schema)
        self.base = np.arange(NODES)
        self.turn = self.events = 0
        self.graph.apply(lg.Events().add_nodes(self.name(self.base), self.x(NODES)))
        self.engine = lg.Engine(self.graph, self.model, history=200)
        self.lazy = lg.Engine(self.graph, self.model, mode="lazy")
        self.came: np.ndarray = np.empty(0, dtype=np.int64)
        self.known: tuple[np.ndarray, np.ndarray] = (self.came, self.came)
        self.next_id = NODES
        self.update: lg.Update | None = None

    # -- what happens

    def name(self, ids: np.ndarray) -> np.ndarray:
        return np.array([f"the node that has number {i} in this world" for i in ids]) if self.text else ids

    def x(self, count: int) -> np.ndarray:
        return self.rng.standard_normal((count, WIDTH), dtype=np.float32)

    def fresh(self, count: int) -> np.ndarray:
        self.next_id += 1_000_003 * count  # far apart: no table may grow with the largest
        return self.next_id + np.arange(count)

    def apply(self, events: lg.Events) -> None:
        self.update = self.engine.apply(events)
        self.events += len(events)

    def tick(self, size: int = NEW) -> None:
        """A turn: what came before goes, and as much comes."""
        self.turn += 1
        rng, new = self.rng, self.fresh(size)
        everyone = np.concatenate([self.base, new])
        events = lg.Events().remove_nodes(self.name(self.came)) if len(self.came) else lg.Events()
        if len(self.known[0]):
            events.remove_edges(*map(self.name, self.known), edge_type=KNOWS)
        events.add_nodes(self.name(new), self.x(size))
        src, dst = rng.choice(everyone, (2, 3 * size))
        events.add_edges(
            self.name(src), self.name(dst), weight=rng.random(3 * size), time=np.full(3 * size, self.turn),
            edge_type=PAYS,
        )  # fmt: skip
        a, b = rng.choice(self.base, (2, size))
        self.known = a, b
        features = rng.standard_normal((size, EDGE_WIDTH))
        events.add_edges(self.name(a), self.name(b), edge_attr=features, edge_type=KNOWS)
        some = rng.choice(self.base, size)
        events.set_features(self.name(some), self.x(size))
        self.apply(events)
        self.came = new
        self.apply(self.graph.expired(self.turn))
        self.try_things()
        self.ask(size)

    def try_things(self) -> None:
        """What changes nothing: what-ifs, refused batches, subscriptions."""
        new = self.fresh(20)
        events = lg.Events().add_nodes(self.name(new), self.x(20))
        events.add_edges(self.name(new), self.name(self.base[:20]), weight=np.ones(20), edge_type=PAYS)
        asked = self.engine.what_if(events)
        assert len(asked.changed) >= 20
        asked.predict(self.name(new))
        refused = lg.Events().add_nodes(self.name(self.fresh(200)), self.x(200))
        try:
            self.engine.apply(refused.remove_nodes(self.name(self.fresh(1))))
        except lg.UnknownNodeError:
            self.events += 201
        else:
            raise AssertionError("a batch with an unknown node was applied")
        heard: list[lg.Update] = []
        end = self.engine.subscribe(heard.append)
        self.apply(lg.Events().set_features(self.name(self.base[:1]), self.x(1)))
        end()
        assert heard
        assert len(heard[0].changed)

    def ask(self, size: int) -> None:
        some = self.name(self.rng.choice(self.base, min(size, NODES)))
        self.engine.predict(some)
        self.lazy.predict(some)
        sample_neighbors(self.graph, some, 5, edge_type=PAYS, seed=self.turn)
        sample_nodes(self.graph, 10, by="degree", edge_type=PAYS, seed=self.turn)
        sample_subgraph(self.graph, some, [5, 5], edge_type=PAYS, disjoint=self.turn % 2 == 0, seed=1)

    def tick_large(self) -> None:
        """A batch that stands alone, and everything that can be made and dropped."""
        self.tick(LARGE * NEW)
        sample_subgraph(self.graph, self.graph.ids(), [-1, -1], edge_type=PAYS, disjoint=True, seed=2)
        copy = lg.Graph.from_state(self.graph.state())
        engine = lg.Engine(copy, self.model, state=self.engine.state())
        engine.apply(lg.Events().remove_nodes(self.name(self.came[: len(self.came) // 2])))
        another = lg.Engine(self.graph, self.model, keep="aggregates")
        view = Listener(self.graph)
        self.graph.attach(view)
        self.tick()
        assert view.batches > 0
        another.predict(self.name(self.base))

    def come_to_rest(self) -> None:
        """As it was at the start: the base alone, and what works in memory has seen small batches only."""
        self.apply(lg.Events().remove_nodes(self.name(self.came)))
        self.apply(lg.Events().remove_edges(*map(self.name, self.known), edge_type=KNOWS))
        self.came, self.known = self.came[:0], (self.came[:0], self.came[:0])
        self.apply(self.graph.expired(self.turn + 2 * TIME_TO_LIVE))
        for _ in range(60):  # the store looks back so far
            self.apply(lg.Events().set_features(self.name(self.base[:2]), self.x(2)))
        assert self.graph.num_nodes() == NODES
        assert self.graph.num_edges(PAYS) == self.graph.num_edges(KNOWS) == 0

    # -- what is left

    def counted(self) -> int:
        """What lives, as `memory()` counts it, without what is kept to work in."""
        return lasting(self.engine.memory()) + lasting(self.lazy.memory())

    def counted_anew(self) -> int:
        copy = lg.Graph.from_state(self.graph.state())
        engine = lg.Engine(copy, self.model, state=self.engine.state(), history=200)
        lazy = lg.Engine(copy, self.model, mode="lazy")
        return lasting(engine.memory()) + lasting(lazy.memory())


def lasting(memory: dict[str, int]) -> int:
    return sum(
        size
        for part, size in memory.items()
        if not part.startswith("batches of")
        and part not in ("changes of batches", "rows of batches", "samples")
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--events", type=int, help="how many at least; by default a million, or 60,000")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    wanted = options.events or (60_000 if options.quick else 1_000_000)
    report = Report("churn")
    worlds = [World(text, options.seed) for text in (False, True)]
    sizes: list[int] = []
    counted: list[int] = []
    turns = 0
    for step in range(1, COUNTS + 1):
        while sum(world.events for world in worlds) < wanted * step / COUNTS:
            turns += 1
            for world in worlds:
                world.tick()
                if turns % OFTEN == 2:
                    world.tick_large()
        for world in worlds:
            world.come_to_rest()
        gc.collect()
        sizes.append(resident())
        counted.append(sum(world.counted() for world in worlds))
        print(f"{step}/{COUNTS}: resident {sizes[-1] / 2**20:.1f} MiB, counted {counted[-1] / 2**20:.2f} MiB")
    anew = sum(world.counted_anew() for world in worlds)
    events, warm = sum(world.events for world in worlds), COUNTS // 2
    left = max(sizes[-3:]) - max(sizes[:warm])
    report.add("events", events, "events", higher_is_better=True)
    report.add("resident after half", max(sizes[:warm]) / 2**20, "MiB", higher_is_better=False)
    report.add("resident at the end", sizes[-1] / 2**20, "MiB", higher_is_better=False)
    report.add("growth since half", left / max(sizes[:warm]), "of it", aim=GROWTH_AIM, higher_is_better=False)
    report.add("growth an event", max(0, left) / (0.5 * events), "bytes", higher_is_better=False)
    report.add("memory() after half", max(counted[:warm]) / 2**20, "MiB", higher_is_better=False)
    report.add("memory() at the end", counted[-1] / 2**20, "MiB", higher_is_better=False)
    report.add("memory() of a copy made from the state", anew / 2**20, "MiB", higher_is_better=False)
    report.finish(options.json)


if __name__ == "__main__":
    main()
