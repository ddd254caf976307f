"""The bytes of what an engine keeps, by part.

Thread safety: the caller holds `Graph.writer`.
"""

from livegnn.inference.history import History
from livegnn.inference.native_engine import NativeEngine


def measure(engine: NativeEngine, *, lazy: bool, history: History | None) -> dict[str, int]:
    """The bytes of each part, as `Engine.memory` names them, without those of the graph."""
    native = engine.native
    parts = dict.fromkeys(("aggregates", "layer outputs", "contexts"), 0)
    for kept in engine.plan.kept.values():
        if kept.stored:
            parts[kept.part] += native.bytes(kept.index)
    parts["contexts"] += native.sums_bytes()
    parts["errors"] = native.errors_bytes()
    parts["weights"] = native.program_bytes()
    if rows := engine.view.bytes():
        parts["rows of batches"] = rows
    if engine.options.partial:
        parts["residents"] = native.residents_bytes()
    if lazy:
        parts["overlay"], parts["record"] = native.lazy_bytes()
    if history is not None:
        parts["history"] = history.nbytes
    if mapped := native.mapped_bytes():
        parts["mapped state"] = mapped
    return parts
