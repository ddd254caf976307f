"""A sink of a graph in parts, of which one dies: it has the predictions of the service."""

import json
import os
import signal
from pathlib import Path

import numpy as np

from divided_deployment import opened, write
from livegnn import Events
from livegnn.deployment.sinks import start_sinks
from livegnn.runtime import Runtime
from streams import make_arrays, make_stream
from waiting import wait_until

SINK = """
[checkpoint]
directory = "checkpoints"

[sinks.lines]
kind = "jsonlines"
directory = "lines"
every_seconds = 0.0
"""


def first() -> Events:
    """The nodes and edges of the small example."""
    arrays = make_arrays()
    events = Events().add_nodes(arrays["ids"], arrays["x"])
    return events.add_edges(arrays["src"], arrays["dst"], weight=arrays["weight"])


def records_in(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_bytes().splitlines()]


def compare(runtime: Runtime, folder: Path) -> None:
    """Waits until all is sent, and compares it with the service, to the bit."""
    with runtime.graph.writer:
        pass
    wait_until(lambda: not runtime.sinks["lines"].lag)
    newest = {record["id"]: record for record in records_in(folder)}
    stored = {id: record["prediction"] for id, record in newest.items() if "removed" not in record}
    ids = runtime.graph.ids()
    assert stored.keys() == set(ids.tolist())
    rows = np.array([stored[id] for id in ids.tolist()], np.float32)
    np.testing.assert_array_equal(rows, runtime.predict(ids).values)


def test_a_sink_of_parts_has_what_they_answer(tmp_path: Path) -> None:
    path = write(tmp_path, "parts", 2, silent_seconds=2.0, more=SINK)
    stream = [first(), *make_stream(30)]
    with opened(path) as runtime:
        runtime.start()
        start_sinks(runtime)
        for events in stream[:15]:
            runtime.append(events)
        runtime.wait(runtime.log.last_seq())
        compare(runtime, tmp_path / "lines")
        os.kill(runtime.views["engine"].processes[0].pid, signal.SIGKILL)
        for events in stream[15:25]:
            runtime.append(events)
        runtime.wait(runtime.log.last_seq())
        compare(runtime, tmp_path / "lines")
        count = len(records_in(tmp_path / "lines"))
    with opened(path) as runtime:
        runtime.start()
        start_sinks(runtime)
        wait_until(lambda: not runtime.sinks["lines"].lag)
        assert len(records_in(tmp_path / "lines")) == count, "a clean restart sends nothing again"
        for events in stream[25:]:
            runtime.append(events)
        runtime.wait(runtime.log.last_seq())
        compare(runtime, tmp_path / "lines")
