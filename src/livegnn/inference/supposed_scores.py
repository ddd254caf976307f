"""Scores as they would be after some events, from the body of a request to its answer in one native call.

The native core reads requests of the usual form alone (`cpp/json/score_request.h`). All others, wrong ones
among them, are for callers that parse them: there is one place that reports errors.
"""

from typing import NamedTuple

import livegnn._core as _core
from livegnn.graph.defaults import left_out
from livegnn.inference.native_engine import NativeEngine
from livegnn.schema import Schema


class MostOfRequest(NamedTuple):
    """Limits of a request: bytes that it may have, and numbers that its answer may have."""

    bytes: int
    numbers: int


class SupposedScores:
    """The requests to one engine. Thread safety: the caller holds `Graph.writer`."""

    def __init__(self, engine: NativeEngine) -> None:
        self._engine = engine
        self._schema: Schema | None = None
        self._native: _core.SupposedScores | None = None

    def answer(self, request: bytes, seq: int, most: MostOfRequest) -> bytes | None:
        """The answer to a request as JSON. None for requests in other forms, for wrong ones, for events that
        reach more than a few hundred rows and edges, and for engines that compute on demand or call
        functions.

        seq: the event that the graph is at.
        """
        schema = self._engine.graph.schema
        if schema is not self._schema:
            self._schema, self._native = schema, _make_native(self._engine, schema)
        return None if self._native is None else self._native.answer(request, seq, most)


def _make_native(engine: NativeEngine, schema: Schema) -> _core.SupposedScores | None:
    on_demand = engine.eager_steps is not None
    if schema.growths or engine.model.functions or on_demand or _core.is_part(engine.graph.native):
        return None
    stands_for = left_out(schema)
    nodes = {name: at for at, name in enumerate(schema.node_types)}
    edges = {name: at for at, name in enumerate(schema.edge_types)}
    for default, name in stands_for.items():
        if isinstance(default, str):
            nodes[default] = nodes[str(name)]
        elif isinstance(name, tuple):
            edges[default] = edges[name]
    outputs = [(name, scores.edge_type) for name, scores in engine.model.edge_scores.items()]
    return _core.SupposedScores(engine.native, list(nodes.items()), list(edges.items()), outputs)
