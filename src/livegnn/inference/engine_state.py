"""Saves, restores and measures the rows that an engine keeps, and takes them over from another engine.

Thread safety: the caller must hold `Graph.writer`.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

import livegnn._core as _core
from livegnn.errors import FileFormatError
from livegnn.inference.native_engine import NativeEngine
from livegnn.types import JSON, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


_WIDE: Final = ("rows/", "counts/")
"""Arrays by node that have two dimensions."""


def save(engine: NativeEngine) -> State:
    """All kept values of an engine, exactly; of a lazy engine, which must show its base, the record too."""
    arrays = engine.view.save()
    batches, measured, touched = engine.native.moments()
    meta: dict[str, JSON] = {
        "kind": "engine with a record" if "lazy/eager" in arrays else "engine",
        "model": engine.digest,
        "seq": engine.graph.seq,
        "batches": batches,
        "measured": measured,
        "touched": touched,
        "scaled": True,
    }
    return State(meta, arrays)


def compact(engine: NativeEngine, saved: State) -> State:
    """The state of an engine of a part, with rows only of nodes that the part holds: those that it owns, and
    those of others to or from which it keeps edges."""
    arrays = dict(saved.arrays)
    for name, (held, capacity) in _held_by_array(engine).items():
        if capacity:  # of any number of nodes, even none, the array says how wide its rows are
            arrays[name] = np.asarray(arrays[name]).reshape(capacity, -1)[held]
    return State({**saved.meta, "kind": "part of an engine"}, arrays)


def join(engines: "Sequence[NativeEngine]", states: "Sequence[State]") -> State:
    """The state of an engine of the whole graph, of those of all parts, by number."""
    first, arrays = engines[0], dict(states[0].arrays)
    native = first.graph.native
    owners = [_core.owners_of(native, index) for index in range(len(first.graph.schema.node_types))]
    for name, index in _core.arrays_by_node(first.native):
        whole = np.array(arrays[name])
        rows = whole.reshape(len(owners[index]), -1) if len(whole) else whole
        for number, state in enumerate(states[1:], 1):
            own = owners[index] == number
            rows[own] = np.asarray(state.arrays[name]).reshape(rows.shape)[own]
        arrays[name] = whole
    return State(states[0].meta, arrays)


def _spread(engine: NativeEngine, saved: State) -> State:
    """The state of which `compact` made this one; rows that it left out are zeros. Raises `ValueError`."""
    arrays = dict(saved.arrays)
    for name, (held, capacity) in _held_by_array(engine).items():
        if name not in arrays:
            raise ValueError(f"{name}: expected an array, got none of this name")
        rows = np.asarray(arrays[name])
        if len(rows) != len(held):
            raise ValueError(f"{name}: expected rows of {len(held)} nodes, got {rows.shape}")
        all_rows = np.zeros((capacity, *rows.shape[1:]), rows.dtype)
        all_rows[held] = rows
        arrays[name] = all_rows if name.startswith(_WIDE) else all_rows.reshape(-1)
    return State({**saved.meta, "kind": "engine"}, arrays)


def _held_by_array(engine: NativeEngine) -> "dict[str, tuple[NDArray[np.uint32], int]]":
    """For each array with rows of nodes: the nodes that a part holds, by index, and how many indices there
    are."""
    native = engine.graph.native
    by_type = {
        index: (_core.held_nodes(native, index), native.capacity(index))
        for index in range(len(engine.graph.schema.node_types))
    }
    return {name: by_type[index] for name, index in _core.arrays_by_node(engine.native)}


def restore(engine: NativeEngine, saved: State) -> None:
    """Fills an engine that has computed nothing. Raises `FileFormatError`."""
    if saved.meta.get("kind") == "part of an engine" and _core.is_part(engine.graph.native):
        try:
            saved = _spread(engine, saved)
        except ValueError as error:
            raise FileFormatError(f"the state of an engine does not fit together: {error}") from error
    meta = saved.meta
    # Versions without records must not read such a state as the state of a settled engine.
    if meta.get("kind") not in ("engine", "engine with a record"):
        raise FileFormatError(f"expected the state of an engine, got {meta.get('kind')!r}")
    if meta.get("model") != engine.digest:
        raise FileFormatError(
            "the state belongs to another model: compute it again, or restore it with its own model"
        )
    if meta.get("seq") != engine.graph.seq:
        raise FileFormatError(
            f"the state belongs to sequence number {meta.get('seq')}, the graph is at {engine.graph.seq}"
        )
    if "lazy/eager" in saved.arrays and (engine.options.keep != "all" or engine.options.partial):
        raise FileFormatError(
            "the state has the record of a lazy engine, which is worked off from rows of every node, and "
            'this engine keeps some: compute it again, or restore it with keep="all" and no keep_degree first'
        )
    native = engine.native
    if "batches" not in meta or "scaled" not in meta:
        # Old formats: without units the rounding bounds cannot be read, and sums that are combined with
        # d^-1/2 were not yet stored scaled down.
        native.initialize()
        return
    try:
        if not _core.is_part(engine.graph.native):  # one part alone cannot compute its rows
            _check_finite(engine, saved)
        _load(engine, saved)
        native.set_moments(*(meta[key] for key in ("batches", "measured", "touched")))
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise FileFormatError(f"the state of an engine does not fit together: {error}") from error


def _load(engine: NativeEngine, saved: State) -> None:
    engine.view.load({name: np.ascontiguousarray(one) for name, one in saved.arrays.items()})


def _check_finite(engine: NativeEngine, saved: State) -> None:
    """Raises `ValueError` if a row is not finite though the model computes a finite one: a later batch would
    spread it, and be refused for an error that it did not cause. The model is computed only if the state has
    a row that is not finite, which is rare.
    """
    finite: dict[str, NDArray[np.bool_]] = {
        name: np.isfinite(array).min(axis=1, initial=True)
        for name, array in saved.arrays.items()
        if name.startswith("rows/") and array.dtype == np.float32 and array.ndim == 2
    }
    if all(rows.all() for rows in finite.values()):
        return
    _load(engine, saved)  # the arrays have the right shapes, and the engine the residents of the state
    engine.native.initialize()
    for name, computed in engine.view.save().items():
        if name not in finite or len(computed) != len(finite[name]):
            continue
        wrong = np.flatnonzero(np.isfinite(computed).min(axis=1, initial=True) & ~finite[name])
        if len(wrong):
            raise ValueError(
                f"{name}: expected finite numbers in row {wrong[0]}, got {saved.arrays[name][wrong[0]]}"
            )


def take(engine: NativeEngine, source: NativeEngine, settle: "Callable[[], None]") -> None:
    """Fills an engine that has computed nothing with the rows of one on an equal graph, which has to be
    retired then. settle: settles `source`.

    Nothing is copied. Raises `FileFormatError`, with `source` as it was.
    """
    with source.graph.writer:
        if (source.graph.seq, source.digest) != (engine.graph.seq, engine.digest):
            raise FileFormatError(
                f"expected an engine of the same model at event {engine.graph.seq}, got one at event "
                f"{source.graph.seq}, or of another model"
            )
        settle()
        if not engine.native.take(source.native):
            raise FileFormatError(
                "expected an engine with the same options on an equal graph, got one that is laid out "
                "differently"
            )
