"""A runtime with a sink beside its engine, for tests of sinks."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from livegnn import Engine, Graph
from livegnn.connectors.sink import PredictionRows, Sink
from livegnn.connectors.sink_view import SinkView
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Nothing, Runtime, restore
from streams import make_graph, make_model
from waiting import wait_until


class Running:
    """The loop of the small example, with `sink`, in this process. beside: whether forked processes write its
    checkpoints. settings: of the `SinkView`."""

    def __init__(
        self, folder: Path, sink: Sink, *, text: bool = False, beside: bool = False, **settings: object
    ) -> None:
        settings.setdefault("every_seconds", 0.0)
        self.log = SqliteLog(folder / "events.db")
        policy = CheckpointPolicy(folder / "checkpoints", every_events=50, beside=beside)

        def make(graph: Graph, state: object) -> SinkView:
            return SinkView(graph, sink, state=state, **settings)

        graph, views = restore(
            {"engine": Engine.factory(make_model(), threads=1), "sink": make},
            lambda: make_graph(text=text),
            directory=policy.directory,
            log=self.log,
        )
        self.runtime = Runtime(self.log, graph, *views.values(), checkpoints=policy)
        self.view: SinkView = views["sink"]
        self.runtime.start()
        self.view.start(self.runtime)

    def append(self, *entries: object) -> None:
        for events in entries:
            self.runtime.append(events)
        self.runtime.wait(self.log.last_seq())
        with self.runtime.graph.writer:  # held until the views have published the batch
            pass

    def wait_until_sent(self) -> None:
        wait_until(lambda: not self.view.lag, "all rows are sent")

    def predictions(self) -> dict[int | str, np.ndarray]:
        """Those of the service, by id."""
        ids = self.runtime.graph.ids()
        return dict(zip(ids.tolist(), self.runtime.predict(ids).values, strict=True))

    def stop(self) -> None:
        self.runtime.stop()
        self.log.close()


class Recorder:
    """A sink that keeps all writes. before: called before each."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.writes: list[PredictionRows] = []
        self.closed = 0

    def write(self, rows: PredictionRows) -> None:
        self.before()
        self.writes.append(rows)

    def close(self) -> None:
        self.closed += 1

    def newest(self) -> dict[int | str, tuple[int, np.ndarray | None]]:
        """The event and the prediction of each node, None for a removed one."""
        return {
            id: (int(seq), None if removed else row)
            for rows in self.writes
            for id, seq, row, removed in zip(rows.ids, rows.seqs, rows.predictions, rows.removed, strict=True)
        }


class Register(Nothing):
    """Keeps the model that answers, as a folder of models does."""

    serving: str | None = None
    previous: str | None = None

    def __init__(self) -> None:
        self.switches = 0

    def serve(self, name: str, previous: str | None) -> None:
        self.serving, self.previous = name, previous
        self.switches += 1


class Table:
    """A sink that survives crashes. meanwhile: called in the next write. stores: the rows that it stores of
    that before it fails; None if it does not fail."""

    def __init__(self) -> None:
        self.rows: dict[int | str, tuple[int, str, np.ndarray | None]] = {}
        self.meanwhile: list[object] = []
        self.stores: int | None = None

    def write(self, rows: PredictionRows) -> None:
        assert len(set(rows.ids)) == len(rows.ids) == len(rows.seqs) == len(rows.predictions)
        calls, self.meanwhile = self.meanwhile, []
        for call in calls:
            call()
        stores, self.stores = self.stores, None
        every = zip(rows.ids, rows.seqs.tolist(), rows.predictions, rows.removed.tolist(), strict=True)
        for id, seq, prediction, removed in list(every)[:stores]:
            before = self.rows.get(id)
            assert before is None or before[0] <= seq, "the event of a node's rows never decreases"
            self.rows[id] = seq, rows.model, None if removed else prediction.copy()
        if stores is not None:
            raise ConnectionError("on purpose")

    def close(self) -> None:
        pass


def assert_equal(stored: dict[int | str, np.ndarray], running: Running) -> None:
    """The rows of a sink are the predictions of the service, bit by bit."""
    expected = running.predictions()
    assert stored.keys() == expected.keys()
    for id, row in expected.items():
        np.testing.assert_array_equal(np.asarray(stored[id], np.float32), row)
