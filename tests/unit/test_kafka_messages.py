"""The forms of what is in Kafka's topics, and which records count; what needs no broker."""

import hashlib
import itertools
from collections import deque
from typing import Any

import numpy as np
import pytest
from events_strategies import event_lists
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events
from livegnn.errors import FileFormatError, InputError, LogError
from livegnn.log import Appended, Batch, Origin
from livegnn.log.idempotency import Unread
from livegnn.log.kafka import message
from livegnn.log.kafka.history import History, encode
from livegnn.log.kafka.ordering import Received, Taken, outcomes, propose, take

KEYS = st.none() | st.sampled_from(["a", "b", "c", "d"])
ORIGINS = st.none() | st.builds(Origin, st.sampled_from(["s", "t"]), st.integers(0, 1), st.integers(0, 9))
READ = st.tuples(event_lists(), KEYS, ORIGINS)
UNREAD = st.tuples(
    st.builds(InputError, st.text(max_size=9)),
    KEYS,
    st.builds(
        Origin, st.sampled_from(["s", "t"]), st.integers(0, 1), st.integers(0, 9), st.binary(max_size=1100)
    ),
)
ENTRIES = st.lists(READ | UNREAD, min_size=1, max_size=4)
Given = list[tuple[Events | InputError, str | None, Origin | None]]


def plain(events: Events) -> bytes:
    """The bytes of events, with neighbours of a kind as one chunk."""
    return Events.concatenate([events]).to_bytes()


def encoded(entries: Given) -> bytes:
    return message.encode(*(list(column) for column in zip(*entries, strict=True)))


def received(partition: int, offset: int, value: bytes) -> Received:
    try:
        content: message.Message | Unread = message.decode(value)
    except FileFormatError as error:
        content = Unread.make(error, value)
    digest = hashlib.blake2b(value, digest_size=16).digest()
    return Received(partition, offset, content, digest, b"%d %d" % (partition, offset))


@given(ENTRIES)
def test_a_message_is_what_was_packed(entries: Given) -> None:
    value = encoded(entries)
    decoded = message.decode(value)
    assert [(plain(events), *notes) for events, *notes in decoded.entries()] == [
        (
            plain(events) if isinstance(events, Events) else plain(Events()),
            key,
            origin and Origin(*origin[:3]),
        )
        for events, key, origin in entries
    ]
    unread = decoded.bad or [None] * len(entries)
    for (events, _, origin), one in zip(entries, unread, strict=True):
        assert (one is None) == isinstance(events, Events)
        if one is not None:
            assert origin is not None
            assert origin.payload is not None
            assert one == Unread(str(events), origin.payload[:1024], len(origin.payload))


@given(ENTRIES, st.data())
def test_a_byte_that_is_not_as_it_was_written_is_found(entries: Given, data: st.DataObject) -> None:
    value = bytearray(encoded(entries))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FileFormatError, match="message of events must"):
        message.decode(bytes(value))


@given(ENTRIES, st.data())
def test_a_message_that_was_cut_is_found(entries: Given, data: st.DataObject) -> None:
    value = encoded(entries)
    with pytest.raises(FileFormatError, match="message of events must"):
        message.decode(value[: data.draw(st.integers(0, len(value) - 1))])


def test_entries_are_packed_into_messages_that_fit_and_what_does_not_fit_is_refused() -> None:
    small, large = Events().add_edges([1], [2]), Events().add_edges(range(1000), range(1000))
    entries = [small, large, small, small, small]
    packed = message.pack(entries, [None, None, "not\nprintable", "good", None], [None] * 5, 2000)
    assert sorted(itertools.chain.from_iterable(at for _, at in packed)) == [0, 1, 2, 3, 4]
    for value, positions in packed:
        if isinstance(value, InputError):
            (at,) = positions
            assert at in (1, 2)
            assert ("append fewer events" if at == 1 else "printable") in str(value)
        else:
            assert len(value) <= 2000
            decoded = message.decode(value).entries()
            assert [plain(one) for one, *_ in decoded] == [plain(entries[at]) for at in positions]
    (whole,) = message.pack([small] * 100, [None] * 100, [None] * 100, 1 << 20)
    assert whole[1] == list(range(100))


class Model:
    """The obvious log: a list of entries, a dict of keys, a dict of offsets."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, bytes]] = []
        self.keys: dict[str, tuple[int, bytes]] = {}
        self.offsets: dict[tuple[str, int], tuple[int, int]] = {}
        self.seq = 0
        self.bad: list[tuple[object, ...]] = []

    def append(
        self, events: Events | InputError, key: str | None, origin: Origin | None
    ) -> tuple[int, bool] | None:
        """Its number and whether it was there before; None for what was refused or could not be read."""
        if origin is not None:
            offset, seq = self.offsets.get(origin[:2], (-1, 0))
            if origin.offset <= offset:
                return seq, True
        if isinstance(events, InputError):
            self.bad.append((*origin[:3], str(events), origin.payload[:1024], len(origin.payload)))
            self.offsets[origin[:2]] = (origin.offset, self.seq)
            return None
        outcome = self._append(events, key)
        if origin is not None and outcome is not None:
            self.offsets[origin[:2]] = (origin.offset, outcome[0])
        return outcome

    def _append(self, events: Events, key: str | None) -> tuple[int, bool] | None:
        if key is not None and key in self.keys:
            seq, value = self.keys[key]
            return (seq, True) if value == plain(events) else None
        self.seq += len(events)
        if len(events):
            self.entries.append((self.seq, plain(events)))
        if key is not None and len(events):
            self.keys[key] = (self.seq, plain(events))
        return self.seq, False


@given(st.lists(st.lists(st.tuples(st.integers(0, 2), ENTRIES | st.none()), max_size=4), max_size=5))
def test_orders_are_what_a_list_of_entries_would_be(
    rounds: list[list[tuple[int, Given | None]]],
) -> None:
    """None is a message that is none of ours."""
    history, model = History(), Model()
    history.apply(encode({"type": "owner", "owner": "me"}, 1), 0)
    offsets = [0, 0, 0]
    taken_entries: list[tuple[int, bytes]] = []
    given: dict[tuple[int, int], Given | None] = {}
    for number, arrivals in enumerate(rounds):
        waiting: list[Received] = []
        for partition, entries in sorted(arrivals, key=lambda one: one[0]):
            value = b"garbage"
            if entries is not None:
                value = encoded(entries)
            waiting.append(received(partition, offsets[partition], value))
            given[partition, offsets[partition]] = entries
            offsets[partition] += 1 + number  # offsets may have gaps
        before = history.chain
        order = propose(history, waiting, 0)
        assert (order is None) == (not waiting)
        if order is None:
            continue
        read = history.apply(encode(order.to_json(), 1), history.next)
        assert read == order
        buffers = {
            partition: deque(one for one in waiting if one.partition == partition) for partition in range(3)
        }
        taken = take(order, buffers, before)
        assert isinstance(taken, Taken)
        for write in taken.writes:
            taken_entries += [(entry.seq, plain(entry.events)) for entry in write.entries()]
        expected = []
        for one in waiting:
            entries = given[one.partition, one.offset]
            if entries is None:
                reason = "a message of events must begin with b'LGEM', got b'garbage'"
                model.bad.append(("own", one.partition, one.offset, reason, b"garbage", 7))
            else:
                expected.append([model.append(*entry) for entry in entries])
        became = [
            [(one.seq, one.again) if isinstance(one, Appended) else None for one in outcome]
            for _, outcome in outcomes(taken)
        ]
        assert became == expected
    assert taken_entries == model.entries
    assert history.seq == model.seq
    numbered = [(number, *one) for number, one in enumerate(model.bad, 1)]
    assert history.bad_messages("own", 0) == numbered
    assert history.bad_messages("own", 2) == numbered[2:]
    assert history.origins == model.offsets


KINDS = ("order", "garbage", "batch", "base", "owner", "property", "forget", "forget bad")
OLD_KINDS = ("old order", "old batch", "old forget")


@given(
    st.lists(
        st.sampled_from([*KINDS, *OLD_KINDS]),
        max_size=30,
    ),
    st.data(),
)
def test_the_records_from_any_base_on_say_the_same(kinds: list[str], data: st.DataObject) -> None:
    """Records of an owner that was replaced never count."""
    history, epoch, offset = History(), 1, 0
    records: list[bytes] = [encode({"type": "owner", "owner": "1"}, 1)]
    history.apply(records[0], 0)
    for kind in kinds:
        writer = epoch - 1 if kind.startswith("old") else epoch
        record: dict | None = {"type": "property", "name": "n", "value": str(len(records))}
        if kind.endswith("order"):
            entry = message.encode(
                [Events().add_edges([offset], [1])], [data.draw(KEYS)], [data.draw(ORIGINS)]
            )
            order = propose(history, [received(0, offset, entry)], 7)
            assert order is not None
            record = order.to_json()
            offset += writer == epoch
        elif kind.endswith("batch"):
            after = history.batch_ends[-1]
            if after == history.seq:
                continue
            seq = data.draw(st.integers(after + 1, history.seq))
            rejection = [seq, "E", "m"] if data.draw(st.booleans()) else None
            record = {"type": "batch", "after": after, "seq": seq, "rejection": rejection}
        elif kind == "garbage":
            order = propose(history, [received(0, offset, b"garbage")], 7)
            assert order is not None
            record = order.to_json()
            offset += 1
        elif kind.endswith("forget"):
            record = {"type": "forget entries", "seq": data.draw(st.integers(0, history.seq))}
        elif kind == "forget bad":
            place = {"partition": 0, "offset": data.draw(st.integers(0, offset))}
            source = data.draw(st.sampled_from([None, "s", "other"]))
            record = {"type": "forget messages", "sources": [source], **place}
        elif kind == "base":
            record = history.base()
        elif kind == "owner":
            epoch = writer = epoch + 1
            record = {"type": "owner", "owner": str(epoch)}
        before = (history.seq, list(history.batch_ends), dict(history.properties), history.forgotten)
        listed, bad = history.listed(), history.bad_messages("own", 0)
        records.append(encode(record, writer))
        history.apply(records[-1], len(records) - 1)
        if kind.startswith("old"):
            assert (history.seq, list(history.batch_ends), history.properties, history.forgotten) == before
        if kind == "forget":
            assert history.listed() == [one for one in listed if one.seq > max(record["seq"], before[3])]
        if kind == "forget bad":
            gone = {"own" if record["sources"][0] is None else record["sources"][0]}
            assert history.bad_messages("own", 0) == [
                one for one in bad if one.source not in gone or one.offset > record["offset"]
            ]
    for base in history.bases:
        again = History()
        for at in range(base.offset, len(records)):
            again.apply(records[at], at)
        for name in (
            "next",
            "epoch",
            "owner",
            "seq",
            "chain",
            "positions",
            "forgotten",
            "bad",
            "bad_count",
            "properties",
            "keys",
        ):
            assert getattr(again, name) == getattr(history, name), name
        assert again.listed() == history.listed()
        later = [one for one in history.rejections if one.seq > again.batch_ends[0]]
        assert [one for one in again.rejections if one.seq > again.batch_ends[0]] == later
        assert list(again.batch_ends) == [end for end in history.batch_ends if end >= again.batch_ends[0]]
        assert again.batches(again.batch_ends[0]) == history.batches(again.batch_ends[0])


def test_batches_are_known_from_where_one_ended() -> None:
    history = History()
    history.apply(encode({"type": "owner", "owner": "1"}, 1), 0)
    entry = message.encode([Events().add_edges(range(10), range(10))])
    order = propose(history, [received(0, 0, entry)], 0)
    assert order is not None
    history.apply(encode(order.to_json(), 1), 1)
    for after, seq in ((0, 4), (4, 10)):
        history.apply(encode({"type": "batch", "after": after, "seq": seq, "rejection": None}, 1), 2)
    assert history.batches(0) == [Batch(0, 4), Batch(4, 10)]
    assert (history.batches(4), history.batches(10)) == ([Batch(4, 10)], [])
    assert history.batches(5) is None
    assert history.batches(11) is None


def test_what_is_released_is_not_needed_after_an_event(rng: np.random.Generator) -> None:
    """What is said of later events stays as it was, again and again, while records go on."""
    history, kept = History(), History()
    offsets = itertools.count()

    def write(record: dict[str, Any]) -> None:
        offset = next(offsets)
        for one in (history, kept):
            one.apply(encode(record, 1), offset)

    write({"type": "owner", "owner": "1"})
    taken = released = 0
    for step in range(60):
        count = int(rng.integers(1, 40_000))
        slices, taken = [[0, taken, taken + 1, count]], taken + 1
        order = {"after": kept.seq, "seq": kept.seq + count, "slices": slices, "again": [], "bad": []}
        write(
            {
                "type": "order",
                **order,
                "keys": [[f"{step}", kept.seq + count, 1, 1]],
                "origins": [],
                "chain": "",
            }
        )
        for _ in range(int(rng.integers(0, 3))):
            after = kept.batch_ends[-1]
            if after < kept.seq:
                seq = int(rng.integers(after + 1, kept.seq + 1))
                rejection = [seq, "InputError", "no"] if rng.random() < 0.5 else None
                write({"type": "batch", "after": after, "seq": seq, "rejection": rejection})
        if rng.random() < 0.1:
            write({**kept.base()})
        released = int(rng.integers(released, kept.seq + 1))
        history.release(released)
        later = [released, kept.seq, *rng.integers(released, kept.seq + 1, 5).tolist()]
        later += [end for end in kept.batch_ends if end >= released]
        for seq in later:
            assert history.batches(seq) == kept.batches(seq)
            assert history.batches(seq, 2) == (None if (all_ := kept.batches(seq)) is None else all_[:2])
            assert history.point_before(seq) == kept.point_before(seq)
        for batch in kept.batches(0) or []:
            if batch.after >= released:
                assert history.rejected(batch) == kept.rejected(batch)
                expected = {one.seq for one in kept.rejections if batch.after < one.seq <= batch.seq}
                assert kept.rejected(batch) == expected
        assert (history.seq, history.positions, history.keys) == (kept.seq, kept.positions, {})
    assert len(history.points) < len(kept.points)
    assert len(history.batch_ends) < len(kept.batch_ends)


@pytest.mark.parametrize(
    "value",
    [b"", b"{}", b"[]", b"null", b"\xff", b'{"v":1}', b'{"v":9,"type":"owner","epoch":1,"owner":""}',
     b'{"v":1,"type":"order","epoch":0}', b'{"v":1,"type":"new","epoch":0}',
     b'{"v":1,"type":"batch","epoch":0,"after":"0","seq":1}'],
)  # fmt: skip
def test_what_is_no_record_is_named(value: bytes) -> None:
    with pytest.raises(LogError, match=r"control record|record 5 of the control topic"):
        History().apply(value, 5)
