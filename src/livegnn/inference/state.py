"""What an engine keeps, as arrays and back, to the bit."""

from collections.abc import Mapping, Sequence

import numpy as np

from livegnn import _core
from livegnn.compiler.plan import Plan
from livegnn.errors import FileFormatError
from livegnn.graph import Graph
from livegnn.types import Array, State


def save(native: _core.Engine, plan: Plan, partial: Sequence[int]) -> dict[str, Array]:
    """Of an engine that is settled. partial: directions in which not all aggregates are kept."""
    arrays: dict[str, Array] = {}
    for direction in partial:
        arrays[f"residents/{direction}"] = native.residents(direction)
    for kept in plan.kept.values():
        if not kept.stored:
            continue
        arrays[f"rows/{kept.index}"] = native.read(kept.index)
        if kept.propagation is not None:
            arrays[f"errors/{kept.propagation}"] = native.errors(kept.propagation)
            arrays[f"scales/{kept.propagation}"] = native.scales(kept.propagation)
            if kept.counted:
                arrays[f"counts/{kept.propagation}"] = native.counts(kept.propagation)
        if kept.context is not None:
            arrays[f"sums/{kept.context}"] = native.sums(kept.context)
            arrays[f"sum_errors/{kept.context}"] = native.sum_errors(kept.context)
    return arrays


def restore(native: _core.Engine, graph: Graph, plan: Plan, saved: State, partial: Sequence[int]) -> None:
    """Raises `FileFormatError` if the arrays do not fit the graph, the plan, or each other."""
    arrays = saved.arrays
    try:
        for direction in partial:
            residents = arrays[f"residents/{direction}"]
            native.set_residents(direction, np.ascontiguousarray(residents, dtype=np.uint32))
        for kept in plan.kept.values():
            if not kept.stored:
                continue
            native.write(kept.index, np.ascontiguousarray(arrays[f"rows/{kept.index}"], dtype=np.float32))
            node_type = graph.node_type_index(plan.node_type(kept.name))
            rows = len(native.read(kept.index)) if kept.partial else graph.native.capacity(node_type)
            count = rows if kept.summed else 0
            if kept.propagation is not None:
                _restore_bounds(native, arrays, kept.propagation, count)
                if kept.counted:
                    counts = np.ascontiguousarray(arrays[f"counts/{kept.propagation}"], dtype=np.uint32)
                    native.set_counts(kept.propagation, counts)
            if kept.context is not None:
                sums, errors = (
                    _column(arrays[f"{name}/{kept.context}"], count) for name in ("sums", "sum_errors")
                )
                native.set_sums(kept.context, sums.astype(np.float64))
                native.set_sum_errors(kept.context, errors.astype(np.float64))
        native.set_moments(*(saved.meta[name] for name in ("batches", "measured", "touched")))
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise FileFormatError(f"the state of an engine does not fit together: {error}") from error


def _restore_bounds(native: _core.Engine, arrays: Mapping[str, Array], propagation: int, rows: int) -> None:
    errors = _column(arrays[f"errors/{propagation}"], rows * native.error_width(propagation))
    native.set_errors(propagation, errors.astype(np.float32))
    native.set_scales(propagation, np.ascontiguousarray(arrays[f"scales/{propagation}"], dtype=np.float32))


def _column(array: Array, count: int) -> Array:
    if array.shape != (count,):
        raise ValueError(f"expected {count} numbers, got an array of shape {array.shape}")
    return array
