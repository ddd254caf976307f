"""Predictions from a snapshot in object storage: the program of a worker without a graph.

    ids ─► subgraph, hop by hop ─► memory predicted, cache evicted ─► features ─► forward pass ─► rows
           never cached                                               cached

A request may take as many bytes as the limit says, cached features included. Its memory beside the cache is
predicted (memory_model.py), and the cache leaves room for that. If that was too little, the cache is dropped
and the request runs again.

Thread safety: any thread may call; requests are answered one after another.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from livegnn.arguments import check_bool, check_int, check_positive
from livegnn.errors import InputError, SnapshotReplacedError
from livegnn.network.model import Model
from livegnn.network.outputs import Outputs
from livegnn.remote.feature_cache import FeatureCache
from livegnn.remote.memory_limit import memory_of_machine
from livegnn.remote.memory_model import MemoryModel, PeakMeter
from livegnn.remote.missing_features import WorkingArrays, fetch_missing, first_of_each, repeat
from livegnn.remote.model_fit import FittedModel
from livegnn.remote.pair_scoring import PairScorer
from livegnn.remote.statistics import Account
from livegnn.remote.subgraph import Known, Lists, Neighborhood, receiver_of
from livegnn.remote.subgraph_message import decode, encode
from livegnn.snapshots.objects import Objects, open_objects
from livegnn.snapshots.snapshot import Snapshot
from livegnn.snapshots.snapshot_source import SnapshotSource
from livegnn.types import FloatArray, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64
    from numpy.typing import ArrayLike

    from livegnn.remote.shared_memory import SharedMemory

T = TypeVar("T")

_log = logging.getLogger(__name__)
_ALL = 1 << 62  # bytes: as many as there are


def open_predictor(
    snapshot_url: str | Objects,
    model_path: str | PathLike[str],
    *,
    memory_path: str | PathLike[str] | None = None,
    memory_limit: int | None = None,
    output: str | None = None,
    cache: bool = True,
    sample_seed: int = 0,
    refresh_seconds: float | None = 60.0,
    patience: float = 3.0,
) -> "SnapshotPredictor":
    """A predictor on the newest snapshot of a store, with a model file.

    snapshot_url: as `open_objects` takes it, or its result. memory_path: a file of `MemoryModel.save`; by
    default the path of the model with ``.memory`` after it, if there is such a file. memory_limit: in bytes;
    by default the limit that the memory model names, if there is one. patience: as `open_objects` takes it; a
    client waits ten seconds, and should by then receive the reason. The rest: as for `SnapshotPredictor`.

    Raises `FileFormatError` for files that are damaged, and the errors of `SnapshotPredictor`.
    """
    path = Path(f"{model_path}.memory" if memory_path is None else memory_path)
    memory_model = MemoryModel.load(path) if memory_path is not None or path.exists() else None
    if memory_limit is None and memory_model is not None:
        memory_limit = memory_model.limit
    objects = open_objects(snapshot_url, patience=patience) if isinstance(snapshot_url, str) else snapshot_url
    return SnapshotPredictor(
        SnapshotSource(objects),
        Model.load(model_path),
        output=output,
        memory_limit=memory_limit,
        memory_model=memory_model,
        cache=cache,
        sample_seed=sample_seed,
        refresh_seconds=refresh_seconds,
    )


class _TooLowError(Exception):
    """A request takes more than was predicted, and does not fit beside the cache."""


class SnapshotPredictor(PairScorer):
    """Predicts with `model` on the snapshot of a source. A model with a query predicts on the samples that
    the query draws.

    output: the name of one of the model's outputs, by default the first. memory_limit: bytes for a request
    and the cache together; None for no limit; the cache then takes half of the memory. memory_model:
    forecasts the memory of a request; without it that is estimated from the sizes of its arrays. cache:
    whether features are kept for later requests. sample_seed: of a query's draws. refresh_seconds: seconds
    between checks for a newer snapshot; None: only if the current one was collected.

    Raises `ModelError` if the model does not fit the snapshot or an engine could not run it, `InputError` for
    a memory model of another model, and `SnapshotError`.
    """

    def __init__(
        self,
        source: SnapshotSource,
        model: Model,
        *,
        output: str | None = None,
        memory_limit: int | None = None,
        memory_model: MemoryModel | None = None,
        cache: bool = True,
        sample_seed: int = 0,
        refresh_seconds: float | None = 60.0,
    ) -> None:
        if memory_model is not None and memory_model.model != model.digest:
            raise InputError(
                "memory_model must be of the model that predicts, got that of another: profile this model"
            )
        self._source, self._output = source, output
        self.model = model
        self.memory_limit = None if memory_limit is None else check_int(memory_limit, "memory_limit", 1)
        self.memory_model = memory_model
        self._caches = check_bool(cache, "cache")
        machine = memory_of_machine()
        self._cache_limit = _ALL if machine is None else machine // 2
        self._sample_seed = check_int(sample_seed, "sample_seed", 0, 2**64 - 1)
        self._refresh_seconds = (
            check_positive(refresh_seconds, "refresh_seconds") if refresh_seconds else refresh_seconds
        )
        self._lock = threading.RLock()
        self.account = Account()
        self._snapshot: Snapshot | None = None
        self._memory: SharedMemory | None = None
        self._arrays = WorkingArrays()
        self._asked_at = time.monotonic()
        source.read(self._adopt)
        source.require(self._check)

    @property
    def width(self) -> int:
        """The channels of a prediction."""
        return self.model.width(Outputs(self.model).find(self._output).value)

    @property
    def output(self) -> str:
        """The name of the model's output that it predicts."""
        return next(iter(self.model.outputs)) if self._output is None else self._output

    @property
    def text_ids(self) -> bool:
        """Whether ids are texts in the snapshot."""
        return self._current().schema.text_ids

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a node, of the type that has the most."""
        return 4 * max(self._fitted.widths.values(), default=0)

    @property
    def read_so_far(self) -> tuple[int, int]:
        return self._source.read_so_far

    @property
    def retries_so_far(self) -> int:
        return self._source.retries_so_far

    def predict(
        self, ids: "ArrayLike", *, memory_limit: int | None = None
    ) -> "Float32[FloatArray, 'nodes channels']":
        """Predictions of nodes, float32 [nodes, channels], in the order of `ids`.

        memory_limit: of this request, in place of the predictor's.

        Raises `UnknownNodeError`, `SnapshotError` if the snapshot cannot be read, and `MemoryError` if the
        request does not fit into memory without any cache.
        """
        with self._lock:
            self._look_for_newer()
            return self._read(
                lambda snapshot: self._infer(snapshot, self._sample(snapshot, ids), memory_limit)
            )

    def share(self, memory: "SharedMemory") -> None:
        """Keeps features in memory that it has in common with other workers, instead of in its own."""
        with self._lock:
            if not self._caches:
                return
            self._memory, self._cache = memory, self._open_cache(memory)
            self._cache.show(self._current().layout)
            self._cache.leave(self._room_of_cache(self.memory_limit))

    def confine(self, room: int | None, cache: int | None) -> None:
        """As `livegnn.functions.function.Confined`."""
        with self._lock:
            self._cache_limit = _ALL if cache is None else cache
            if room is not None:
                self._source.confine(room)
            limit = self.memory_limit if room is None else room
            self._cache.leave(self._room_of_cache(limit))

    def refresh(self) -> None:
        """Looks for a newer snapshot now, and predicts on it from now on. Raises `SnapshotError`."""
        with self._lock:
            self._adopt(self._source.newest())
            self._asked_at = time.monotonic()

    def check(self) -> None:
        """Raises `SnapshotError` or `FileFormatError` if the store has no snapshot that can be read."""
        self._source.check()

    def sample(self, ids: "ArrayLike") -> bytes:
        """The subgraph that the predictions of `ids` read, without features, for `infer` of another worker.
        Raises what `predict` raises."""
        with self._lock:
            self._look_for_newer()
            return self._read(lambda snapshot: encode(self._sample(snapshot, ids, later=False)))

    def infer(
        self, subgraph: bytes | memoryview, *, memory_limit: int | None = None
    ) -> "Float32[FloatArray, 'nodes channels']":
        """The predictions of the nodes for which `sample` gave this. Raises what `predict` raises,
        `FileFormatError` if the bytes are damaged, and `SnapshotReplacedError` if the subgraph is of another
        snapshot than the newest: sample again."""
        decoded = decode(subgraph)
        with self._lock:
            if self._current().identity != decoded.snapshot:
                self._adopt(self._source.newest())
            if self._current().identity != decoded.snapshot:
                raise SnapshotReplacedError(
                    f"expected a subgraph of the snapshot {self._current().identity}, got one of "
                    f"{decoded.snapshot}: sample again"
                )
            if self._current().layout != decoded.layout:
                decoded = replace(decoded, index={})
            return self._infer(self._current(), decoded, memory_limit)

    def measure(self, ids: "ArrayLike") -> "tuple[Int64[IntArray, 'counts'], int]":
        """The counts of a request (`Neighborhood.counts`), and the bytes that it takes beside the cache.

        The cache is dropped. It runs several times slower than `predict`. Raises what `predict` raises."""
        with self._lock:
            self._drop()
            caches, self._caches = self._caches, False

            def request(snapshot: Snapshot) -> tuple[IntArray, int]:
                with PeakMeter() as meter:
                    subgraph = self._sample(snapshot, ids)
                    meter.start_over()  # memory that only sampling needs is not predicted
                    self._run(snapshot, subgraph, None, meter)
                return subgraph.counts(), meter.peak

            try:
                return self._read(request)
            finally:
                self._caches = caches
                self._release()

    def degrees(self, ids: "ArrayLike") -> "Int64[IntArray, 'nodes']":
        """The number of in-edges of each node that the model reads. Raises the errors of `predict`."""
        with self._lock:

            def request(snapshot: Snapshot) -> IntArray:
                rows, total = self._fitted.seeds(snapshot, ids), np.zeros(1, np.int64)
                for lists in self._fitted.reads.lists:
                    if receiver_of(lists) == self._fitted.node_type:
                        total = total + snapshot.degrees(lists[0], rows, lists[1]).columns[0]
                return np.broadcast_to(total, rows.shape).copy()

            return self._read(request)

    def describe(self) -> dict[str, int | float | str | None]:
        """Its identity and its counts. `seq` is the last event that its predictions reflect. It waits for no
        request; while one runs, figures are of some moment within it."""
        return {
            "seq": self._current().seq,
            "refused_snapshot": self._source.refused,
            "model": self.model.digest,
            "memory_limit": self.memory_limit,
            "cache_bytes": self._cache.bytes,
            "cache_entries": len(self._cache),
            "working_bytes": self._held_bytes(),
            "store_requests": self.read_so_far[0],
            "store_retries": self.retries_so_far,
            "store_bytes": self.read_so_far[1],
            **asdict(self.account),
        }

    # -- the snapshot

    def _read(self, request: Callable[[Snapshot], T]) -> T:
        """Calls `request` with the snapshot on which requests then predict; returns its result."""

        def adopting(snapshot: Snapshot) -> T:
            self._adopt(snapshot)
            return request(snapshot)

        return self._source.read(adopting)

    def _current(self) -> Snapshot:
        assert self._snapshot is not None
        return self._snapshot

    def _look_for_newer(self) -> None:
        if self._refresh_seconds is None:
            return
        another = self._cache.shows_another()  # another worker has a newer one, or this one is newer
        if another or time.monotonic() - self._asked_at >= self._refresh_seconds:
            self.refresh()
        if another:
            self._cache.show(self._current().layout)

    def _check(self, snapshot: Snapshot) -> None:
        """Raises `ModelError` if the model does not fit it."""
        if snapshot.schema != self._current().schema:
            FittedModel(self.model, snapshot.schema, self._output)

    def _adopt(self, snapshot: Snapshot) -> None:
        """Predicts on this snapshot from now on. Row numbers of another snapshot do not fit its features."""
        if snapshot is self._snapshot:
            return
        if self._snapshot is None or snapshot.schema != self._snapshot.schema:
            self._fitted = FittedModel(self.model, snapshot.schema, self._output)
            self._cache = self._open_cache(self._memory)
        if self._snapshot is None or snapshot.identity != self._snapshot.identity:
            self.account.snapshots += 1
        if self._snapshot is None or snapshot.layout != self._snapshot.layout:
            self._cache.show(snapshot.layout)
        self._snapshot = snapshot

    def _open_cache(self, memory: "SharedMemory | None") -> FeatureCache:
        fitted = self._fitted
        try:
            return FeatureCache(
                fitted.widths, fitted.noted.sizes, memory, f"{self.model.digest}/{self._output}"
            )
        except OSError as error:
            _log.warning("a worker keeps features by itself: %s", error)
            return FeatureCache(fitted.widths, fitted.noted.sizes)

    # -- one request

    def _sample(self, snapshot: Snapshot, ids: "ArrayLike", *, later: bool = True) -> Neighborhood:
        """The neighbourhood that a request reads. later: whether degrees may be pending."""
        try:
            return self._sample_once(snapshot, ids, later=later)
        except MemoryError:
            self.account.predicted_too_low += 1
            self._drop()
        return self._sample_once(snapshot, ids, later=later)

    def _sample_once(self, snapshot: Snapshot, ids: "ArrayLike", *, later: bool) -> Neighborhood:
        before = self.account.cache_seconds
        with self.account.timed("sample_seconds"):
            seeds, find = self._fitted.seeds(snapshot, ids), self._find if self._caches else None
            try:
                return self._fitted.sample(snapshot, seeds, self._sample_seed, find, later=later)
            finally:
                self.account.sample_seconds -= self.account.cache_seconds - before

    def _find(self, lists: Lists, rows: IntArray) -> Known:
        """The records of the index that the cache has."""
        with self.account.timed("cache_seconds"):
            return self._fitted.noted.find(self._cache, lists, rows)

    def _infer(self, snapshot: Snapshot, subgraph: Neighborhood, memory_limit: int | None) -> FloatArray:
        limit = self.memory_limit if memory_limit is None else check_int(memory_limit, "memory_limit", 1)
        self.account.requests += 1
        self.account.nodes += sum(map(len, subgraph.sample.node.values()))
        self.account.edges += sum(map(len, subgraph.sample.row.values()))
        try:
            try:
                return self._run(snapshot, subgraph, limit)
            except (MemoryError, _TooLowError):
                self.account.predicted_too_low += 1
                self._drop()
            return self._run(snapshot, subgraph, limit, again=True)
        finally:
            if limit is not None and self._held_bytes() > limit:
                self._arrays.release()
            self._cache.leave(self._room_of_cache(limit, self._held_bytes()))

    def _run(
        self,
        snapshot: Snapshot,
        subgraph: Neighborhood,
        limit: int | None,
        meter: PeakMeter | None = None,
        *,
        again: bool = False,
    ) -> FloatArray:
        room = None
        taken = subgraph.bytes + self._fitted.feature_bytes(subgraph)
        if limit is not None:
            with self.account.timed("memory_seconds"):
                room = max(limit - self._predicted(subgraph), 0)
            self._make_room(room, keep=True, subgraph=subgraph)
            beside = limit - taken - self._held_bytes()
            if beside < 0 or self._cache.exceeds(beside):
                self._release()  # what an earlier, larger request has left
        x, absent = self._read_cache(subgraph)
        missing = {name: first_of_each(subgraph.rows[name], at) for name, at in absent.items()}
        with self.account.timed("fetch_seconds"):
            subgraph = fetch_missing(
                snapshot, subgraph, x, missing, self._fitted.noted if self._caches else None
            )
        for name, at in absent.items():
            self.account.feature_bytes_fetched += 4 * self._fitted.widths[name] * len(missing[name])
            repeat(x[name], subgraph.rows[name], missing[name], at)
        if limit is not None and room is not None:
            self._make_room(room, keep=False, subgraph=subgraph)  # `x` has what the request needs
            if not again and self._cache.exceeds(max(limit - taken, 0)):
                raise _TooLowError
        with self.account.timed("infer_seconds"):
            rows = self._fitted.forward.predict(
                replace(subgraph.sample, x=x),
                degrees="sample" if subgraph.degrees is None else subgraph.degrees,
                output=self._output,
            )
        taken += self._fitted.forward.last_bytes + rows.nbytes
        if meter is not None:
            meter.note(self._fitted.forward.last_bytes + rows.nbytes)
        if limit is not None and self._cache.exceeds(max(limit - taken, 0)):
            self.account.predicted_too_low += 1
            self._drop()
        self._keep(subgraph, x, missing, limit)
        return rows

    def _predicted(self, subgraph: Neighborhood) -> int:
        """The bytes that a request will take beside the cache."""
        if self.memory_model is not None:
            return self.memory_model.predict(subgraph.counts())
        # Bytes that arrive, the array that they become, and sums that are as wide.
        return 2 * subgraph.bytes + 3 * self._fitted.feature_bytes(subgraph)

    def _make_room(self, room: int, *, keep: bool, subgraph: Neighborhood) -> None:
        """Evicts until the cache fits into `room`. keep: whether features of the request stay."""
        with self.account.timed("cache_seconds", "change_seconds"):
            kept = {name: subgraph.rows[name] for name in self._fitted.widths} if keep else {}
            self.account.evicted += self._cache.evict(room, kept)

    def _read_cache(self, nodes: Neighborhood) -> tuple[dict[NodeType, FloatArray], dict[NodeType, IntArray]]:
        """Features of all nodes, as far as they are cached, and the positions of those that are not."""
        x, missing = {}, {}
        for name, width in self._fitted.widths.items():
            rows = nodes.rows[name]
            x[name] = self._arrays.take(name, len(rows), width)
            with self.account.timed("cache_seconds"):
                cached = self._cache.read(name, rows, x[name])
            missing[name] = np.flatnonzero(~cached) if width else np.zeros(0, np.int64)
            self.account.features_read += len(rows) if width else 0
            self.account.features_reused += len(rows) - len(missing[name]) if width else 0
        return x, missing

    def _keep(
        self,
        subgraph: Neighborhood,
        x: dict[NodeType, FloatArray],
        missing: dict[NodeType, IntArray],
        limit: int | None,
    ) -> None:
        """Puts fetched features into the cache, as far as there is room beside what the request still has."""
        if not self._caches:
            return
        taken = (
            subgraph.bytes
            + max(self._fitted.feature_bytes(subgraph), self._arrays.bytes)
            + self._fitted.forward.held_bytes
        )
        room = self._room_of_cache(limit, taken)
        with self.account.timed("cache_seconds", "change_seconds"):
            for name, at in missing.items():
                rows, degrees = subgraph.rows[name][at], np.maximum(subgraph.degree[name][at], 0)
                self.account.evicted += self._cache.insert(
                    name, rows, x[name], at, degrees, self._fitted.noted.of(subgraph, name, at), room=room
                )

    def _room_of_cache(self, limit: int | None, taken: int = 0) -> int:
        """The bytes that a limit leaves to the cache, beside those that are taken."""
        return self._cache_limit if limit is None else min(max(limit - taken, 0), self._cache_limit)

    def _drop(self) -> None:
        """Takes nothing of the cache into account, and leaves it nothing."""
        self._cache.evict(0, {})
        self._release()

    def _held_bytes(self) -> int:
        """Memory that is kept for the next request."""
        return self._fitted.forward.held_bytes + self._arrays.bytes

    def _release(self) -> None:
        self._fitted.forward.release()
        self._arrays.release()
