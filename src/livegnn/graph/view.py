"""The base class of views that follow a graph."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

import livegnn._core as _core
from livegnn.errors import FileFormatError
from livegnn.graph.delta import GraphDelta
from livegnn.graph.graph import Graph
from livegnn.graph.view_registry import Follower
from livegnn.types import State

if TYPE_CHECKING:
    from pathlib import Path

    from livegnn.graph.division import PartCounts


class View(Follower):
    """Data that is derived from a graph and kept up to date with every batch.

    A subclass overrides the methods it needs, and calls `graph.attach(self)` at the end of its constructor.
    For each batch the graph calls, in the thread that applies the batch and with `Graph.writer` held:

    1. `prepare(change)`, after the graph has prepared the batch; readers still see the graph before it. The
       view computes its new state beside the current one. If it raises, neither the graph nor a view changes.
    2. `commit(change)`, when the graph shows the batch, or `abandon(change)`, if the batch is not applied.
       Neither may raise. `change.update_of(view)` later gives the value that `commit` returned.
    3. `publish(change)`, when all views have committed: the view notifies its subscribers. It may raise
       nothing but interrupts.

    name: the name of the view's section in checkpoints, of its metrics and of its part of a deployment; it
    must be unique among the views of a runtime. native: a view in C++ (`cpp/views/view.h`) that does the
    work. It is committed under the graph's lock, so that a reader sees both graph and view before the batch,
    or both after it; the default methods of this class call it. None for a view in Python alone, whose
    readers hold `Graph.writer` or a lock of their own.

    forkable: whether a forked process may call `state`: it has a copy of the memory, but none of the other
    threads, and locks that these held stay locked. False if `state` reads memory that a fork does not copy,
    such as a mapped file or another device's; then the loop calls it, and batches wait.
    """

    failure: str | None = None
    """The reason why the view's work beside batches fails, for metrics; None if it does not fail."""
    forkable: bool = True
    reserved_names: ClassVar = frozenset({"graph", "log"})

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def seq(self) -> int:
        """The sequence number of the last event that the view reflects."""
        return self.graph.core.seq

    def prepare(self, change: GraphDelta) -> None:
        if self.native is not None:
            self.native.prepare(self.graph.native, change.native)

    def settle(self) -> None:
        """Finishes the work that `state` needs first. It is called before a process is forked that saves the
        state: changes that the forked process makes to the view would be lost.
        """

    def prepare_fork(self) -> None:
        """Settles. It is called with `Graph.writer` held before a process is forked that saves the state."""
        self.settle()

    def state(self) -> State | None:
        """The state for checkpoints. None: a checkpoint stores nothing, and each start builds the view from
        the graph.
        """
        native = self.native
        if native is None:
            return None
        return _core.holding(
            self.graph.writer, lambda: State({"kind": self.name, "seq": self.seq}, native.save())
        )

    def save_beside(self, path: "Path") -> State | None:
        """The state for a checkpoint that will have the name `path`. A view may write files beside it, which
        belong to the checkpoint and are removed with it: `part-NUMBER-SEQ.lgck`. It is called by the thread
        that applies batches, or in a forked process if the view is `forkable`.
        """
        return self.state()

    def _load(self, state: State | None) -> None:
        """Restores what `state` returned, in a constructor; the graph must be at the same event. Does nothing
        for None. Raises `FileFormatError` if it does not fit.
        """
        if state is None or self.native is None:
            return
        if (state.meta.get("kind"), state.meta.get("seq")) != (self.name, self.seq):
            raise FileFormatError(
                f"expected the state of {self.name!r} at event {self.seq}, got {dict(state.meta)}"
            )
        try:
            self.native.load({name: np.ascontiguousarray(one) for name, one in state.arrays.items()})
        except RuntimeError as error:
            raise FileFormatError(f"the state of {self.name!r} does not fit: {error}") from error

    def memory(self) -> dict[str, int]:
        """Bytes of each part."""
        return {} if self.native is None else {self.name: self.native.bytes()}

    def part_counts(self) -> "PartCounts | None":
        """Counts of a graph in parts that the view leads; None if it leads none, or a part is lost."""
        return None

    def close(self) -> None:
        """Releases resources other than memory. The view must not be used afterwards."""

    def retire(self) -> None:
        """Closes a view that has failed and that its graph no longer calls. Later reads of the view must
        raise an error.
        """
        self.close()
