"""A second server on the same log, at every moment of the first: there is one owner, and the other ends.

The log belongs to whoever holds its lock. A second start while somebody does ends with status 1 and says who
it is. One that comes when the first has gone serves. Between them nothing is lost.
"""

import random
import subprocess
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from faulty_world import FIRST_SEED, History, check_bits, replay, seed_shown
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
        super().kill()
        assert self.process.stderr is not None
        self.process.stderr.close()


def append(server: Server, history: History, entries: list[Events]) -> None:
    with httpx.Client(base_url=server.address, timeout=60) as client:
        for events in entries:
            key = str(len(history.sent))
            history.send(key, events)
            headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
            answer = client.post("/v1/events", content=events.to_json_lines(), headers=headers)
            assert answer.status_code == 200, answer.text
            history.tell(key, answer.json()["seq"])


def contend(
    deployment: Path, moment: str, draw: random.Random, history: History, stream: list[Events]
) -> None:
    """One first server and one second, until none is left."""
    first = Contender(deployment)
    serving = [first]
    if moment == "starts":
        time.sleep(draw.uniform(0, 0.5))  # which of them is the second is not known
        second = Contender(deployment)
        serving = [one for one in (first, second) if one.serves()]
        assert len(serving) == 1
    else:
        assert first.serves()
        append(first, history, [stream.pop() for _ in range(20)])
        if moment == "runs":
            assert not Contender(deployment).serves()
        elif moment == "stops":
            first.process.terminate()
            second = Contender(deployment)
            serving = [second] if second.serves() else []
            first.kill()
        else:
            second = Contender(deployment)
            time.sleep(draw.uniform(0, 3))
            first.kill()
            serving = [second] if second.serves() else []
    for server in serving:
        append(server, history, [stream.pop() for _ in range(5)])
        server.kill()


@pytest.mark.parametrize("moment", ["starts", "runs", "stops", "is killed"])
def test_there_is_one_owner_when_the_first(tmp_path: Path, moment: str) -> None:
    with seed_shown(FIRST_SEED):
        draw, history = random.Random(FIRST_SEED), History()
        deployment = write_deployment(tmp_path, every_events=50)
        contend(deployment, moment, draw, history, make_stream(100, seed=FIRST_SEED))
        with closing(SqliteLog(tmp_path / "events.db")) as log:
            history.check(log)
            assert len(log.entries(0)) == len(history.told)
        runtime = Deployment.read(deployment).open()
        while runtime.step():
            pass
        check_bits(runtime.engine, replay(runtime.log))
        runtime.stop()
        runtime.log.close()
