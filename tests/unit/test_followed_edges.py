"""Edge outputs that an engine follows: what updates and the feed list, and what is refused."""

from __future__ import annotations

import asyncio
import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.errors import InputError
from livegnn.graph import GraphDelta, View
from livegnn.inference import EngineOptions, Update
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Step
from livegnn.partitions.fitting import refuse_unfit
from livegnn.placement import Owners
from livegnn.runtime import Runtime
from livegnn.server.chosen_changes import ChosenChanges
from livegnn.server.feed import Feed
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import COLUMNS, WIDTH, make_scorer
from streams import make_graph, make_model

MODEL = make_scorer()


def make(*, text: bool = False, edges: EdgeSchema | None = None) -> Graph:
    """Five nodes, each with an edge to the next."""
    edges = edges or EdgeSchema(weighted=True, edge_dim=COLUMNS)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text))
    ids = ["a", "b", "c", "d", "e"] if text else list(range(5))
    rng = np.random.default_rng(0)
    events = Events().add_nodes(ids, rng.normal(size=(5, WIDTH)))
    events.add_edges(
        ids, [*ids[1:], ids[0]], weight=rng.uniform(1, 2, 5), edge_attr=rng.normal(size=(5, COLUMNS))
    )
    graph.apply(events, seq=0)
    return graph


def test_an_edge_alone_changes_no_prediction_and_is_listed() -> None:
    """The model's layers read no columns of edges; its decoder does."""
    engine = Engine(make(), MODEL, follow=["risk"])
    seen: list[Update] = []
    engine.subscribe(seen.append)
    columns = {"weight": [9.0], "edge_attr": np.ones((1, COLUMNS))}
    update = engine.apply(Events().add_edges(0, 1, **columns))
    assert (update.num_changed, seen) == (0, [update])
    changes = update.edges["risk"]
    assert (changes.edges.source.tolist(), changes.edges.target.tolist()) == ([0], [1])
    assert changes.edges.key is None
    assert changes.scores.dtype == np.float32
    np.testing.assert_array_equal(changes.scores, engine.predict_edges(0, 1, output="risk"))
    assert (changes.reached, changes.complete, len(changes.removed.source)) == (1, True, 0)
    assert repr(changes) == "ScoreChanges(edges=1, removed=0, reached=1)"
    again = engine.apply(Events().add_edges(0, 1, **columns))
    assert again.edges["risk"].empty
    assert seen == [update]


def test_without_follow_updates_list_no_edges() -> None:
    engine = Engine(make(), MODEL)
    assert engine.apply(Events().add_edges(0, 3, weight=1, edge_attr=np.ones(COLUMNS))).edges == {}


def test_a_batch_that_reaches_more_than_the_limit_lists_nothing_and_says_so() -> None:
    engine = Engine(make(), MODEL, follow=["alike"], follow_limit=3)
    seen: list[Update] = []
    engine.subscribe(seen.append)
    update = engine.apply(Events().set_features(range(5), np.ones((5, WIDTH))))
    changes = update.edges["alike"]
    assert not changes.complete
    assert not changes.empty
    assert changes.reached > 3
    assert changes.scores.shape == (0, 1)
    assert len(changes.edges.source) == len(changes.removed.source) == 0
    assert seen == [update]


def test_what_it_costs_is_logged_when_it_begins(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "livegnn.inference.followed_edges"):
        Engine(make(), MODEL, follow=["risk"], follow_limit=1000)
    assert "28 bytes for each edge whose score it changes, 28.0 kB at most" in caplog.text


class Refusing(View):
    """Refuses every second batch, after the engine has prepared it."""

    name = "refusing"
    batches = 0

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        self.batches += 1
        if self.batches % 2:
            raise InputError("not this one")


def test_a_refused_batch_leaves_nothing_behind() -> None:
    graph = make()
    engine = Engine(graph, MODEL, follow=["risk"])
    refusing = Refusing(graph)
    seen: list[Update] = []
    engine.subscribe(seen.append)
    with pytest.raises(InputError, match="not this one"):
        engine.apply(Events().set_features([0, 1, 2], np.ones((3, WIDTH))))
    update = engine.apply(Events().add_edges(0, 1, weight=[5.0], edge_attr=np.ones((1, COLUMNS))))
    assert update.edges["risk"].edges.source.tolist() == [0]
    assert seen == [update]
    assert refusing.batches == 2


def test_a_function_that_raises_refuses_the_batch() -> None:
    fails = [False]

    def clip(rows: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise ValueError("no")
        return np.clip(rows, -1, 1)

    call = Step("call", ("risk",), "clipped", attrs={"function": "clip", "width": 2})
    model = replace(
        MODEL, steps=(*MODEL.steps, call), functions={"clip": clip}, edge_outputs={"clipped": "clipped"}
    )
    graph = make()
    engine = Engine(graph, model, follow=["clipped"])
    before = engine.predict(range(5))
    fails[0] = True
    with pytest.raises(ValueError, match="no"):
        engine.apply(Events().set_features([0], np.ones((1, WIDTH))))
    np.testing.assert_array_equal(engine.predict(range(5)), before)
    fails[0] = False
    changes = engine.apply(Events().set_features([0], np.ones((1, WIDTH)))).edges["clipped"]
    edges = changes.edges
    np.testing.assert_array_equal(changes.scores, engine.predict_edges(edges.source, edges.target))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"follow": ["fraud"]}, "output must be one of the edge outputs, 'risk' of .* got 'fraud'"),
        ({"follow": "risk"}, "follow must be a list of names of edge outputs, got 'risk'"),
        ({"follow": [3]}, "follow must be a list of names"),
        ({"follow": ["risk"], "follow_limit": 0}, "follow_limit must be 1 or more|follow_limit must be"),
        ({"follow": ["risk"], "mode": "lazy"}, "in the mode 'lazy': use mode='eager', or leave it out"),
        ({"follow": ["risk"], "mode": ["eager", "lazy"]}, "use mode='eager'"),
        ({"follow": ["risk"], "mode": "presampled"}, "follow is of engines that keep rows"),
    ],
)
def test_an_engine_refuses_what_it_cannot_follow(options: dict[str, Any], message: str) -> None:
    graph = make()
    with pytest.raises(InputError, match=message):
        Engine(graph, MODEL, **options)
    assert not [ref for ref in graph.views._views if ref() is not None]
    Engine(graph, MODEL, follow=["risk", "risk"])


def test_models_and_graphs_without_such_edges_are_refused() -> None:
    graph = make_graph()
    with pytest.raises(InputError, match=r"follow must name .* got 'risk': the model has no edge output"):
        Engine(graph, make_model(), follow=["risk"])
    pairs = make_scorer(edge_type=("node", "knows", "node"), edge_dim=0, weighted=False)
    other = Graph(Schema({"node": WIDTH}, {("node", "knows", "node"): EdgeSchema()}))
    Engine(other, pairs, follow=["alike"])
    with pytest.raises(InputError, match=r"an engine of a divided graph needs follow=\(\), got \('risk',\)"):
        refuse_unfit(make_model(), graph.schema, EngineOptions(follow=["risk"]), Owners("jump", 2))


def test_options_of_another_mode_follow_nothing_that_it_cannot() -> None:
    options = EngineOptions(follow=["risk"], history=3)
    assert options.in_mode("eager") == options
    for mode in ("lazy", ["eager", "lazy"], "presampled"):
        assert options.in_mode(mode).follow == ()


def take_event(event: bytes) -> dict[str, Any]:
    _, _, data, _, _ = event.decode().split("\n")
    return orjson.loads(data.removeprefix("data: "))


@pytest.mark.parametrize("text", [False, True])
def test_a_copy_that_follows_the_feed_has_the_scores_of_the_engine(tmp_path: Path, text: bool) -> None:
    graph = make(text=text, edges=EdgeSchema(weighted=True, edge_dim=COLUMNS, duplicates="keep"))
    ids = graph.ids().tolist()
    new = "z" if text else 77
    row = {"weight": [1.0], "edge_attr": np.ones((1, COLUMNS))}
    batches = [
        Events().set_features([ids[0]], np.ones((1, WIDTH))),
        Events().add_edges(ids[0], ids[1], key=[9], **row),
        Events().add_nodes([new], np.ones((1, WIDTH))).add_edges(new, ids[2], **row),
        Events().remove_nodes([ids[1]]),
        Events().remove_nodes([new]).add_nodes([new], np.ones((1, WIDTH))).add_edges(ids[3], new, **row),
        Events().remove_edges(ids[2], ids[3]),
    ]

    def read() -> dict[tuple[object, object, int], list[float]]:
        snapshot = graph.snapshot()
        source, target = (snapshot.ids["node"][at] for at in snapshot.edge_index[DEFAULT_EDGE_TYPE])
        key = snapshot.key[DEFAULT_EDGE_TYPE]
        rows = engine.predict_edges(source, target, key=key, output="risk")
        told = orjson.loads(orjson.dumps(rows, option=orjson.OPT_SERIALIZE_NUMPY))
        return dict(zip(zip(source.tolist(), target.tolist(), key.tolist(), strict=True), told, strict=True))

    def names(told: dict[str, list[Any]]) -> list[tuple[object, object, int]]:
        return list(zip(told["sources"], told["targets"], told["keys"], strict=True))

    async def follow() -> None:
        feed = Feed(runtime)
        whole, chosen = feed.follow(), feed.follow(None, ChosenChanges(ids))
        await anext(whole)
        await anext(chosen)
        kept = read()
        for batch in batches:
            runtime.append(batch)
            while runtime.step():
                pass
            told = take_event(await anext(whole))["edges"]["risk"]
            assert told["complete"]
            for edge in names(told["removed"]):
                del kept[edge]
            kept |= zip(names(told), told["scores"], strict=True)
            assert kept == read()
        assert "edges" not in take_event(await anext(chosen))
        small = Feed(runtime, history_bytes=10)
        stream = small.follow()
        await anext(stream)
        runtime.append(Events().set_features(ids[2:], np.zeros((3, WIDTH))))
        runtime.step()
        told = take_event(await anext(stream))["edges"]["risk"]
        assert (told["complete"], set(told)) == (False, {"complete", "reached"})
        for one in (whole, chosen, stream):
            await one.aclose()

    with closing(SqliteLog(tmp_path / "log.db")) as log:
        engine = Engine(graph, MODEL, threads=1, follow=["risk"])
        runtime = Runtime(log, graph, engine)
        asyncio.run(follow())
