"""The contents of the control topic: the order in which messages were taken, and the batches that became
visible.

The control topic has one partition. Its records are JSON objects, each with `v`, the version, `type`, and
`epoch`, the owner that wrote it:

owner       a process that owns the log from here on; its epoch is one more than the previous one
order       messages that were taken after event `after`: `slices`, each a partition, its first offset, the
            offset after its last, and its number of events; `seq`, the last event; `again`, entries
            whose key or origin was known; `bad`, entries that could not be read; `keys`; `origins`, the last
            offset of each partition of another stream; `chain`, a digest of all
batch       `after` and `seq`: the events that became visible together; `rejection`: why they did not
property    `name` and `value`, see `Log.bind`
forget entries   `seq`: refused entries up to this event are not listed any more
forget messages  `sources`, `partition`, `offset`: bad messages of these up to this offset are not kept
base        all of the above at this point; the records before it may then be deleted

A record counts only if it continues where the records before it ended, and has the epoch of the present
owner. So two processes that both act as the owner cannot both write: every reader ignores the same records.
Thread safety: none.
"""

import itertools
import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from livegnn.errors import LogError
from livegnn.log import BadMessage, Batch, Rejection
from livegnn.log.arguments import LARGEST_SEQ
from livegnn.log.idempotency import Known, Partition, Reached, Unread
from livegnn.log.kafka.connection import Topics
from livegnn.log.kafka.message import to_row, to_unread
from livegnn.types import JSON

VERSION: Final = 1
_POINT_EVERY: Final = 65_536  # events
ANEW: Final = "begin another log, with the newest checkpoint as path of [graph]"
KEPT_BAD: Final = 1000
"""The number of bad messages that are kept, the newest: a base must fit into one record."""


class Slice(NamedTuple):
    """Messages of one partition that were taken one after the other: offsets from `first` to before `end`."""

    partition: int
    first: int
    end: int
    events: int


class Again(NamedTuple):
    """An entry that was not taken: entry `seq` had its key or origin; `error` if with other events."""

    partition: int
    offset: int
    entry: int
    seq: int
    error: str | None


class Bad(NamedTuple):
    """A message that could not be read. source: its source, None for the log's own topic."""

    source: str | None
    partition: int
    offset: int
    unread: Unread

    def to_json(self) -> list[JSON]:
        """As a record has it."""
        return [self.source, self.partition, self.offset, *to_row(self.unread)]


@dataclass(frozen=True)
class Order:
    """Messages in the order in which they were taken. chain: hexadecimal, of all messages up to these."""

    after: int
    seq: int
    slices: Sequence[Slice]
    again: Sequence[Again]
    bad: Sequence[Bad]
    keys: Sequence[Known]
    origins: Mapping[Partition, Reached]
    chain: str

    def to_json(self) -> dict[str, JSON]:
        """The fields of the record."""
        return {
            "type": "order",
            "after": self.after,
            "seq": self.seq,
            "slices": [list(one) for one in self.slices],
            "again": [list(one) for one in self.again],
            "bad": [one.to_json() for one in self.bad],
            "keys": [list(one) for one in self.keys],
            "origins": [[*place, *reached] for place, reached in self.origins.items()],
            "chain": self.chain,
        }


class Point(NamedTuple):
    """A point where reading can begin: after event `seq`, at `offset` of the control topic."""

    seq: int
    offset: int
    epoch: int
    chain: str
    positions: Mapping[int, int]


@dataclass
class History:
    """The state after the records up to offset `next` of the control topic.

    positions: the next offset to take, for each partition that any was taken of. keys: by key, the oldest
    first. bad: the newest bad messages, of `bad_count`, by number, without forgotten ones. forgotten: the
    event up to which refused entries are not listed. points: in order, every 65,536 events or so; bases: the
    records of this type.
    """

    next: int = 0
    epoch: int = 0
    owner: str = ""
    seq: int = 0
    chain: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    batch_ends: "array[int]" = field(default_factory=lambda: array("q", [0]))
    rejections: list[Rejection] = field(default_factory=list)
    forgotten: int = 0
    bad: dict[int, Bad] = field(default_factory=dict)
    bad_count: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    keys: dict[str, Known] = field(default_factory=dict)
    origins: dict[Partition, Reached] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    bases: list[Point] = field(default_factory=list)

    @classmethod
    def at(cls, point: Point) -> "History":
        """The state that is needed to follow the records from `point` on."""
        return cls(point.offset, point.epoch, "", point.seq, point.chain, dict(point.positions))

    def apply(self, value: bytes, offset: int) -> Order | None:
        """Takes the record at `offset` into account; returns the order if it is one that counts.

        Raises LogError for other bytes than a record.
        """
        try:
            record = json.loads(value)
            kind, epoch = record["type"], record["epoch"]
            if record["v"] != VERSION:
                raise LogError(f"a control record must be of version {VERSION}, got {record['v']}")
            self.next = offset + 1
            if kind == "owner":
                if epoch == self.epoch + 1:
                    self.epoch, self.owner = epoch, str(record["owner"])
            elif kind == "base":
                self._take_base(record, epoch, offset)
            elif epoch == self.epoch:
                return self._take(record, kind, offset)
        except (KeyError, TypeError, ValueError) as error:
            raise LogError(
                f"record {offset} of the control topic must be one of LiveGNN, got {value[:80]!r}: {error}. "
                "No other program may write there: stop it; then create the control topic again, with all "
                f"records but this one, in order; or {ANEW}"
            ) from error
        return None

    def _take(self, record: Mapping[str, JSON], kind: object, offset: int) -> Order | None:
        if kind == "order":
            order = _order(record)
            return order if self._take_order(order, offset) else None
        if kind == "batch":
            self._take_batch(record)
        elif kind == "property":
            self.properties[_text(record["name"])] = _text(record["value"])
        elif kind == "forget entries":
            # None of a later batch, which a base might not know.
            self.forgotten = max(self.forgotten, min(_whole(record["seq"]), self.batch_ends[-1]))
        elif kind == "forget messages":
            self._forget_messages(record)
        else:
            raise LogError(f"a control record must be of a known type, got {kind!r}: update livegnn")
        return None

    def _take_order(self, order: Order, offset: int) -> bool:
        if order.after != self.seq:
            return False
        positions = dict(self.positions)
        for part in order.slices:
            if positions.get(part.partition, part.first) > part.first:
                return False
            positions[part.partition] = part.end
        if not self.points or order.after >= self.points[-1].seq + _POINT_EVERY:
            self.points.append(Point(self.seq, offset, self.epoch, self.chain, dict(self.positions)))
        self.positions, self.seq, self.chain = positions, order.seq, order.chain
        self.bad.update(enumerate(order.bad, self.bad_count + 1))
        self.bad_count += len(order.bad)
        while len(self.bad) > KEPT_BAD:
            del self.bad[next(iter(self.bad))]
        for known in order.keys:
            self.keys[known.key] = known
        self.origins.update(order.origins)
        return True

    def _take_batch(self, record: Mapping[str, JSON]) -> None:
        after, seq = _whole(record["after"]), _whole(record["seq"])
        if after != self.batch_ends[-1] or not after < seq <= self.seq:
            return
        self.batch_ends.append(seq)
        single = record.get("rejection")  # of an older version
        rejected = _rows(record.get("rejections", []) if single is None else [single])
        for number, error, message in rejected:
            self.rejections.append(Rejection(_whole(number), _text(error), _text(message)))

    def _forget_messages(self, record: Mapping[str, JSON]) -> None:
        sources, partition, offset = record["sources"], _whole(record["partition"]), _whole(record["offset"])
        assert isinstance(sources, list)
        self.bad = {
            number: one
            for number, one in self.bad.items()
            if one.source not in sources or one.partition != partition or one.offset > offset
        }

    def check_begin(self, topics: Topics, name: str) -> None:
        """Raises LogError if the records are not all that there were, and do not begin with a base."""
        if topics.control_low and not self.bases:
            raise LogError(
                f"{name} must have its control topic from the beginning, got it from record "
                f"{topics.control_low}: another program trimmed it. Restore it, or {ANEW}"
            )

    def check(self, topics: Topics, name: str) -> None:
        """Raises LogError if the topics cannot be those that the records are of. name: of the log.

        For the owner: while another one takes messages, the topics are newer than the records.
        """
        self.check_begin(topics, name)
        for partition, position in self.positions.items():
            end = topics.ends.get(partition)
            if end is None or end < position:
                raise LogError(
                    f"{name} must have {position} messages in partition {partition}, got {end or 0}: it is "
                    f"another topic of the same name, or has lost messages. Restore it, or {ANEW}"
                )
            if topics.lows[partition] > position:
                raise LogError(
                    f"{name} must have the messages of partition {partition} from {position} on, got those "
                    f"from {topics.lows[partition]} on: they were deleted before they were taken. "
                    f"Restore them, or {ANEW}"
                )

    def forget_keys(self, before: float) -> None:
        """Forgets keys from before a time, in seconds since 1970."""
        while self.keys:
            oldest = next(iter(self.keys.values()))
            if oldest.time >= before:
                return
            del self.keys[oldest.key]

    def release(self, seq: int) -> None:
        """Forgets what the owner alone needs, and what is needed of events up to `seq` alone."""
        self.keys.clear()
        self.origins.clear()
        del self.points[: max(bisect_right(self.points, seq, key=lambda point: point.seq) - 1, 0)]
        del self.batch_ends[: max(bisect_right(self.batch_ends, seq) - 1, 0)]
        del self.rejections[: bisect_right(self.rejections, seq, key=lambda one: one.seq)]

    def batches(self, after: int, most: int | None = None) -> list[Batch] | None:
        """The batches after event `after`, the first `most` of them; None if no batch ends there."""
        first = bisect_left(self.batch_ends, after)
        if first == len(self.batch_ends) or self.batch_ends[first] != after:
            return None
        ends = self.batch_ends[first : None if most is None else first + most + 1].tolist()
        return [Batch(begin, end) for begin, end in itertools.pairwise(ends)]

    def rejected(self, batch: Batch) -> set[int]:
        """The numbers of the entries that were rejected in a batch."""
        first, end = (bisect_right(self.rejections, seq, key=lambda one: one.seq) for seq in batch)
        return {one.seq for one in self.rejections[first:end]}

    def listed(self, after: int = 0, up_to: int = LARGEST_SEQ) -> list[Rejection]:
        """Refused entries with `after` < `seq` <= `up_to` that were not forgotten."""
        return [one for one in self.rejections if max(after, self.forgotten) < one.seq <= up_to]

    def point_before(self, seq: int) -> Point | None:
        """The last point at or before event `seq`; None if there is none."""
        at = bisect_right(self.points, seq, key=lambda point: point.seq)
        return self.points[at - 1] if at else None

    def bad_messages(self, topic: str, after: int) -> list[BadMessage]:
        """Those that are kept, after number `after`. topic: of the log."""
        return [
            BadMessage(
                number,
                topic if one.source is None else one.source,
                one.partition,
                one.offset,
                one.unread.reason,
                one.unread.payload,
                one.unread.size,
            )
            for number, one in self.bad.items()
            if number > after
        ]

    def base(self) -> dict[str, JSON]:
        """The record from which `_begin` makes the same again."""
        return {
            "type": "base",
            "seq": self.seq,
            "chain": self.chain,
            "owner": self.owner,
            "positions": [[partition, end] for partition, end in sorted(self.positions.items())],
            "batch": self.batch_ends[-1],
            "rejections": [list(one) for one in self.listed()],  # of batches before: no replay needs them
            "forgotten": self.forgotten,
            "bad": [one.to_json() for one in self.bad.values()],
            "bad_numbers": list(self.bad),
            "bad_count": self.bad_count,
            "properties": dict(self.properties),
            "keys": [list(one) for one in self.keys.values()],
            "origins": [[*place, *reached] for place, reached in self.origins.items()],
        }

    def forget(self, base: Point) -> None:
        """Forgets the state before a base."""
        self.points = [point for point in self.points if point.offset >= base.offset] or [base]
        self.bases = [one for one in self.bases if one.offset >= base.offset]
        first = bisect_right(self.batch_ends, base.seq) - 1
        self.batch_ends = self.batch_ends[max(first, 0) :]
        gone = min(self.forgotten, base.seq)
        self.rejections = [one for one in self.rejections if one.seq > gone]

    def _take_base(self, record: Mapping[str, JSON], epoch: int, offset: int) -> None:
        if not self.epoch:
            self._begin(record, epoch)
        # One that is not the first record says what is known.
        if epoch == self.epoch and _whole(record["seq"]) == self.seq:
            base = Point(self.seq, offset, self.epoch, self.chain, dict(self.positions))
            self.bases.append(base)
            self.points.append(base)

    def _begin(self, record: Mapping[str, JSON], epoch: int) -> None:
        self.epoch, self.owner = epoch, _text(record["owner"])
        self.seq, self.chain = _whole(record["seq"]), _text(record["chain"])
        self.positions = {_whole(partition): _whole(end) for partition, end in _rows(record["positions"])}
        self.batch_ends = array("q", [_whole(record["batch"])])
        self.rejections = [
            Rejection(_whole(n), _text(e), _text(m)) for n, e, m in _rows(record["rejections"])
        ]
        bad, self.bad_count = list(map(_bad, _rows(record["bad"]))), _whole(record["bad_count"])
        # A base of an older version has neither numbers nor what was forgotten.
        numbers = record.get("bad_numbers", [*range(self.bad_count - len(bad) + 1, self.bad_count + 1)])
        assert isinstance(numbers, list)
        self.bad = dict(zip(map(_whole, numbers), bad, strict=True))
        self.forgotten = _whole(record.get("forgotten", 0))
        properties = record["properties"]
        assert isinstance(properties, dict)
        self.properties = {name: _text(value) for name, value in properties.items()}
        self.keys = {known.key: known for known in map(_known, _rows(record["keys"]))}
        self.origins = dict(map(_reached, _rows(record["origins"])))


def encode(record: Mapping[str, JSON], epoch: int) -> bytes:
    """The value of a record that the owner of `epoch` writes."""
    text = json.dumps({"v": VERSION, "epoch": epoch, **record}, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def _order(record: Mapping[str, JSON]) -> Order:
    return Order(
        _whole(record["after"]),
        _whole(record["seq"]),
        [Slice(*map(_whole, row)) for row in _rows(record["slices"])],
        [
            Again(_whole(p), _whole(o), _whole(e), _whole(s), None if error is None else _text(error))
            for p, o, e, s, error in _rows(record["again"])
        ],
        [_bad(row) for row in _rows(record["bad"])],
        [_known(row) for row in _rows(record["keys"])],
        dict(map(_reached, _rows(record["origins"]))),
        _text(record["chain"]),
    )


def _bad(row: Sequence[JSON]) -> Bad:
    source, partition, offset, *unread = row
    return Bad(
        None if source is None else _text(source), _whole(partition), _whole(offset), to_unread(unread)
    )


def _known(row: Sequence[JSON]) -> Known:
    key, seq, crc32, time = row
    return Known(_text(key), _whole(seq), _whole(crc32), _whole(time))


def _reached(row: Sequence[JSON]) -> tuple[Partition, Reached]:
    source, partition, offset, seq = row
    return (_text(source), _whole(partition)), Reached(_whole(offset), _whole(seq))


def _rows(value: JSON) -> Sequence[Sequence[JSON]]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {value!r:.40}")
    for row in value:
        if not isinstance(row, list):
            raise TypeError(f"expected a list of lists, got {row!r:.40}")
    return value  # type: ignore[return-value]


def _whole(value: JSON) -> int:
    if type(value) is not int:
        raise TypeError(f"expected an integer, got {value!r:.40}")
    return value


def _text(value: JSON) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r:.40}")
    return value
