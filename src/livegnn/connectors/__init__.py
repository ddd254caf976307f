"""Sources: events out of streams that others write, read into the log of a runtime (see docs/connectors.md).

The log keeps how far each was read, in one transaction with what came from it. So what is delivered again is
applied once, and whatever ends the process, nothing is lost. Kafka's client is loaded with
`livegnn.connectors.kafka` alone.
"""

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.log import Log, Origin

__all__ = ["skip"]

_LARGEST = 2**63 - 1


def skip(log: Log, source: str, partition: int, offset: int) -> int:
    """Lets a source go on at `offset` of a partition, without what comes before; returns where it would have.

    What is skipped is listed as one bad message. Raises InputError if the source is there already.
    """
    partition = check_int(partition, "partition", 0, _LARGEST)
    offset = check_int(offset, "offset", 1, _LARGEST)
    position = log.position(source, partition)
    first = 0 if position is None else position + 1
    if offset <= first:
        raise InputError(
            f"the offset to go on at must be after {first}, where the source {source!r} goes on in partition "
            f"{partition}, got {offset}: nothing is read twice"
        )
    skipped = InputError(f"messages {first} to {offset - 1} were skipped on request")
    log.append_all([skipped], None, [Origin(source, partition, offset - 1, b"")])
    return first
