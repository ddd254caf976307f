"""Runs a graph in parts beside each engine that a test makes, and compares both to the bit after each batch.

So the tests that hold an engine against the oracle, PyG or a recomputation also hold one, two and three parts
against them, without a word about parts. `make parts-suite` runs the files of `SUITE` so, all engines with
one number of parts after the other. In the gate every second engine of the files `IN_THE_GATE` gets one, two
or three parts, in turn.

An engine that cannot be divided runs alone. `ALONE` has the reasons, and the files in which each may occur;
any other fails the test.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import livegnn._core as _core
from livegnn import Engine, Graph, InputError
from livegnn.graph import Transaction, auto_add_nodes
from livegnn.inference.engine_state import join as join_states
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.types import State

PARTS = int(os.environ.get("LIVEGNN_PARTS", "0"))
"""Of each engine; 0 for one, two and three in turn, in the files `IN_THE_GATE` alone."""

MOST = 8
"""Engines of a test that are followed at a time; of more, the newest."""

LOST_IN_ROUNDING = "must not be lost in rounding"
"""The names of a divided graph have no weights, so of two faults in a batch they see the other one first."""

IN_THE_GATE = frozenset({"test_engine.py", "test_hetero.py", "test_multigraphs.py", "test_wild.py"})

SUITE = (
    "tests/property/test_alone_and_together.py",
    "tests/property/test_directions.py",
    "tests/property/test_engine.py",
    "tests/property/test_hetero.py",
    "tests/property/test_hubs.py",
    "tests/property/test_importer.py",
    "tests/property/test_imported_streams.py",
    "tests/property/test_lazy_queries.py",
    "tests/property/test_memory_settings.py",
    "tests/property/test_multigraphs.py",
    "tests/property/test_number_kinds.py",
    "tests/property/test_overflow.py",
    "tests/property/test_reads_move_nothing.py",
    "tests/property/test_real_graphs.py",
    "tests/property/test_reproducibility.py",
    "tests/property/test_row_programs.py",
    "tests/property/test_spreads.py",
    "tests/property/test_states.py",
    "tests/property/test_wild.py",
    "tests/unit/test_auto_add.py",
    "tests/unit/test_comparison.py",
    "tests/unit/test_degrees.py",
    "tests/unit/test_edge_messages.py",
    "tests/unit/test_expiry.py",
    "tests/unit/test_importer_adversarial.py",
    "tests/unit/test_importer_lowering.py",
    "tests/unit/test_infinite_factors.py",
    "tests/unit/test_left_out_rows.py",
    "tests/unit/test_maxima.py",
    "tests/unit/test_message_passing.py",
    "tests/unit/test_negative_degrees.py",
    "tests/unit/test_non_finite.py",
    "tests/unit/test_only_loops.py",
    "tests/unit/test_outputs.py",
    "tests/unit/test_own_operators.py",
    "tests/unit/test_parallel_edges.py",
    "tests/unit/test_precision.py",
    "tests/unit/test_restore.py",
    "tests/unit/test_rounding.py",
    "tests/unit/test_row_operators.py",
    "tests/unit/test_softmax.py",
    "tests/unit/test_steep_functions.py",
)

_MODES = "an engine of a divided graph needs "
ALONE = {
    _MODES + "mode='eager'": {
        "test_degrees.py",
        "test_importer_lowering.py",
        "test_non_finite.py",
        "test_only_loops.py",
        "test_outputs.py",
        "test_parallel_edges.py",
        "test_rounding.py",
        "test_softmax.py",
        "test_steep_functions.py",
        "test_alone_and_together.py",
        "test_directions.py",
        "test_hubs.py",
        "test_imported_streams.py",
        "test_lazy_queries.py",
        "test_multigraphs.py",
        "test_overflow.py",
        "test_reads_move_nothing.py",
        "test_spreads.py",
        "test_states.py",
        "test_wild.py",
    },
    _MODES + "keep='all'": {
        "test_degrees.py",
        "test_importer_lowering.py",
        "test_non_finite.py",
        "test_outputs.py",
        "test_parallel_edges.py",
        "test_rounding.py",
        "test_softmax.py",
        "test_directions.py",
        "test_hubs.py",
        "test_imported_streams.py",
        "test_memory_settings.py",
        "test_multigraphs.py",
        "test_overflow.py",
        "test_row_programs.py",
        "test_states.py",
    },
    _MODES + "keep_degree=0": {
        "test_degrees.py",
        "test_non_finite.py",
        "test_outputs.py",
        "test_rounding.py",
        "test_directions.py",
        "test_hubs.py",
        "test_memory_settings.py",
        "test_overflow.py",
        "test_states.py",
    },
    _MODES + "history=0": {
        "test_auto_add.py",
        "test_degrees.py",
        "test_directions.py",
        "test_imported_streams.py",
        "test_parallel_edges.py",
        "test_states.py",
    },
    "a model of a divided graph may not call a function that is not LiveGNN's": {"test_own_operators.py"},
}


class Following:
    """An engine, and the parts of its graph."""

    def __init__(self, engine: Engine, model: Any, parts: int, state: State | None) -> None:
        self.engine = engine
        owners = Owners("jump" if parts % 2 else "modulo", parts)
        options = engine.options
        self.parts = LocalPartitions.from_graph(engine.graph, model, owners, options, state=state)
        self.compare()

    def apply(self, batch: Transaction, refused: InputError | None) -> None:
        names, graph = self.parts.names, self.engine.graph
        auto_add = graph.schema.auto_add
        if auto_add != names.schema.auto_add:
            for each in (names, *self.parts.graphs):
                auto_add_nodes(each.core, auto_add)
        names.seq = max(names.seq, batch.after or 0)
        got, update = None, None
        try:
            update = self.parts.apply(batch._events, seq=batch.seq, trusted=batch._trusted)
        except InputError as error:
            got = error
        if refused is not None:
            assert got is not None, f"parts must refuse what one engine refuses: {refused}"
            assert (type(got), str(got)) == (type(refused), str(refused)) or LOST_IN_ROUNDING in str(refused)
            return
        if got is not None:
            raise AssertionError("parts must apply what one engine applies") from got
        assert update is not None
        assert batch.delta is not None
        one = self.engine.update_of(batch.delta)
        assert sorted(update.changed.tolist()) == sorted(one.changed.tolist())
        assert (update.seq, update.affected) == (one.seq, one.affected)
        self.compare()

    def compare(self) -> None:
        """Every prediction, and every row that is kept of a node that is there."""
        graph, engine, parts = self.engine.graph, self.engine, self.parts
        assert parts.seq == graph.seq
        for name in (None, *engine.model.outputs):
            ids = graph.ids(engine.outputs.find(name).node_type)
            if len(ids):
                got, expected = parts.predict(ids, output=name), engine.predict(ids, output=name)
                assert got.tobytes() == expected.tobytes(), f"predictions of parts: {name}"
        whole = engine.state()
        joined = join_states([each.core for each in parts.engines], [each.state() for each in parts.engines])
        assert joined.meta == whole.meta
        assert list(joined.arrays) == list(whole.arrays)
        by_node = dict(_core.arrays_by_node(engine.core.native))
        for name, array in joined.arrays.items():
            got, expected = np.asarray(array), np.asarray(whole.arrays[name])
            if name in by_node and len(expected):
                capacity, present = (
                    graph.native.capacity(by_node[name]),
                    graph.native.indices(by_node[name]),
                )
                got, expected = (rows.reshape(capacity, -1)[present] for rows in (got, expected))
            assert got.tobytes() == expected.tobytes(), f"rows of parts: {name}"
        for index in range(len(graph.schema.node_types)):
            for native in (each.native for each in parts.graphs):
                held, x = native.save_held_features(index)
                assert x.tobytes() == graph.native.features(index, held).tobytes(), "features of parts"

    def compare_graphs(self) -> None:
        """Every list, joined, after the last batch."""
        joined, _ = self.parts.join()
        joined.native.check()
        assert_equal_lists(joined, self.engine.graph)


def assert_equal_lists(got: Graph, expected: Graph) -> None:
    """All but the rows of edge features, which parts number alone."""
    states = [graph.state() for graph in (got, expected)]
    assert states[0].meta == states[1].meta
    for name, array in states[0].arrays.items():
        if not name.startswith("edges/") or name.rsplit("/", 1)[1] not in ("row", "x", "free_rows"):
            assert np.asarray(array).tobytes() == np.asarray(states[1].arrays[name]).tobytes(), name


class Beside:
    """The engines of one test that are followed. parts: of each; 0 for one, two and three in turn, of every
    second one. refused: why some cannot be divided."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.made = 0
        self.refused: set[str] = set()
        self.following: list[Following] = []
        self.failed: AssertionError | None = None

    def follow(self, engine: Engine, model: Any, given: object) -> None:
        if _core.is_part(engine.graph.native):
            return
        self.made += 1
        if isinstance(given, Engine):  # whose rows it has taken
            self.drop([one for one in self.following if one.engine is given])
        if not self.parts and self.made % 2 == 0:
            return
        parts = self.parts or 1 + self.made // 2 % 3
        try:
            one = Following(engine, model, parts, None if given is None else engine.state())
        except InputError as error:
            self.refused.add(str(error).partition(",")[0])
            return
        self.following.append(one)
        self.drop(self.following[:-MOST])

    def drop(self, those: list[Following]) -> None:
        for one in those:
            self.following.remove(one)
            try:
                if self.failed is None:
                    one.compare_graphs()
            except AssertionError as failed:
                self.failed = failed
                raise
            finally:
                one.parts.close()

    def after(self, batch: Transaction, error: BaseException | None) -> None:
        followers = [one for one in self.following if one.engine.graph.core is batch.graph]
        if error is not None and not batch.committed:
            # Another view may have refused it, or the caller.
            alone = sum(view() is not None for view in batch.views._views) == 1 and batch._on_staged is None
            followers = followers if alone and isinstance(error, InputError) else []
        for one in followers:
            try:
                one.apply(batch, None if batch.committed else error)
            except AssertionError as failed:
                self.failed = self.failed or failed
                raise


@contextmanager
def beside(parts: int) -> Iterator[Beside]:
    """Follows the engines that are made meanwhile; parts as of `Beside`."""
    found = Beside(parts)
    begin, run = Engine.__init__, Transaction.run

    @functools.wraps(begin)
    def follow(engine: Engine, graph: Graph, model: Any, options: Any = None, **settings: Any) -> None:
        begin(engine, graph, model, options, **settings)
        found.follow(engine, model, settings.get("state"))

    @functools.wraps(run)
    def apply(batch: Transaction) -> Any:
        try:
            change = run(batch)
        except BaseException as error:
            found.after(batch, error)
            raise
        found.after(batch, None)
        return change

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "__init__", follow)
        patch.setattr(Transaction, "run", apply)
        try:
            yield found
        finally:
            patch.undo()
            found.drop(list(found.following))
    if found.failed is not None:
        raise found.failed


@contextmanager
def follow_test(file: str) -> Iterator[None]:
    """Follows the engines of a test of a file, if it belongs to this run."""
    if not PARTS and file not in IN_THE_GATE:
        yield
        return
    with beside(PARTS) as found:
        yield
    unexpected = {reason for reason in found.refused if file not in ALONE.get(reason, ())}
    assert not unexpected, f"engines of {file} must be divided, or their reasons listed, got {unexpected}"


if __name__ == "__main__":
    print(*SUITE)
