"""The records that workers exchange through streams.

| stream | partitions | writer | records |
|---|---|---|---|
| `steps` | a sampling worker each | it | its next step, so that a replacement takes the same |
| `references-K` | a sampling worker each | it, for sampling worker K | how far it is, and blocks |
| `samples-J` | a sampling worker each | it, for serving worker J | how far it is, changes, and blocks |
| `requests-J-R` | one | replica R of serving worker J | requests for all; which changes it has |

Sampling workers of another number have streams of their own: the generation is in all names. The plan is in a
stream that all of them read: plan_record.py.
docs/internals/presampling.md explains the numbers.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import orjson

from livegnn.errors import LogError
from livegnn.log import Origin
from livegnn.log.streams import ReadableStream, Record, StoredRecord
from livegnn.workers.plan import WorkerPlan

ANEW: Final = (
    "Stop all workers, remove their checkpoints and the streams worker-* and plan, and let them read the log "
    "from its beginning"
)
"""The remedy after a loss of data that workers keep."""

BLOCKS: Final = "blocks"
ALL: Final = "all"
CHANGE: Final = "change"
END: Final = "end"
STEP: Final = "step"
REQUEST: Final = "request"
READY: Final = "ready"

_AT_ONCE: Final = 16 << 20  # bytes of records that are read
_LARGEST: Final = 8 << 20  # bytes of blocks in a record: one of Kafka may have 16 MiB
_MOST_DIGITS: Final = 19
_HEADER: Final = 40  # bytes of a block's header
_SIZE: Final = struct.Struct("<I")  # of its records, at byte 24
_COUNT: Final = struct.Struct("<I")

_Key = TypeVar("_Key")


def steps_of(generation: int) -> str:
    """The stream of the steps of sampling workers."""
    return f"worker-{generation}-steps"


def references_for(generation: int, worker: int) -> str:
    """The stream of records from other sampling workers to sampling worker `worker`."""
    return f"worker-{generation}-references-{worker}"


def samples_for(generation: int, worker: int) -> str:
    """The stream of records from sampling workers to serving worker `worker`."""
    return f"worker-{generation}-samples-{worker}"


def requests_of(generation: int, worker: int, replica: int) -> str:
    """The stream of records from a serving worker to sampling workers."""
    return f"worker-{generation}-requests-{worker}-{replica}"


def streams_of(generation: int, plan: WorkerPlan) -> dict[str, int]:
    """All streams of a plan, and how many partitions each has."""
    each = plan.sampling_workers
    return {
        steps_of(generation): each,
        **{references_for(generation, worker): each for worker in range(plan.sampling_workers)},
        **{samples_for(generation, worker): each for worker in range(plan.serving_workers)},
        **{
            requests_of(generation, worker, replica): 1
            for worker in range(plan.serving_workers)
            for replica in range(plan.replicas)
        },
    }


class Step(NamedTuple):
    """The inputs of one step: events up to `seq`; records of others up to these positions.

    received: of other sampling workers, by number. requests: of serving workers, by number and replica.
    states: how many of the plan. digest: of the log up to `seq`, where it is known.
    """

    seq: int
    received: Mapping[int, int]
    requests: Mapping[tuple[int, int], int]
    states: int
    digest: str | None = None

    def to_bytes(self) -> bytes:
        """As JSON."""
        asked = sorted([*key, at] for key, at in self.requests.items())
        return orjson.dumps([self.seq, sorted(self.received.items()), asked, self.states, self.digest])

    @classmethod
    def from_bytes(cls, payload: bytes) -> "Step":
        """Raises LogError for anything else."""
        try:
            seq, received, requests, states, digest = orjson.loads(payload)
            asked = {(worker, replica): at for worker, replica, at in requests}
            return cls(int(seq), dict(received), asked, int(states), digest)
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
    """Restores the arguments of `pack`. Raises LogError for other bytes."""
    try:
        (count,) = _COUNT.unpack_from(payload)
        numbers = struct.unpack_from(f"<{count}q", payload, _COUNT.size)
    except struct.error as error:
        raise LogError(f"expected a record of a worker, got {payload[:40]!r}") from error
    return numbers, payload[_COUNT.size + 8 * count :]


def read_new(stream: ReadableStream, after: int) -> Sequence[StoredRecord]:
    """Some of the records after a position, none if there is none. Raises LogError, and if the stream has
    lost what was read from it before.
    """
    last = stream.last_position()
    if last < after:
        raise LogError(
            f"a stream between workers must reach position {after}, which was read from it before, got one "
            f"that ends at {last}. {ANEW}"
        )
    return stream.records(after, max_bytes=_AT_ONCE) if last > after else []


def read_all(stream: ReadableStream) -> Sequence[StoredRecord]:
    """All records of a stream that is never trimmed. Raises LogError."""
    found: list[StoredRecord] = []
    last, at = stream.last_position(), 0
    while at < last and (some := stream.records(at)):  # in Kafka, what ends a stream may be no record
        found += some
        at = some[-1].position
    return found


def read_up_to(stream: ReadableStream, after: int, up_to: int) -> Sequence[StoredRecord]:
    """All records after a position up to another. Raises LogError if they are not there."""
    found: list[StoredRecord] = []
    while after < up_to:
        some = stream.records(after, max_bytes=_AT_ONCE)
        if not some:
            raise LogError(
                f"a stream between workers must reach position {up_to}, got one that ends before. {ANEW}"
            )
        found += [record for record in some if record.position <= up_to]
        after = some[-1].position
    return found


def last_of(records: Mapping[_Key, Sequence[StoredRecord]], before: Mapping[_Key, int]) -> dict[_Key, int]:
    """The position after these records of several streams, and where there are none that before."""
    return {key: several[-1].position if several else before[key] for key, several in records.items()}


class Levels:
    """The progress of all sampling workers, as far as one of them knows it: numbers of events, or numbers of
    changes of the plan.

    Level 0 is the number that a worker has taken. Level h + 1 is the least of its own level h and the levels
    h that the others have sent. So if an effect of a number up to level h passes from worker to worker at
    most h times, it was taken. An effect passes at most once for each hop: a sample refers to its neighbours,
    whose samples refer to theirs, and the last ones to features. The last level is a watermark.

    Thread safety: none.
    """

    def __init__(self, others: Iterable[int], hops: int, taken: int = 0) -> None:
        self.of = {other: [taken] * (hops + 1) for other in others}
        self._hops = hops

    def after(self, taken: int) -> list[int]:
        """The levels of a worker that has taken this much."""
        levels = [taken]
        for passes in range(self._hops):
            levels.append(min([levels[passes], *(told[passes] for told in self.of.values())]))
        return levels

    def to_json(self) -> list[list[int | list[int]]]:
        """For a checkpoint."""
        return [[other, list(told)] for other, told in self.of.items()]

    def load(self, given: Sequence[tuple[int, list[int]]]) -> None:
        """Restores the result of `to_json`."""
        self.of = {other: list(told) for other, told in given}


def nonce_of(record: StoredRecord) -> int | None:
    """The number of a request; None for a record that no serving worker has written."""
    return int(record.payload) if record.payload.isdigit() and len(record.payload) <= _MOST_DIGITS else None
