"""Text ids take memory while somebody holds them: nodes, and what speaks of nodes that have gone."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema, UnknownNodeError
from livegnn.graph.division import divide
from livegnn.placement import Owners
from livegnn.remote.predictor import open_predictor
from livegnn.sampling import sample_neighbors
from livegnn.snapshots.writer import write_snapshot
from livegnn.training import LinkLoader
from modules import WIDTH, Design, make

BUYS = ("user", "buys", "item")


def make_graph(nodes: int = 20) -> Graph:
    names = np.array([f"node {i}" for i in range(nodes)])
    random = np.random.default_rng(1)
    return Graph.from_edges(names, np.roll(names, 1), x=random.standard_normal((nodes, WIDTH)), ids=names)


def known(graph: Graph) -> int:
    assert graph.node_ids.texts is not None
    graph.node_ids.texts.collect()
    return len(graph.node_ids.texts)


def batch(number: int, count: int = 500) -> np.ndarray:
    return np.array([f"one of batch {number}, which has a long name: {i}" for i in range(count)])


def test_texts_of_refused_batches_are_given_back() -> None:
    graph = make_graph()
    before = graph.memory()["texts of ids"]
    for number in range(20):
        with pytest.raises(UnknownNodeError, match="'nobody'"):
            graph.apply(Events().add_nodes(batch(number)).add_edges(["nobody"], ["node 1"]))
    assert known(graph) == 20
    assert graph.memory()["texts of ids"] <= before + 20_000


def test_texts_of_removed_nodes_are_given_back() -> None:
    graph = make_graph()
    before = graph.memory()["texts of ids"]
    for number in range(20):
        graph.apply(Events().add_nodes(batch(number)))
        graph.apply(Events().remove_nodes(batch(number)))
        graph.apply(Events().add_nodes(batch(number)).remove_nodes(batch(number)))
    assert known(graph) == 20
    assert graph.memory()["texts of ids"] <= before + 20_000
    assert graph.ids().tolist() == [f"node {i}" for i in range(20)]


def test_a_text_that_two_types_share_stays_until_both_have_lost_it() -> None:
    graph = Graph(Schema({"user": 0, "item": 0}, {BUYS: EdgeSchema()}, text_ids=True))
    graph.apply(Events().add_nodes(["a", "b"], node_type="user").add_nodes(["b"], node_type="item"))
    assert known(graph) == 2
    graph.apply(Events().remove_nodes(["b"], node_type="user"))
    assert known(graph) == 2
    assert graph.ids("item").tolist() == ["b"]
    graph.apply(Events().remove_nodes(["b"], node_type="item"))
    assert known(graph) == 1
    restored = Graph.from_state(graph.state())
    assert restored.ids("user").tolist() == ["a"]
    restored.apply(Events().remove_nodes(["a"], node_type="user"))
    assert known(restored) == 0


def test_an_update_says_its_ids_after_their_nodes_have_gone() -> None:
    graph = make_graph()
    engine = Engine(graph, make(Design("gcn"))[1])
    updates = []
    for number in range(5):
        names = batch(number, 30)
        updates.append(engine.apply(Events().add_nodes(names).add_edges(names, np.roll(names, 1))))
        engine.apply(Events().remove_nodes(names))
    assert known(graph) == 20 + 5 * 30
    for number, update in enumerate(updates):
        assert set(update.changed) == set(batch(number, 30))
    del update, updates
    gc.collect()
    engine.apply(Events().remove_nodes(["node 19"]))
    assert known(graph) == 19


def test_an_update_that_is_kept_does_not_keep_what_came_later() -> None:
    graph = make_graph()
    engine = Engine(graph, make(Design("gcn"))[1])
    first = engine.apply(Events().set_features(["node 1"], np.ones((1, WIDTH))))
    for number in range(50):
        engine.apply(Events().add_nodes(batch(number, 100)))
        engine.apply(Events().remove_nodes(batch(number, 100)))
    assert known(graph) <= 20 + 100
    assert "node 1" in first.changed


def test_a_delta_and_a_what_if_keep_their_ids() -> None:
    graph = make_graph()
    engine = Engine(graph, make(Design("gcn"))[1])
    delta = graph.stage(Events().add_nodes(["new"]).remove_nodes(["node 3"]))
    asked = engine.what_if(Events().add_nodes(["maybe"]).add_edges(["maybe"], ["node 1"]))
    for number in range(5):
        graph.apply(Events().add_nodes(batch(number)))
        graph.apply(Events().remove_nodes(batch(number)))
    graph.apply(Events().remove_nodes(["node 3"]))
    assert (delta.added().tolist(), delta.removed().tolist()) == (["new"], ["node 3"])
    assert "maybe" in asked.changed
    assert asked.predict(["maybe"]).shape == (1, engine.predict(["node 1"]).shape[1])
    assert not graph.contains(["maybe", "new"]).any()
    del delta, asked
    gc.collect()
    engine.apply(
        Events().remove_nodes(["node 4"])
    )  # its update takes the place of one that may speak of them
    assert known(graph) == 18


def test_history_explains_nodes_that_have_gone() -> None:
    graph = make_graph()
    engine = Engine(graph, make(Design("gcn"))[1], history=300)
    since = graph.seq
    engine.apply(Events().add_nodes(["guest"], np.ones((1, WIDTH))).add_edges(["guest"], ["node 1"]))
    engine.apply(Events().remove_nodes(["guest"]))
    engine.apply(Events().add_nodes(["guest"], np.ones((1, WIDTH))).add_edges(["guest"], ["node 1"]))
    engine.apply(Events().remove_nodes(["guest"]))
    for number in range(3):
        engine.apply(Events().add_nodes(batch(number, 10)))
        engine.apply(Events().remove_nodes(batch(number, 10)))
    assert known(graph) >= 20 + 1 + 3 * 10
    said = str(engine.explain("node 1", since=since))
    assert "guest" in said
    for number in range(40):
        engine.apply(Events().add_nodes(batch(number, 10)))
        engine.apply(Events().remove_nodes(batch(number, 10)))
    assert known(graph) <= 20 + 300 + 20


def test_a_node_that_comes_back_is_the_same_to_who_held_its_number() -> None:
    graph = make_graph()
    with graph.pin():
        number = graph.to_numbers(["node 5"])
        graph.apply(Events().remove_nodes(["node 5"]))
        assert known(graph) == 20
        graph.apply(Events().add_nodes(["node 5"]))
        assert graph.to_numbers(["node 5"]).tolist() == number.tolist()


def test_a_number_that_nobody_held_names_nothing() -> None:
    graph = make_graph()
    number = graph.to_numbers(["node 5"])
    graph.apply(Events().remove_nodes(["node 5"]))
    assert known(graph) == 19
    graph.apply(Events().add_nodes(["another"]))
    assert graph.to_numbers(["another"]).tolist() != number.tolist()
    with pytest.raises(UnknownNodeError, match="its node was removed, so read ids before that"):
        graph.to_user_ids(number)


def test_the_error_of_a_refused_batch_does_not_keep_its_texts() -> None:
    graph = make_graph()
    with pytest.raises(UnknownNodeError) as kept:
        graph.apply(Events().add_nodes(batch(1)).remove_nodes(["nobody"]))
    assert known(graph) == 20
    assert "nobody" in str(kept.value)


def test_samples_and_reads_beside_churn_say_texts() -> None:
    graph = make_graph()
    for number in range(10):
        graph.apply(Events().add_nodes(batch(number, 50)).add_edges(batch(number, 50), ["node 1"] * 50))
        drawn = sample_neighbors(graph, ["node 1"], 10, seed=number)
        assert set(drawn.ids) <= {*batch(number, 50), *graph.ids()}
        graph.apply(Events().remove_nodes(batch(number, 50)))
    assert set(graph.neighbors("node 1").ids) <= set(graph.ids())


@pytest.mark.parametrize("text", ["x\0", "\0", "a\0b", "\ud800", "a\udc00b"])
def test_what_is_no_text_is_no_id(text: str) -> None:
    """NumPy drops the last NUL, so that the id would be another one; the graph could not say a surrogate."""
    graph = Graph.from_edges(["x", "", "a"], ["", "x", "b"])
    forms: list[Any] = [text, [text], ["x", text], (text,), np.array([text, "x"], dtype=object)]
    if not text.endswith("\0"):
        forms.append(np.array(["x", text]))
    for form in forms:
        for ask in (Events().add_nodes, graph.contains):
            with pytest.raises(InputError, match=r"NUL|half of a surrogate pair"):
                ask(form)
    with pytest.raises(InputError, match=r"NUL|half of a surrogate pair"):
        graph.neighbors(text)
    with pytest.raises(InputError, match=r"NUL|half of a surrogate pair"):
        LinkLoader(graph, [3], [["x", text], ["", "a"]])


def test_texts_in_arrays_of_any_layout() -> None:
    names = np.array(["node 1", "é", "", "🚀"])
    layouts = [names.astype(">U9"), np.repeat(names, 2)[::2], np.stack([names, names], axis=1)[:, 0]]
    for form in (*layouts, names.astype(object), names.tolist()):
        graph = Graph(Schema({"node": 0}, {}, text_ids=True))
        graph.apply(Events().add_nodes(form))
        assert graph.ids().tolist() == names.tolist()
        assert graph.contains(form).all()
        assert [graph.contains([name]).item() for name in names.tolist()] == [True] * 4


MIXED = [["a", 3], (3, "a"), ["a", None], [1.5, "a"], np.array(["a", 3], object), ["a", b"b"]]
NO_TEXTS = [[None], {"a"}, [None, 3], np.array([3], object)]


@pytest.mark.parametrize("ids", [*MIXED, *NO_TEXTS], ids=repr)
def test_ids_of_a_graph_of_texts_are_texts(tmp_path: Path, ids: Any) -> None:
    """NumPy would make the text '3' of the number, which is the id of another node."""
    graph = Graph.from_edges(["a", "3"], ["3", "a"], x=np.eye(WIDTH)[:2], ids=["a", "3"])
    make(Design("gcn"))[1].save(tmp_path / "model.lgnn")
    write_snapshot(graph, str(tmp_path / "snapshot"))
    predictor = open_predictor(str(tmp_path / "snapshot"), tmp_path / "model.lgnn")
    assert predictor.predict(["a", "3"]).shape == predictor.predict(np.array(["3", "a"], object)).shape
    for read in (graph.to_numbers, graph.features, predictor.predict):
        with pytest.raises(InputError, match="text"):
            read(ids)


def test_a_graph_that_shares_texts_with_others_releases_them_at_its_end() -> None:
    """As the names of parts do that were made to replace lost ones."""
    graph = make_graph()
    names, parts = divide(graph, [Owners("jump", 2).native], 2)
    del names, parts
    gc.collect()
    graph.apply(Events().remove_nodes(["node 3", "node 4"]))
    assert known(graph) == 18
