"""A schema that grows by the log in Kafka, on a real broker: a start and a tail grow where the owner did."""

from pathlib import Path

import numpy as np
import pytest

from kafka_broker import Broker, needs_broker
from livegnn import Engine, Events, Growth
from livegnn.log.kafka import KafkaLog, create_topics
from livegnn.log.kafka.tail import KafkaTail
from livegnn.runtime import Runtime
from streams import make_graph, make_model, make_stream

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]


def test_a_growth_is_replayed_and_followed(broker: Broker, tmp_path: Path) -> None:
    create_topics(broker.servers, "grown", 2)
    log = KafkaLog(broker.servers, "grown")
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    for number, events in enumerate(make_stream(6)):
        if number == 3:
            runtime.grow(Growth(columns={"node": {"age": 0.5}}))
        runtime.append(events)
    while runtime.step():
        pass
    ids, mirror = graph.ids(), make_graph()
    tail = KafkaTail(broker.servers, "grown", "mirror", tmp_path)
    while mirror.seq < graph.seq:
        assert tail.wait(60, batches=True)
        for batch in tail.batches():
            mirror.apply(batch.events, seq=batch.batch.seq, trusted=True)
            tail.commit(batch.batch.seq)
    tail.close()
    runtime.stop()
    log.close()
    log = KafkaLog(broker.servers, "grown")
    start = make_graph()
    again = Runtime(log, start, Engine(start, make_model(), threads=1))
    for other in (mirror, start):
        assert other.schema == graph.schema
        assert np.array_equal(other.features(ids), graph.features(ids))
    assert again.predict(ids).values.tobytes() == runtime.engine.predict(ids).tobytes()
    log.close()


def test_events_keep_their_bytes() -> None:
    """A log of an earlier version has the same rows: only growths have a new version."""
    assert [events.to_bytes()[4] for events in make_stream(5)] == [1] * 5
    assert Events().grow(Growth(node_types={"tag": 0})).to_bytes()[4] == 8
