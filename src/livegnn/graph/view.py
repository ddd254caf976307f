"""What follows a graph, and what a graph says of one node."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.types import DoubleArray, FloatArray, Ids, Keys, State

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, Shaped, UInt32

    from livegnn import _core
    from livegnn.graph.delta import GraphDelta
    from livegnn.graph.graph import Graph


class View:
    """Something that is derived from a graph and kept fresh with every batch.

    A subclass overrides what it needs, and calls `graph.attach(self)` at the end of its constructor. For each
    batch the graph calls, in the thread that applies it and while it holds `Graph.writer`:

    1. `prepare(change)`, when the graph has prepared the batch and readers still see the graph before it. A
       view computes what it will become, beside what it is. It may raise: then no view and no graph changes.
    2. `commit(change)`, when the graph shows the batch, or `abandon(change)`, when the batch came to nothing.
       Neither may raise. What `commit` returns is the view's account of the batch: `change.update_of(view)`.
    3. `publish(change)`, when all views have committed, for those whom the view tells of the batch. It may
       raise nothing but interrupts.

    name: of its section in checkpoints, of its metrics and of its part of a deployment; it differs from
    those of all other views of a runtime. native: a view in C++ (`cpp/views/view.h`) that does the work, and
    is committed under the graph's lock, so that a reader sees both before the batch or both after it; what
    this class does by default, it asks of that. None for a view in Python alone, whose readers take
    `Graph.writer` or bring a lock of their own.
    """

    name: str = ""
    native: "_core.View | None" = None
    reserved_names: ClassVar = frozenset({"graph", "log"})

    def __init__(self, graph: "Graph") -> None:
        self.graph = graph

    @property
    def seq(self) -> int:
        """The sequence number of the last event that the view reflects."""
        return self.graph.seq

    def prepare(self, change: "GraphDelta") -> None:
        """Computes what the batch makes of the view. Raises `InputError` to refuse the batch."""
        if self.native is not None:
            self.native.prepare(self.graph.native, change.native)

    def commit(self, change: "GraphDelta") -> object:
        """Becomes what was prepared; returns what the batch did to the view. The graph has committed what is
        native.
        """
        return None

    def abandon(self, change: "GraphDelta") -> None:
        """Forgets what was prepared; called if `prepare` raised, too. The graph abandons what is native."""

    def publish(self, change: "GraphDelta") -> None:
        """Tells whoever follows the view."""

    def state(self) -> State | None:
        """What a checkpoint keeps. None: nothing, since the view is built from the graph at each start."""
        if self.native is None:
            return None
        with self.graph.writer:
            return State({"kind": self.name, "seq": self.seq}, self.native.save())

    def _load(self, state: State | None) -> None:
        """For constructors: becomes what `state` returned, where the graph is at the same event; with None
        nothing happens. Raises `FileFormatError` if it does not fit.
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

    def close(self) -> None:
        """Gives back what the view holds beside memory. The view is not used after it."""


class Neighbors(NamedTuple):
    """The neighbours of a node: ids, and weights, times and features (`edge_attr`, [ids, channels]) of the
    edges to them, where the edge type has them; `key` where it keeps parallel edges."""

    ids: "Shaped[Ids, 'neighbors']"
    weight: "Float32[FloatArray, 'neighbors'] | None"
    time: "Float64[DoubleArray, 'neighbors'] | None"
    edge_attr: "Float32[FloatArray, 'neighbors channels'] | None"
    key: "UInt32[Keys, 'neighbors'] | None" = None
