"""What tests of faults share: a history of what clients sent and were told, clocks that jump, the replay.

A seed is the first of the campaign's unless LIVEGNN_SEED names another; failures say which one it was.
"""

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from livegnn import Engine, Events
from livegnn.log import Batch, Log, ReadableLog
from livegnn.types import State
from streams import make_graph, make_model
from waiting import PATIENCE

FIRST_SEED = int(os.environ.get("LIVEGNN_SEED", "0"))
YEAR = 365 * 86_400.0


@contextmanager
def seed_shown(seed: int) -> Iterator[None]:
    """Says in a failure which seed shows it."""
    print(f"seed {seed}")
    try:
        yield
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error or repr(error)}") from error


class Clock:
    """Says `now`, in seconds; tests set it. `time` and `monotonic` make it one for a module's `time`."""

    def __init__(self, now: float = 1e9) -> None:
        self.now, self.passed = now, 0.0

    def __call__(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.passed

    def pass_by(self, seconds: float) -> None:
        """Time passes, as it does."""
        self.now += seconds
        self.passed += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the clock; no time passes."""
        self.now += seconds


@dataclass
class History:
    """What clients sent, by key, and the number that they were told. Thread-safe."""

    sent: dict[str, Events] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)  # of clients
    told_more: threading.Condition = field(default_factory=threading.Condition)

    def send(self, key: str, events: Events) -> None:
        """Notes that an entry is about to be sent, for the first time or again."""
        with self.told_more:
            assert self.sent.setdefault(key, events) is events

    def tell(self, key: str, seq: int) -> None:
        """Notes an answer. The same key must get the same answer each time."""
        with self.told_more:
            assert self.told.setdefault(key, seq) == seq, f"{key} got {seq} after {self.told[key]}"
            self.told_more.notify_all()

    def fail(self, error: BaseException) -> None:
        """Notes that a client has ended with an error, so that nobody waits for it."""
        with self.told_more:
            self.failures.append(error)
            self.told_more.notify_all()

    def wait_for(self, count: int) -> None:
        """Returns when so many entries were acknowledged. Raises what a client has failed with."""
        with self.told_more:
            enough = self.told_more.wait_for(lambda: self.failures or len(self.told) >= count, PATIENCE)
        if self.failures:
            raise self.failures[0]
        assert enough, f"{len(self.told)} entries were acknowledged within {PATIENCE} s, {count} are wanted"

    def last(self) -> int:
        """The largest number that anybody was told."""
        with self.told_more:
            return max(self.told.values(), default=0)

    def check(self, log: Log) -> None:
        """No acknowledged entry is lost, each is there once and under its number; nothing else is there
        but entries that were sent and not answered, each once.
        """
        entries = {entry.seq: plain(entry.events) for entry in log.entries(0)}
        lost = [key for key, seq in self.told.items() if entries.get(seq) != plain(self.sent[key])]
        assert lost == [], f"acknowledged and lost: {lost[:5]}"
        numbers = sorted(self.told.values())
        twice = [seq for seq, after in itertools.pairwise(numbers) if seq == after]
        assert twice == [], f"one number for two entries: {twice[:5]}"
        more = [events for seq, events in entries.items() if seq not in set(numbers)]
        unsure = [plain(events) for key, events in self.sent.items() if key not in self.told]
        for events in more:
            assert events in unsure, "an entry is there twice, or nobody sent it"
            unsure.remove(events)


def plain(events: Events) -> bytes:
    """Events as the log has them, whatever calls they were made with."""
    return Events.concatenate([events]).to_bytes()


def replay(log: ReadableLog) -> Engine:
    """An engine that was never interrupted: the small example's, and each batch of the log, one by one."""
    entries = {entry.seq: entry.events for write in log.writes(0) for entry in write.entries()}
    rejected = {rejection.seq for rejection in log.rejections()}
    return apply_batches(entries, log.batches(0), rejected)


def apply_batches(entries: Mapping[int, Events], batches: Iterable[Batch], rejected: set[int]) -> Engine:
    """What `replay` returns, of entries by number, and the batches that they were applied in."""
    engine = Engine(make_graph(), make_model(), threads=1)
    ends = sorted(entries)
    at = 0
    for batch in batches:
        parts = []
        while at < len(ends) and ends[at] <= batch.seq:
            if ends[at] not in rejected:
                parts.append(entries[ends[at]])
            at += 1
        engine.apply(Events.concatenate(parts), seq=batch.seq)
    return engine


def check_bits(ours: Engine, theirs: Engine) -> None:
    """Two engines, their graphs among it, are the same, bit for bit."""
    for one, other in ((ours.graph.state(), theirs.graph.state()), (ours.state(), theirs.state())):
        check_states(one, other)
    assert ours.embeddings(-1).tobytes() == theirs.embeddings(-1).tobytes()


def check_states(ours: State, theirs: State) -> None:
    assert ours.meta == theirs.meta, f"the state must be {theirs.meta}, got {ours.meta}"
    assert ours.arrays.keys() == theirs.arrays.keys()
    for name, array in ours.arrays.items():
        assert array.tobytes() == theirs.arrays[name].tobytes(), f"{name} has other bits"
