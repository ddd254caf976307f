"""Another program that reads the log's file with SQLite of its own, and holds a transaction for long."""

import os
import random
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from faulty_world import FIRST_SEED, History, check_bits, replay, seed_shown
from livegnn import Engine
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from streams import make_graph, make_model, make_stream
from waiting import PATIENCE

READER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    if line == "begin\\n":
        connection.execute("BEGIN")
    elif line == "end\\n":
        connection.execute("COMMIT")
    print(*connection.execute("SELECT count(*), coalesce(max(seq), 0) FROM entries").fetchone(), flush=True)
"""


class Reader:
    """A process with Python's own sqlite3."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, os.fspath(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, what: str) -> tuple[int, int]:
        """What the reader sees: rows, and the last event."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        rows, last = self.process.stdout.readline().split()
        return int(rows), int(last)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + 2))
def test_appends_batches_trims_and_checkpoints_go_on_beside_it(tmp_path: Path, seed: int) -> None:
    draw, path = random.Random(seed), tmp_path / "events.db"
    history = History()
    policy = CheckpointPolicy(tmp_path / "checkpoints", every_events=100)
    stream = make_stream(300, seed=seed)
    with seed_shown(seed), closing(SqliteLog(path)) as log:
        graph = make_graph()
        runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1), checkpoints=policy)
        runtime.start()
        reader = Reader(path)
        seen: tuple[int, int] | None = None
        for number, events in enumerate(stream):
            history.send(str(number), events)
            history.tell(str(number), runtime.append(events, key=str(number)))
            if draw.random() < 0.1:
                now = reader.ask("begin" if seen is None else draw.choice(["look", "look", "end"]))
                if seen is None:
                    assert now[1] == history.last()
                    seen = now
                elif now != seen:
                    assert now[1] == history.last(), "it sees what it saw first until it ends"
                    seen = None
            if draw.random() < 0.02:
                runtime.wait(history.last(), PATIENCE)
                log.sync()
            if draw.random() < 0.01:
                reader.kill()
                reader, seen = Reader(path), None
        if seen is None:
            seen = reader.ask("begin")
        runtime.wait(history.last(), PATIENCE)
        runtime.stop()
        history.check(log)
        expected = replay(log)
        check_bits(runtime.engine, expected)
        assert list_checkpoints(policy.directory)
        assert log.trim(log.last_seq()) > 0, "rows go while somebody still reads them"
        assert reader.ask("look") == seen
    with closing(SqliteLog(path)) as log:  # the reader holds its transaction through a stop and a start
        make = {"engine": Engine.factory(make_model(), threads=1)}
        graph, views = restore(make, make_graph, directory=policy.directory, log=log)
        engine = views["engine"]
        assert isinstance(engine, Engine)
        runtime = Runtime(log, graph, engine)
        check_bits(engine, expected)
        seq = runtime.append(stream[0], key="0")
        assert seq == history.told["0"], "keys outlive what was trimmed"
        runtime.append(make_stream(301, seed=seed)[-1], key="more")
        while runtime.step():
            pass
        runtime.stop()
        assert reader.ask("look") == seen
        reader.kill()
    assert examine(path).problems == []
