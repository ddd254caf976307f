"""The records that workers exchange through streams.

| stream | partitions | writer | records |
|---|---|---|---|
| `steps` | a sampling worker each | it | what it takes next, so that whoever replaces it takes the same |
| `references-K` | a sampling worker each | it, for sampling worker K | how far it is, and blocks |
| `samples-J` | a sampling worker each | it, for serving worker J | how far it is, and blocks |
| `requests` | a serving worker each, replicas included | it | a request for all that it needs |

docs/internals/presampling.md says what the numbers mean.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from livegnn.errors import LogError
from livegnn.log import Origin
from livegnn.log.streams import Record
from livegnn.workers.plan import WorkerPlan

STEPS: Final = "worker-steps"
REQUESTS: Final = "worker-requests"

BLOCKS: Final = "blocks"
ALL: Final = "all"
STEP: Final = "step"
REQUEST: Final = "request"

_LARGEST: Final = 8 << 20  # bytes of blocks in a record: one of Kafka may have 16 MiB
_HEADER: Final = 40  # bytes of a block's header
_SIZE: Final = struct.Struct("<I")  # of its records, at byte 24
_COUNT: Final = struct.Struct("<I")


def references_for(worker: int) -> str:
    """The stream of what other sampling workers tell sampling worker `worker`."""
    return f"worker-references-{worker}"


def samples_for(worker: int) -> str:
    """The stream of what sampling workers tell serving worker `worker`."""
    return f"worker-samples-{worker}"


def streams_of(plan: WorkerPlan) -> dict[str, int]:
    """All streams of a plan, and how many partitions each has."""
    each = plan.sampling_workers
    return {
        STEPS: each,
        REQUESTS: plan.serving_workers * plan.replicas,
        **{references_for(worker): each for worker in range(plan.sampling_workers)},
        **{samples_for(worker): each for worker in range(plan.serving_workers)},
    }


class Step(NamedTuple):
    """What a sampling worker takes: events up to `seq`; records of others up to these positions.

    received: of other sampling workers, by number. requests: of serving workers, by partition.
    """

    seq: int
    received: Mapping[int, int]
    requests: Mapping[int, int]

    def to_bytes(self) -> bytes:
        """As JSON."""
        return orjson.dumps([self.seq, sorted(self.received.items()), sorted(self.requests.items())])

    @classmethod
    def from_bytes(cls, payload: bytes) -> "Step":
        """Raises LogError for anything else."""
        try:
            seq, received, requests = orjson.loads(payload)
            return cls(int(seq), dict(received), dict(requests))
        except (ValueError, TypeError) as error:
            raise LogError(f"expected a step of a sampling worker, got {payload[:80]!r}") from error


def pack(numbers: Sequence[int], blocks: bytes) -> bytes:
    """Numbers that say how far a worker is, and blocks."""
    return _COUNT.pack(len(numbers)) + struct.pack(f"<{len(numbers)}q", *numbers) + blocks


def pack_all(numbers: Sequence[int], blocks: bytes, origin: Origin) -> list[Record]:
    """Records that together have these blocks. Only the last one says how far the worker is."""
    *parts, last = split(blocks)
    return [
        *(Record(BLOCKS, pack([], part), origin) for part in parts),
        Record(BLOCKS, pack(numbers, last), origin),
    ]


def split(blocks: bytes) -> list[bytes]:
    """Whole blocks, some megabytes at a time; of no blocks, one part that is empty."""
    parts, begin, at = [], 0, 0
    while at < len(blocks):
        end = at + _HEADER + _SIZE.unpack_from(blocks, at + 24)[0]
        if end - begin > _LARGEST and at > begin:
            parts.append(blocks[begin:at])
            begin = at
        at = end
    return [*parts, blocks[begin:]]


def unpack(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """What `pack` was given. Raises LogError for anything else."""
    try:
        (count,) = _COUNT.unpack_from(payload)
        numbers = struct.unpack_from(f"<{count}q", payload, _COUNT.size)
    except struct.error as error:
        raise LogError(f"expected a record of a worker, got {payload[:40]!r}") from error
    return numbers, payload[_COUNT.size + 8 * count :]
