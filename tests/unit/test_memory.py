"""What the settings of an engine save, and that they change nothing that it says."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gate import EXPLORING
from livegnn import Engine, Events, FileFormatError, Graph, InputError, Model, ModelError
from livegnn.types import State
from mirror import assert_exact, frozen, predictions
from modules import CONVOLUTIONS, EDGE_WIDTH, WIDTH, Design, designs_of, make
from processes import ONE_THREAD

NODES, EDGES = 300, 1500


def make_graph(**settings: object) -> Graph:
    """The same random graph at each call; a few nodes are hubs."""
    random = np.random.default_rng(3)
    src = random.integers(0, NODES, EDGES)
    dst = (NODES * random.random(EDGES) ** 3).astype(np.int64)
    x = random.standard_normal((NODES, WIDTH))
    return Graph.from_edges(src, dst, weight=random.random(EDGES), x=x, parallel="last", **settings)


def make_featured_graph() -> Graph:
    """As `make_graph`, with features of the edges."""
    random = np.random.default_rng(3)
    src = random.integers(0, NODES, EDGES)
    dst = (NODES * random.random(EDGES) ** 3).astype(np.int64)
    x, edge_attr = (random.standard_normal((n, w)) for n, w in ((NODES, WIDTH), (EDGES, EDGE_WIDTH)))
    return Graph.from_edges(src, dst, x=x, edge_attr=edge_attr, parallel="last")


def featured_stream(batches: int) -> list[Events]:
    random = np.random.default_rng(4)
    made = []
    for number in range(batches):
        src, dst = random.integers(0, NODES - 20, (2, 8))
        events = Events().add_edges(src, dst, edge_attr=random.standard_normal((8, EDGE_WIDTH)))
        events.set_features(random.integers(0, NODES - 20, 2), random.standard_normal((2, WIDTH)))
        events.add_nodes([NODES + number], random.standard_normal((1, WIDTH)))
        made.append(events.remove_nodes(NODES - 1 - number).remove_edges(src[:3], dst[:3]))
    return made


def deeper(kind: str) -> Design:
    """The deeper of the two designs that all tests of a kind share: over the kinds, every join occurs."""
    return max(designs_of(kind), key=lambda design: design.depth)


def make_model(kind: str, **settings: object) -> Model:
    return make(Design(kind, **settings) if settings else deeper(kind))[1]


DEEP = [deeper(kind) for kind in CONVOLUTIONS]
if EXPLORING:
    DEEP += [Design(kind, join=join, depth=3) for kind in CONVOLUTIONS for join in ("none", "concat", "head")]


def deep_name(design: Design) -> str:
    return f"{design.kind}-{design.join}-{design.depth}"


def stream(batches: int) -> list[Events]:
    """Batches of every kind of event, nodes that come and go among them."""
    random = np.random.default_rng(4)
    made = []
    for number in range(batches):
        src, dst = random.integers(0, NODES - 20, (2, 8))
        new = NODES + number
        events = (
            Events()
            .add_edges(src, dst, weight=random.random(8))
            .set_features(random.integers(0, NODES - 20, 2), random.standard_normal((2, WIDTH)))
        )
        events.add_nodes([new], random.standard_normal((1, WIDTH))).add_edges([new, 1], [2, new])
        made.append(events.remove_nodes(NODES - 1 - number).remove_edges(src[:3], dst[:3]))
    return made


def mapped_files() -> int:
    """Files without a name that this process has mapped."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count("/livegnn-")


KINDS = ["gcn", "sage mean", "sage max", "graph add"]


@pytest.mark.parametrize("kind", KINDS)
def test_mapped_state_is_the_same_to_the_bit(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    plain = Engine(make_graph(), model, threads=1)
    mapped = Engine(make_graph(), model, threads=2, state_dir=tmp_path / "state")
    for events in stream(15):
        assert plain.what_if(events).changed.tolist() == mapped.what_if(events).changed.tolist()
        assert plain.apply(events).changed.tolist() == mapped.apply(events).changed.tolist()
        assert frozen(plain.state()) == frozen(mapped.state())
        assert predictions(plain) == predictions(mapped)
    assert_exact(mapped)
    restored = Engine(mapped.graph, model, state=mapped.state(), state_dir=tmp_path / "state")
    assert frozen(restored.state()) == frozen(plain.state())


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_mapped_files_are_gone_with_the_engine(tmp_path: Path) -> None:
    gc.collect()
    before = mapped_files()
    graph = make_graph()
    engine = Engine(graph, make_model("gcn"), state_dir=tmp_path)
    assert mapped_files() > before
    assert not list(tmp_path.iterdir())
    del engine
    gc.collect()
    assert mapped_files() == before


def test_mapped_bytes_are_told(tmp_path: Path) -> None:
    model = make_model("sage mean")
    plain = Engine(make_graph(), model).memory()
    mapped = Engine(make_graph(), model, state_dir=tmp_path).memory()
    parts = ("aggregates", "layer outputs", "contexts", "errors")
    assert mapped["mapped state"] == sum(mapped[part] for part in parts)
    assert "mapped state" not in plain
    assert all(plain[part] > 0 for part in parts)


def test_a_directory_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="state_dir must be a directory in which files can be made"):
        Engine(make_graph(), make_model("gcn"), state_dir=tmp_path / "file")


# -- aggregates alone


@pytest.mark.parametrize("design", DEEP, ids=deep_name)
def test_aggregates_alone_say_the_same_to_the_bit(design: Design) -> None:
    model = make(design)[1]
    plain = Engine(make_graph(), model, threads=1)
    saver = Engine(make_graph(), model, threads=2, keep="aggregates")
    for events in stream(8):
        imagined = saver.what_if(events)
        assert plain.what_if(events).changed.tolist() == imagined.changed.tolist()
        ids = imagined.changed
        rows = imagined.predict(ids).tobytes()
        here, there = plain.apply(events), saver.apply(events)
        assert here.changed.tolist() == there.changed.tolist()
        assert here.affected == there.affected
        assert predictions(plain) == predictions(saver)
        assert saver.predict(ids).tobytes() == rows
        every, some = frozen(plain.state())[1], frozen(saver.state())[1]
        assert some.keys() <= every.keys()
        assert all(every[name] == some[name] for name in some)
    for layer in range(len(model.layers)):
        assert plain.embeddings(layer).tobytes() == saver.embeddings(layer).tobytes()
    assert plain.scrub(NODES) == saver.scrub(NODES)
    assert_exact(saver)


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_alone_take_what_they_take(kind: str) -> None:
    model = make_model(kind)
    plain, saver = (
        Engine(make_graph(), model).memory(),
        Engine(make_graph(), model, keep="aggregates").memory(),
    )
    assert saver["layer outputs"] == 0 < plain["layer outputs"]
    assert all(saver[part] == plain[part] for part in ("aggregates", "contexts", "errors"))


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_alone_go_on_from_their_state(kind: str) -> None:
    model = make_model(kind)
    engine = Engine(make_graph(), model, keep="aggregates")
    batches = stream(8)
    for events in batches[:4]:
        engine.apply(events)
    graph_state, state = engine.graph.state(), engine.state()
    restored = Engine(Graph.from_state(graph_state), model, state=state, keep="aggregates")
    for events in batches[4:]:
        engine.apply(events)
        restored.apply(events)
    assert frozen(engine.state()) == frozen(restored.state())
    assert predictions(engine) == predictions(restored)
    with pytest.raises(FileFormatError):
        Engine(Graph.from_state(graph_state), model, state=state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_everything_holds_that_of_aggregates_alone(kind: str) -> None:
    model = make_model(kind)
    engine = Engine(make_graph(), model)
    saver = Engine(engine.graph, model, state=engine.state(), keep="aggregates")
    assert predictions(engine) == predictions(saver)


@pytest.mark.parametrize("kind", ["gat_edge", "gine_edge", "gine_edge max"])
def test_messages_of_both_ends_with_mapped_state_and_aggregates_alone(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    plain = Engine(make_featured_graph(), model, threads=1)
    others = [
        Engine(make_featured_graph(), model, threads=2, keep="aggregates"),
        Engine(make_featured_graph(), model, keep="aggregates", state_dir=tmp_path),
        Engine(make_featured_graph(), model, state_dir=tmp_path),
    ]
    for events in featured_stream(6):
        changed = plain.apply(events).changed.tolist()
        for other in others:
            assert other.what_if(events).changed.tolist() == changed
            assert other.apply(events).changed.tolist() == changed
            assert predictions(other) == predictions(plain)
            every, some = frozen(plain.state())[1], frozen(other.state())[1]
            assert all(every[name] == some[name] for name in some)
    for layer in range(len(model.layers)):
        assert plain.embeddings(layer).tobytes() == others[1].embeddings(layer).tobytes()
    assert plain.scrub(NODES) == others[1].scrub(NODES)
    assert_exact(others[1])
    restored = Engine(others[1].graph, model, state=others[1].state(), keep="aggregates", state_dir=tmp_path)
    assert frozen(restored.state()) == frozen(others[1].state())
    assert 0 < others[0].memory()["layer outputs"] < plain.memory()["layer outputs"]
    # All of it but the sums of float64 behind contexts.
    for other in others[1:]:
        parts = ("aggregates", "layer outputs", "contexts", "errors")
        assert other.memory()["mapped state"] == sum(other.memory()[part] for part in parts)


@pytest.mark.parametrize("settings", [{"keep": "aggregates"}, {"keep_degree": 4}])
def test_a_lazy_engine_that_keeps_less_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(InputError, match="a lazy engine must keep every row"):
        Engine(make_graph(), make_model("gcn"), mode="lazy", **settings)


@pytest.mark.parametrize("kind", ["gcn", "sage max", "gat_edge"])
def test_a_lazy_engine_with_mapped_state(kind: str, tmp_path: Path) -> None:
    featured = kind == "gat_edge"
    model, start = make_model(kind), make_featured_graph if featured else make_graph
    plain = Engine(start(), model, mode="lazy", threads=1)
    mapped = Engine(start(), model, mode="lazy", threads=2, state_dir=tmp_path)
    for number, events in enumerate((featured_stream if featured else stream)(6)):
        plain.apply(events)
        mapped.apply(events)
        assert predictions(plain) == predictions(mapped)
        if number % 3 == 2:
            assert frozen(plain.state()) == frozen(mapped.state())
    assert mapped.memory()["mapped state"] > 0
    assert_exact(mapped)


def test_an_unknown_way_to_keep_is_refused() -> None:
    with pytest.raises(InputError, match="keep must be one of 'all', 'aggregates', got 'none'"):
        Engine(make_graph(), make_model("gcn"), keep="none")  # type: ignore[arg-type]


# -- residents alone


def degrees(engine: Engine) -> np.ndarray:
    return engine.graph.degree(engine.graph.ids(), direction="in")


@pytest.mark.parametrize("design", DEEP, ids=deep_name)
def test_residents_alone_say_the_same(design: Design) -> None:
    model = make(design)[1]
    engine, again = (Engine(make_graph(), model, threads=threads, keep_degree=5) for threads in (1, 2))
    for events in stream(8):
        before = predictions(engine)
        imagined = engine.what_if(events)
        ids = imagined.changed
        rows = imagined.predict(ids).tobytes()
        update = engine.apply(events)
        assert update.changed.tolist() == ids.tolist() == again.apply(events).changed.tolist()
        assert engine.predict(ids).tobytes() == rows
        now = predictions(engine)
        assert sorted(ids.tolist()) == sorted(node for node in now if now[node] != before.get(node))
        assert engine.embeddings(-1).tobytes() == engine.predict(engine.graph.ids()).tobytes()
    assert frozen(engine.state()) == frozen(again.state())
    assert engine.scrub(NODES) < 2e-5
    assert_exact(engine)


@pytest.mark.parametrize("kind", KINDS)
def test_residents_alone_take_less(kind: str, tmp_path: Path) -> None:
    model = make_model(kind)
    saver = Engine(make_graph(), model, keep="aggregates").memory()
    engine = Engine(make_graph(), model, keep_degree=8)
    memory = engine.memory()
    share = float((degrees(engine) >= 8).mean())
    assert 0 < share < 0.4
    assert memory["layer outputs"] == 0
    assert share <= memory["aggregates"] / saver["aggregates"] <= 1.13 * share
    assert memory["errors"] == pytest.approx(share * saver["errors"])
    assert memory["residents"] >= 4 * NODES
    mapped = Engine(make_graph(), model, keep_degree=8, state_dir=tmp_path)
    for events in stream(8):
        engine.apply(events)
        mapped.apply(events)
    assert frozen(engine.state()) == frozen(mapped.state())
    assert mapped.memory()["mapped state"] > 0


def test_a_resident_stays_until_it_has_lost_a_quarter() -> None:
    graph = Graph.from_edges([1, 2, 3, 4, 5, 6, 7], [0] * 7, x=np.eye(9)[:, :WIDTH])
    engine = Engine(graph, make_model("sage mean"), keep_degree=8)

    def residents() -> list[int]:
        return engine.state().arrays["residents/0"].tolist()

    assert residents() == []
    engine.apply(Events().add_edges([8], [0]))
    assert residents() == [0]
    engine.apply(Events().remove_edges([1, 2], [0, 0]))
    assert residents() == [0]
    engine.apply(Events().remove_edges([3], [0]))
    assert residents() == []
    engine.apply(Events().add_edges([1, 2, 3], [0, 0, 0]))
    assert residents() == [0]
    engine.apply(Events().remove_nodes([0]))
    assert residents() == []
    assert_exact(engine)


@pytest.mark.parametrize("kind", KINDS)
def test_residents_alone_go_on_from_their_state(kind: str) -> None:
    model = make_model(kind)
    engine = Engine(make_graph(), model, keep_degree=6)
    batches = stream(8)
    for events in batches[:4]:
        engine.apply(events)
    graph_state, state = engine.graph.state(), engine.state()
    restored = Engine(Graph.from_state(graph_state), model, state=state, keep_degree=6)
    for events in batches[4:]:
        engine.apply(events)
        restored.apply(events)
    assert frozen(engine.state()) == frozen(restored.state())
    assert predictions(engine) == predictions(restored)
    with pytest.raises(FileFormatError):
        Engine(Graph.from_state(graph_state), model, state=state)
    for spoiled in ([5, 4], [NODES * 9], [1, 1]):
        arrays = {**state.arrays, "residents/0": np.array(spoiled, dtype=np.uint32)}
        with pytest.raises(FileFormatError):
            Engine(Graph.from_state(graph_state), model, state=State(state.meta, arrays), keep_degree=6)


@pytest.mark.parametrize("kind", ["gat_edge", "gine_edge max"])
def test_residents_alone_of_messages_of_both_ends_are_refused(kind: str) -> None:
    with pytest.raises(ModelError, match=r"propagate rows of sources alone.*use keep=.aggregates. instead"):
        Engine(make_featured_graph(), make_model(kind), keep_degree=4)


@pytest.mark.parametrize("kind", ["sage max", "gcn max"])
def test_residents_alone_keep_counts_of_maxima(kind: str) -> None:
    engine = Engine(make_graph(), make_model(kind, activation="relu", depth=3), keep_degree=4)
    for events in stream(12):
        engine.apply(events)
        assert engine.scrub(NODES) < 2e-5  # a wrong count would be 1
    counts = [array for name, array in engine.state().arrays.items() if name.startswith("counts/")]
    residents = engine.state().arrays["residents/0"]
    assert counts
    assert all(len(array) == len(residents) for array in counts)
    assert max(array.max() for array in counts) > 1


def test_a_negative_degree_is_refused() -> None:
    with pytest.raises(InputError, match="keep_degree must be an integer from 0 to 4294967295, got -1"):
        Engine(make_graph(), make_model("gcn"), keep_degree=-1)


MEASURED = """
import ctypes, gc, sys
import numpy as np
import livegnn as lg

def anonymous():
    ctypes.CDLL(None).malloc_trim(0)  # what NumPy gave back
    with open("/proc/self/smaps_rollup") as rollup:  # exact, and with what was moved to swap
        return sum(int(line.split()[1]) << 10 for line in rollup if line.startswith(("Anonymous:", "Swap:")))

def edges(nodes, number):
    # Long lists and short ones.
    src = (nodes * random.random(number) * random.random(number)).astype(np.int64)
    return src, random.integers(0, nodes, number)

def build(nodes, batches, number):
    schema = lg.Schema(
        {"node": 4}, {("node", "to", "node"): lg.EdgeSchema(weighted=True, timed=True, edge_dim=2)}
    )
    graph = lg.Graph(schema, threads=1)
    graph.apply(lg.Events().add_nodes(np.arange(nodes), x=random.random((nodes, 4), np.float32)))
    engine = lg.Engine(graph, lg.Model.load(sys.argv[1]), threads=1)
    for _ in range(batches):
        columns = {"weight": np.ones(number), "time": np.ones(number), "edge_attr": np.ones((number, 2))}
        graph.apply(lg.Events().add_edges(*edges(nodes, number), **columns))
    gc.collect()
    return graph, engine

random = np.random.default_rng(5)
build(100, 2, 100)
before = anonymous()
graph, engine = build(20_000, 15, 1 << 16)
print(sum(engine.memory().values()), anonymous() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not say it")
def test_graph_and_engine_take_the_memory_that_they_report(tmp_path: Path) -> None:
    path = tmp_path / "model.lgnn"
    make_model("gcn").save(path)
    said = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **ONE_THREAD},
    )
    reported, taken = map(int, said.stdout.split())
    assert reported > 60e6
    assert reported == pytest.approx(taken, rel=0.05)
