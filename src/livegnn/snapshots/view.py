"""The view that keeps a snapshot of a live graph in object storage, some seconds behind it.

A batch only notes which rows it changes. A thread of the view's own reads them and writes them, at an
interval: a base while batches are applied, then deltas. Rows are read in rounds: changed rows are read beside
the batches, rows that changed meanwhile in the next round, and the last, small round with `Graph.writer`
held, so that all layers together show one event. Nothing is visible before a manifest names it.

Thread safety: `prepare`, `commit`, `abandon` and `state` run in the loop, under `Graph.writer`; `write` may
be called by any thread, one after the other. Their common data are read and changed under `Graph.writer`.
"""

import logging
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_positive
from livegnn.errors import FileFormatError, InputError, ObjectMissingError, SnapshotError
from livegnn.graph import Graph, GraphDelta, View
from livegnn.interrupts import Background, Flag
from livegnn.log.directories import Record
from livegnn.snapshots import records
from livegnn.snapshots.changed_rows import ChangedRows
from livegnn.snapshots.compaction import Compaction, Step, check_grace, collect
from livegnn.snapshots.manifest import Layer, Manifest, TableKey, path_of, read_past_damage
from livegnn.snapshots.objects import Objects, as_objects
from livegnn.snapshots.ownership import claim
from livegnn.snapshots.rows import GraphRows
from livegnn.snapshots.writer import (
    ONCE,
    Direction,
    checked_directions,
    counts_of,
    read_changes,
    receiver,
    table_keys,
    write_base,
    write_layer,
)
from livegnn.types import JSON, State
from livegnn.wording import kind_of, show

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from livegnn.snapshots.writer import Changes

    Rows: TypeAlias = NDArray[np.uint32]
    Nodes: TypeAlias = tuple[tuple[int, int], ...]

_logger = logging.getLogger(__name__)

HELD = 1 << 20
"""Bytes that are read at most while batches wait, some milliseconds, unless more than that changes while
`_ROUNDS` rounds read what changed before.
"""

_ROUNDS = 4
_LAST_WORDS = 5.0
"""Seconds that a snapshot which is being written has left when the view closes."""


class Layers(NamedTuple):
    """The layers of a manifest, and how they were made. fresh: what was taken for its deltas. seq, nodes: as
    of the manifest."""

    step: Step
    layers: Sequence[Layer]
    fresh: ChangedRows
    seq: int
    nodes: "Nodes"


class _Attempt(NamedTuple):
    manifest: Manifest
    layers: Layers


class SnapshotView(View):
    """Snapshots of `graph`, in the store `where`.

    interval: seconds between the ends of two of them; None: only `write` writes any. directions: which lists
    of directed edge types they have. compaction: when deltas are joined and a base is written again. grace:
    seconds for which replaced snapshots stay readable. state: the result of `state`, with the graph at the
    same event: the snapshot of then is continued, if it is still there; else a new base is written. start:
    begin at once, not with the first batch after the replay. owner: the log that the graph follows, to which
    the store then belongs.

    `failure` says why the last attempt wrote nothing; None if it did. Raises `InputError` for wrong
    arguments, `FileFormatError` if the state does not fit.
    """

    name = "snapshots"

    def __init__(
        self,
        graph: Graph,
        where: str | Objects,
        *,
        interval: float | None = 60.0,
        directions: Iterable[Direction] = ("in", "out"),
        compaction: Compaction | None = None,
        grace: float = 600.0,
        state: State | None = None,
        start: bool = True,
        owner: Record | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise InputError(f"graph must be a Graph, got {kind_of(graph)}")
        if not (compaction is None or isinstance(compaction, Compaction)):
            raise InputError(f"compaction must be a Compaction or None, got {show(compaction)}")
        super().__init__(graph)
        if interval is not None:
            check_positive(interval, "interval")
        self._grace = check_grace(grace)
        self._owner = owner
        self._directions = checked_directions(directions)
        self._keys = table_keys(graph.schema, self._directions)
        self.objects = as_objects(where)
        self.failure = None
        self._behind: str | None = None
        self._interval = interval
        self._compaction = Compaction() if compaction is None else compaction
        self._source = GraphRows(graph)
        self._chain = secrets.token_hex(8)
        self._manifest: Manifest | None = None
        self._continues: int | None = None
        self._attempted: _Attempt | None = None
        self._prepared: list[tuple[TableKey, NDArray[np.intp]]] = []
        self._since_snapshot = ChangedRows(self._keys)
        self._since_base = ChangedRows(self._keys)
        self._in_flight = ChangedRows(self._keys)
        self._followed = graph.seq
        self._retired = self._closed = False
        self._writing, self._stop = threading.Lock(), Flag()
        self._thread: Background | None = None
        _core.holding(graph.writer, self._begin, state)
        if start:
            self.start()

    def start(self) -> None:
        """Writes at the interval from now on, in a thread; a second time does nothing."""
        _core.holding(self.graph.writer, self._start)

    def _start(self) -> None:
        if self._interval is None or self._thread is not None or self._stop.is_set():
            return
        self._thread = Background(self._write_at_intervals, "livegnn-snapshots")
        self._thread.start()

    def _begin(self, state: State | None) -> None:
        self._load(state)
        self.graph.attach(self)

    # -- the way of a batch

    def prepare(self, change: GraphDelta) -> None:
        native = change.native
        prepared: list[tuple[TableKey, Rows]] = []
        for i in range(len(self.graph.schema.node_types)):
            added = native.added_indices(i)
            prepared += [
                (TableKey("ids", i), added),
                (TableKey("ids", i), native.removed_indices(i)),
                (TableKey("features", i), added),
                (TableKey("features", i), native.featured(i)),
            ]
        for i in range(len(self.graph.schema.edge_types)):
            if not native.num_edge_changes(i):
                continue
            sources, targets, *_ = native.edges(i)
            prepared += [
                (TableKey("both", i), sources),
                (TableKey("both", i), targets),
                (TableKey("in", i), targets),
                (TableKey("out", i), sources),
            ]
        self._prepared = [
            (key, rows.astype(np.intp)) for key, rows in prepared if len(rows) and key in self._since_snapshot
        ]
        for key, rows in self._prepared:
            self._since_snapshot.reserve(key, int(rows.max()) + 1)

    def commit(self, change: GraphDelta) -> None:
        for key, rows in self._prepared:
            self._since_snapshot.mark(key, rows)
        self._prepared = []
        self._followed = change.seq

    def abandon(self, change: GraphDelta) -> None:
        self._prepared = []

    def publish(self, change: GraphDelta) -> None:
        if self._thread is None and not change.trusted:  # what is trusted is replayed
            self.start()

    # -- what checkpoints keep

    def state(self) -> State | None:
        """The snapshot that it continues, and the changes since; None before the first one."""
        return _core.holding(self.graph.writer, self._save)

    def _save(self) -> State | None:
        generation = self._continues if self._manifest is None else self._manifest.generation
        if generation is None:
            return None
        changed = ChangedRows.union(self._since_snapshot, self._in_flight)
        arrays = changed.save("snapshot") | self._since_base.save("base")
        meta: dict[str, JSON] = {
            "kind": self.name,
            "seq": self.seq,
            "generation": generation,
            "chain": self._chain,
        }
        return State(meta, arrays)

    def _load(self, state: State | None) -> None:
        if state is None:
            return
        meta = state.meta
        generation, chain = meta.get("generation"), meta.get("chain")
        if (
            (meta.get("kind"), meta.get("seq")) != (self.name, self.seq)
            or type(generation) is not int
            or not isinstance(chain, str)
        ):
            raise FileFormatError(
                f"expected the state of {self.name!r} at event {self.seq}, got {dict(meta)}"
            )
        self._since_snapshot = ChangedRows.load(self._keys, state.arrays, "snapshot")
        self._since_base = ChangedRows.load(self._keys, state.arrays, "base")
        self._continues, self._chain = generation, chain

    def memory(self) -> dict[str, int]:
        return {self.name: self._since_snapshot.bytes + self._since_base.bytes + self._in_flight.bytes}

    def retire(self) -> None:
        """Ends the thread without waiting for it: the loop may hold what it waits for."""
        self._retired = True
        self._stop.set()

    def close(self) -> None:
        """Ends the thread, which writes the last events first. If that takes long, they stay unpublished."""
        self._closed = True
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_LAST_WORDS)
        self.objects.close()

    # -- writing

    @property
    def manifest(self) -> Manifest | None:
        """The snapshot that was published last, None before the first."""
        return self._manifest

    def write(self) -> Manifest | None:
        """Publishes the graph as it is now, unless the newest snapshot shows it already, and collects unused
        objects. Returns the manifest that it published last. If the store has a snapshot of a later event
        than the graph, the graph is still replaying, or is another one: nothing is written then, and
        `failure` says so.

        Raises `SnapshotError` if the store cannot be written, or if another process writes to it; the next
        call writes what this one did not. Raises `InputError` after `close`, and if the store belongs to
        another log than `owner`.
        """
        if self._closed:
            raise InputError(
                f"snapshots must be written before the view is closed, {self.objects.url} gets no more of "
                "this one: make another view"
            )
        return _core.holding(self._writing, self._publish)

    def _publish(self) -> Manifest | None:
        """Implements `write`, under its lock; a last time when the view closes."""
        if _core.settled(self._try, self._give_back):
            try:
                if self._owner is not None:
                    claim(self.objects, self._owner)
                collect(self.objects, self._grace)
            except (SnapshotError, InputError, FileFormatError) as error:
                # After the next snapshot it is tried again.
                _logger.warning("replaced snapshots in %s were not collected: %s", self.objects.url, error)
        return self._manifest

    def _try(self) -> bool:
        try:
            published = self._write()
        except BaseException as error:
            self.failure = str(error)
            raise
        self.failure = self._behind
        return published

    def _give_back(self) -> None:
        """The next snapshot has what one that failed, or was interrupted, has taken."""
        _core.holding(self.graph.writer, self._since_snapshot.add, self._in_flight)
        self._in_flight = ChangedRows(self._keys)

    def _write_at_intervals(self) -> None:
        last = False
        pause = None if self._interval is None else min(self._interval, threading.TIMEOUT_MAX)
        while not self._retired:
            try:
                _core.holding(self._writing, self._publish)
            except Exception as error:  # the loop needs no snapshots, and the next attempt may do better
                _logger.warning("no snapshot was written to %s: %s", self.objects.url, error)
            if last:
                return
            last = self._stop.wait(pause)

    def _write(self) -> bool:
        """Whether it published a snapshot."""
        if self._owner is not None:
            claim(self.objects, self._owner)
        newest, damaged = read_past_damage(self.objects)
        behind, self._behind = self._behind, None
        if newest is not None and newest.seq > self.graph.seq:
            self._behind = (
                f"{newest.path} in {self.objects.url} shows event {newest.seq}, the graph is at "
                f"{self.graph.seq}: nothing is written before it reaches that event; a graph of "
                "another log needs a place of its own"
            )
            if behind is None:
                _logger.warning("%s", self._behind)
            return False
        if damaged:
            self._pass_over(damaged)
        before = None if damaged else self._continue(newest)
        if before is not None and before.seq == self.graph.seq:
            return False
        # Readers look for a number above theirs, also in a store that was emptied under them.
        generations = [0 if each is None else each.generation for each in (newest, self._manifest)]
        generation = 1 + max(damaged, *generations)
        written = self._write_layers(generation, before)
        schema, layers = self.graph.schema.to_json(), tuple(written.layers)
        manifest = Manifest(generation, written.seq, self._chain, schema, written.nodes, layers)
        self._attempted = _Attempt(manifest, written)
        self.objects.put_new(manifest.path, manifest.to_bytes())
        _core.holding(self.graph.writer, self._adopt, self._attempted)
        return True

    def _write_layers(self, generation: int, before: Manifest | None) -> Layers:
        step = self._choose(before)
        kept: tuple[Layer, ...] = ()
        if before is not None and step != "base":
            kept = before.layers if step == "delta" else before.layers[:1]
        if step == "base":
            _core.holding(self.graph.writer, self._take)
            kept = (write_base(self._source, self.objects, generation, self._directions),)
        fresh, deltas, seq, nodes = self._write_rounds(generation, merge=step == "merge")
        return Layers(step, [*kept, *deltas], fresh, seq, nodes)

    def _adopt(self, attempt: "_Attempt") -> None:
        """Continues from a snapshot that is in the store. Until its end it is an attempt, which is repeated
        after a failure."""
        earlier = () if attempt.layers.step == "base" else (self._since_base,)
        self._since_base = ChangedRows.union(attempt.layers.fresh, *earlier)
        self._in_flight = ChangedRows(self._keys)
        self._manifest = attempt.manifest
        self._attempted = None

    def _continue(self, newest: Manifest | None) -> Manifest | None:
        """The snapshot whose layers the next one may use, or None."""
        if self._continues is not None:
            continued = self._find_continued(self._continues, newest)
            _core.holding(self.graph.writer, self._go_on, continued)
        if self._attempted is not None and newest == self._attempted.manifest:
            _core.holding(
                self.graph.writer, self._adopt, self._attempted
            )  # the store had it, and the answer was lost
        before = self._manifest
        if before is None or (newest is not None and newest.generation == before.generation):
            return before
        if newest is None or newest.chain.startswith(ONCE):
            _logger.warning(
                "%s %s: the next snapshot is a whole one",
                self.objects.url,
                "is empty" if newest is None else f"has a snapshot by another hand, {newest.path}",
            )
            return None
        raise self._not_newest(before, newest.path)

    def _go_on(self, manifest: Manifest | None) -> None:
        self._manifest = manifest
        if manifest is None or manifest.generation != self._continues:
            # The dropped part may have shown another graph at an event that is repeated.
            self._chain = secrets.token_hex(8)
        self._continues = None

    def _pass_over(self, damaged: int) -> None:
        """The newest manifest, of this generation, cannot be read: the next snapshot is a whole one."""
        own = [self._manifest, None if self._attempted is None else self._attempted.manifest]
        if self._manifest is not None and damaged not in [one.generation for one in own if one is not None]:
            raise self._not_newest(self._manifest, f"{path_of(damaged)}, which is damaged")
        _logger.warning(
            "%s in %s is damaged: the next snapshot is a whole one", path_of(damaged), self.objects.url
        )
        self._continues, self._chain = None, secrets.token_hex(8)

    def _not_newest(self, before: Manifest, newest: str) -> SnapshotError:
        return SnapshotError(
            f"expected {before.path} to be the newest snapshot in {self.objects.url}, got {newest}: "
            "does another process write to the same place? Give each its own, and start this one again"
        )

    def _find_continued(self, generation: int, newest: Manifest | None) -> Manifest | None:
        """The snapshot that a checkpoint names, under the number of the newest one, if its layers are there.

        Snapshots that were published after the checkpoint are dropped: the graph may have taken other events
        since.
        """
        if newest is None or newest.chain != self._chain:
            return None
        try:
            data = self.objects.get(path_of(generation))
        except ObjectMissingError:
            return None
        named = Manifest.from_bytes(data, path_of(generation))
        if named.chain != self._chain or newest.layers[: len(named.layers)] != named.layers:
            return None
        return replace(named, generation=newest.generation)

    def _choose(self, before: Manifest | None) -> Step:
        noted = (self._since_base, self._since_snapshot)
        changed = _core.holding(self.graph.writer, ChangedRows.union, *noted)
        merged = sum(map(self._size, changed.rows().items()))
        if before is None:
            return self._compaction.choose(None, (), merged)
        base, *deltas = before.layers
        return self._compaction.choose(base.size, [layer.size for layer in deltas], merged)

    def _write_rounds(self, generation: int, *, merge: bool) -> "tuple[ChangedRows, list[Layer], int, Nodes]":
        """Writes the changed rows, round after round, until the rest is read while batches wait. Returns the
        changes that it took, the layers, and the event and the nodes that they show."""
        fresh, layers = ChangedRows(self._keys), []

        def read(number: int) -> "tuple[dict[TableKey, Rows], Changes | None, int, Nodes]":
            """A round under `Graph.writer`; returns the rows that it has read if it is the last one."""
            taken = self._take()
            fresh.add(taken)
            if merge and not number:
                taken.add(self._since_base)
            if self._followed != self.graph.seq:
                raise SnapshotError(
                    f"the view has seen the graph up to event {self._followed}, which is at "
                    f"{self.graph.seq} and continues without it: make another view"
                )
            rows = self._existing(taken)
            ends = number == _ROUNDS or sum(map(self._size, rows.items())) <= HELD
            last = read_changes(self._source, generation, rows) if ends else None
            return rows, last, self.graph.seq, counts_of(self._source)

        for number in range(_ROUNDS + 1):
            rows, last, seq, nodes = _core.holding(self.graph.writer, read, number)
            if last is not None:
                break
            layers.append(write_layer(self._source, self.objects, generation, rows, "delta"))
        assert last is not None
        if last.layer.tables:
            last.store(self.objects)
            layers.append(last.layer)
        return fresh, layers, seq, nodes

    def _take(self) -> ChangedRows:
        """The changes since the last call. The caller holds `Graph.writer`."""
        taken = self._since_snapshot
        self._in_flight.add(taken)
        self._since_snapshot = ChangedRows(self._keys)
        return taken

    def _existing(self, changed: ChangedRows) -> "dict[TableKey, Rows]":
        """Without rows that were reserved in a batch and never used."""
        return {
            key: rows[rows < self._source.rows(receiver(self.graph.schema, key))]
            for key, rows in changed.rows().items()
        }

    def _size(self, changed: "tuple[TableKey, Rows]") -> int:
        """About how many bytes these rows of a table take."""
        key, rows = changed
        if key.kind == "ids":
            return len(rows) * records.INTEGER_ID.itemsize
        if key.kind == "features":
            return len(rows) * 4 * list(self.graph.schema.node_types.values())[key.type]
        edges = list(self.graph.schema.edge_types.values())[key.type]
        width = sum(type_.itemsize for type_ in records.columns_of(edges).values())
        entries = self._source.degrees(key.type, rows, incoming=key.kind != "out").sum()
        return len(rows) * records.index_type(edges).itemsize + int(entries) * width
