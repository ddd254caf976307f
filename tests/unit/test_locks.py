"""Whoever waits for whom: every public call beside every kind of batch, with functions of the user's in the
model and subscribers that read. Each pair finishes, and an answer is from before the batch or after it.
"""

import faulthandler
import inspect
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.sampler import EdgeSamplerInput, NodeSamplerInput

import livegnn._core as _core
from livegnn import Engine, Events, Graph, Growth, sampling
from livegnn.errors import InputError
from livegnn.inference import WhatIf
from livegnn.inference.options import Mode
from livegnn.inference.supposed_scores import MostOfRequest
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Convolution, EdgeInput, Model, Step
from livegnn.query import Query
from livegnn.runtime import Runtime
from livegnn.training import LiveSampler
from waiting import PATIENCE

MOST_CALLS = 30  # beside one batch
WIDTH = 2
EDGE = ("node", "to", "node")
STAY, OUT, BACK = np.arange(8), np.arange(100, 106), np.arange(200, 206)
CENTER = 0


def own(h: np.ndarray, a: np.ndarray) -> np.ndarray:
    """A function of the user's. All numbers are such that nothing is ever rounded."""
    return h * np.float32(0.5) + a


def text(ids: np.ndarray) -> np.ndarray:
    return np.array([f"node {i}" for i in ids])


def move(world: "World", gone: np.ndarray, come: np.ndarray, value: float) -> Events:
    """From one state to the other: nodes go, others come in their places, and all features change."""

    def rows(count: int) -> np.ndarray:
        return np.full((count, WIDTH), value, np.float32)

    center = np.full(len(come), CENTER)
    ends = world.ids(np.concatenate([come, center])), world.ids(np.concatenate([center, come]))
    events = Events().remove_nodes(world.ids(gone)).add_nodes(world.ids(come), rows(len(come)))
    events.add_edges(*ends, time=np.ones(len(ends[0])), edge_attr=np.full((len(ends[0]), 1), value))
    return events.set_features(world.ids(STAY), rows(len(STAY)))


def with_scores(model: Model) -> Model:
    """The model with an edge output of both ends and the edge's features, and one of their product."""
    steps = (
        Step("source", (model.output,), "from", attrs={"edge_type": EDGE}),
        Step("target", (model.output,), "to", attrs={"edge_type": EDGE}),
        Step("concat", ("from", "to", "own"), "score"),
        Step("multiply", ("from", "to"), "product"),
        Step("sum_channels", ("product",), "dot", attrs={"heads": 1}),
    )
    return replace(
        model,
        steps=(*model.steps, *steps),
        edge_inputs={"own": EdgeInput(EDGE, 1)},
        edge_outputs={"score": "score", "alike": "dot"},
    )


class World:
    """A graph, an engine with functions of the user's, the runtime's loop, and subscribers that read."""

    def __init__(self, log: SqliteLog, mode: Mode, *, texts: bool = False) -> None:
        self.texts = texts
        src, dst = np.concatenate([STAY, OUT]), np.concatenate([np.roll(STAY, 1), np.full(len(OUT), CENTER)])
        self.graph = Graph.from_edges(
            self.ids(np.concatenate([src, np.full(len(OUT), CENTER)])),
            self.ids(np.concatenate([dst, OUT])),
            ids=self.ids(np.concatenate([STAY, OUT])),
            x=np.ones((len(STAY) + len(OUT), WIDTH), np.float32),
            time=np.ones(len(src) + len(OUT)),
            edge_attr=np.ones((len(src) + len(OUT), 1), np.float32),
            time_to_live=100.0,
        )
        model = with_scores(Model.from_convolutions([Convolution(update=own)] * 2, in_channels=WIDTH))
        follow = ["score"] if mode == "eager" else []
        self.engine = Engine(self.graph, model, threads=2, mode=mode, history=10_000, follow=follow)
        self.runtime = Runtime(log, self.graph, self.engine)
        self.graph.core.claim = None  # these tests change it beside the runtime, whose reads they ask
        self.sampler = LiveSampler(self.graph, [-1], gone="skip")
        center = self.ids([CENTER])
        self.supposed = self.engine.what_if(Events().set_features(center, np.zeros((1, WIDTH), np.float32)))
        self.engine.subscribe(lambda update: self.engine.predict(update.changed))
        self.runtime.subscribe(lambda change: self.runtime.predict(center))
        self.runtime.start()

    def ids(self, ids: "Sequence[int] | np.ndarray") -> np.ndarray:
        return text(np.asarray(ids)) if self.texts else np.asarray(ids)

    def seeds(self) -> torch.Tensor:
        return torch.as_tensor(self.graph.to_numbers(self.ids([CENTER])))

    def to(self, second: bool) -> Events:
        return move(self, OUT, BACK, 2.0) if second else move(self, BACK, OUT, 1.0)


def drawn(world: World, nodes: torch.Tensor) -> object:
    """A sampler's nodes go by numbers inside, and a text that comes back may have another."""
    return len(nodes) if world.texts else sorted(nodes.tolist())


def rows_of(found: Mapping[str, object] | object) -> object:
    return None if found is None else np.asarray(found).tolist()


def ignore(answer: object) -> None:
    """Of calls whose answers depend on what was asked before."""


Call = Callable[[World], object]
ENDS = np.array([1, 2]), np.array([0, 1])  # two edges that stay
COLUMNS = {"edge_attr": np.ones((2, 1)), "output": "score"}  # of these

GRAPH: dict[str, Call] = {
    "apply": lambda world: attempt(lambda: world.graph.apply(world.to(True))),
    "attach": lambda world: ignore(world.graph.attach(world.engine)),
    "contains": lambda world: world.graph.contains(world.ids([CENTER, 100, 200])).tolist(),
    "degree": lambda world: world.graph.degree(world.ids([CENTER, 1])).tolist(),
    "edge_attr": lambda world: world.graph.edge_attr(world.ids([1]), world.ids([0])).tolist(),
    "expire": lambda world: ignore(world.graph.expire(0.0)),
    "expired": lambda world: len(world.graph.expired(0.0)),
    "features": lambda world: world.graph.features(world.ids(STAY)).tolist(),
    "feature_times": lambda world: attempt(lambda: world.graph.feature_times(world.ids(STAY))),
    "ids": lambda world: sorted(world.graph.ids().tolist()),
    "indices_of": lambda world: len(world.graph.indices_of(world.ids(STAY))),
    "latest_time": lambda world: world.graph.latest_time,
    "memory": lambda world: max(world.graph.memory().values()) < 1 << 40,
    "neighbors": lambda world: sorted(world.graph.neighbors(world.ids([CENTER])[0].item()).ids.tolist()),
    "num_edges": lambda world: world.graph.num_edges(),
    "num_nodes": lambda world: world.graph.num_nodes(),
    "pin": lambda world: ignore(world.graph.pin()),
    "schema": lambda world: world.graph.schema.text_ids,
    "seq": lambda world: world.graph.seq >= 0,
    "snapshot": lambda world: sorted(world.graph.snapshot().ids["node"].tolist()),
    "stage": lambda world: attempt(lambda: world.graph.stage(Events().remove_nodes(world.ids([100])))),
    "state": lambda world: len(Graph.from_state(world.graph.state()).ids()),
}
ENGINE: dict[str, Call] = {
    "apply": lambda world: attempt(lambda: world.engine.apply(world.to(True))),
    "candidate_index": lambda world: world.engine.candidate_index("alike").waiting >= 0,
    "candidates": lambda world: world.engine.candidates(
        world.ids([CENTER])[0].item(), 99, output="alike"
    ).scores.tolist(),
    "candidates_of_each": lambda world: len(
        world.engine.candidates_of_each(world.ids(STAY), 9, output="alike")
    ),
    "digest": lambda world: world.engine.digest,
    "edge_outputs": lambda world: world.engine.edge_outputs.find("score").name,
    "embeddings": lambda world: sorted(world.engine.embeddings(-1).tolist()),
    "epoch": lambda world: world.engine.epoch >= 0,
    "explain": lambda world: attempt(
        lambda: world.engine.explain(world.ids([CENTER])[0].item(), since=world.engine.seq)
    ),
    "explain_edge": lambda world: attempt(
        lambda: world.engine.explain_edge(
            world.ids([1])[0].item(), world.ids([0])[0].item(), since=world.engine.seq, output="score"
        )
    ),
    "explain_score": lambda world: attempt(
        lambda: world.engine.explain_score(
            world.ids([1])[0].item(), world.ids([0])[0].item(), since=world.engine.seq, output="alike"
        )
    ),
    "find_loss": lambda world: world.engine.find_loss(),
    "guard": lambda world: world.engine.guard(True),
    "last_work": lambda world: ignore(world.engine.last_work),
    "memory": lambda world: max(world.engine.memory().values()) < 1 << 40,
    "native_engine": lambda world: ignore(world.engine.native_engine),
    "answer_at_once": lambda world: world.engine.answer_at_once(b"{}", False, 0, 100) is None,
    "pending": lambda world: world.engine.pending >= 0,
    "predict": lambda world: world.engine.predict(world.ids(STAY)).tolist(),
    "predict_apart": lambda world: world.engine.predict_apart(world.ids(STAY), [None]) is None,
    "predict_at_once": lambda world: (
        world.engine.predict_at_once(world.ids(STAY)) is None
    ),  # it would call a function
    "predict_edges": lambda world: world.engine.predict_edges(*map(world.ids, ENDS), output="score").tolist(),
    "predict_edges_apart": lambda world: (
        world.engine.predict_edges_apart(*map(world.ids, ENDS), output="score") is None
    ),
    "predict_edges_at_once": lambda world: (
        world.engine.predict_edges_at_once(*map(world.ids, ENDS), output="score") is None
    ),
    "score": lambda world: world.engine.score(*map(world.ids, ENDS), **COLUMNS).tolist(),
    "score_apart": lambda world: world.engine.score_apart(*map(world.ids, ENDS), **COLUMNS) is None,
    "score_at_once": lambda world: world.engine.score_at_once(*map(world.ids, ENDS), **COLUMNS) is None,
    "score_after_at_once": lambda world: (
        world.engine.score_after_at_once(Events(), *map(world.ids, ENDS), **COLUMNS) is None
    ),
    "answer_scores_at_once": lambda world: (
        world.engine.answer_scores_at_once(b"{}", 0, MostOfRequest(100, 100)) is None
    ),
    "scrub": lambda world: world.engine.scrub(8),
    "scrubbed": lambda world: world.engine.scrubbed(8),
    "seq": lambda world: world.engine.seq >= 0,
    "settle": lambda world: world.engine.settle(),
    "state": lambda world: ignore(world.engine.state()),
    "subscribe": lambda world: world.engine.subscribe(lambda update: None)(),
    "subscriber_failures": lambda world: world.engine.subscriber_failures,
    "verify": lambda world: world.engine.verify().ok,
    "cost": lambda world: ignore(world.engine.cost(Events().set_features(world.ids(STAY), np.zeros((8, 2))))),
    "what_if": lambda world: ignore(
        world.engine.what_if(Events().set_features(world.ids(STAY), np.zeros((8, 2))))
    ),
    "work": lambda world: ignore(world.engine.work),
}
RUNTIME: dict[str, Call] = {
    "admit": lambda world: world.runtime.admit(),
    "append": lambda world: ignore(world.runtime.append(Events().remove_edges(*world.ids([3, 7])))),
    "append_all": lambda world: ignore(world.runtime.append_all([Events().remove_edges(*world.ids([3, 7]))])),
    "check": lambda world: world.runtime.check(world.to(True)),
    "check_growth": lambda world: world.runtime.check_growth(Growth(node_types={"tag": 1})).node_types["tag"],
    "confirm_expiry": lambda world: attempt(world.runtime.confirm_expiry),
    "failure": lambda world: world.runtime.failure,
    "side_failures": lambda world: ignore(world.runtime.side_failures),
    "retry": lambda world: attempt(lambda: world.runtime.retry(1)),
    "held_expiry": lambda world: world.runtime.held_expiry,
    "checkpoint_age": lambda world: world.runtime.checkpoint_age(),
    "checkpoint_directory": lambda world: world.runtime.checkpoint_directory,
    "oldest_age": lambda world: world.runtime.oldest_age() >= 0,
    "paused": lambda world: world.runtime.paused,
    "engine": lambda world: world.runtime.engine is world.engine,
    "has_engine": lambda world: world.runtime.has_engine,
    "predict": lambda world: world.runtime.predict(world.ids(STAY)).values.tolist(),
    "answer_at_once": lambda world: (
        world.runtime.answer_at_once(b'{"ids":[1]}', parameters=False, most_numbers=100) is None
    ),
    "predict_at_once": lambda world: world.runtime.predict_at_once(world.ids(STAY)) is None,
    "predict_with_samples": lambda world: attempt(
        lambda: world.runtime.predict_with_samples(world.ids(STAY))
    ),
    "read": lambda world: world.runtime.read(lambda: world.engine.predict(world.ids(STAY)).tolist())[1],
    "read_at_once": lambda world: world.runtime.read_at_once(lambda: 1) is None,
    "readiness": lambda world: world.runtime.readiness().ready,
    "rejection": lambda world: ignore(world.runtime.rejection(1)),
    "running": lambda world: world.runtime.running,
    "seq": lambda world: world.runtime.seq >= 0,
    "follow_rebuilds": lambda world: world.runtime.follow_rebuilds(lambda view: None),
    "subscribe": lambda world: world.runtime.subscribe(lambda change: None)(),
    "subscriber_failures": lambda world: world.runtime.subscriber_failures,
    "wait": lambda world: ignore(world.runtime.wait(0)),
    "waiting": lambda world: ignore(world.runtime.waiting),
    "log_seq": lambda world: ignore(world.runtime.log_seq),
    "what_if": lambda world: rows_of(world.runtime.what_if(Events(), world.ids(STAY)).values),
}
WHAT_IF: dict[str, Call] = {
    "affected": lambda world: ignore(world.supposed.affected),
    "changed": lambda world: sorted(world.supposed.changed.tolist()),
    "num_changed": lambda world: world.supposed.num_changed,
    "predict": lambda world: world.supposed.predict(world.ids(STAY)).tolist(),
    "score": lambda world: world.supposed.score(*map(world.ids, ENDS), **COLUMNS).tolist(),
}
SAMPLING: dict[str, Call] = {
    "sample_metapath": lambda world: sorted(
        sampling.sample_metapath(world.graph, world.ids([CENTER]), [(EDGE, -1)], seed=0).node["node"].tolist()
    ),
    "sample_neighbors": lambda world: sorted(
        sampling.sample_neighbors(world.graph, world.ids([CENTER]), -1, seed=0).ids.tolist()
    ),
    "sample_nodes": lambda world: sorted(sampling.sample_nodes(world.graph, 99, seed=0).tolist()),
    "sample_query": lambda world: sorted(
        sampling.sample_query(world.graph, world.ids([CENTER]), Query("node").hop(EDGE, 99), seed=0)
        .node["node"]
        .tolist()
    ),
    "sample_subgraph": lambda world: np.unique(
        sampling.sample_subgraph(world.graph, world.ids([CENTER]), [-1], attributes=True, seed=0).x  # type: ignore[arg-type]
    ).tolist(),
}  # fmt: skip
LIVE_SAMPLER: dict[str, Call] = {
    "sample_from_nodes": lambda world: drawn(
        world, world.sampler.sample_from_nodes(NodeSamplerInput(None, world.seeds())).node  # type: ignore[arg-type,union-attr]
    ),
    "sample_from_edges": lambda world: drawn(
        world,
        world.sampler.sample_from_edges(  # type: ignore[arg-type,union-attr]
            EdgeSamplerInput(None, world.seeds(), world.seeds())
        ).node,
    ),
}  # fmt: skip
CALLS = {
    f"{owner.__name__}.{name}": call
    for owner, calls in (
        (Graph, GRAPH),
        (Engine, ENGINE),
        (Runtime, RUNTIME),
        (WhatIf, WHAT_IF),
        (sampling, SAMPLING),
        (LiveSampler, LIVE_SAMPLER),
    )
    for name, call in calls.items()
}

# What makes a world, or belongs to the loop, to a graph's views or to another class that it is read from.
NOT_CALLED = {
    Graph: {
        "from_edges", "from_pyg", "from_state", "from_tables", "edge_type_index", "writer",

        "node_type_index", "to_numbers", "to_user_ids", "unknown_node", "with_types",
    },
    Engine: {
        "abandon", "check_growth", "close", "commit", "factory", "grow", "part_counts", "prepare",
        "prepare_fork", "publish", "read_current", "retire", "save_beside", "update_of",
    },
    Runtime: {"grow", "start", "step", "stop"},
    WhatIf: {"changed_numbers"},  # as `changed`, for parts
    LiveSampler: {"edge_permutation"},
}  # fmt: skip

# Both bring the second state and then the first again.
BATCHES: dict[str, Callable[[World, bool], object]] = {
    "graph": lambda world, second: world.graph.apply(world.to(second)),
    "engine": lambda world, second: world.engine.apply(world.to(second)),
    "runtime": lambda world, second: world.runtime.wait(world.runtime.append(world.to(second))),
}
WRITERS = {"Graph.apply", "Engine.apply"}


def attempt(batch: Callable[[], object]) -> None:
    """Where two batches meet, a node may be gone already, or there."""
    with suppress(InputError):
        batch()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def watched() -> Iterator[None]:
    """A test that is stuck says where, in every thread, and ends the process: nobody could stop it."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_every_public_call_is_in_these_tables() -> None:
    """So that a new one is tried beside batches, too."""
    for owner, calls in (
        (Graph, GRAPH),
        (Engine, ENGINE),
        (Runtime, RUNTIME),
        (WhatIf, WHAT_IF),
        (LiveSampler, LIVE_SAMPLER),
    ):
        public = {
            name
            for name, member in inspect.getmembers(owner)
            if not name.startswith("_") and (callable(member) or isinstance(member, property))
        }
        ours = calls.keys() - {"subscriber_failures"} if owner is Engine else calls.keys()
        assert public == ours | NOT_CALLED[owner], owner
    assert SAMPLING.keys() == {name for name in sampling.__all__ if name.startswith("sample")}


def beside(world: World, call: Call, batch: Callable[[World, bool], object]) -> list[object]:
    """What `call` answered while batches were applied in another thread, to the second state and back."""
    answers: list[object] = []
    done = threading.Event()
    failures: list[BaseException] = []
    start = threading.Barrier(2)

    def apply() -> None:
        try:
            start.wait()
            for second in (True, False):
                attempt(partial(batch, world, second))
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=apply)
    writer.start()
    start.wait()
    last = False
    while not last and len(answers) < MOST_CALLS:
        last = done.is_set()
        answers.append(call(world))
    writer.join()
    if failures:
        raise failures[0]
    return answers


@pytest.mark.usefixtures("hasty", "watched")
@pytest.mark.parametrize(
    ("mode", "batch", "texts"),
    [
        ("eager", "graph", False),
        ("eager", "graph", True),
        ("eager", "runtime", False),
        ("lazy", "engine", False),
        ("lazy", "runtime", False),
        ("lazy", "runtime", True),
    ],
)
def test_every_call_beside_batches_finishes_with_an_answer_from_before_or_after(
    tmp_path: Path, mode: Mode, batch: str, texts: bool
) -> None:
    log = SqliteLog(tmp_path / "events.db")
    world = World(log, mode, texts=texts)
    for name, call in CALLS.items():
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        if name in WRITERS:
            beside(world, call, BATCHES[batch])
            attempt(lambda: world.graph.apply(world.to(False)))  # whichever came last
            continue
        before = call(world)
        world.graph.apply(world.to(True))
        after = call(world)
        world.graph.apply(world.to(False))
        for answer in beside(world, call, BATCHES[batch]):
            assert answer in (before, after), f"{name}: {answer} is neither {before} nor {after}"
    assert world.runtime.failure is None
    assert world.runtime.subscriber_failures == 0
    assert world.engine.verify().ok
    world.runtime.stop()
    log.close()


class Held:
    """A lazy engine one of whose queries is at work in a function of the user's, and holds its locks."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.holding = False

        def slow(h: np.ndarray, a: np.ndarray) -> np.ndarray:
            if self.holding:
                self.entered.set()
                self.leave.wait()
            return h + a

        self.graph = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, WIDTH), np.float32))
        model = Model.from_convolutions([Convolution(update=slow)], in_channels=WIDTH)
        self.engine = Engine(self.graph, model, threads=1, mode="lazy")
        self.engine.apply(Events().set_features([0], np.zeros((1, WIDTH), np.float32)))
        self.holding = True
        self.query = threading.Thread(target=self.engine.predict, args=([0],))

    def begin(self) -> None:
        self.query.start()
        self.entered.wait()

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *error: object) -> None:
        self.leave.set()
        self.query.join()


WAITING: dict[str, Callable[[Held], object]] = {
    "degree": lambda held: held.graph.degree([0]),
    "features": lambda held: held.graph.features([0]),
    "ids": lambda held: held.graph.ids(),
    "memory": lambda held: held.engine.memory(),
    "neighbors": lambda held: held.graph.neighbors(0),
    "num_nodes": lambda held: held.graph.num_nodes(),
    "pending": lambda held: held.engine.pending,
    "predict": lambda held: held.engine.predict([0, 1]),
    "sample": lambda held: sampling.sample_nodes(held.graph, 1, seed=0),
    "work": lambda held: held.engine.work,
}


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("name", WAITING)
def test_a_call_that_waits_behind_a_query_in_a_users_function_lets_that_function_go_on(name: str) -> None:
    """The query has the graph's lock and the overlays', and its function needs the interpreter's; a batch
    that was prepared before the query began waits for it; the call waits for the batch. It must not hold the
    interpreter's lock meanwhile. No other thread gets that but when it is let go of, so the function goes on
    only if the call has done so.
    """
    interval = sys.getswitchinterval()
    with Held() as held:
        staged = threading.Event()

        def begin_query(delta: object) -> None:
            held.begin()
            staged.set()

        batch = threading.Thread(
            target=lambda: held.graph.apply(Events().add_edges([0], [0]), on_staged=begin_query)
        )
        batch.start()
        staged.wait()
        free = threading.Thread(target=held.leave.set)
        sys.setswitchinterval(1000.0)
        try:
            free.start()
            WAITING[name](held)
        finally:
            sys.setswitchinterval(interval)
        free.join()
        batch.join()
    assert held.graph.num_edges() == 3


def test_the_bindings_lock_in_one_place() -> None:
    """bindings/locks.h lets go of the interpreter's lock before it waits; nobody else may forget to."""
    bindings = Path(__file__).parents[2] / "cpp" / "bindings"
    ways = re.compile(r"\b(shared_lock|unique_lock|lock_guard|scoped_lock|gil_scoped_release|lock_shared)\b")
    found = {path.name: ways.findall(path.read_text(encoding="utf-8")) for path in sorted(bindings.iterdir())}
    assert found.pop("locks.h")
    assert found.pop("module.cc") == ["shared_lock"], "what `wait_with_gil` does wrong, for a test"
    assert not any(found.values()), found


def test_who_would_wait_with_the_interpreters_lock_is_told_so() -> None:
    """The check that the other tests rely on. A write of the time takes the lock alone, as a commit does."""
    graph = Graph.from_edges([0], [1])
    graph.native.latest_time = 3.0
    assert graph.latest_time == 3.0
    with pytest.raises(RuntimeError, match="while holding the GIL"):
        _core.wait_with_gil(graph.native)


def test_reads_that_wait_give_the_answers_of_those_that_do_not(tmp_path: Path) -> None:
    """The way of a read that finds the lock taken, for all of them."""
    log = SqliteLog(tmp_path / "events.db")
    world = World(log, "eager")
    at_once = {name: call(world) for name, call in CALLS.items() if name not in WRITERS}
    _core.always_wait(True)
    try:
        waited = {name: call(world) for name, call in CALLS.items() if name not in WRITERS}
    finally:
        _core.always_wait(False)
    assert waited == at_once
    world.runtime.stop()
    log.close()


@pytest.mark.parametrize("mode", ["eager", "lazy"])
def test_a_function_that_asks_the_graph_or_the_engine_is_refused(mode: Mode) -> None:
    """It would wait for itself; and what it computed would not follow what it read."""
    ask: list[Callable[[], object]] = []

    def curious(h: np.ndarray, a: np.ndarray) -> np.ndarray:
        for question in ask:
            question()
        return h + a

    graph = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, WIDTH), np.float32))
    model = Model.from_convolutions([Convolution(update=curious)], in_channels=WIDTH)
    engine = Engine(graph, model, threads=2, mode=mode)
    zero = Events().set_features([0], np.zeros((1, WIDTH), np.float32))
    for question in (
        lambda: graph.num_nodes(),
        lambda: engine.predict([0]),
        lambda: graph.apply(Events().add_edges(0, 0)),
        lambda: engine.memory(),
        lambda: sampling.sample_nodes(graph, 1, seed=0),
    ):
        ask[:] = [question]
        if mode == "lazy":
            engine.apply(zero)
        with pytest.raises(RuntimeError, match="compute from its arguments alone"):
            engine.apply(zero) if mode == "eager" else engine.predict([0, 1])
        ask.clear()
        engine.apply(Events().set_features([0], np.ones((1, WIDTH), np.float32)))
        assert engine.verify().ok


def test_memory_is_taken_between_batches_and_asking_for_it_never_waits() -> None:
    """What a batch is prepared in is being written to: what was read of it then could be anything."""
    graph = Graph.from_edges([0, 1], [1, 0], x=np.ones((2, WIDTH), np.float32))
    model = Model.from_convolutions([Convolution()], in_channels=WIDTH)
    engine = Engine(graph, model, threads=1)
    told: list[dict[str, int]] = []

    def ask_from_another_thread() -> None:
        asker = threading.Thread(target=lambda: told.append(engine.memory()))
        asker.start()
        asker.join()

    before = engine.memory()
    many = np.arange(2, 50_000)
    events = Events().add_nodes(many, np.ones((len(many), WIDTH), np.float32))
    engine.apply(events, on_staged=lambda delta: ask_from_another_thread())
    with graph.writer:
        ask_from_another_thread()
    during, after = told
    assert during == before
    assert after == engine.memory()
    for part in ("ids of node", "features of node", "aggregates"):
        assert after[part] > before[part]


INTERRUPTED = """
import random, signal, sys, threading
import livegnn as lg

draw = random.Random(0)

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
graph = lg.Graph.from_edges([0, 1], [1, 0])
number = 0
for _ in range(400):
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0005, 0.002))
        while True:
            number += 1
            graph.apply(lg.Events().add_nodes(number))
            graph.memory()
    except KeyboardInterrupt:
        pass
    taken = []
    turn = graph.writer
    other = threading.Thread(target=lambda: taken.append(turn.acquire(timeout=30) and turn.release()))
    other.start()
    other.join()
    if taken != [None]:
        sys.exit("the turn is kept after an interrupt")
print("free")
"""


def test_an_interrupt_never_keeps_the_turn() -> None:
    said = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "free\n"), said.stderr
