"""The engine's face: what it answers, tells, checks and keeps; and what readers see while batches go by."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from livegnn import Engine, Events, FileFormatError, Graph, InputError, ModelError, UnknownNodeError
from livegnn.oracle import reference
from livegnn.types import State
from mirror import frozen, predictions
from modules import WIDTH, Design, make

NODES = 30


def make_graph(seed: int = 0, ids: np.ndarray | None = None) -> Graph:
    rng = np.random.default_rng(seed)
    ids = np.arange(NODES) if ids is None else ids
    x = rng.standard_normal((NODES, WIDTH)).astype(np.float32)
    return Graph.from_edges(*ids[rng.integers(0, NODES, (2, 80))], x=x, ids=ids, parallel="last")


def make_engine(kind: str = "sage mean", **design) -> Engine:
    return Engine(make_graph(), make(Design(kind, **design))[1], threads=1)


def some_features(seed: int, count: int = 1) -> np.ndarray:
    return np.random.default_rng([9, seed]).standard_normal((count, WIDTH)).astype(np.float32)


# -- answers


def test_predictions_are_the_oracle_s_in_the_order_that_was_asked():
    engine = make_engine()
    expected = reference.compute(engine.model, engine.graph.snapshot())[engine.model.output]
    asked = [7, 3, 29, 3]
    np.testing.assert_allclose(engine.predict(asked), expected[asked], atol=1e-5)
    assert engine.predict(5).shape == (1, 3)
    assert engine.predict(np.empty(0, dtype=np.int64)).shape == (0, 3)
    assert engine.predict(asked).dtype == np.float32


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "gin"])
def test_embeddings_are_the_layers_in_the_order_of_the_ids(kind):
    engine = make_engine(kind, depth=3)
    engine.apply(Events().remove_nodes([4, 9]).add_nodes([100, 101], some_features(1, 2)))
    engine.apply(Events().add_nodes(102))
    values = reference.compute(engine.model, engine.graph.snapshot())
    assert len(engine.model.layers) == 4
    for layer, name in enumerate(engine.model.layers):
        np.testing.assert_allclose(engine.embeddings(layer), values[name], atol=1e-4)
    ids = engine.graph.ids()
    np.testing.assert_array_equal(engine.embeddings(0), engine.graph.features(ids))
    np.testing.assert_array_equal(engine.embeddings(-1), engine.embeddings(3))
    np.testing.assert_array_equal(engine.embeddings(-1), engine.predict(ids))


@pytest.mark.parametrize("layer", [3, -4])
def test_a_layer_that_is_not_there(layer):
    with pytest.raises(InputError, match=f"from -3 to 2, got {layer}"):
        make_engine().embeddings(layer)


def test_text_ids():
    ids = np.array([f"knoten \u00e4 {i}" for i in range(NODES)])
    engine = Engine(make_graph(ids=ids), make_engine().model)
    numbered = make_engine()
    np.testing.assert_array_equal(engine.predict(ids[[3, 8]]), numbered.predict([3, 8]))
    update = engine.apply(Events().set_features(str(ids[3]), some_features(2)[0]))
    changed = numbered.apply(Events().set_features(3, some_features(2)[0])).changed
    assert sorted(update.changed) == sorted(ids[changed])
    with pytest.raises(UnknownNodeError, match="'nobody'"):
        engine.predict(["nobody"])


def test_an_empty_graph():
    graph = Graph.from_edges([], [], x=np.zeros((0, WIDTH), dtype=np.float32))
    engine = Engine(graph, make_engine().model)
    assert engine.embeddings(-1).shape == (0, 3)
    assert engine.verify().ok
    update = engine.apply(Events().add_nodes([5, 6], some_features(1, 2)).add_edges(5, 6))
    assert sorted(update.changed) == [5, 6]
    assert engine.verify().checked == 2
    assert engine.verify().ok
    engine.apply(Events().remove_nodes([5, 6]))
    assert engine.embeddings(-1).shape == (0, 3)


# -- updates


def test_an_update_says_what_it_did():
    engine = make_engine()
    events = Events().set_features([1, 2], some_features(1, 2)).add_edges(1, 2)
    before = predictions(engine)
    update = engine.apply(events)
    assert (update.seq, engine.seq, engine.graph.seq) == (3, 3, 3)
    after = predictions(engine)
    assert sorted(update.changed) == [node for node in before if before[node] != after[node]]
    assert len(update.changed) <= update.affected <= NODES
    assert update.seconds > 0
    assert f"changed={len(update.changed)} nodes" in repr(update)
    assert engine.apply(Events(), seq=17).seq == 17
    assert engine.apply(Events().add_edges(3, 4)).seq == 18


def test_an_update_that_is_read_late_names_the_nodes_that_it_changed_then():
    """Places of removed nodes are given to new ones: an old update must not speak of those."""
    engine = make_engine()
    update = engine.apply(Events().add_nodes(500, some_features(1)[0]))
    engine.apply(Events().remove_nodes(500))
    engine.apply(Events().add_nodes(600, some_features(2)[0]))
    assert update.changed.tolist() == [500]


def test_subscribers_hear_of_changes_in_order_until_they_leave():
    engine = make_engine()
    heard: list[tuple[str, int]] = []
    leave_first = engine.subscribe(lambda update: heard.append(("first", update.seq)))
    engine.subscribe(lambda update: heard.append(("second", update.seq)))
    engine.apply(Events().set_features(1, some_features(1)[0]))
    assert heard == [("first", 1), ("second", 1)]
    engine.what_if(Events().set_features(1, some_features(2)[0]))
    engine.apply(Events())  # no prediction is another
    engine.apply(Events().set_features(1, some_features(1)[0]))
    assert len(heard) == 2
    leave_first()
    leave_first()  # once is enough
    engine.apply(Events().set_features(1, some_features(3)[0]))
    assert heard[2:] == [("second", 3)]


def test_a_subscriber_sees_the_batch_that_it_is_told_of():
    engine = make_engine()
    seen = []
    engine.subscribe(lambda update: seen.append((update.changed.tolist(), engine.predict(update.changed))))
    update = engine.apply(Events().set_features(1, some_features(1)[0]).add_nodes(77, some_features(4)[0]))
    ((changed, rows),) = seen
    assert changed == update.changed.tolist()
    assert 77 in changed
    np.testing.assert_array_equal(rows, engine.predict(changed))


def test_engines_of_one_graph_follow_it_together_and_are_forgotten_with_their_owner():
    graph = make_graph()
    first = Engine(graph, make(Design("gcn"))[1])
    second = Engine(graph, make(Design("sage max"))[1])
    first.apply(Events().add_edges(1, 2).set_features(3, some_features(1)[0]))
    graph.apply(Events().remove_nodes(8))
    assert first.verify().ok
    assert second.verify().ok
    assert first.seq == second.seq == 3
    gone = weakref.ref(second)
    del second
    gc.collect()
    assert gone() is None
    graph.apply(Events().remove_nodes(9))
    assert first.verify().ok


# -- what if


def test_what_if_follows_the_graph_and_keeps_nothing():
    engine = make_engine()
    events = Events().set_features(1, some_features(1)[0]).add_nodes(99, some_features(2)[0]).add_edges(99, 2)
    what_if = engine.what_if(events)
    before = frozen(engine.state()), frozen(engine.graph.state())
    imagined = what_if.predict([1, 2, 99])
    assert {1, 99} <= set(what_if.changed.tolist())
    assert what_if.affected >= len(what_if.changed)
    assert (frozen(engine.state()), frozen(engine.graph.state())) == before
    with pytest.raises(UnknownNodeError, match="99"):
        engine.predict(99)

    engine.apply(Events().set_features(2, some_features(3)[0]))  # now it speaks of another graph
    moved = what_if.predict([1, 2, 99])
    assert not np.array_equal(moved[1], imagined[1])
    engine.apply(events)
    np.testing.assert_array_equal(moved, engine.predict([1, 2, 99]))


@pytest.mark.parametrize("text", [False, True])
def test_what_if_many_nodes_came(text, rng):
    """Asked for in any order, several times, among those that are there: each answer is its own node's."""
    count = 20_000
    engine = make_engine()
    if text:
        engine = Engine(make_graph(ids=np.array([f"there {i}" for i in range(NODES)])), engine.model)
    there = engine.graph.ids().tolist()
    new = [f"new {i}" if text else 1000 + 3 * i for i in rng.permutation(count).tolist()]
    events = Events().add_nodes(new, rng.standard_normal((count, WIDTH)).astype(np.float32))
    events.add_edges(new[:100], there[:1] * 100).remove_nodes(there[-1])
    what_if = engine.what_if(events)
    every = [*new, *there[:-1]]
    asked = [every[i] for i in rng.integers(0, len(every), 2 * len(every)).tolist()]
    imagined, changed = what_if.predict(asked), what_if.changed
    with pytest.raises(UnknownNodeError, match=str(there[-1])):
        what_if.predict([new[0], there[-1]])
    update = engine.apply(events)
    np.testing.assert_array_equal(imagined, engine.predict(asked))
    assert sorted(changed.tolist()) == sorted(update.changed.tolist())
    assert set(new) <= set(changed.tolist())


def test_what_if_a_node_were_gone():
    engine = make_engine()
    what_if = engine.what_if(Events().remove_nodes(4))
    with pytest.raises(UnknownNodeError, match="4"):
        what_if.predict([1, 4])
    others = [node for node in range(NODES) if node != 4]
    imagined = what_if.predict(others)
    engine.apply(Events().remove_nodes(4))
    np.testing.assert_array_equal(imagined, engine.predict(others))


# -- verification


def test_verification_of_all_and_of_some():
    engine = make_engine()
    found = engine.verify()
    assert found.ok
    assert found.checked == NODES
    assert found.bound == pytest.approx(1e-4 * found.scale)
    assert engine.verify(7).checked == 7
    assert engine.verify(1000).checked == NODES


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max", "graph add"])
def test_a_row_that_is_wrong_is_found(kind):
    engine = make_engine(kind, depth=2)
    assert engine.scrub(NODES) < 1e-5
    kept = next(kept for kept in engine.plan.kept.values() if kept.propagation is not None)
    rows = engine.native_engine.read(kept.index)
    rows[11] += 3
    engine.native_engine.write(kept.index, rows)
    assert engine.scrub(NODES) > 0.01

    engine = make_engine(kind, depth=2)
    for kept in engine.plan.kept.values():  # everything that is kept of node 11
        if not kept.features:
            rows = engine.native_engine.read(kept.index)
            rows[11] += 3
            engine.native_engine.write(kept.index, rows)
    found = engine.verify()
    assert not found.ok
    assert found.max_difference > found.bound


def test_a_row_that_is_no_number_is_found():
    engine = make_engine("sage mean", join="head", depth=1)
    for kept in engine.plan.kept.values():
        if not kept.features:
            rows = engine.native_engine.read(kept.index)
            rows[0] = np.nan
            engine.native_engine.write(kept.index, rows)
    assert not engine.verify().ok


def test_scrubbing_changes_nothing():
    engine = make_engine("gcn")
    before = frozen(engine.state())
    engine.scrub(5)
    engine.verify(5)
    assert frozen(engine.state()) == before


def test_memory_is_that_of_graph_and_engine():
    engine = make_engine()
    memory = engine.memory()
    assert memory.items() >= engine.graph.memory().items()
    assert memory["layer outputs"] >= NODES * 3 * 4
    assert all(size > 0 for size in memory.values())


# -- keeping


def test_a_state_restores_every_bit_without_computing():
    engine = make_engine("gcn", depth=3)
    engine.apply(Events().remove_nodes(3).add_nodes(50, some_features(1)[0]).add_edges(50, 1))
    state = engine.state()
    graph = Graph.from_state(engine.graph.state())
    restored = Engine(graph, engine.model, state=state)
    assert frozen(restored.state()) == frozen(state)
    assert predictions(restored) == predictions(engine)
    assert restored.seq == engine.seq


def broken(state: State, **changes) -> State:
    """With other metadata or arrays; None removes one."""
    meta = {name: value for name, value in changes.items() if name in state.meta}
    arrays = dict(state.arrays)
    for name, value in changes.items():
        if name not in state.meta:
            arrays.pop(name)
            if value is not None:
                arrays[name] = value
    return State({**state.meta, **meta}, arrays)


def test_a_state_whose_sums_were_kept_in_full_is_computed_anew():
    engine = make_engine("gcn", depth=2)
    state = engine.state()
    kept = {name: array for name, array in state.arrays.items() if name.startswith("rows/")}
    meta = {name: value for name, value in state.meta.items() if name != "scaled"}
    arrays = {**state.arrays, **{name: 4096 * array for name, array in kept.items()}}
    restored = Engine(engine.graph, engine.model, state=State(meta, arrays))
    assert predictions(restored) == predictions(engine)


def test_a_state_that_does_not_fit_is_refused():
    engine = make_engine("gcn", depth=2)
    graph, state = engine.graph, engine.state()
    rows = next(name for name in state.arrays if name.startswith("rows/"))
    errors = next(name for name in state.arrays if name.startswith("errors/"))
    for wrong, message in [
        (broken(state, kind="graph"), "expected the state of an engine, got 'graph'"),
        (broken(state, seq=5), "sequence number 5, the graph is at 0"),
        (broken(state, model="0" * 8), "belongs to another model"),
        (broken(state, **{rows: None}), rows),
        (broken(state, **{rows: state.arrays[rows][:-1]}), "fit"),
        (broken(state, **{rows: state.arrays[rows][:, :-1]}), "fit"),
        (broken(state, **{rows: np.zeros(3, dtype=np.float32)}), "fit"),
        (broken(state, **{errors: state.arrays[errors][:-1]}), "fit"),
    ]:
        with pytest.raises(FileFormatError, match=message):
            Engine(graph, engine.model, state=wrong)
    other = make(Design("gcn", depth=2, seed=1))[1]
    with pytest.raises(FileFormatError, match="another model"):
        Engine(graph, other, state=state)
    assert Engine(graph, engine.model, state=state).verify().ok


def test_a_model_that_does_not_fit_its_graph_is_refused():
    model = make(Design("gcn", width=WIDTH + 1))[1]
    with pytest.raises(ModelError, match=rf"{WIDTH + 1}.*{WIDTH}|{WIDTH}.*{WIDTH + 1}"):
        Engine(make_graph(), model)
    with pytest.raises(InputError, match="from 1 to 1024, got 0"):
        Engine(make_graph(), make(Design("gcn"))[1], threads=0)


# -- readers beside a writer


@pytest.mark.parametrize("kind", ["sage mean", "gcn", "sage max"])
def test_readers_see_whole_batches_only(kind):
    """Every answer of a reader is that after some batch, for all nodes alike, and never goes back in time."""
    batches = 150
    stream = []
    for number in range(batches):
        features = some_features(number, NODES)
        stream.append(Events().set_features(np.arange(NODES), features).add_edges(number % NODES, 0))
    ids = np.arange(NODES)
    model = make(Design(kind))[1]
    rehearsal = Engine(make_graph(), model, threads=1)
    answers = {rehearsal.predict(ids).tobytes(): 0}
    for number, events in enumerate(stream, 1):
        rehearsal.apply(events)
        answers[rehearsal.predict(ids).tobytes()] = number
    assert len(answers) == batches + 1

    engine = Engine(make_graph(), model, threads=2)
    started, ended = threading.Barrier(3), threading.Event()
    seen: list[list[bytes]] = [[], []]

    def read(mine: list[bytes]) -> None:
        started.wait()
        last = False
        while not last:  # once more after the last batch: this thread may not have run before
            last = ended.is_set()
            row = engine.predict(ids).tobytes()
            if not mine or row != mine[-1]:
                mine.append(row)

    readers = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    for reader in readers:
        reader.start()
    started.wait()
    for events in stream:
        engine.apply(events)
    ended.set()
    for reader in readers:
        reader.join()
    for mine in seen:
        assert mine
        assert all(row in answers for row in mine)
        numbers = [answers[row] for row in mine]
        assert numbers == sorted(numbers)


def test_what_is_added_meanwhile_is_unknown_or_known_and_nothing_between():
    engine = make_engine()
    started, ended = threading.Barrier(2), threading.Event()
    wrong: list[BaseException] = []

    def read() -> None:
        started.wait()
        while not ended.is_set():
            try:
                assert engine.predict([1000]).shape == (1, 3)
            except UnknownNodeError:
                pass
            except BaseException as error:
                wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    started.wait()
    for _ in range(500):
        engine.apply(Events().add_nodes(1000))
        engine.apply(Events().remove_nodes(1000))
    ended.set()
    reader.join()
    assert wrong == []
