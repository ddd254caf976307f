"""What a serving worker sees of sampling workers, on a real broker."""

from contextlib import closing
from pathlib import Path

import pytest

from kafka_broker import Broker, needs_broker
from kafka_writer import edge
from livegnn.log import Batch
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.streams import Record
from livegnn.workers import KafkaPlace
from livegnn.workers.messages import END, STEP, Step, steps_of
from livegnn.workers.progress import SILENT_SECONDS, Progress
from waiting import wait_until

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]


def test_a_worker_that_leaves_events_waiting_is_named(broker: Broker, tmp_path: Path) -> None:
    create_topics(broker.servers, "progress", 1)
    place = KafkaPlace(broker.servers, "progress", tmp_path)
    place.create({steps_of(0): 2})
    with (
        closing(KafkaLog(broker.servers, "progress")) as log,
        closing(place.write(steps_of(0), 0)) as quick,
        closing(place.write(steps_of(0), 1)) as dead,
        closing(Progress(place, 0, 2)) as found,
        closing(place.end()) as end,
    ):
        now, seq = 0.0, 0
        for number in range(2):  # both take all of it
            after, seq = seq, log.append(edge(number))
            log.record_batch(Batch(after, seq))
            for worker in (quick, dead):
                worker.append_all([Record(STEP, Step(seq, {}, {}, 0).to_bytes())])
        wait_until(lambda: end.read() == seq)
        reached = {0: 0, 1: 0}
        for _ in range(2 * int(SILENT_SECONDS)):
            found.look_if_due(now := now + 1, reached)
        assert not found.reasons()
        after, seq = seq, log.append(edge(9))
        log.record_batch(Batch(after, seq))
        quick.append_all([Record(STEP, Step(seq, {}, {}, 0).to_bytes())])

        def silent() -> bool:
            nonlocal now
            found.look_if_due(now := now + 1, reached)
            return bool(found.reasons())

        wait_until(silent)  # the end of the log arrives at some look
        told = found.reasons()["sampling"]
        assert "sampling worker 1 has" in told
        assert "worker 0" not in told
        assert f"events {after + 1} to {seq} " in told
        dead.append_all([Record(END, b"")])
        assert not silent()
