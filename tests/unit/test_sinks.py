"""Sinks where no server is needed: files, filters, the ids that a sink lacks, the thread, how it is shown."""

import asyncio
import json
import shutil
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import httpx
import numpy as np
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Engine, Events, Graph, InputError
from livegnn.connectors import unsent
from livegnn.connectors.json_lines_sink import JsonLinesFolder
from livegnn.connectors.parquet_sink import ParquetFolder
from livegnn.connectors.row_filter import RowFilter, SentRows
from livegnn.connectors.sink import PredictionRows
from livegnn.connectors.sink_view import SinkView
from livegnn.connectors.unsent import ListedNodes, Unsent
from livegnn.errors import FileFormatError
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.types import State
from scraped import scrape
from streams import WIDTH, make_graph, make_model, make_stream
from waiting import PATIENCE, wait_until
from with_sink import Recorder, Running, assert_equal


def rows_of(*rows: tuple[object, int, list[float] | None]) -> PredictionRows:
    ids, seqs, predictions = zip(*rows, strict=True)
    width = max(len(row or ()) for row in predictions) or 2
    numbers = [[np.nan] * width if row is None else row for row in predictions]
    removed = np.array([row is None for row in predictions])
    return PredictionRows("engine", "node", list(ids), np.array(seqs), np.array(numbers, np.float32), removed)


ROWS = rows_of((5, 7, [0.1, -2.0]), (6, 7, None), (8, 9, [float("nan"), float("inf")]))


def test_a_row_is_json() -> None:
    lines = [json.loads(line) for line in ROWS.lines()]
    assert lines == [
        {"seq": 7, "model": "engine", "id": 5, "prediction": [0.1, -2.0]},
        {"seq": 7, "model": "engine", "id": 6, "removed": True},
        {"seq": 9, "model": "engine", "id": 8, "prediction": [None, None]},
    ]


# -- files


def lines_in(folder: Path) -> list[object]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def test_lines_are_appended_and_files_are_rotated(tmp_path: Path) -> None:
    folder = JsonLinesFolder(tmp_path / "new" / "lines", rotate_bytes=300)
    for _ in range(5):
        folder.write(ROWS)
    folder.close()
    names = sorted(path.name for path in (tmp_path / "new" / "lines").iterdir())
    assert names == ["changes-00000001.jsonl", "changes-00000002.jsonl", "changes-00000003.jsonl"]
    assert len(lines_in(tmp_path / "new" / "lines")) == 15
    again = JsonLinesFolder(tmp_path / "new" / "lines", rotate_bytes=300)
    again.write(ROWS)
    again.close()
    assert len(list((tmp_path / "new" / "lines").iterdir())) == 3, "a file that is not full is continued"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_was_removed_is_made_again(tmp_path: Path, replaced: bool) -> None:
    """What is written to a file without a name is lost, and nothing would say so."""
    folder = JsonLinesFolder(tmp_path / "lines")
    folder.write(ROWS)
    shutil.rmtree(tmp_path / "lines")
    if replaced:
        (tmp_path / "lines").mkdir()
        (tmp_path / "lines" / "changes-00000001.jsonl").write_bytes(b"")
    folder.write(ROWS)
    folder.close()
    assert len(lines_in(tmp_path / "lines")) == 3


@given(st.binary(max_size=40), st.integers(0, 3))
def test_a_cut_line_is_removed_and_whole_ones_stay(
    tmp_path_factory: pytest.TempPathFactory, torn: bytes, whole: int
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    line = b'{"id":1}\n'
    kept = line * whole + torn[: torn.rfind(b"\n") + 1]
    (folder / "changes-00000001.jsonl").write_bytes(line * whole + torn)
    sink = JsonLinesFolder(folder)
    sink.write(ROWS)
    sink.close()
    content = (folder / "changes-00000001.jsonl").read_bytes()
    assert content == kept + b"".join(ROWS.lines())


def test_a_long_cut_line_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "changes-00000001.jsonl"
    path.write_bytes(b"{}\n" + b"x" * 200_000)
    sink = JsonLinesFolder(tmp_path)
    sink.write(ROWS)
    sink.close()
    assert path.read_bytes() == b"{}\n" + b"".join(ROWS.lines())


def test_a_write_that_fails_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = JsonLinesFolder(tmp_path)
    sink.write(ROWS)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: (_ for _ in ()).throw(OSError("the disk is gone")))
        with pytest.raises(OSError, match="gone"):
            sink.write(ROWS)
    with open(tmp_path / "changes-00000001.jsonl", "ab") as file:
        file.write(b'{"half')
    sink.write(ROWS)
    sink.close()
    assert len(lines_in(tmp_path)) == 9


def test_a_page_of_time_is_a_parquet_file(tmp_path: Path) -> None:
    now = datetime(2026, 11, 29, 23, 59, 58, tzinfo=UTC).timestamp()
    times = iter([now, now, now + 60])
    sink = ParquetFolder(tmp_path / "pages", clock=lambda: next(times))
    (tmp_path / "pages" / "date=2026-11-29").mkdir(parents=True)
    (tmp_path / "pages" / "date=2026-11-29" / ".x.parquet.partial").touch()
    sink.write(ROWS)
    sink.write(rows_of((5, 9, [0.25, 0.75])))
    sink.write(rows_of((5, 12, None)))
    sink.close()
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == [
        "date=2026-11-29",
        "date=2026-11-30",
    ]
    assert not list((tmp_path / "pages").rglob("*.partial"))
    table = ds.dataset(tmp_path / "pages", partitioning="hive").to_table().sort_by([("seq", "ascending")])
    assert table.num_rows == 5
    (first, *_, last) = table.to_pylist()
    assert first["model"] == "engine"
    assert (last["id"], last["seq"], last["prediction"]) == (5, 12, None)
    assert last["time"] == datetime(2026, 11, 30, 0, 0, 58, tzinfo=UTC)
    sink = ParquetFolder(tmp_path / "texts")
    sink.write(rows_of(("a", 1, [0.5, 0.5]), ("ä", 1, None)))
    assert ds.dataset(tmp_path / "texts").to_table()["id"].to_pylist() == ["a", "ä"]


# -- filters


@pytest.mark.parametrize(
    ("filter", "sent", "now", "passes"),
    [
        (RowFilter(class_changed=True), [0.2, 0.8], [0.4, 0.6], False),
        (RowFilter(class_changed=True), [0.2, 0.8], [0.6, 0.4], True),
        (RowFilter(threshold=0.5), [0.2, 0.8], [0.49, 0.8], False),
        (RowFilter(threshold=0.5), [0.2, 0.8], [0.5, 0.8], True),
        (RowFilter(threshold=0.5, column=1), [0.2, 0.8], [0.6, 0.7], False),
        (RowFilter(threshold=0.5, column=1), [0.2, 0.8], [0.6, 0.4], True),
        (RowFilter(moved_by=0.5), [2.0, -4.0], [3.0, -6.0], False),
        (RowFilter(moved_by=0.5), [2.0, -4.0], [3.0, -6.5], True),
        (RowFilter(moved_by=0.5), [0.0, 1.0], [1e-9, 1.0], True),
        (RowFilter(moved_by=0.5), [np.nan, 1.0], [np.nan, 1.0], True),
        (RowFilter(moved_by=0.5), [np.inf, 1.0], [1.0, 1.0], True),
        (RowFilter(moved_by=0.5), [np.inf, 1.0], [-np.inf, 1.0], True),
        (RowFilter(moved_by=0.5), [1.0, 1.0], [-np.inf, 1.0], True),
        (RowFilter(moved_by=0.5, class_changed=True), [0.5, 0.4], [0.4, 0.5], True),
    ],
)
def test_what_passes_a_filter(filter: RowFilter, sent: list[float], now: list[float], passes: bool) -> None:
    assert filter.passes(np.array([now], np.float32), np.array([sent], np.float32)).tolist() == [passes]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "must have class_changed, threshold or moved_by, got none"),
        ({"threshold": np.nan}, "threshold must be a finite number, got nan"),
        ({"moved_by": -0.1}, "moved_by must be"),
        ({"class_changed": True, "column": 1}, "column is that of threshold"),
        ({"class_changed": True, "column": -1}, "column must be an integer"),
    ],
)
def test_wrong_filters_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        RowFilter(**settings)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(-9, 9) | st.none()), max_size=60),
    st.booleans(),
)
def test_rows_that_were_sent_are_as_in_a_dict(steps: list[tuple[int, int | None]], text: bool) -> None:
    sent, oracle = SentRows(), dict[object, float]()
    for number, value in steps:
        id = f"n{number}" if text else number
        if value is None:
            oracle.pop(id, None)
            sent.forget(unsent.join([ListedNodes(np.array([id]))], text=text))
        else:
            oracle[id] = value
            sent.note([id], np.array([[value]], np.float32))
    again = SentRows()
    again.load(sent.save(text=text), text=text)
    for one in (sent, again):
        ids = [f"n{number}" for number in range(31)] if text else list(range(31))
        known, rows = one.find(ids, 1)
        found = dict(
            zip([id for id, there in zip(ids, known, strict=True) if there], rows[:, 0], strict=True)
        )
        assert found == oracle
        assert len(one) == len(oracle)


# -- the ids that a sink lacks


def test_unsent_ids_take_the_room_of_the_distinct_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "_LEAST_FOLDED", 10)
    one = Unsent(text=False)
    for batch in range(1000):
        one.add(ListedNodes(np.array([batch % 7, 3])), now=float(batch))
        assert one.count(0) <= 2 * 7 + 10
    assert one.oldest() == 0.0
    parts, everything = one.gather()
    one.add(ListedNodes(np.array([3])), now=1000.0)
    assert not everything
    one.gathered(unsent.join(parts, text=False))
    assert one.take(4).tolist() == [0, 1, 2, 3]
    one.put_back()
    assert one.take(4).tolist() == [0, 1, 2, 3]
    assert unsent.load_ids("unsent", one.save(), text=False).tolist() == list(range(7))
    one.acknowledge()
    assert (one.left, one.oldest()) == (3, 0.0)
    assert unsent.load_ids("unsent", one.save(), text=False).tolist() == [3, 4, 5, 6]
    one.take(9)
    one.acknowledge()
    assert (one.left, one.oldest(), one.count(0)) == (0, 1000.0, 1)


def test_a_forked_process_needs_no_texts_of_this_one() -> None:
    class Named:
        """As `Update`, whose ids are looked up when they are first read."""

        num_changed = 1
        reads = 0

        @property
        def changed(self) -> np.ndarray:
            self.reads += 1
            return np.array(["a"])

    first, second = Named(), Named()
    one = Unsent(text=True)
    one.add(first, now=0.0)
    one.gather()
    one.add(second, now=0.0)
    one.settle()
    assert (first.reads, second.reads) == (1, 1)
    assert unsent.load_ids("unsent", one.save(), text=True).tolist() == ["a"]


def test_what_could_not_be_gathered_is_lacked_still() -> None:
    one = Unsent(text=True)
    one.add(ListedNodes(np.array(["a", "b"])), now=1.0)
    one.add_everything(now=2.0)
    one.gather()
    assert (one.everything, one.waits, one.count(100)) == (True, False, 102)
    one.add(ListedNodes(np.array(["c"])), now=3.0)
    one.give_back()
    assert (one.everything, one.waits, one.count(100), one.oldest()) == (True, True, 103, 1.0)
    assert unsent.load_ids("unsent", one.save(), text=True).tolist() == ["a", "b", "c"]


# -- the view


def test_a_sink_has_what_the_service_answers(tmp_path: Path) -> None:
    recorder = Recorder()
    running = Running(tmp_path, recorder, most_rows=7)
    running.append(*make_stream(60))
    running.wait_until_sent()
    newest = recorder.newest()
    assert_equal({id: row for id, (_, row) in newest.items() if row is not None}, running)
    assert any(row is None for _, row in newest.values()), "removed nodes"
    assert all(len(rows.ids) <= 7 for rows in recorder.writes)
    assert running.view.sent == sum(len(rows.ids) for rows in recorder.writes)
    running.stop()
    assert recorder.closed == 1
    assert running.runtime.sinks == {}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_any_error_of_a_sink_is_one_of_its_writes(tmp_path: Path, error: type[BaseException]) -> None:
    errors = [error("first"), error("second")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    recorder = Recorder(fail)
    running = Running(tmp_path, recorder)
    running.append(*make_stream(10))
    running.wait_until_sent()
    assert_equal({id: row for id, (_, row) in recorder.newest().items() if row is not None}, running)
    assert (running.view.failures, running.view.waits) == (2, None)
    running.stop()


def test_a_write_that_does_not_end_is_shown(tmp_path: Path) -> None:
    now, ends = [100.0], threading.Event()
    recorder = Recorder(lambda: ends.wait(PATIENCE))
    running = Running(tmp_path, recorder, clock=lambda: now[0])
    running.append(*make_stream(10))
    wait_until(lambda: running.view._writes_since is not None)
    assert running.view.waits is None
    now[0] += 7
    assert running.view.waits == "a write has not ended for 7 seconds"
    ends.set()
    running.wait_until_sent()
    assert running.view.waits is None
    running.stop()


def test_a_dead_sink_delays_no_batch_and_is_shown(tmp_path: Path) -> None:
    reason: list[Exception] = [ConnectionError("no route to the table")]

    def fail() -> None:
        if reason:
            raise reason[0]

    recorder = Recorder(fail)
    running = Running(tmp_path, recorder)
    running.append(*make_stream(30))
    wait_until(lambda: running.view.waits)
    app = create_app(running.runtime)

    async def read(path: str) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.get(path)

    answer = asyncio.run(read("/healthz"))
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
    stand = answer.json()["sinks"]["sink"]
    assert (stand["status"], stand["reason"]) == ("waits", "no route to the table")
    assert stand["lag"] > 0
    assert stand["oldest_seconds"] > 0
    found = scrape(asyncio.run(read("/metrics")).text)
    assert found['livegnn_sink_waits{sink="sink"}'] == 1
    assert found['livegnn_sink_lag_rows{sink="sink"}'] > 0
    assert found['livegnn_sink_lag_seconds{sink="sink"}'] > 0
    assert found['livegnn_sink_rows_total{sink="sink"}'] == 0
    assert found['livegnn_sink_failed_writes_total{sink="sink"}'] > 0
    reason.clear()
    running.wait_until_sent()
    assert running.view.waits is None
    assert_equal({id: row for id, (_, row) in recorder.newest().items() if row is not None}, running)
    assert asyncio.run(read("/healthz")).json()["sinks"]["sink"] == {
        "status": "ok",
        "lag": 0,
        "oldest_seconds": 0.0,
    }
    running.stop()


def test_a_sink_that_hangs_delays_no_batch_and_no_checkpoint(tmp_path: Path) -> None:
    free, inside = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        free.wait(PATIENCE)

    running = Running(tmp_path, Recorder(hang))
    assert inside.wait(PATIENCE)
    running.append(*make_stream(60))
    running.runtime._checkpoints.write(running.runtime.seq)
    assert running.runtime._checkpoints.failure is None
    assert running.view.lag >= 40
    free.set()
    running.wait_until_sent()
    running.stop()


def test_forked_processes_write_checkpoints_while_texts_are_sent(tmp_path: Path) -> None:
    recorder = Recorder()
    running = Running(tmp_path, recorder, text=True, beside=True, filter=RowFilter(moved_by=0.0), most_rows=3)
    for events in make_stream(150, text=True):
        running.runtime.append(events)
    running.append(Events().add_nodes(["last"], np.ones((1, WIDTH))))
    running.wait_until_sent()
    assert_equal({id: row for id, (_, row) in recorder.newest().items() if row is not None}, running)
    running.stop()
    assert running.runtime._checkpoints.failure is None
    assert running.runtime.statistics.checkpoint_seconds.count > 1
    assert not running.runtime.statistics.failed_checkpoint_seconds.count


def test_a_clean_stop_sends_what_is_lacked(tmp_path: Path) -> None:
    recorder = Recorder()
    running = Running(tmp_path, recorder, every_seconds=3600.0)
    wait_until(lambda: not running.view.lag)
    running.append(*make_stream(20))
    expected = running.predictions()
    running.stop()
    stored = {id: row for id, (_, row) in recorder.newest().items() if row is not None}
    assert stored.keys() == expected.keys()
    assert all(np.array_equal(stored[id], expected[id]) for id in expected)


def test_a_sink_that_has_everything_is_sent_nothing_after_a_restart(tmp_path: Path) -> None:
    running = Running(tmp_path, Recorder())
    running.append(*make_stream(20))
    running.wait_until_sent()
    # A checkpoint may have been due with the last of these events, before the sink had everything. None is
    # due with one more, so the stop writes another.
    running.append(Events().set_features([1], np.ones((1, WIDTH))))
    running.wait_until_sent()
    running.stop()
    second = Recorder()
    running = Running(tmp_path, second)
    running.wait_until_sent()
    assert second.writes == []
    running.append(Events().set_features([0], np.ones((1, WIDTH))))
    running.wait_until_sent()
    assert 0 in second.newest()
    running.stop()


def test_with_another_filter_everything_is_sent_again(tmp_path: Path) -> None:
    for filter in (None, RowFilter(moved_by=0.1), RowFilter(moved_by=0.2)):
        recorder = Recorder()
        running = Running(tmp_path, recorder, filter=filter)
        running.wait_until_sent()
        assert len(recorder.newest()) == 40
        running.stop()


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    graph = make_graph()
    with pytest.raises(InputError, match="graph must be a Graph, got int"):
        SinkView(3, Recorder())
    with pytest.raises(InputError, match="sink must have the methods write and close, got list"):
        SinkView(graph, [])
    for settings in ({"every_seconds": -1.0}, {"most_rows": 0}):
        with pytest.raises(InputError, match="must be"):
            SinkView(graph, Recorder(), **settings)
    for state in (State({}, {}), State({"kind": "sink", "version": 1, "seq": 0, "model": None}, {})):
        with pytest.raises(FileFormatError, match="expected the"):
            SinkView(graph, Recorder(), state=state)
    running = Running(tmp_path, Recorder())
    with pytest.raises(InputError, match="was started already"):
        running.view.start(running.runtime)
    with pytest.raises(InputError, match="runtime must be that of the sink's view"):
        SinkView(graph, Recorder()).start(running.runtime)
    running.stop()


def test_a_filter_must_fit_the_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column must be one of 3 of a prediction, got 3"):
        Running(tmp_path, Recorder(), filter=RowFilter(threshold=0.5, column=3))


def test_a_runtime_without_an_engine_has_nothing_to_send(tmp_path: Path) -> None:
    from livegnn.log.sqlite import SqliteLog

    graph, log = Graph(), SqliteLog(tmp_path / "log.db")
    view = SinkView(graph, Recorder())
    runtime = Runtime(log, graph, view)
    with pytest.raises(InputError, match="no engine"):
        view.start(runtime)
    runtime.stop()
    log.close()


def test_a_switch_without_events_is_sent(tmp_path: Path) -> None:
    recorder = Recorder()
    running = Running(tmp_path, recorder)
    running.wait_until_sent()
    running.runtime.models.deploy("better", make_model(9))
    running.runtime.models.switch("better")
    wait_until(lambda: recorder.writes[-1].model == "better")
    running.wait_until_sent()
    assert_equal({id: row for id, (_, row) in recorder.newest().items()}, running)
    assert isinstance(running.runtime.models.engine, Engine)
    running.stop()


@pytest.mark.parametrize("everything", [False, True])
def test_a_count_without_the_lock_misses_nothing(everything: bool) -> None:
    """Ids move on before any instruction of a count, as another thread may move them."""
    instructions = 0
    for first in range(4):
        for last in range(first, 4):
            at, passed = 0, 1
            while at < passed:
                number, passed = count_while_ids_move(everything, first, last, at)
                assert number > 0, (first, last, at)
                instructions, at = max(instructions, passed), at + 1
    assert instructions > 20, "instructions are traced"


def count_while_ids_move(everything: bool, first: int, last: int, at: int) -> tuple[int, int]:
    """The count of an id that is at the step `first`, and moves on to the step `last` before instruction
    `at`; and the number of instructions."""
    one, seen = Unsent(text=False), 0
    if everything:
        one.add_everything(now=0.0)
    else:
        one.add(ListedNodes(np.array([2])), now=0.0)
    steps = [one.gather, lambda: one.gathered(np.array([2])), lambda: one.take(9)]
    for step in steps[:first]:
        step()

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            if seen == at:
                for step in steps[first:last]:
                    step()
            seen += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        return one.count(1), seen
    finally:
        sys.settrace(before)
