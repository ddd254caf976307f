"""Nodes that nobody announces: predictions as if each had been announced with the default features."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, FileFormatError, Graph, InputError, Schema, UnknownNodeError
from livegnn.errors import UnknownTypeError
from livegnn.expiry import ExpiryPolicy
from livegnn.graph import auto_add_nodes
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, restore
from livegnn.types import State
from mirror import frozen
from streams import WIDTH, make_model

MODEL = make_model()
DEFAULT = [0.5, -1.0, 2.0, 0.0]
NODES = 30


def make_schema(*, text: bool, undirected: bool = False, auto: bool = True) -> Schema:
    edges = EdgeSchema(weighted=True, timed=True, undirected=undirected, time_to_live=40.0)
    added = {"node": tuple(DEFAULT)} if auto else {}
    return Schema({"node": WIDTH}, {("node", "to", "node"): edges}, text_ids=text, auto_add=added)


def named(numbers: np.ndarray, *, text: bool) -> np.ndarray:
    return np.array([f"n{number}" for number in numbers]) if text else np.asarray(numbers)


class Stream:
    """Random entries in which nodes come and go, as they are, and as one would have to announce them."""

    def __init__(self, seed: int, *, text: bool) -> None:
        self.rng, self.text = np.random.default_rng(seed), text
        self.there: set[int] = set()

    def entries(self, count: int) -> list[tuple[Events, Events]]:
        return [self._draw(step) for step in range(count)]

    def _draw(self, step: int) -> tuple[Events, Events]:
        plain, announced, there = Events(), Events(), self.there
        for _ in range(self.rng.integers(1, 4)):
            kind = self.rng.choice(["edges", "edges", "features", "remove", "unlink", "add"])
            n = int(self.rng.integers(1, 4))
            src, dst = self.rng.integers(0, NODES, (2, n))
            if kind in ("remove", "unlink"):  # of nodes that are there alone
                if len(there) < 2:
                    continue
                a, b = self.rng.choice(sorted(there), 2, replace=False).tolist()
                for events in (plain, announced):
                    if kind == "remove":
                        events.remove_nodes(self._name([a]))
                    else:
                        events.remove_edges(self._name([a]), self._name([b]))
                there -= {a} if kind == "remove" else set()
                continue
            wanted = [*src.tolist(), *(dst.tolist() if kind == "edges" else [])]
            if kind != "add":
                for one in dict.fromkeys(wanted):
                    if one not in there:
                        announced.add_nodes(self._name([one]), [DEFAULT])
            there |= set(wanted)
            x = self.rng.normal(size=(n, WIDTH)).astype(np.float32)
            weight, time = self.rng.uniform(0.5, 2, n).astype(np.float32), np.full(n, float(step))
            for events in (plain, announced):
                if kind == "edges":
                    events.add_edges(self._name(src), self._name(dst), weight=weight, time=time)
                elif kind == "features":
                    events.set_features(self._name(src), x)
                else:
                    events.add_nodes(self._name(src), x)
        return plain, announced

    def _name(self, numbers: object) -> np.ndarray:
        return named(np.asarray(numbers), text=self.text)


def start(path: Path, graph: Graph, **settings: object) -> Runtime:
    return Runtime(SqliteLog(path), graph, Engine(graph, MODEL, threads=1), **settings)  # type: ignore[arg-type]


def drain(runtime: Runtime) -> None:
    while runtime.step() or runtime.seq < runtime.log.last_seq():
        pass


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_predictions_are_those_of_a_stream_that_announces(
    tmp_path: Path, seed: int, text: bool, undirected: bool
) -> None:
    """With removals, expiry, merged and single entries; and the log replays them bit for bit."""
    stream = Stream(seed, text=text)
    now = [0.0]
    settings: dict[str, object] = {
        "expiry": ExpiryPolicy(1.0, lambda: now[0]), "clock": lambda: now[0], "max_batch_events": 20
    }  # fmt: skip
    runtime = start(tmp_path / "a.db", Graph(make_schema(text=text, undirected=undirected)), **settings)
    oracle = start(
        tmp_path / "b.db", Graph(make_schema(text=text, undirected=undirected, auto=False)), **settings
    )
    for plain, announced in stream.entries(80):
        if not plain:
            continue
        assert runtime.append(plain) - (runtime.log.last_seq() - len(plain)) == len(plain)
        oracle.append(announced)
        now[0] += 1.0
        if stream.rng.random() < 0.4:
            drain(runtime)
            drain(oracle)
    drain(runtime)
    drain(oracle)
    assert not runtime.log.rejections(), f"seed {seed}"
    assert not oracle.log.rejections(), f"seed {seed}"
    ids = named(np.array(sorted(stream.there)), text=text)
    assert sorted(runtime.graph.ids()) == sorted(oracle.graph.ids()) == sorted(ids)
    assert runtime.graph.num_edges() == oracle.graph.num_edges()
    assert runtime.statistics.expired_edges.total > 5
    np.testing.assert_array_equal(runtime.graph.features(ids), oracle.graph.features(ids))
    np.testing.assert_allclose(
        runtime.predict(ids).values, oracle.predict(ids).values, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}"
    )
    assert runtime.engine.verify().ok
    runtime.log.close()
    oracle.log.close()
    again = start(tmp_path / "a.db", Graph(make_schema(text=text, undirected=undirected)))
    assert frozen(again.graph.state()) == frozen(runtime.graph.state())
    assert frozen(again.engine.state()) == frozen(runtime.engine.state())
    again.log.close()


def test_an_entry_that_removes_and_names_again(tmp_path: Path) -> None:
    graph = Graph(make_schema(text=True))
    events = (
        Events()
        .add_nodes(["a", "b"], np.ones((2, WIDTH)))
        .remove_nodes(["a"])
        .add_edges(["a", "c"], ["b", "a"], weight=[1, 1], time=[0, 0])
        .set_features(["d"], [[1, 2, 3, 4]])
    )
    assert graph.apply(events).seq == graph.seq == 6
    assert sorted(graph.ids()) == ["a", "b", "c", "d"]
    assert graph.features(["a", "b", "c", "d"]).tolist() == [DEFAULT, [1] * 4, DEFAULT, [1, 2, 3, 4]]
    assert graph.num_edges() == 2
    for bad in (Events().remove_nodes(["e"]), Events().remove_edges(["e"], ["a"])):
        with pytest.raises(UnknownNodeError, match="'e', which is not in the graph"):
            graph.apply(bad)  # nothing is added in order to be removed


def test_what_if_refusals_and_retries(tmp_path: Path) -> None:
    runtime = start(tmp_path / "a.db", Graph(make_schema(text=False)))
    runtime.append(Events().add_edges(1, 2, weight=1, time=1))
    drain(runtime)
    events = Events().add_edges(7, 2, weight=1, time=2)
    supposed = runtime.what_if(events, [2, 7])
    assert set(supposed.changed.tolist()) >= {2, 7}
    assert runtime.graph.num_nodes() == 2
    refused = runtime.append(Events().add_edges(8, 2, weight=1, time=2).remove_nodes(9))
    seq = runtime.append(events)
    drain(runtime)
    assert runtime.rejection(refused) is not None
    assert runtime.seq == seq
    assert sorted(runtime.graph.ids().tolist()) == [1, 2, 7]
    np.testing.assert_array_equal(runtime.predict([2, 7]).values, supposed.values)
    runtime.append(Events().add_nodes(9, [DEFAULT]))
    again = runtime.retry(refused)
    drain(runtime)
    assert runtime.rejection(again) is None
    assert sorted(runtime.graph.ids().tolist()) == [1, 2, 7, 8]
    runtime.log.close()


def test_only_of_the_types_that_say_so(tmp_path: Path) -> None:
    buys = ("user", "buys", "item")
    graph = Graph(Schema({"user": 2, "item": 0}, {buys: EdgeSchema()}, auto_add=["user"]))  # type: ignore[arg-type]
    with pytest.raises(UnknownNodeError, match="node of type 'item', got 5"):
        graph.apply(Events().add_edges(1, 5, edge_type=buys))
    assert graph.num_nodes("user") == 0
    graph.apply(Events().add_nodes(5, node_type="item").add_edges(1, 5, edge_type=buys))
    assert graph.features([1], "user").tolist() == [[0, 0]]


def test_an_engine_explains_batches_that_add_nodes(tmp_path: Path) -> None:
    graph = Graph(make_schema(text=False))
    engine = Engine(graph, MODEL, threads=1, history=100)
    graph.apply(Events().add_edges(1, 2, weight=1, time=1), seq=5)
    graph.apply(Events().set_features(1, np.ones(WIDTH)))
    explanation = engine.explain(2, since=0)
    assert explanation.before is None
    assert [event.seq for event in explanation.events] == [5, 6]
    moved = sum(np.asarray(one.share) for one in explanation.events)
    np.testing.assert_allclose(moved, explanation.after, atol=1e-5)
    assert engine.explain(2, since=5).before is not None


def test_the_setting_of_a_runtime_stays_with_the_graph(tmp_path: Path) -> None:
    def initial() -> Graph:
        return Graph(make_schema(text=False, auto=False))

    def factory(graph: Graph, state: State | None) -> Engine:
        return Engine.factory(MODEL)(graph, state)

    graph, views = restore({"engine": factory}, initial)
    log = SqliteLog(tmp_path / "a.db")
    runtime = Runtime(
        log, graph, *views.values(), auto_add={"node": DEFAULT}, checkpoints=CheckpointPolicy(tmp_path / "c")
    )
    runtime.append(Events().add_edges(1, 2, weight=1, time=1))
    drain(runtime)
    runtime.stop()
    runtime.append(Events().add_edges(3, 4, weight=1, time=1))
    graph, views = restore({"engine": factory}, initial, directory=tmp_path / "c", log=log)
    again = Runtime(log, graph, *views.values())  # it needs no setting
    drain(again)
    assert again.graph.features([4]).tolist() == [DEFAULT]
    again.stop()
    for changed in ({"node": [0.0] * 4}, {}):
        with pytest.raises(InputError, match="auto_add must keep what the graph was made with"):
            auto_add_nodes(graph.core, changed)
    auto_add_nodes(graph.core, {"node": DEFAULT})
    log.close()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Schema({"a": 1}, {}, auto_add={"b": None}), UnknownTypeError, "names node type 'b'"),  # type: ignore[dict-item]
        (lambda: Schema({"a": 1}, {}, auto_add={"a": [1, 2]}), InputError, "1 finite numbers for node type"),  # type: ignore[dict-item]
        (lambda: Schema({"a": 1}, {}, auto_add={"a": [float("nan")]}), InputError, "1 finite numbers"),  # type: ignore[dict-item]
        (lambda: Schema({"a": 1}, {}, auto_add={"a": [1e39]}), InputError, "1 finite numbers"),  # type: ignore[dict-item]
        (lambda: Schema({"a": 1}, {}, auto_add="a"), InputError, "auto_add must be a dict"),  # type: ignore[arg-type]
        (
            lambda: Schema.from_json(Schema({"a": 1}, {}).to_json() | {"auto_add": {"a": ["x"]}}),  # type: ignore[operator]
            FileFormatError,
            "schema must be what Schema.to_json makes",
        ),
    ],
)
def test_what_makes_no_sense(make: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_schema_goes_to_json_and_back() -> None:
    schema = make_schema(text=True)
    assert Schema.from_json(schema.to_json()) == schema
    assert "auto_add" not in make_schema(text=True, auto=False).to_json()  # type: ignore[operator]
    assert "auto_add={'node': (0.5," in repr(schema)
