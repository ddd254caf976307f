"""Batches leave no cycles: their events are freed at once, however rarely Python looks for cycles."""

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from asgi_requests import Request, answer
from livegnn import Engine, Events, InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import make_graph, make_model


def known() -> Events:
    events = Events()
    events.add_edges([0], [1])
    return events


def unknown() -> Events:
    events = Events()
    events.remove_nodes([10**9])
    return events


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    """Without its thread: a test takes its steps, on an engine."""
    graph = make_graph()
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        yield Runtime(log, graph, Engine(graph, make_model()))


def left_over(act: Callable[[], object]) -> list[Events]:
    """The events that are left to the collector of cycles."""
    act()
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            act()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [one for one in gc.garbage if isinstance(one, Events)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("make", [known, unknown])
def test_a_batch_leaves_no_cycle(make: Callable[[], Events]) -> None:
    graph = make_graph()
    engine = Engine(graph, make_model())

    def apply() -> None:
        with suppress(InputError):
            engine.apply(make())
        with suppress(InputError):
            engine.what_if(make())

    assert left_over(apply) == []


@pytest.mark.parametrize("make", [known, unknown])
def test_a_batch_of_a_runtime_leaves_no_cycle(runtime: Runtime, make: Callable[[], Events]) -> None:
    def append() -> None:
        runtime.append(make())
        runtime.step()

    assert left_over(append) == []


EDGE = {"event": "add_edge", "src": 0, "dst": 1}


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"events": [EDGE]}),
        json.dumps({"events": [EDGE, {"event": "remove_node", "id": 10**9}]}),
        json.dumps({"events": [EDGE, {**EDGE, "weight": "x"}]}),
        json.dumps(EDGE) + "\n{",
    ],
)
@pytest.mark.parametrize("query", ["", "partial=true"])
def test_a_post_leaves_no_cycle(runtime: Runtime, body: str, query: str) -> None:
    app = create_app(runtime)
    json_type = (b"content-type", b"application/json")

    def post() -> None:
        answer(app, Request("/v1/events", [body.encode()], json_type, query=query))
        runtime.step()

    assert left_over(post) == []
