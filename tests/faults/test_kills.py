"""A served deployment that is killed at random moments, under writers that repeat what was not answered.

LIVEGNN_KILLS says how often. A kill comes while the server starts, under load (sometimes before a single
append, sometimes before the next checkpoint), or while the server stops.
"""

import os
import random
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import httpx

import loopback
from faulty_world import FIRST_SEED, History, check_bits, replay, seed_shown
from livegnn import Events
from livegnn.deployment import Deployment
from livegnn.log.sqlite import SqliteLog
from serving import Server, write_deployment
from streams import make_stream
from waiting import PATIENCE, REQUEST_SECONDS

KILLS = int(os.environ.get("LIVEGNN_KILLS", "2"))
WRITERS = 4
MOST_TOLD = 150  # appends between two kills


class Writers:
    """Threads that append until `stop`, each entry with a key, again until it is answered; some once more."""

    def __init__(self, seed: int, history: History) -> None:
        self.history = history
        self.address: str | None = None
        self.moved = threading.Condition()
        self.stopping = self.abandoned = False
        self.threads = [threading.Thread(target=self._run, args=(seed, n)) for n in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def move(self, address: str | None) -> None:
        """The server is there now, or nowhere."""
        with self.moved:
            self.address = address
            self.moved.notify_all()

    def stop(self) -> None:
        """Lets each thread have its answer, and end."""
        self.stopping = True
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert self.history.failures == []

    def abandon(self) -> None:
        """Lets threads end that wait for an answer, if any still do."""
        self.stopping = self.abandoned = True
        self.move("http://127.0.0.1:1")

    def _run(self, seed: int, number: int) -> None:
        draw = random.Random(f"{seed} {number}")
        try:
            with loopback.Client() as client:
                self._write(client, draw, seed, number)
        except BaseException as error:
            self.history.fail(error)

    def _write(self, client: httpx.Client, draw: random.Random, seed: int, number: int) -> None:
        for block in range(1000):
            stream = make_stream(200, seed=seed + 1000 * block + number)
            for at, events in enumerate(stream):
                if self.stopping:
                    return
                self._send(client, f"{number}/{block}/{at}", events)
                if draw.random() < 0.1:
                    again = f"{number}/{block}/{draw.randint(0, at)}"
                    self._send(client, again, self.history.sent[again])

    def _send(self, client: httpx.Client, key: str, events: Events) -> None:
        self.history.send(key, events)
        headers = {"content-type": "application/x-ndjson", "idempotency-key": key}
        content = events.to_json_lines()
        while True:
            with self.moved:
                assert self.moved.wait_for(lambda: self.address is not None, PATIENCE)
                address = self.address
            try:
                answer = client.post(f"{address}/v1/events", content=content, headers=headers)
            except httpx.TransportError:
                if self.abandoned:
                    return
                with self.moved:
                    if self.address == address:  # the next one begins at another port
                        self.moved.wait(1)
                continue
            assert answer.status_code == 200, answer.text
            self.history.tell(key, answer.json()["seq"])
            return


def live_and_die(deployment: Path, draw: random.Random, writers: Writers) -> str:
    """One life of the server; returns at what it was killed."""
    history, moment = writers.history, draw.choice(["start", "load", "load", "load", "stop"])
    before = history.last()
    server = Server(deployment, wait=False)
    try:
        if moment == "start":
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(draw.uniform(0, 3))
            return moment
        server.wait_until_ready()
        health = loopback.get(f"{server.address}/healthz").json()
        assert health["log_seq"] >= before, f"{before} was acknowledged, the server begins at {health}"
        writers.move(server.address)
        history.wait_for(len(history.told) + draw.choice([0, 1, *[draw.randrange(MOST_TOLD)] * 4]))
        writers.move(None)
        if moment == "stop":
            server.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(draw.uniform(0, 0.3))
        return moment
    finally:
        server.kill()


def test_no_kill_loses_or_repeats_what_was_acknowledged(tmp_path: Path) -> None:
    with seed_shown(FIRST_SEED):
        draw, history = random.Random(FIRST_SEED), History()
        deployment = write_deployment(tmp_path, every_events=150, max_batch_events=64)
        writers = Writers(FIRST_SEED, history)
        try:
            moments = [live_and_die(deployment, draw, writers) for _ in range(KILLS)]
            with Server(deployment) as server:
                writers.move(server.address)
                writers.stop()
                request = {"ids": [], "min_seq": history.last(), "timeout": REQUEST_SECONDS}
                loopback.post(f"{server.address}/v1/predictions", json=request).raise_for_status()
                server.kill()
        finally:
            writers.abandon()
        assert history.told.keys() == history.sent.keys()
        log = SqliteLog(tmp_path / "events.db")
        history.check(log)
        assert log.last_batch_seq() == log.last_seq()
        expected = replay(log)
        log.close()
        runtime = Deployment.read(deployment).open()
        check_bits(runtime.engine, expected)
        assert runtime.engine.verify().ok
        runtime.stop()
        runtime.log.close()
        print({moment: moments.count(moment) for moment in moments}, len(history.told), "entries")
