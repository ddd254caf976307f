"""What the feed keeps of the latest changes: no change without its predictions, and bounded memory."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from livegnn import Engine, Events
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime, Switch
from livegnn.server.chosen_changes import ChosenChanges
from livegnn.server.feed import Feed
from streams import WIDTH, make_graph, make_model


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    graph = make_graph()
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        yield Runtime(log, graph, Engine(graph, make_model(), threads=1))


def change(runtime: Runtime, count: int) -> None:
    for _ in range(count):
        runtime.append(Events().set_features(0, np.full(WIDTH, runtime.seq)))
        runtime.step()


def test_a_client_that_resumes_while_a_batch_is_described_receives_no_ids_without_predictions(
    runtime: Runtime,
) -> None:
    """The feed was asked twice: no, before the client came, and yes, for the ids alone, after."""

    async def follow() -> None:
        feed, told = Feed(runtime, resume=0.0), list[object]()

        def come() -> bool:
            if not told:
                told.append(feed._enter(asyncio.get_running_loop(), 0))
            return False

        runtime.subscribe(lambda change: None, wanted=come)
        change(runtime, 1)
        ((bell, reader, ready),) = told
        assert ready == {"seq": 0, "after": 0, "missed": 0}
        assert feed._take(reader).startswith(b"event: lagged\nid: 1\n")
        feed._leave(bell, reader)

    asyncio.run(follow())


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.integers(0, 7), max_size=20), kept=st.sampled_from([0, 6000]))
@example(steps=[0, 2, 1], kept=0)
def test_clients_know_which_model_serves_or_are_told_that_they_lost_something(
    steps: list[int], kept: int
) -> None:
    """0: a batch; 1: another model, and a batch; 2 to 4: a client reads all; 5 to 7: it comes again.

    The notice of another model was lost with the oldest changes if a client had the change of its event.
    """
    with TemporaryDirectory() as folder, closing(SqliteLog(Path(folder) / "events.db")) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        feed = Feed(runtime, history_bytes=kept)
        serving = 0

        def receive(event: bytes, client: list[int]) -> None:
            name, _, data, _, _ = event.decode().split("\n")
            told = orjson.loads(data.removeprefix("data: "))
            client[0] = told["seq"]
            if name == "event: model":
                client[1] = int(told["model"])
            elif name == "event: lagged":
                client[1] = serving  # it asks for all

        async def follow() -> None:
            nonlocal serving
            loop = asyncio.get_running_loop()
            clients = [[0, 0] for _ in range(3)]  # the event, and the model, that each knows
            places = [feed._enter(loop, None)[:2] for _ in clients]
            for step in steps:
                which = (step - 2) % 3
                if step < 2:
                    if step == 1:
                        serving += 1
                        feed._tell_switch(Switch(runtime.seq, str(serving), str(serving - 1)))
                    change(runtime, 1)
                elif step < 5:
                    while (event := feed._take(places[which][1])) is not None:
                        receive(event, clients[which])
                else:
                    feed._leave(*places[which])
                    bell, reader, ready = feed._enter(loop, clients[which][0])
                    places[which] = bell, reader
                    clients[which][0] = ready["seq"]
                    if ready["missed"]:
                        clients[which][1] = serving
            for client, (_, reader) in zip(clients, places, strict=True):
                while (event := feed._take(reader)) is not None:
                    receive(event, client)
                assert client == [runtime.seq, serving]

        asyncio.run(follow())


def test_the_kept_changes_take_no_more_memory_than_they_may(runtime: Runtime) -> None:
    """A small change was counted as a sixth of what it takes."""

    async def follow() -> None:
        feed = Feed(runtime)
        bell, reader, _ = feed._enter(asyncio.get_running_loop(), None, ChosenChanges([0]))
        change(runtime, 20)
        tracemalloc.start()
        try:
            before = feed._told.nbytes
            change(runtime, 200)
            while feed._take(reader) is not None:
                pass
            kept = feed._told.nbytes - before
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
            feed._told.clear(runtime.seq)
            gc.collect()  # arrays of the native core are in cycles
            freed = taken - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert 0 < freed <= kept
        feed._leave(bell, reader)

    asyncio.run(follow())
