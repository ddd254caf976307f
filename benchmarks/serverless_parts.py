"""The measured half of `serverless.py`: what one request costs, for real, and what others like it will cost.

Real requests run through the real predictor over the throttled store, with and without cache, and on data
held in memory; worker processes start. From these, `Costs` says what any request takes:

- lists and the forward pass take what they took for the measured request that is most like it, in nodes and
  edges; lists of a worker with a cache, which knows where the lists of what is in it lie, that times a + b
  missing rows over all rows, and their bytes likewise;
- fetching features takes a + b ranges + c bytes + d rows, fitted to the measured requests (least squares of
  the relative error); ranges and bytes are those that the reader asks for, gaps between near rows included.
  Workers with a cache fetch records of the index at the same time, which takes them e + f rows more;
- operations of the cache take a + b rows + c rows fetched + d entries.

`Costs.error` says how far the sum is from measured requests that were not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from livegnn import EdgeSchema
from livegnn.network.hops import reads_of
from livegnn.network.model import Model
from livegnn.remote.memory_model import MemoryModel
from livegnn.remote.predictor import SnapshotPredictor
from livegnn.remote.profiling import profile
from livegnn.remote.shared_memory import MemoryFile, SharedMemory
from livegnn.snapshots import records
from livegnn.snapshots.joined_ranges import join
from livegnn.snapshots.objects import BYTES_AT_ONCE, GAP, PARTS_AT_ONCE, Objects
from livegnn.snapshots.snapshot_source import SnapshotSource
from serverless_contestants import Start, open_ours, open_plain, open_whole, start_worker
from serverless_shapes import Around, Float64, GraphShape, InLists, Int64

NODE_BYTES, EDGE_BYTES = 48, 16
"""Of a subgraph without features."""


@dataclass(frozen=True)
class Request:
    """One measured request: what it read, and seconds. `ranges`, `range_bytes`: of features alone.
    `index_bytes`: of the index, which a cache wants of the rows that it fetches, where the model does not
    read it anyway."""

    nodes: int
    edges: int
    fetched: int
    ranges: int
    range_bytes: int
    index_bytes: int
    store_bytes: int
    entries: int
    sample: float
    fetch: float
    infer: float
    cache: float
    change: float
    memory: float
    total: float


@dataclass(frozen=True)
class Parts:
    """All that was measured of one shape and one model. entry_bytes: of a cached row beside its features."""

    shape: GraphShape
    model: str
    whole_bytes: int
    memory: MemoryModel
    profile_seconds: float
    plain: Sequence[Request]
    cached: Sequence[Request]
    whole: Sequence[Request]
    starts: dict[str, Start]
    working_bytes: int
    reused: float
    too_low: int
    entry_bytes: int


def measure(
    folder: Path, shape: GraphShape, model: str, hops: int, sequence: Int64, counts: tuple[int, int, int]
) -> Parts:
    """counts: of requests for the profile, of distinct nodes, and of requests with cache."""
    lists = read_lists(folder)
    snapshot, path = folder / "snapshot", folder / f"{model}.lgnn"
    hub = int(lists.degrees.argmax())
    distinct = list(dict.fromkeys(sequence.tolist()))
    began = time.perf_counter()
    profiled = SnapshotPredictor(SnapshotSource(str(snapshot)), Model.load(path), cache=False)
    memory = profile(profiled, np.unique([*distinct[: 4 * counts[0]], hub]), requests=counts[0])
    seconds = time.perf_counter() - began
    memory.save(f"{path}.memory")
    around = {
        node: lists.around(node, hops) for node in {*distinct[: counts[1]], *sequence[: counts[2]].tolist()}
    }
    check_counts(profiled, around, distinct[:3])
    given = str(snapshot), str(path)
    plain = run(open_plain(*given), shape, around, distinct[: counts[1]], cache=False)
    whole = run(open_whole(*given), shape, around, distinct[: counts[1]], cache=False)
    ours, file = open_ours(*given), MemoryFile()
    ours.share(SharedMemory(file.fd))
    cached = run(ours, shape, around, sequence[: counts[2]].tolist(), cache=True)
    starts = {
        opener: median_start([start_worker(opener, snapshot, path, distinct[0]) for _ in range(5)])
        for opener in ("open_ours", "open_plain", "open_whole")
    }
    told = ours.account
    return Parts(
        shape,
        model,
        sum(one.stat().st_size for one in snapshot.rglob("*") if one.is_file()),
        memory,
        seconds,
        plain,
        cached,
        whole,
        starts,
        int(ours.describe()["working_bytes"]),  # type: ignore[arg-type]
        told.features_reused / told.features_read,
        told.predicted_too_low,
        ours._cache.entry_bytes(ours._fitted.node_type) - 4 * shape.features,
    )


def there(predictor: SnapshotPredictor, rows: Int64) -> NDArray[np.bool_]:
    """Which of these rows the cache has, private or shared."""
    return predictor._cache.read_notes(predictor._fitted.node_type, rows)[0]


def read_lists(folder: Path) -> InLists:
    return InLists(np.load(folder / "begin.npy"), np.load(folder / "source.npy"))


def check_counts(predictor: SnapshotPredictor, around: dict[int, Around], nodes: Sequence[int]) -> None:
    """The copy of the graph that the replay walks must be the snapshot's."""
    for node in nodes:
        counts, _ = predictor.measure([node])
        assert counts.tolist() == around[node].counts.tolist(), (node, counts, around[node].counts)


def median_start(found: Sequence[Start]) -> Start:
    return sorted(found, key=lambda one: one.ready)[len(found) // 2]


def ranges_of(rows: Int64, width: int) -> tuple[int, int]:
    """Requests for features of these rows, which are sorted, and their bytes, as `Objects` joins them."""
    return _joined(rows, 4 * width + records.SEAL)


def index_bytes_of(rows: Int64) -> int:
    """Bytes of the index records of these rows, which are sorted."""
    return _joined(rows, records.index_type(EdgeSchema()).itemsize)[1]


def reads_no_degrees(model: Model) -> bool:
    """Whether a cache reads records of the index that a request without one does not read."""
    return not reads_of(model.steps, model.output).degrees


def _joined(rows: Int64, size: int) -> tuple[int, int]:
    """Requests for records of so many bytes, and their bytes."""
    sizes = np.full(len(rows), size)
    found = join(rows * size, sizes, gap=GAP, part=BYTES_AT_ONCE // PARTS_AT_ONCE)
    return len(found.starts), int(found.lengths.sum())


def run(
    predictor: SnapshotPredictor,
    shape: GraphShape,
    around: dict[int, Around],
    nodes: Sequence[int],
    *,
    cache: bool,
) -> list[Request]:
    """Requests for one node each, one after the other. The first one, which loads what is imported late, is
    asked twice."""
    found: list[Request] = []
    predictor.predict([nodes[0]])
    if cache:
        predictor._drop()
    more = cache and reads_no_degrees(predictor.model)
    objects: Objects = predictor._source.objects  # type: ignore[attr-defined]
    for node in nodes:
        rows = around[node].rows
        missing = rows[~there(predictor, rows)] if cache else rows
        before, read = replace(predictor.account), objects.bytes_read
        entries = len(predictor._cache)
        began = time.perf_counter()
        predictor.predict([node])
        total = time.perf_counter() - began
        told = predictor.account
        took = {name: getattr(told, name) - getattr(before, name) for name in vars(told)}
        if cache and took["feature_bytes_fetched"] != 4 * shape.features * len(missing):
            missing = missing[: took["feature_bytes_fetched"] // (4 * shape.features)]  # evicted in between
        ranges, bytes_ = ranges_of(missing, shape.features)
        found.append(
            Request(
                len(rows),
                around[node].edges,
                len(missing),
                ranges,
                bytes_,
                index_bytes_of(missing) if more else 0,
                objects.bytes_read - read,
                entries,
                took["sample_seconds"],
                took["fetch_seconds"],
                took["infer_seconds"],
                took["cache_seconds"],
                took["change_seconds"],
                took["memory_seconds"],
                total,
            )
        )
    return found


class Cost(NamedTuple):
    """Of a request: seconds, of them for lists and for features, and bytes through the store."""

    seconds: float
    lists: float
    features: float
    bytes: int


class Costs:
    """What requests take, by what was measured. `held_out`: every so manieth request is used for `error`
    alone."""

    def __init__(self, parts: Parts, model: Model, held_out: int = 5) -> None:
        self.parts, self._more = parts, reads_no_degrees(model)
        plain, cached = list(parts.plain), list(parts.cached)
        kept_plain = [one for i, one in enumerate(plain) if i % held_out]
        kept_cached = [one for i, one in enumerate(cached) if i % held_out]
        self._width = parts.shape.features
        self._near = _Near(kept_plain)
        self._whole = _Near(parts.whole)
        self._fetch = _fit_fetch(kept_plain, kept_cached)
        used = [one for one in kept_cached if one.cache > 0]
        self._cache = _fit(
            np.array([[1, one.nodes, one.fetched, one.entries] for one in used]),
            np.array([one.cache for one in used]),
        )
        self._warm = _warm_lists(kept_cached, self._near)
        self._memory = float(np.median([one.memory for one in kept_cached]))
        self._rest = float(np.median([_rest(one) for one in (*kept_plain, *kept_cached)]))
        self._hit = float(np.median([one.fetch for one in kept_cached if not one.fetched] or [0.0]))
        out = [one for i, one in enumerate(cached) if not i % held_out]
        said = np.array([sum(self._parts_of(one, cache=True)) for one in out])
        real = np.array([one.total for one in out])
        self.error = float(abs(said.sum() - real.sum()) / real.sum())
        """Of the sum over requests with cache that were held out."""
        self.error_each = float(np.median(abs(said - real) / real))

    def first_extra(self, opener: str) -> float:
        """Seconds by which the first request of a process takes longer than the same one later."""
        same = self.parts.whole[0] if opener == "open_whole" else self.parts.plain[0]
        return max(self.parts.starts[opener].first - same.total, 0.0)

    def whole(self, around: Around) -> Cost:
        """Of a request on data in memory."""
        return Cost(self._whole.find(len(around.rows), around.edges).total, 0.0, 0.0, 0)

    def on_demand(self, around: Around, missing: Int64, entries: int, *, cache: bool) -> Cost:
        """missing: the rows to fetch, sorted. entries: of the cache."""
        ranges, bytes_ = ranges_of(missing, self._width)
        near = self._near.find(len(around.rows), around.edges)
        one = replace(
            near,
            nodes=len(around.rows),
            edges=around.edges,
            fetched=len(missing),
            ranges=ranges,
            range_bytes=bytes_,
            entries=entries,
        )
        sample, fetch, *others = self._parts_of(one, cache=cache)
        if not cache:
            others[1] = 0.0  # its operations
        share = float(self._warm[1] @ [1, len(missing) / max(len(around.rows), 1)]) if cache else 1.0
        size = int(max(near.store_bytes - near.range_bytes, 0) * share) + bytes_
        size += index_bytes_of(missing) if cache and self._more else 0
        return Cost(sample + fetch + sum(others), sample, fetch, size)

    def _parts_of(self, one: Request, *, cache: bool) -> tuple[float, ...]:
        near = self._near.find(one.nodes, one.edges)
        fetch = self._hit
        if one.fetched:
            fetch = max(float(self._fetch[cache] @ [1, one.ranges, one.range_bytes, one.fetched]), self._hit)
        operations = max(float(self._cache @ [1, one.nodes, one.fetched, one.entries]), 0.0)
        share = float(self._warm[0] @ [1, one.fetched / max(one.nodes, 1)]) if cache else 1.0
        return near.sample * share, fetch, near.infer, operations, self._memory, self._rest


def _warm_lists(cached: Sequence[Request], near: _Near) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What lists take with a cache, over what they take without: seconds, and bytes; each as the two numbers
    a and b of the module's text."""
    alike = [near.find(one.nodes, one.edges) for one in cached]
    given = np.array([[1, one.fetched / max(one.nodes, 1)] for one in cached])
    seconds = np.array([one.sample / other.sample for one, other in zip(cached, alike, strict=True)])
    bytes_ = np.array(
        [
            max(one.store_bytes - one.range_bytes - one.index_bytes, 0)
            / max(other.store_bytes - other.range_bytes, 1)
            for one, other in zip(cached, alike, strict=True)
        ]
    )
    lists, size = _fit(given, seconds), _fit(given, bytes_)
    # What is right must be the sum of the times, not of the quotients.
    lists *= sum(one.sample for one in cached) / (
        np.array([other.sample for other in alike]) @ (given @ lists)
    )
    return lists, size


def _fit_fetch(plain: Sequence[Request], cached: Sequence[Request]) -> dict[bool, Float64]:
    """Without and with a cache: what ranges and bytes take is the same, and fitted together."""
    both = [(one, False) for one in plain if one.fetched] + [(one, True) for one in cached if one.fetched]
    given = np.array(
        [[1, one.ranges, one.range_bytes, one.fetched, cache, cache * one.fetched] for one, cache in both]
    )
    wanted = np.array([one.fetch for one, _ in both])
    found = _fit(given, wanted)
    fitted = {}
    for cache in (False, True):
        here = np.array([each == cache for _, each in both])
        # Each by itself is right in sum, too.
        scale = wanted[here].sum() / (given[here] @ found).sum() if here.any() else 1.0
        fitted[cache] = scale * (found[:4] + cache * np.array([found[4], 0, 0, found[5]]))
    return fitted


class _Near:
    """Finds the measured request that is most like another."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = requests
        self._at = np.log1p([[one.nodes, one.edges] for one in requests])

    def find(self, nodes: int, edges: int) -> Request:
        """The median, by its total time, of the three nearest."""
        apart = ((self._at - np.log1p([nodes, edges])) ** 2).sum(1)
        three = sorted(
            np.argpartition(apart, min(3, len(apart) - 1))[:3], key=lambda i: self._requests[i].total
        )
        return self._requests[int(three[len(three) // 2])]


def _rest(one: Request) -> float:
    return one.total - one.sample - one.fetch - one.infer - one.cache - one.memory


def _fit(given: NDArray[np.float64], wanted: Float64) -> Float64:
    """Coefficients, none below 0, that minimise the relative error: those that would be negative are left
    out. Then all are scaled so that the sum over what was measured is right: where times scatter, the
    smallest relative error alone says too little."""
    weight = 1.0 / np.maximum(wanted, 1e-4)
    kept = np.arange(given.shape[1])
    found = np.zeros(given.shape[1])
    while len(kept):
        some, *_ = np.linalg.lstsq(given[:, kept] * weight[:, None], wanted * weight, rcond=None)
        if (some >= 0).all():
            found[kept] = some * (wanted.sum() / max(float((given[:, kept] @ some).sum()), 1e-12))
            break
        kept = np.delete(kept, int(np.argmin(some * given[:, kept].mean(0))))
    return found


def memoised(lists: InLists, hops: int) -> Callable[[int], Around]:
    """`InLists.around`, computed once for each node."""
    known: dict[int, Around] = {}

    def around(node: int) -> Around:
        if node not in known:
            known[node] = lists.around(node, hops)
        return known[node]

    return around
