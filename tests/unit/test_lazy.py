"""Predictions that are computed when they are asked for: what is touched, what settles, who is told."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from livegnn import Engine, Events, FileFormatError, Graph, InputError, UnknownNodeError
from mirror import assert_exact, frozen
from modules import WIDTH, Design, make
from streams import make_graph as make_streamed_graph
from streams import make_model, make_stream

LINE = 40


def make_line() -> Graph:
    """Node i + 1 reads node i."""
    x = np.random.default_rng(3).standard_normal((LINE, WIDTH)).astype(np.float32)
    return Graph.from_edges(np.arange(LINE - 1), np.arange(1, LINE), x=x)


def make_engine(mode="lazy", kind: str = "sage mean", graph: Graph | None = None, **design) -> Engine:
    return Engine(graph or make_line(), make(Design(kind, **design))[1], threads=1, mode=mode)


def new_features(node: int = 5, value: float = 2.0) -> Events:
    return Events().set_features(node, np.full((1, WIDTH), value, dtype=np.float32))


# -- what is touched


def test_a_query_far_from_every_event_touches_nothing():
    engine = make_engine()
    before = engine.predict(np.arange(LINE))
    update = engine.apply(new_features(5))
    assert sorted(update.changed.tolist()) == [5, 6, 7]
    assert engine.pending == 3
    far = np.setdiff1d(np.arange(LINE), [5, 6, 7])
    np.testing.assert_array_equal(engine.predict(far), before[far])
    assert (engine.work.rows, engine.work.edges, engine.work.recomputed) == (0, 0, 0)
    assert engine.pending == 3


def test_a_query_computes_what_it_needs_once():
    engine = make_engine()
    engine.apply(new_features(5))
    engine.predict([7])
    assert engine.pending == 2
    first = engine.work
    assert first.rows > 0
    assert first.edges > 0
    engine.predict([7])
    assert engine.work == first
    engine.apply(new_features(5, -1.0))
    assert engine.pending == 3
    engine.predict([7])
    assert engine.work.rows == 2 * first.rows


def test_an_engine_that_is_eager_has_nothing_pending():
    engine = make_engine("eager")
    update = engine.apply(new_features())
    assert update.exact
    engine.predict([5, 6, 7])
    assert engine.pending == 0
    assert engine.work.rows == 0
    assert "overlay" not in engine.memory()
    engine.settle()


# -- modes


def test_a_mode_for_each_depth():
    graph = make_line()
    model = make(Design("gin", depth=3))[1]
    modes = [
        ["eager", "eager", "eager"],
        ["eager", "eager", "lazy"],
        ["eager", "lazy", "lazy"],
        ["lazy"] * 3,
    ]
    engines = [Engine(graph, model, threads=1, mode=mode) for mode in modes]
    for node in (3, 20, 4):
        graph.apply(new_features(node).add_edges(node, 30).remove_edges(node, node + 1))
        answers = [engine.predict(np.arange(LINE)) for engine in engines]
        for answer in answers[1:]:
            np.testing.assert_allclose(answer, answers[0], atol=1e-4)
    # What is computed with the batch need not be computed by the query.
    rows = [engine.work.rows for engine in engines]
    assert rows[0] == 0
    assert 0 < rows[1] < rows[2] < rows[3]
    for engine in engines:
        assert_exact(engine)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("sometimes", "'eager', 'lazy' or 'presampled'.*got 'sometimes'"),
        (["eager", "presampled"], "got 'presampled' in a list"),
        (["lazy", "eager"], "eager first"),
        (["lazy"], "one entry for each propagation, 2, got"),
        (["eager", "lazy", "lazy"], "one entry for each propagation, 2, got"),
        ([], "one entry for each propagation"),
        (["eager", "often"], "got 'often'"),
    ],
)
def test_a_mode_that_cannot_be(mode, why):
    graph = make_line()
    with pytest.raises(InputError, match=why):
        make_engine(mode, graph=graph)


# -- what settles


def test_what_reads_everything_computes_it_and_settles_nothing():
    readers = [
        lambda engine: engine.embeddings(1),
        lambda engine: engine.verify(),
        lambda engine: engine.scrub(),
        lambda engine: engine.what_if(new_features(9)),
    ]
    for read in readers:
        engine = make_engine()
        engine.apply(new_features())
        assert engine.pending == 3
        read(engine)
        assert engine.pending == 0
        assert "lazy/eager" in engine.state().arrays
        assert engine.verify().ok
        engine.settle()
        assert "lazy/eager" not in engine.state().arrays


def test_a_state_holds_the_record_and_computes_nothing():
    engine = make_engine()
    engine.apply(new_features())
    assert "lazy/eager" in engine.state().arrays
    assert engine.pending == 3


def test_a_batch_that_removes_nodes_is_computed_at_once():
    engine = make_engine()
    engine.apply(new_features(20))
    update = engine.apply(Events().remove_nodes(5))
    assert update.exact
    assert sorted(update.changed.tolist()) == [6, 7]
    assert engine.pending == 0
    engine.apply(Events().add_nodes(5).add_edges([5, 4], [6, 5]))  # under the index that was freed
    assert engine.pending == 3
    assert_exact(engine)


def test_a_long_record_settles():
    rng = np.random.default_rng(0)
    engine = make_engine(graph=make_line())
    pending = []
    for _ in range(30):
        src, dst = rng.integers(0, LINE, (2, 100))
        engine.apply(Events().add_edges(src, dst))
        pending.append(engine.pending)
    memory = engine.memory()
    assert 0 in pending
    assert max(pending) == LINE
    assert memory["record"] > 0
    assert engine.verify().ok
    engine.settle()
    assert engine.memory()["record"] < memory["record"]


def test_a_what_if_of_a_lazy_engine_is_that_of_an_eager_one():
    graph = make_line()
    engines = [make_engine(mode, graph=graph) for mode in ("eager", "lazy")]
    graph.apply(new_features(3))
    answers = [engine.what_if(new_features(8)) for engine in engines]
    assert [sorted(answer.changed.tolist()) for answer in answers] == [[8, 9, 10]] * 2
    graph.apply(new_features(9))
    got = [answer.predict([9, 10]) for answer in answers]
    np.testing.assert_allclose(got[1], got[0], atol=1e-5)


def test_a_state_goes_from_mode_to_mode():
    stream = make_stream(30)
    lazy = Engine(make_streamed_graph(), make_model(), threads=1, mode="lazy")
    for events in stream[:15]:
        lazy.apply(events)
    restored = {
        mode: Engine(
            Graph.from_state(lazy.graph.state()), lazy.model, threads=1, mode=mode, state=lazy.state()
        )
        for mode in ("lazy", "eager")
    }
    for number, events in enumerate(stream[15:]):
        for engine in (lazy, *restored.values()):
            engine.apply(events)
        if number % 3:
            lazy.predict(lazy.graph.ids()[:4])  # asking leaves no trace
    assert frozen(restored["lazy"].state()) == frozen(lazy.state())
    for engine in (lazy, *restored.values()):
        assert_exact(engine)


SETTINGS = (
    {},
    {"mode": "lazy"},
    {"mode": ("eager", "lazy")},
    {"keep": "aggregates"},
    {"keep_degree": 2},
    {"non_finite": "allow"},
)


@pytest.mark.parametrize("after", SETTINGS)
@pytest.mark.parametrize("before", SETTINGS)
def test_a_state_is_restored_with_other_settings_or_refused(before, after):
    stream = make_stream(8)
    engine = Engine(make_streamed_graph(), make_model(), threads=1, **before)
    for events in stream[:6]:
        engine.apply(events)
    graph = Graph.from_state(engine.graph.state())
    try:
        restored = Engine(graph, engine.model, threads=1, state=engine.state(), **after)
    except FileFormatError:
        assert ({*before} ^ {*after}) & {"keep", "keep_degree"}  # other rows are kept
        restored = Engine(graph, engine.model, threads=1, **after)
    for events in stream[6:]:
        restored.apply(events)
    assert_exact(restored)


# -- who is told


def test_an_update_names_what_a_batch_may_have_changed():
    engine = make_engine()
    seen = []
    engine.subscribe(lambda update: seen.append(update))
    same = engine.graph.features([5])
    engine.apply(Events().set_features(5, same))  # no change at all
    assert seen == []
    first = engine.apply(new_features(5))
    # Its layer is linear in the mean, so this takes back what the first brought: nobody has computed either.
    second = engine.apply(Events().set_features(5, same))
    assert [update.exact for update in seen] == [False, False]
    assert sorted(first.changed.tolist()) == sorted(second.changed.tolist()) == [5, 6, 7]
    assert second.affected == 3
    np.testing.assert_array_equal(engine.predict([5, 6]), make_engine().predict([5, 6]))


# -- threads


def test_questions_while_batches_go_by():
    graph = make_streamed_graph()
    model = make_model()
    lazy = Engine(graph, model, threads=2, mode="lazy")
    eager = Engine(graph, model, threads=1)
    stop, failures = threading.Event(), []

    def ask(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            with graph.writer:  # together, with no batch in between
                ids = rng.choice(graph.ids(), 3)
                expected = eager.predict(ids)
                got = lazy.predict(ids)
            if np.abs(got - expected).max() > 1e-3:
                failures.append((ids, got, expected))
            try:
                lazy.predict(ids)  # beside a batch, perhaps
            except UnknownNodeError:
                continue

    askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
    for asker in askers:
        asker.start()
    for events in make_stream(120):
        graph.apply(events)
    stop.set()
    for asker in askers:
        asker.join()
    assert not failures
    assert_exact(lazy)
