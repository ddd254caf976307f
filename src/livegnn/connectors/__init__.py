"""Sources: read streams that other systems write, into the log of a runtime (see docs/connectors.md).

The log stores the position of each source in one transaction with the source's events. So a message that is
delivered again is applied once, and nothing is lost when the process ends in any way. Kafka's client is
loaded with `livegnn.connectors.kafka` alone.
"""

from livegnn.arguments import check_int
from livegnn.errors import InputError
from livegnn.log import Log, Origin

__all__ = ["skip"]

_LARGEST = 2**63 - 1


def skip(log: Log, source: str, partition: int, offset: int) -> int:
    """Lets a source continue at `offset` of a partition; returns the offset at which it would have continued.

    The skipped messages are listed as one bad message. Raises InputError if the source has reached `offset`.
    """
    partition = check_int(partition, "partition", 0, _LARGEST)
    offset = check_int(offset, "offset", 1, _LARGEST)
    position = log.position(source, partition)
    first = 0 if position is None else position + 1
    if offset <= first:
        raise InputError(
            f"the offset to continue at must be after {first}, where the source {source!r} continues in "
            f"partition {partition}, got {offset}: no message is read twice"
        )
    skipped = InputError(f"messages {first} to {offset - 1} were skipped on request")
    log.append_all([skipped], None, [Origin(source, partition, offset - 1, b"")])
    return first
