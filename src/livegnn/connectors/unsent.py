"""The ids of the nodes whose prediction a sink lacks.

It is a set and no queue of changes: it is never larger than the graph, however long a sink is away, and a
node that changes often is sent as it is at last. Batches add ids to one side; the sink's thread gathers them
into a list, from which it takes one part after the other, so a node that always changes delays no other.

Thread safety: none; the caller holds one lock around every call but `count`. `join` needs none.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.texts import Texts
from livegnn.types import Array, Ids

if TYPE_CHECKING:
    from collections.abc import Mapping

AnyIds: TypeAlias = "Ids | Texts"

_LEAST_FOLDED: Final = 65_536


class ChangedNodes(Protocol):
    """The ids of a batch, which are read when they are needed: an `Update`."""

    @property
    def num_changed(self) -> int: ...

    @property
    def changed(self) -> "AnyIds": ...


class ListedNodes:
    """Ids that are known already."""

    def __init__(self, ids: AnyIds) -> None:
        self.changed = ids
        self.num_changed = len(ids)


def join(parts: Sequence[ChangedNodes], *, text: bool) -> AnyIds:
    """The ids of `parts`, each once and in order."""
    if text:
        return Texts.of(sorted(set(Texts.join(part.changed for part in parts).tolist())))
    listed: list[Array] = [np.empty(0, np.int64), *(np.asarray(part.changed, np.int64) for part in parts)]
    return np.unique(np.concatenate(listed)).astype(np.int64)


class Unsent:
    """The ids, of text or integers; and whether all nodes of the graph are lacked besides."""

    def __init__(self, *, text: bool) -> None:
        self._text = text
        self._arrived: list[ChangedNodes] = []
        self._count, self._folded = 0, 0
        self._gathering: list[ChangedNodes] = []
        self._everything = self._gathers_everything = False
        self._queue: AnyIds = join([], text=text)
        self._begin = self._end = 0  # the part of the queue that is being sent
        self._since: list[float | None] = [None, None]  # of what has arrived, and of what was gathered

    # -- what batches add

    def add(self, nodes: ChangedNodes, now: float) -> None:
        """Adds ids at the time `now`."""
        if not nodes.num_changed:
            return
        self._arrived.append(nodes)
        self._count += nodes.num_changed
        self._begin_wait(now)
        if self._count > max(_LEAST_FOLDED, 2 * self._folded):
            self.fold()

    def add_everything(self, now: float) -> None:
        """Adds all nodes that the graph has when they are gathered."""
        self._everything = True
        self._begin_wait(now)

    def _begin_wait(self, now: float) -> None:
        if self._since[0] is None:
            self._since[0] = now

    def fold(self) -> None:
        """Joins what has arrived, so that it takes the room of its distinct ids alone."""
        if self._arrived:
            ids = join(self._arrived, text=self._text)
            self._arrived, self._count = [ListedNodes(ids)], len(ids)
            self._folded = len(ids)

    def settle(self) -> None:
        """Reads all ids that batches have named, so that `save` needs no text that only this process can look
        up."""
        self.fold()
        for part in self._gathering:
            len(part.changed)  # it keeps them

    # -- what the sink's thread takes

    @property
    def everything(self) -> bool:
        """Whether all nodes are lacked, because they were added and are not gathered yet."""
        return self._everything or self._gathers_everything

    @property
    def left(self) -> int:
        """The number of gathered ids that were not sent yet."""
        return len(self._queue) - self._begin

    @property
    def waits(self) -> bool:
        """Whether there is anything to gather."""
        return bool(self._arrived) or self._everything

    def gather(self) -> tuple[Sequence[ChangedNodes], bool]:
        """Begins to gather what has arrived, when nothing is `left`. Returns it, and whether all nodes of the
        graph belong to it. The caller joins it without the lock, and calls `gathered`, or `give_back`."""
        self._gathering, self._arrived = self._arrived, []
        self._gathers_everything, self._everything = self._everything, False
        self._count = self._folded = 0
        self._since = [None, self._since[0]]
        return self._gathering, self._gathers_everything

    def gathered(self, ids: AnyIds) -> None:
        """Ends that, with the joined ids."""
        self._queue, self._begin, self._end = ids, 0, 0
        self._gathering, self._gathers_everything = [], False
        if not len(ids):
            self._since[1] = None

    def give_back(self) -> None:
        """Ends that without them: they could not be joined."""
        self._arrived = [*self._gathering, *self._arrived]
        self._count = sum(part.num_changed for part in self._arrived)
        self._everything = self.everything
        self._since = [self.oldest(), None]
        self._gathering, self._gathers_everything = [], False

    def take(self, most: int) -> AnyIds:
        """The next ids, which are being sent from now on."""
        self._end = min(len(self._queue), self._begin + most)
        return self._queue[self._begin : self._end]

    def acknowledge(self) -> None:
        """Forgets the taken ids: they were sent."""
        self._begin = self._end
        if self._begin == len(self._queue):
            self._queue, self._begin, self._end = join([], text=self._text), 0, 0
            self._since[1] = None

    def put_back(self) -> None:
        """Notes that the taken ids are lacked still: they were not sent, or perhaps."""
        self._end = self._begin

    # -- how much it is

    def count(self, num_nodes: int) -> int:
        """The number of ids at most; some may be counted twice. num_nodes: of the graph.

        May be called without the lock: it reads in the order in which ids move on, so it misses none.
        """
        everything = num_nodes if self.everything else 0
        arrived = self._count
        gathering = sum(part.num_changed for part in self._gathering)
        return everything + arrived + gathering + max(0, self.left)

    def oldest(self) -> float | None:
        """When the oldest of them was added; None if there are none."""
        return min((since for since in self._since if since is not None), default=None)

    @property
    def bytes(self) -> int:
        """The memory of ids that were gathered, and of the number of others."""
        size = self._queue.nbytes
        return size + 8 * (self._count + sum(part.num_changed for part in self._gathering))

    # -- what checkpoints keep

    def save(self) -> "Mapping[str, Array]":
        """All of them, also those that are being sent, except `everything`."""
        rest = ListedNodes(self._queue[self._begin :])
        ids = join([*self._arrived, *self._gathering, rest], text=self._text)
        return save_ids("unsent", ids)

    def load(self, arrays: "Mapping[str, Array]", now: float) -> AnyIds:
        """Adds what `save` returned, and returns it. Raises `FileFormatError`."""
        ids = load_ids("unsent", arrays, text=self._text)
        self.add(ListedNodes(ids), now)
        return ids


def save_ids(name: str, ids: AnyIds) -> dict[str, Array]:
    """Ids as arrays of a checkpoint, whose names begin with `name`."""
    if isinstance(ids, Texts):
        count = np.array([len(ids)], np.int64)
        return {f"{name}.utf8": np.frombuffer(ids.encoded(), np.uint8), f"{name}.count": count}
    return {f"{name}.ids": ids}


def load_ids(name: str, arrays: "Mapping[str, Array]", *, text: bool) -> AnyIds:
    """The ids that `save_ids` was given. Raises `FileFormatError`."""
    try:
        if text:
            return Texts.read(arrays[f"{name}.utf8"].tobytes(), int(arrays[f"{name}.count"][0]))
        ids = arrays[f"{name}.ids"]
        if ids.ndim == 1 and ids.dtype == np.int64:
            return ids.astype(np.int64)
    except (KeyError, IndexError, ValueError) as error:
        raise FileFormatError(f"expected the ids {name!r} of a sink: {error!r}") from error
    raise FileFormatError(f"expected a list of integers {name!r} of a sink, got {ids.dtype} {ids.shape}")
