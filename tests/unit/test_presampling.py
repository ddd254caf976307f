"""Samples that are kept ready: their law beside that of `sample_query`, reads beside batches, restarts,
what-ifs, and what is refused."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from test_sampling import assert_law, shares, successive

import livegnn as lg
from gate import draws
from livegnn.deployment import Deployment
from livegnn.errors import FileFormatError, InputError, UnknownNodeError, UnknownTypeError
from livegnn.log.sqlite import SqliteLog
from livegnn.presampling import Presampler
from livegnn.query import Query
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.sampling import HeteroSubgraph, sample_query
from livegnn.types import EdgeType, State
from streams import make_model

EDGE: EdgeType = ("node", "to", "node")
QUERY = Query("node").hop(EDGE, 3, direction="in").hop(EDGE, 2, direction="in", by="latest")
SEEDS = 4_000
HUB = 0
WEIGHTS = {1: 1.0, 2: 4.0, 3: 2.0, 4: 1.0, 5: 0.0, 6: 8.0}


def make_graph(nodes: int = 30) -> lg.Graph:
    rng = np.random.default_rng(5)
    return lg.Graph.from_edges(
        rng.integers(0, nodes, 200),
        rng.integers(0, nodes, 200),
        weight=rng.uniform(0.5, 2, 200),
        time=rng.integers(0, 50, 200).astype(float),
        x=rng.normal(size=(nodes, 2)),
        ids=np.arange(nodes),
        parallel="last",
    )


def plain(sample: HeteroSubgraph) -> list[object]:
    return [sample.node["node"].tolist(), sample.row[EDGE].tolist(), sample.col[EDGE].tolist()]


@pytest.fixture(scope="module")
def changed() -> lg.Graph:
    """The hub has the neighbours of `WEIGHTS`, after many others have come and gone."""
    schema = lg.Schema({"node": 0}, {EDGE: lg.EdgeSchema(weighted=True, timed=True)})
    graph = lg.Graph(schema)
    others = np.arange(10, 60)
    graph.apply(
        lg.Events()
        .add_nodes(np.arange(60))
        .add_edges(others, 0 * others, weight=np.ones(50), time=np.ones(50))
    )
    ids = np.array(list(WEIGHTS))
    ones = np.ones(len(ids))
    graph.apply(lg.Events().add_edges(ids, 0 * ids, weight=9 * ones, time=ones))
    graph.apply(lg.Events().remove_edges(others, 0 * others))
    graph.apply(lg.Events().add_edges(ids, 0 * ids, weight=list(WEIGHTS.values()), time=2 * ones))
    return graph


@pytest.mark.parametrize("by", ["uniform", "weight"])
def test_the_law_is_that_of_sample_query(changed: lg.Graph, by: str) -> None:
    """Over seeds of random numbers; beside the exact law, which `sample_query` is held against too."""
    query = Query("node").hop(EDGE, 2, direction="in", by=by)
    law = successive(dict.fromkeys(WEIGHTS, 1.0) if by == "uniform" else WEIGHTS, 2)
    ahead: Counter[frozenset[int]] = Counter()
    drawn: Counter[frozenset[int]] = Counter()
    for seed in range(SEEDS):
        kept = Presampler(changed, query, seed=seed, threads=1).sample([HUB]).node["node"][1:]
        ahead[frozenset(kept.tolist())] += 1
        now = sample_query(changed, [HUB], query, seed=seed, threads=1).node["node"][1:]
        drawn[frozenset(now.tolist())] += 1
    assert_law(ahead, law)
    assert_law(drawn, law)


def test_batches_keep_the_law() -> None:
    """One view through many batches: over time, each of a hub's neighbours is in the sample alike."""
    schema = lg.Schema({"node": 0}, {EDGE: lg.EdgeSchema()})
    graph = lg.Graph(schema)
    graph.apply(lg.Events().add_nodes(np.arange(20_000)))
    presampler = Presampler(graph, Query("node").hop(EDGE, 1, direction="in"), seed=3)
    seen: Counter[int] = Counter()
    for hub in range(100, 2_100):  # hubs of their own: each cell is an independent draw
        graph.apply(lg.Events().add_edges(np.arange(1, 9), np.full(8, hub)))
    for hub in range(100, 2_100, 100):
        hubs = np.repeat(np.arange(hub, hub + 100), 2)
        graph.apply(lg.Events().remove_edges(np.tile([2, 5], 100), hubs))
    for hub in range(100, 2_100):
        seen[int(presampler.sample([hub]).node["node"][1])] += 1
    assert_law(seen, shares(dict.fromkeys([1, 3, 4, 6, 7, 8], 1.0)))


def test_a_sample_stays_until_neighbors_change() -> None:
    graph = make_graph()
    presampler = Presampler(graph, QUERY)
    first = presampler.sample([3, 4])
    assert first.seed == presampler.seed
    assert plain(presampler.sample([3, 4])) == plain(first)
    graph.apply(lg.Events().add_nodes(999, x=[[1, 2]]).set_features(3, [[5, 6]]))
    again = presampler.sample([3, 4])
    assert plain(again) == plain(first)
    assert again.x["node"][0].tolist() == [5, 6]
    assert Presampler(graph, QUERY).seed != presampler.seed


def test_samples_of_text_ids() -> None:
    graph = lg.Graph(lg.Schema({"node": 0}, {EDGE: lg.EdgeSchema()}, text_ids=True))
    graph.apply(lg.Events().add_nodes(["a", "b", "c"]).add_edges(["b", "c"], ["a", "a"]))
    presampler = Presampler(graph, Query("node").hop(EDGE, 5, direction="in"))
    assert sorted(presampler.sample(["a"]).node["node"].tolist()) == ["a", "b", "c"]


def test_what_if_changes_no_sample() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(10, 4))
    graph = lg.Graph.from_edges(
        np.arange(9), np.arange(1, 10), weight=np.ones(9), x=x[:, : make_model().width("x")]
    )
    engine = lg.Engine(graph, make_model())
    presampler = Presampler(graph, Query("node").hop(EDGE, 5, direction="in"), seed=1)
    before = plain(presampler.sample([3]))
    supposed = engine.what_if(lg.Events().add_edges(7, 3).remove_edges(2, 3))
    assert supposed.affected > 0
    assert plain(presampler.sample([3])) == before
    presampler.native.check()
    graph.apply(lg.Events().add_edges(7, 3))
    assert sorted(presampler.sample([3]).node["node"].tolist()) == [2, 3, 7]


def test_reads_beside_batches_see_one_moment() -> None:
    """Each batch moves the neighbours of all nodes to another half, and their times with them."""
    schema = lg.Schema({"node": 1}, {EDGE: lg.EdgeSchema(timed=True)})
    graph = lg.Graph(schema)
    graph.apply(lg.Events().add_nodes(np.arange(100), np.zeros((100, 1))))
    hubs = np.repeat(np.arange(20), 30)
    halves = [np.tile(np.arange(20 + 40 * half, 50 + 40 * half), 20) for half in (0, 1)]

    def turn(generation: int) -> None:
        now, old = halves[generation % 2], halves[1 - generation % 2]
        features = np.full((100, 1), generation)
        events = lg.Events().remove_edges(old, hubs).add_edges(now, hubs, time=np.full(len(hubs), generation))
        graph.apply(events.set_features(np.arange(100), features))

    turn(0)
    presampler = Presampler(graph, Query("node").hop(EDGE, 7, direction="in"))
    done, failures, reads = threading.Event(), list[str](), Counter[int]()

    def read(reader: int) -> None:
        while not done.is_set() or not reads[reader]:
            sample = presampler.sample(np.arange(20))
            times, x = set(sample.time[EDGE].tolist()), set(sample.x["node"].ravel().tolist())
            others = sample.node["node"][20:]
            if len(times) != 1 or times != x:
                failures.append(f"two moments: times {times}, features {x}")
            if len(sample.row[EDGE]) != 20 * 7 or len({bool(other >= 60) for other in others}) != 1:
                failures.append("a cell half done")
            reads[reader] += 1

    readers = [threading.Thread(target=read, args=(reader,)) for reader in range(3)]
    for reader in readers:
        reader.start()
    for generation in range(1, draws(30, 120)):
        turn(generation)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    presampler.native.check()


def test_samples_come_back_after_a_restart(tmp_path: Path) -> None:
    def start() -> Runtime:
        log = SqliteLog(tmp_path / "events.db")
        factories = {"presampling": Presampler.factory(QUERY)}
        graph, views = restore(factories, make_graph, directory=tmp_path / "checkpoints", log=log)
        policy = CheckpointPolicy(tmp_path / "checkpoints")
        return Runtime(log, graph, *views.values(), checkpoints=policy)

    runtime = start()
    first = runtime.views["presampling"]
    assert isinstance(first, Presampler)
    rng = np.random.default_rng(2)
    for _ in range(5):
        runtime.append(
            lg.Events().add_edges(
                rng.integers(0, 30, 9), rng.integers(0, 30, 9), weight=np.ones(9), time=np.full(9, 60.0)
            )
        )
        runtime.step()
    expected = plain(first.sample(np.arange(30)))
    runtime.stop()
    runtime.log.close()
    again = start()
    second = again.views["presampling"]
    assert isinstance(second, Presampler)
    assert second.seed == first.seed
    assert plain(second.sample(np.arange(30))) == expected
    again.stop()
    again.log.close()


def test_memory_follows_the_samples() -> None:
    graph = make_graph()
    few = Presampler(graph, QUERY).memory()["presampling"]
    rng = np.random.default_rng(4)
    ids = np.arange(1_000, 6_000)
    graph.apply(lg.Events().add_nodes(ids, rng.normal(size=(5_000, 2))))
    graph.apply(
        lg.Events().add_edges(
            rng.choice(ids, 50_000), rng.choice(ids, 50_000), weight=np.ones(50_000), time=np.ones(50_000)
        )
    )
    many = Presampler(graph, QUERY).memory()["presampling"]
    # Some three neighbours, then two: ids, priorities, weights and times.
    assert (
        few + 5_000 * (2 * 8 + 3 * 20 + 2 * 20) < many < few + 2 * 5_000 * (2 * 8 + 4 * 20 + 2 * 28) + 2**20
    )


def test_a_deployment_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    src, dst = graph.snapshot().edge_index[EDGE]
    np.savez(tmp_path / "graph.npz", src=src, dst=dst, ids=np.arange(30), x=graph.features(np.arange(30)))
    (tmp_path / "my_samples.py").write_text(
        "import livegnn as lg\nfrom livegnn.presampling import Presampler\n"
        "query = lg.Query('node').hop(('node', 'to', 'node'), 3, direction='in')\n"
        "make = Presampler.factory(query, seed=7)\n"
        "other = Presampler.factory(query.hop(('node', 'to', 'node'), 2), seed=8, name='two_hops')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deployment.toml").write_text(
        '[log]\npath = "events.db"\n[graph]\npath = "graph.npz"\n[views]\n'
        'presampling = "my_samples:make"\ntwo_hops = "my_samples:other"\n[checkpoint]\ndirectory = "kept"\n'
        "every_events = 1\n",
        encoding="utf-8",
    )
    runtime = Deployment.read(tmp_path / "deployment.toml").open()
    presampler = runtime.views["presampling"]
    assert isinstance(presampler, Presampler)
    assert presampler.seed == 7
    runtime.append(lg.Events().add_edges(1, 2))
    runtime.step()
    presampler.native.check()
    other = runtime.views["two_hops"]
    assert isinstance(other, Presampler)
    samples = [plain(view.sample([2])) for view in (presampler, other)]
    runtime.stop()
    runtime.log.close()
    assert list((tmp_path / "kept").iterdir())
    again = Deployment.read(tmp_path / "deployment.toml").open()
    for name, sample in zip(("presampling", "two_hops"), samples, strict=True):
        view = again.views[name]
        assert isinstance(view, Presampler)
        assert plain(view.sample([2])) == sample
    again.log.close()


REFUSED: dict[str, tuple[Callable[[lg.Graph], object], type[Exception], str]] = {
    "graph": (lambda graph: Presampler(3, QUERY), InputError, "expected the Graph"),  # type: ignore[arg-type]
    "query": (lambda graph: Presampler(graph, [25, 10]), InputError, "expected the Query .* got list"),  # type: ignore[arg-type]
    "no hops": (lambda graph: Presampler(graph, Query("node")), InputError, "at least one hop"),
    "unknown type": (
        lambda graph: Presampler(graph, Query("user").hop(("user", "at", "shop"), 3)),
        UnknownTypeError,
        "'user', which the graph lacks",
    ),
    "fan-out": (
        lambda graph: Presampler(graph, Query("node").hop(EDGE, 1025)),
        InputError,
        "one-hop query 0 must draw at most 1,024 neighbors .* got 1,025",
    ),
    "seed": (lambda graph: Presampler(graph, QUERY, seed=-1), InputError, "seed must be"),
    "threads": (lambda graph: Presampler(graph, QUERY, threads="2"), InputError, "threads must be"),  # type: ignore[arg-type]
    "id": (lambda graph: Presampler(graph, QUERY).sample([77]), UnknownNodeError, "77"),
    "attributes": (
        lambda graph: Presampler(graph, QUERY).sample([1], 1),
        InputError,
        "attributes must be True",
    ),  # type: ignore[arg-type]
    "state of another event": (
        lambda graph: Presampler(graph, QUERY, state=State({"kind": "presampling", "seq": 9}, {})),
        FileFormatError,
        "at event 0, got",
    ),
    "state of another query": (
        lambda graph: Presampler(
            graph, QUERY, state=Presampler(graph, Query("node").hop(EDGE, 9), seed=1).state()
        ),
        FileFormatError,
        "expected the samples of Query",
    ),
    "state of another seed": (
        lambda graph: Presampler(graph, QUERY, seed=2, state=Presampler(graph, QUERY, seed=1).state()),
        FileFormatError,
        "of seed 2, got those of 1",
    ),
    "state without a seed": (
        lambda graph: Presampler(
            graph,
            QUERY,
            state=State({"kind": "presampling", "seq": 0, "query": QUERY.to_json(), "seed": True}, {}),
        ),
        FileFormatError,
        "expected the seed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    graph = make_graph()
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call(graph)
    graph.apply(lg.Events().add_edges(1, 2))


def test_samples_are_as_many_look_ups_as_fan_outs() -> None:
    """Nodes in a sample are bounded by the query alone, whatever the degrees."""
    graph = lg.Graph.from_edges(np.repeat(np.arange(200), 150), np.tile(np.arange(150), 200))
    query = Query("node").hop(EDGE, 4).hop(EDGE, 3).hop(EDGE, 2)
    presampler = Presampler(graph, query)
    assert query.most_lookups == 1 + 4 + 12
    for seed in range(0, 200, 20):
        sample = presampler.sample([seed])
        edges = sum(sample.num_sampled_edges[EDGE])
        assert edges <= 4 + 12 + 24
