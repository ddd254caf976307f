"""A process that owns a log in Kafka and appends to it from several threads until it is killed.

    python tests/kafka_writer.py SERVERS TOPIC FIRST ANSWERS

Each append has a number, from FIRST on, as its edge and its key. When it is acknowledged, a line with the
number and the sequence number goes to the file ANSWERS.
"""

import itertools
import os
import sys
import threading

from livegnn import Events
from livegnn.errors import LogError
from livegnn.log import Batch
from livegnn.log.kafka import KafkaLog

THREADS = 4


def edge(number: int) -> Events:
    """Events that only the append of this number has."""
    return Events().add_edges([number] * (1 + number % 3), [number + 1] * (1 + number % 3))


def main() -> None:
    servers, topic, first, answers = sys.argv[1:]
    log = KafkaLog(servers, topic)
    file = os.open(answers, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, b"ready\n")
    numbers = itertools.count(int(first))

    def write() -> None:
        while True:
            number = next(numbers)
            try:
                seq = log.append(edge(number), key=f"append {number}")
            except LogError as error:
                os.write(file, f"ended {error}\n".encode())
                return
            os.write(file, b"%d %d\n" % (number, seq))

    threads = [threading.Thread(target=write) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    end = log.batches(0)[-1].seq if log.batches(0) else 0
    while any(thread.is_alive() for thread in threads):
        if log.wait(end, 0.1):
            seq = log.entries(end, max_events=20)[-1].seq
            log.record_batch(Batch(end, seq))
            end = seq


if __name__ == "__main__":
    main()
