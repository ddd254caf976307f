"""A second server on the same log, at every moment of the first: there is one owner, and the other ends.

The log belongs to whoever holds its lock. A second start while somebody does ends with status 1 and says who
it is. One that comes when the first has gone serves. Between them nothing is lost.
"""

import random
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import loopback
from faulty_world import FIRST_SEED, History, check_bits, replay, seed_shown
from gate import share
from livegnn import Events
from livegnn.deployment import Deployment
from livegnn.log.sqlite import SqliteLog
from serving import Server, write_deployment
from streams import make_stream


class Contender(Server):
    """A server of which it is not known yet whether it will serve."""

    def __init__(self, deployment: Path) -> None:
        super().__init__(deployment, stderr=subprocess.PIPE, wait=False)

    def serves(self) -> bool:
        """Whether it does; if it has ended, it says that another one has the log."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            self.address = line.split()[-1]
            return True
        assert self.process.stderr is not None
        said = self.process.stderr.read()
        assert (self.process.wait(), said.count("\n")) == (1, 1), said
        assert "must have one owner, got a second one: process" in said
        self.kill()
        return False

    def kill(self) -> None:
        """Again does nothing."""
        super().kill()
        assert self.process.stderr is not None
        self.process.stderr.close()


def append(server: Server, history: History, entries: list[Events]) -> None:
    with loopback.Client(base_url=server.address) as client:
        for events in entries:
            key = str(len(history.sent))
            history.send(key, events)
            headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
            answer = client.post("/v1/events", content=events.to_json_lines(), headers=headers)
            assert answer.status_code == 200, answer.text
            history.tell(key, answer.json()["seq"])


def contend(moment: str, start: Callable[[], Contender], draw: random.Random) -> list[Contender]:
    """A first server and a second; returns those that serve in the end."""
    first = start()
    if moment == "starts":
        time.sleep(draw.uniform(0, 0.5))  # which of them is the second is not known
        second = start()
        return [one for one in (first, second) if one.serves()]
    assert first.serves()
    if moment == "stops":
        first.process.terminate()
    second = start()
    if moment == "is killed":
        time.sleep(draw.uniform(0, 3))
        first.kill()
    seconds = [second] if second.serves() else []
    return [first, *seconds] if moment == "runs" else seconds


@pytest.mark.parametrize("moment", share(["starts", "runs", "stops", "is killed"], 1))
def test_there_is_one_owner_when_the_first(tmp_path: Path, moment: str) -> None:
    with seed_shown(FIRST_SEED):
        draw, history = random.Random(FIRST_SEED), History()
        deployment = write_deployment(tmp_path, every_events=50)
        stream = make_stream(100, seed=FIRST_SEED)
        with ExitStack() as started:

            def start() -> Contender:
                one = Contender(deployment)
                started.callback(one.kill)
                return one

            with closing(SqliteLog(tmp_path / "events.db")) as log:  # there is something to lose
                for number, events in enumerate(stream[:20]):
                    history.send(str(number), events)
                    history.tell(str(number), log.append(events, key=str(number)))
            serving = contend(moment, start, draw)
            assert len(serving) <= 1, "two serve on one log"
            assert serving or moment not in ("starts", "runs")
            for server in serving:
                append(server, history, stream[20:40])
        with closing(SqliteLog(tmp_path / "events.db")) as log:
            history.check(log)
            assert len(log.entries(0)) == len(history.told)
        runtime = Deployment.read(deployment).open()
        while runtime.step():
            pass
        check_bits(runtime.engine, replay(runtime.log))
        runtime.stop()
        runtime.log.close()
