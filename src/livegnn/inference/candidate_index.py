"""Vectors of the targets of an edge output, kept fresh with the graph, and found by their inner products.

    batch ─► changed and removed rows ─► marks: waiting, absent
                                          │
                    waiting rows ─────────┴─► segments: indexes of usearch, to which rows are only added

A row that changes waits: until it is added again, it is one of the results of every search, and its entry
is dead. So no search misses a row because it has changed; many waiting rows make it slower. usearch could
replace an entry in place, but finds less after many of these. If most entries of a segment are dead, its
living rows move to the next one.

Thread safety: any thread may call; batches note their changes without a lock.
"""

import atexit
import logging
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from livegnn.compiler.edge_outputs import VectorOutputs
from livegnn.errors import ViewMissingError
from livegnn.graph import GraphDelta, Growth, View
from livegnn.inference.native_engine import NativeEngine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, UInt32
    from numpy.typing import NDArray

    Nodes = UInt32[NDArray[np.uint32], "nodes"]

_logger = logging.getLogger(__name__)

FEW: Final = 4096
"""The most rows that are compared one by one rather than through an index."""
_AT_ONCE: Final = 4  # rows that are added while searches wait: some milliseconds
_IN_BULK: Final = 256
_LEAST_DEAD: Final = 1024
_MOST_FETCHED: Final = 16  # times as many entries as are wanted, of which others are dead
_EXPANSION: Final = 128
_NOWHERE: Final = -1
_SECONDS: Final = 10.0  # a thread that adds rows ends within milliseconds

_FILLING: "weakref.WeakSet[threading.Thread]" = weakref.WeakSet()
_ENDING = threading.Event()


@atexit.register
def _end() -> None:
    """Ends the threads that add rows, before the interpreter ends."""
    _ENDING.set()
    for thread in list(_FILLING):
        thread.join(_SECONDS)


def _fill_until_done(reference: "weakref.ref[CandidateIndex]") -> None:
    """Adds the waiting rows of an index, until there are none, or the index is dropped."""
    while not _ENDING.is_set():
        index = reference()
        if index is None or not index.fill_once():
            return
        del index


def _is_worn(segment: "_Segment") -> bool:
    """Whether most of its entries are dead."""
    return segment.dead >= max(_LEAST_DEAD, segment.living)


def watched_outputs(core: NativeEngine) -> list[int]:
    """The positions of the outputs of an engine of which any index needs the changed rows."""
    names = {name for vectors in core.vectors.values() for name in vectors.read}
    return sorted({core.outputs.find(name).position for name in names})


class _Segment:
    """An index of usearch to which entries are added under keys 0, 1, 2, ... `owners[key]` is the node of an
    entry, which lives while the node's place is this key of this segment."""

    def __init__(self, number: int, width: int, expansion: int) -> None:
        from usearch.index import Index

        self.number = number
        self.index = Index(ndim=width, metric="ip", dtype="f32", expansion_search=expansion)
        self.owners = np.empty(1024, np.uint32)
        self.size = self.living = 0
        self.moved = 0  # entries of which none lives

    @property
    def dead(self) -> int:
        return self.size - self.living

    def add(self, nodes: "Nodes", vectors: FloatArray, threads: int) -> "Int64[NDArray[np.int64], 'nodes']":
        """Adds a row for each node, and returns the keys."""
        keys = np.arange(self.size, self.size + len(nodes))
        self.index.add(keys.astype(np.uint64), vectors, threads=threads)
        if keys[-1] >= len(self.owners):
            self.owners = np.resize(self.owners, max(2 * len(self.owners), int(keys[-1]) + 1))
        self.owners[keys] = nodes
        self.size += len(nodes)
        self.living += len(nodes)
        return keys

    def search(self, query: FloatArray, count: int) -> "Int64[NDArray[np.int64], 'keys']":
        """The keys of about `count` living entries, and of dead ones."""
        fetched = min(count * self.size // max(1, self.living) + count // 4, _MOST_FETCHED * count, self.size)
        found = self.index.search(query, max(1, fetched), threads=1)
        return np.asarray(found.keys, np.uint64).astype(np.int64)


class CandidateIndex(View):
    """The targets of one edge output, in an index if it is an inner product.

    vectors: None if it is none, or if usearch is missing; then there is no index, and nothing to search.
    """

    name = "candidates"

    def __init__(self, core: NativeEngine, chosen: EdgeOutput, vectors: VectorOutputs | None) -> None:
        super().__init__(core.graph)
        self._core, self.vectors = core, vectors
        self.node_type = core.graph.node_type_index(chosen.scores.edge_type[2])
        watched = watched_outputs(core)
        self._watched = (
            [] if vectors is None else [watched.index(core.outputs.find(n).position) for n in vectors.read]
        )
        self.at = core.epoch
        """The engine's epoch after the last batch that is committed here; its number is `Graph.seq`."""
        self._arrivals: deque[tuple[Nodes, Nodes]] = deque()
        self._free = threading.Condition()
        self._searches: list[None] = []  # one for each thread that searches, or waits for that
        self._filling: threading.Thread | None = None
        self._segments: list[_Segment] = []
        self._made = 0  # segments
        self._place = np.empty(0, np.int32)  # number of the segment
        self._key = np.empty(0, np.int64)
        self._waits = np.empty(0, np.bool_)
        self._line: deque[Nodes] = deque()  # waiting rows, and others
        self.waiting = 0
        """Rows that are not in the index, and are among the results of every search."""
        if vectors is not None:
            core.view.watch(watched)
            self._arrivals.append((core.graph.native.indices(self.node_type), np.empty(0, np.uint32)))
            self._absorb()
        core.graph.attach(self)

    # -- following the graph

    def check_growth(self, growth: Growth) -> None:
        pass  # as of the engine

    def grow(self, change: GraphDelta) -> None:
        self.at = self._core.epoch

    def commit(self, change: GraphDelta) -> None:
        view = self._core.view
        changed = [view.changed_rows(one) for one in self._watched]
        removed = change.native.removed_indices(self.node_type)
        if self._watched and (any(map(len, changed)) or len(removed)):
            self._arrivals.append((np.concatenate([*changed, np.empty(0, np.uint32)]), removed))
        self.at = self._core.epoch

    def publish(self, change: GraphDelta) -> None:
        if self._arrivals:
            self.fill_beside()

    def _absorb(self) -> None:
        """Takes note of the changes of batches. The caller holds `_free`."""
        while self._arrivals:
            changed, removed = self._arrivals.popleft()
            most = max((int(nodes.max()) for nodes in (changed, removed) if len(nodes)), default=-1)
            self._make_room(most + 1)
            self._leave(removed)
            self.waiting -= int(self._waits[removed].sum())
            self._waits[removed] = False
            self._leave(changed)
            self._wait(changed)

    def _make_room(self, nodes: int) -> None:
        lacking = nodes - len(self._place)
        if lacking > 0:
            lacking = max(lacking, len(self._place) // 4)
            self._place = np.append(self._place, np.full(lacking, _NOWHERE, np.int32))
            self._key = np.append(self._key, np.zeros(lacking, np.int64))
            self._waits = np.append(self._waits, np.zeros(lacking, np.bool_))

    def _leave(self, nodes: "Nodes") -> None:
        """The entries of these nodes are dead."""
        nodes = np.unique(nodes[self._place[nodes] != _NOWHERE])
        for segment in self._segments:
            segment.living -= int((self._place[nodes] == segment.number).sum())
        self._place[nodes] = _NOWHERE

    def _wait(self, nodes: "Nodes") -> None:
        fresh = np.unique(nodes[~self._waits[nodes]])
        if len(fresh):
            self._waits[fresh] = True
            self._line.append(fresh)
            self.waiting += len(fresh)

    # -- filling the index

    def refresh(self, threads: int = 1) -> None:
        """Adds all waiting rows to the index now, and moves the rows of segments that are mostly dead.

        threads: 0 means as many as there are cores; with more than one, the same changes may lead to another
        index.
        """
        while self._fill(_IN_BULK, threads):
            pass

    def fill_beside(self) -> None:
        """Starts to add waiting rows in a thread of its own, unless they are few or that thread runs."""
        if self.vectors is None or self._filling is not None or not self._free.acquire(blocking=False):
            return
        try:
            self._absorb()
            if self._filling is None and self._has_work():
                thread = threading.Thread(
                    target=_fill_until_done, args=(weakref.ref(self),), name="livegnn-candidates", daemon=True
                )
                _FILLING.add(thread)
                thread.start()
                self._filling = thread
        finally:
            self._free.release()

    def _has_work(self) -> bool:
        """Whether rows wait that an index must have: there are few, and none is used, in a small graph."""
        small = not self._segments and self.waiting <= FEW
        return not small and (self.waiting > 0 or any(map(_is_worn, self._segments)))

    def _fill(self, rows: int, threads: int) -> bool:
        """Adds some rows. Returns whether there may be more."""
        with self._free:
            self._absorb()
            if not self._has_work():
                self._filling = None
                return False
            if self.waiting == 0:
                self._move(4 * rows)
            self._add(self._take(rows), threads)
            return True

    def fill_once(self) -> bool:
        """Adds a few rows, after searches that wait. Returns whether there may be more."""
        try:
            with self._free:
                if self._searches:  # of several, for one: all together could hold it up for ever
                    self._free.wait()
            return self._fill(_AT_ONCE, 1)
        except ViewMissingError:
            return False  # of an engine that its graph no longer updates
        except Exception:
            _logger.exception(
                "rows cannot be added to the index of candidates, so they are compared one by one"
            )
            return False

    def _take(self, rows: int) -> "Nodes":
        """The next waiting nodes."""
        taken: list[Nodes] = []
        while rows > 0 and self._line:
            first = self._line.popleft()
            if len(first) > rows:
                self._line.appendleft(first[rows:])
                first = first[:rows]
            first = first[self._waits[first]]
            taken.append(first)
            rows -= len(first)
        return np.unique(np.concatenate([*taken, np.empty(0, np.uint32)]))

    def _add(self, nodes: "Nodes", threads: int) -> None:
        assert self.vectors is not None
        try:
            present, vectors = self._core.native.target_rows(self.vectors.target, nodes)
            finite = np.isfinite(vectors).all(axis=1)
            if not finite.all():  # their products have no order
                present, vectors = present[finite], np.ascontiguousarray(vectors[finite])
            if len(present):
                segment = self._last_segment()
                self._key[present] = segment.add(present, vectors, threads)
                self._place[present] = segment.number
        except BaseException:
            self._line.appendleft(nodes)
            raise
        self._waits[nodes] = False
        self.waiting -= len(nodes)

    def _last_segment(self) -> _Segment:
        assert self.vectors is not None
        if not self._segments or _is_worn(self._segments[-1]):
            self._segments.append(_Segment(self._made, self.vectors.width, _EXPANSION))
            self._made += 1
        return self._segments[-1]

    def _move(self, entries: int) -> None:
        """Lets the living rows among the next entries of a worn segment wait; drops it if none is left. The
        caller holds `_free`."""
        worn = next(filter(_is_worn, self._segments))
        keys = np.arange(worn.moved, min(worn.size, worn.moved + entries))
        nodes = worn.owners[keys]
        nodes = nodes[(self._place[nodes] == worn.number) & (self._key[nodes] == keys)]
        self._leave(nodes)
        self._wait(nodes)
        worn.moved += entries
        if worn.living == 0:
            self._segments.remove(worn)

    # -- searching

    def search(self, query: "Float32[FloatArray, 'width']", count: int) -> "Nodes | None":
        """Indices of about `count` nodes of the largest inner products, and of all that wait; None if there
        are few rows, so that each should be compared. Some may be of nodes that exist no more."""
        self._searches.append(None)
        try:
            with self._free:
                self._absorb()
                if not self._segments:
                    return None
                found = [*self._line]
                if found:
                    line = np.concatenate(found)
                    found = [line[self._waits[line]]]
                for segment in self._segments:
                    keys = segment.search(query, count)
                    owners = segment.owners[keys]
                    lives = (self._place[owners] == segment.number) & (self._key[owners] == keys)
                    found.append(owners[lives][:count])
                return np.unique(np.concatenate(found))
        finally:
            with self._free:
                self._searches.pop()
                self._free.notify_all()

    def memory(self) -> dict[str, int]:
        """Bytes of the index, and of the marks of each row."""
        with self._free:
            held = self._place.nbytes + self._key.nbytes + self._waits.nbytes
            held += sum(nodes.nbytes for nodes in self._line)
            held += sum(segment.index.memory_usage + segment.owners.nbytes for segment in self._segments)
        return {self.name: held}
