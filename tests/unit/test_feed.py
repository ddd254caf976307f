"""The feed: waiting, following, and clients that are too slow, without a network between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livegnn import Engine, Events, LiveGNNError, TimeoutExpired
from livegnn.http.refusals import ProcessStops
from livegnn.log import Batch
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Change, Runtime, Switch
from livegnn.server.chosen_changes import ChosenChanges
from livegnn.server.feed import Feed
from streams import WIDTH, make_graph, make_model
from waiting import PATIENCE


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph()
    yield Runtime(log, graph, Engine(graph, make_model(), threads=1))
    log.close()


def change(runtime: Runtime, count: int) -> None:
    for _ in range(count):
        runtime.append(Events().set_features(0, np.full(WIDTH, runtime.seq)))
        runtime.step()


async def take(stream: AsyncIterator[bytes], count: int) -> list[tuple[str, dict[str, object]]]:
    events = []
    for _ in range(count):
        name, _, data, _, _ = (await anext(stream)).decode().split("\n")
        events.append((name.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))))
    return events


def test_a_client_gets_every_change(runtime: Runtime) -> None:
    async def follow() -> None:
        feed = Feed(runtime)
        stream = feed.follow()
        change(runtime, 1)
        assert await take(stream, 1) == [("ready", {"seq": 1})]
        assert feed.clients == 1
        change(runtime, 3)
        events = await take(stream, 3)
        assert [(name, data["seq"]) for name, data in events] == [("change", 2), ("change", 3), ("change", 4)]
        assert 0 in events[0][1]["ids"]
        await stream.aclose()
        assert feed.clients == 0

    asyncio.run(follow())


@pytest.mark.parametrize("text", [False, True])
def test_a_copy_that_follows_the_feed_has_the_nodes_and_predictions_of_the_engine(
    tmp_path: Path, rng: np.random.Generator, text: bool
) -> None:
    """Nodes come, go, and go and come again in one batch; a node that was not named stayed for ever."""
    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph(text=text)
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))

    def named(ids: list[int]) -> list[int | str]:
        return [f"n{id}" for id in ids] if text else list(ids)

    def rows(count: int) -> np.ndarray:
        return rng.normal(size=(count, WIDTH)).astype(np.float32)

    batches = [
        Events().remove_nodes(named([7])),
        Events().add_nodes(named([100, 101]), rows(2)).remove_nodes(named([101])),
        Events().remove_nodes(named([3, 5])).add_nodes(named([5]), rows(1)),
        Events().set_features(named([9]), rows(1)).remove_nodes(named([9, 100])),
        Events().add_nodes(named([7]), rows(1)),
    ]

    async def follow() -> None:
        stream = Feed(runtime).follow()
        await take(stream, 1)
        copy = dict(zip(graph.ids().tolist(), runtime.predict(graph.ids()).values.tolist(), strict=True))
        for events in batches:
            runtime.append(events)
            runtime.step()
            ((_, told),) = await take(stream, 1)
            assert set(told["removed"]).isdisjoint(told["ids"])
            for id in told["removed"]:
                del copy[id]
            copy |= zip(told["ids"], told["predictions"], strict=True)
            assert sorted(copy) == sorted(graph.ids().tolist())
            expected = runtime.predict(list(copy)).values
            assert np.array_equal(np.array(list(copy.values()), np.float32), expected)
        await stream.aclose()

    asyncio.run(follow())
    log.close()


def test_a_client_that_comes_again_after_what_is_kept_is_told_what_it_missed(runtime: Runtime) -> None:
    async def follow(after: int) -> dict[str, object]:
        stream = Feed(runtime).follow(after)
        ((_, ready),) = await take(stream, 1)
        change(runtime, 1)
        assert (await take(stream, 1))[0][1]["seq"] == runtime.seq
        await stream.aclose()
        return ready

    change(runtime, 4)
    assert asyncio.run(follow(1)) == {"seq": 4, "after": 1, "missed": 3}
    assert asyncio.run(follow(5)) == {"seq": 5, "after": 5, "missed": 0}
    assert asyncio.run(follow(100)) == {"seq": 6, "after": 100, "missed": None}


def test_a_client_that_comes_again_receives_what_it_missed(runtime: Runtime) -> None:
    async def follow() -> None:
        feed = Feed(runtime)
        stream = feed.follow()
        change(runtime, 2)
        await take(stream, 1)
        await stream.aclose()
        change(runtime, 2)
        for after in (2, 3, 4):
            again = feed.follow(after)
            assert await take(again, 1) == [("ready", {"seq": after, "after": after, "missed": 0})]
            change(runtime, 1)
            seqs = [data["seq"] for _, data in await take(again, runtime.seq - after)]
            assert seqs == list(range(after + 1, runtime.seq + 1))
            await again.aclose()
        assert (await take(feed.follow(1), 1))[0][1] == {"seq": 7, "after": 1, "missed": 6}

    asyncio.run(follow())


def test_a_client_that_comes_again_learns_of_another_model(runtime: Runtime) -> None:
    async def follow() -> None:
        feed = Feed(runtime)
        stream = feed.follow()
        await take(stream, 1)
        change(runtime, 1)
        feed._tell_switch(Switch(1, "second", "engine"))
        change(runtime, 1)
        again = feed.follow(1)
        assert [(name, data["seq"]) for name, data in await take(again, 3)] == [
            ("ready", 1),
            ("model", 1),
            ("change", 2),
        ]
        await stream.aclose()
        await again.aclose()

    asyncio.run(follow())


def test_a_slow_client_is_told_what_it_lost(runtime: Runtime) -> None:
    async def follow() -> None:
        feed = Feed(runtime, history_bytes=0)  # the newest change alone is kept
        slow, fast = feed.follow(), feed.follow()
        await take(slow, 1)
        await take(fast, 1)
        for _ in range(8):
            change(runtime, 1)
            await take(fast, 1)
        assert feed.dropped == 7
        events = await take(slow, 2)
        assert events[0] == ("lagged", {"seq": 7, "dropped": 7, "since": 0})
        assert events[1][1]["seq"] == 8
        assert feed.dropped == 7
        change(runtime, 1)
        assert [data["seq"] for _, data in await take(slow, 1)] == [9]

    asyncio.run(follow())


def test_a_client_is_told_of_a_batch_whose_changes_nobody_wanted(runtime: Runtime) -> None:
    """It comes between the question whether they are wanted and their publication, and resumes."""

    async def follow() -> None:
        feed = Feed(runtime, resume=0.0)
        feed._is_wanted()
        bell, reader, ready = feed._enter(asyncio.get_running_loop(), 0)
        assert ready == {"seq": 0, "after": 0, "missed": 0}
        feed._publish(Change(1, np.empty(0, np.int64), np.empty((0, 3), np.float32), 0, 0.0))
        assert feed._take(reader).startswith(b"event: lagged\nid: 1\n")
        feed._leave(bell, reader)

    asyncio.run(follow())


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.integers(0, 8), max_size=50), kept=st.sampled_from([0, 2000, 1 << 20]))
def test_clients_that_come_and_go_receive_each_change_once_or_are_told_that_it_is_lost(
    steps: list[int], kept: int
) -> None:
    """0 to 2: a batch; otherwise one of three clients connects or reads, or goes."""
    with TemporaryDirectory() as folder, closing(SqliteLog(Path(folder) / "events.db")) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
        made: list[Change] = []
        runtime.subscribe(made.append)
        feed = Feed(runtime, history_bytes=kept)
        known: list[int | None] = [None] * 3
        streams: list[AsyncIterator[bytes] | None] = [None] * 3

        async def read(which: int) -> None:
            stream = streams[which]
            if stream is None:
                after = known[which]
                stream = streams[which] = feed.follow(after)
                ((_, ready),) = await take(stream, 1)
                if after is not None:
                    assert ready["after"] == after
                    assert ready["seq"] == after + ready["missed"]
                known[which] = ready["seq"]
            elif known[which] < runtime.seq:
                ((name, told),) = await take(stream, 1)
                if name == "lagged":
                    assert told == {
                        "seq": told["seq"],
                        "dropped": told["seq"] - known[which],
                        "since": known[which],
                    }
                else:
                    change = made[known[which]]  # each batch here is one event
                    assert told["seq"] == change.seq == known[which] + 1
                    assert told["ids"] == change.ids.tolist()
                    assert np.array_equal(np.array(told["predictions"], np.float32), change.predictions)
                known[which] = told["seq"]

        async def follow() -> None:
            for step in steps:
                which = step % 3
                if step < 3:
                    change(runtime, 1)
                elif step < 7:
                    await read(which)
                elif (stream := streams[which]) is not None:
                    await stream.aclose()
                    streams[which] = None
            for which in range(3):
                await read(which)
                while known[which] < runtime.seq:
                    await read(which)

        asyncio.run(follow())


def test_a_client_receives_what_it_has_chosen(runtime: Runtime) -> None:
    """Its place is sent in a silence, or it would resume far back."""

    async def follow() -> None:
        feed = Feed(runtime, heartbeat=0.001)
        first, other = feed.follow(chosen=ChosenChanges([0])), feed.follow(chosen=ChosenChanges([999]))
        await take(first, 1)
        await take(other, 1)
        change(runtime, 2)
        for seq in (1, 2):
            ((name, told),) = await take(first, 1)
            assert (name, told["seq"], told["ids"], len(told["predictions"])) == ("change", seq, [0], 1)
        assert await anext(other) == b": still here\n\nid: 2\n\n"

    asyncio.run(follow())


def test_silence_is_filled_with_comments(runtime: Runtime) -> None:
    async def follow() -> None:
        stream = Feed(runtime, heartbeat=0.001).follow()
        await take(stream, 1)
        assert await anext(stream) == b": still here\n\n"

    asyncio.run(follow())


def test_closing_ends_the_streams(runtime: Runtime) -> None:
    async def follow() -> None:
        feed = Feed(runtime)
        stream = feed.follow()
        await take(stream, 1)
        feed.close()
        assert [event async for event in stream] == []

    asyncio.run(follow())


def test_waiting_ends_when_the_event_is_visible(runtime: Runtime) -> None:
    async def wait() -> None:
        feed = Feed(runtime)
        await feed.wait(0, PATIENCE)
        waiters = [asyncio.create_task(feed.wait(seq, PATIENCE)) for seq in (1, 2, 2)]
        await asyncio.sleep(0)
        change(runtime, 1)
        await waiters[0]
        assert not waiters[1].done()
        change(runtime, 1)
        await asyncio.gather(*waiters)

    asyncio.run(wait())


def test_an_event_may_become_visible_while_its_waiter_is_made_known(tmp_path: Path) -> None:
    class Overtaking(Runtime):
        """Becomes newer each time it is asked how new it is."""

        @property
        def seq(self) -> int:
            before = super().seq
            self.step()
            return before

    log = SqliteLog(tmp_path / "events.db")
    graph = make_graph()
    runtime = Overtaking(log, graph, Engine(graph, make_model(), threads=1))
    feed = Feed(runtime)
    runtime.append(Events().add_nodes(100))
    asyncio.run(feed.wait(1, PATIENCE))
    log.close()


def test_waiting_ends_after_the_timeout(runtime: Runtime) -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutExpired, match=r"event 1 must be visible within 0.001 seconds, got to 0"):
            await Feed(runtime).wait(1, 0.001)

    asyncio.run(wait())


def test_closing_ends_the_waiting(runtime: Runtime) -> None:
    """Or a server that is told to stop would wait for its waiters, and then cut them off."""

    async def wait() -> None:
        feed = Feed(runtime)
        waiting = asyncio.create_task(feed.wait(1, PATIENCE))
        await asyncio.sleep(0)  # until it waits
        feed.close()
        with pytest.raises(ProcessStops, match="event 1 must be visible, got to 0: the process stops"):
            await waiting
        with pytest.raises(ProcessStops, match="the process stops"):
            await feed.wait(1, PATIENCE)
        change(runtime, 1)
        await feed.wait(1, PATIENCE)

    asyncio.run(wait())


def test_a_signal_may_close_the_feed_while_its_lock_is_held(runtime: Runtime) -> None:
    feed = Feed(runtime)
    with feed._lock:
        feed.close()


def test_nobody_waits_for_a_loop_that_has_ended(runtime: Runtime) -> None:
    runtime.log.append(Events().add_nodes(100))
    runtime.log.record_batch(Batch(0, 1))
    runtime.start()
    with pytest.raises(LiveGNNError):
        runtime.wait(1, PATIENCE)
    runtime.stop()
    with pytest.raises(LiveGNNError, match="event 1 will not be visible"):
        asyncio.run(Feed(runtime).wait(1, PATIENCE))


def test_waiting_ends_with_the_loop(runtime: Runtime) -> None:
    async def wait() -> None:
        feed = Feed(runtime)
        waiter = asyncio.create_task(feed.wait(2, PATIENCE))
        await asyncio.sleep(0)  # to the waiter
        runtime.log.append(Events().add_nodes(100))
        runtime.log.record_batch(Batch(0, 1))
        runtime.start()
        with pytest.raises(LiveGNNError, match="event 2 will not be visible: the runtime ended at event 0"):
            await waiter
        runtime.stop()

    asyncio.run(wait())


def test_a_client_whose_loop_is_gone_is_forgotten(runtime: Runtime) -> None:
    feed = Feed(runtime)
    stream = feed.follow()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    assert feed.clients == 1
    loop.close()
    change(runtime, 1)
    assert feed.clients == 0


def test_predictions_are_read_only_while_a_client_follows(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict, read = Engine.predict, list[int]()

    def note(engine: Engine, ids: np.ndarray, *, output: str | None = None) -> np.ndarray:
        read.append(runtime.seq)
        return predict(engine, ids, output=output)

    monkeypatch.setattr(Engine, "predict", note)

    async def follow() -> None:
        feed = Feed(runtime, resume=0.0)
        waiter = asyncio.create_task(feed.wait(1, PATIENCE))
        await asyncio.sleep(0)
        change(runtime, 1)
        await waiter
        assert read == []
        stream = feed.follow()
        await take(stream, 1)
        change(runtime, 1)
        assert 0 in (await take(stream, 1))[0][1]["ids"]
        await stream.aclose()
        change(runtime, 1)
        assert read == [2]

    asyncio.run(follow())


def test_a_client_is_not_told_of_a_batch_that_ready_has(runtime: Runtime) -> None:
    """It comes when a batch is visible, and the runtime has not published it yet: nobody wanted its ids."""

    async def follow() -> None:
        feed, told = Feed(runtime, resume=0.0), list[Change]()
        runtime.subscribe(told.append, wanted=lambda: False)
        change(runtime, 1)
        assert told[0].ids.tolist() == told[0].predictions.tolist() == []
        stream = feed.follow()
        assert await take(stream, 1) == [("ready", {"seq": 1})]
        feed._publish(told[0])
        change(runtime, 1)
        assert [data["seq"] for _, data in await take(stream, 1)] == [2]
        assert len(told[1].ids) == len(told[1].predictions) > 0  # since the client wants them
        await stream.aclose()

    asyncio.run(follow())
