"""The net effect of a batch of events on a graph."""

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from livegnn.events import Events
from livegnn.graph.graph_after import GraphAfter
from livegnn.graph.native_graph import NativeGraph
from livegnn.types import DoubleArray, EdgeType, FloatArray, Ids, IntArray, Keys, NodeType

if TYPE_CHECKING:
    import numpy.typing as npt
    from jaxtyping import Bool, Float32, Float64, Int64, Shaped, UInt32

    import livegnn._core as _core

_Said = TypeVar("_Said")


class EdgeAttrChanges(NamedTuple):
    """Edges whose features a batch changed, each once; `edge_attr` has their new features [edges, channels].
    It does not list edges that were added with zeros or without features.
    """

    source: "Shaped[Ids, 'changes']"
    target: "Shaped[Ids, 'changes']"
    edge_attr: "Float32[FloatArray, 'changes channels']"
    key: "UInt32[Keys, 'changes'] | None" = None


class EdgeChanges(NamedTuple):
    """Edges whose presence, weight, time or features a batch changed, each once; an undirected edge in the
    direction in which the batch first named it.

    had, has: whether the edge existed before the batch, and exists after it. old_weight, new_weight: 1 in a
    type without weights; undefined where `had`, or `has`, is False. time: the time after the batch; undefined
    where `has` is False. key, time: None in a type without them.
    """

    source: "Shaped[Ids, 'changes']"
    target: "Shaped[Ids, 'changes']"
    had: "Bool[npt.NDArray[np.bool_], 'changes']"
    has: "Bool[npt.NDArray[np.bool_], 'changes']"
    old_weight: "Float32[FloatArray, 'changes']"
    new_weight: "Float32[FloatArray, 'changes']"
    key: "UInt32[Keys, 'changes'] | None" = None
    time: "Float64[DoubleArray, 'changes'] | None" = None

    def both_directions(self) -> "EdgeChanges":
        """The same changes, with each edge except loops listed again in the opposite direction."""
        again = np.flatnonzero(self.source != self.target)
        turned = self._replace(source=self.target, target=self.source)
        columns = [
            None if column is None or other is None else np.concatenate([column, other[again]])
            for column, other in zip(self, turned, strict=True)
        ]
        return EdgeChanges._make(columns)


class GraphDelta:
    """The net changes of a batch: it omits edges that were added and removed again, and edges that did not
    change.

    events: the batch itself. Its arrays may belong to the caller, which may overwrite them after the batch.

    It is made before the batch is committed and does not change afterwards. Each read computes its arrays;
    keeping the object is cheap.
    """

    __slots__ = (
        "__weakref__",
        "_graph",
        "_refuse_unless_prepared",
        "_told",
        "_updates",
        "events",
        "native",
        "pin",
        "seq",
        "sheltered",
        "trusted",
    )

    def __init__(
        self,
        graph: NativeGraph,
        native: "_core.Delta",
        seq: int,
        events: Events,
        pin: "_core.TextPin",
        refuse_unless_prepared: "Callable[[GraphDelta], None]",
        *,
        trusted: bool = False,
    ) -> None:
        self._graph = graph
        self._refuse_unless_prepared = refuse_unless_prepared
        self.native = native
        self.seq = seq
        self.events = events
        self.pin = pin
        """Keeps the texts of all ids that the batch names."""
        self.sheltered = False
        """Whether it is applied in a thread that receives no exception from outside, such as the loop's."""
        self.trusted = trusted
        """Whether the batch was accepted before, so that no view may refuse it because of its results."""
        self._updates: dict[weakref.ref[object], object] = {}  # weak: a delta must not keep views alive
        self._told: dict[weakref.ref[object], tuple[Iterator[object], Iterator[object]]] | None = None

    def update_of(self, view: object) -> object:
        """Returns the effect of the batch on a view, as its `commit` returned it; None before that."""
        return self._updates.get(weakref.ref(view))

    def updates(self) -> Iterator[tuple[object, object]]:
        """Yields each view that has committed the batch, and what `update_of` returns for it."""
        for ref, update in self._updates.items():
            if (view := ref()) is not None:
                yield view, update

    def note_update(self, view: object, update: object) -> None:
        """Stores the result of `view.commit`. Only the graph calls it."""
        self._updates[weakref.ref(view)] = update

    def tell(
        self,
        teller: object,
        callbacks: "Iterable[Callable[[_Said], object]]",
        said: _Said,
        on_failure: Callable[[_Said, BaseException], None],
    ) -> None:
        """Calls each of `callbacks` with `said`, once for each teller. After an interrupted call, the next
        call continues with the callbacks that were not called yet.

        on_failure: called for each exception of a callback. An interrupt (not an `Exception`) is raised after
        all callbacks were called; if the batch is `sheltered`, `on_failure` is called for it instead.
        """
        if self._told is None:
            self._told = {}
        asked = iter(tuple(callbacks))
        begun = self._told.setdefault(weakref.ref(teller), (asked, map(operator.call, asked, repeat(said))))
        left, calls = begun
        interrupt: BaseException | None = None
        while operator.length_hint(left):
            try:
                next(calls)  # takes a callback and calls it: no interrupt can separate the two
            except BaseException as error:
                if self.sheltered or isinstance(error, Exception):
                    on_failure(said, error)
                else:
                    interrupt = interrupt or error
        if interrupt is not None:
            raise interrupt

    @property
    def after(self) -> "GraphAfter":
        """The graph as it will be after the batch, for use while the batch is prepared."""
        self._refuse_unless_prepared(self)
        return GraphAfter(self._graph, self.native, lambda: self._refuse_unless_prepared(self))

    @property
    def num_events(self) -> int:
        return self.native.num_events

    @property
    def late_features(self) -> int:
        """The number of events whose features were older than those of the node, and changed nothing (see
        `Schema.timed_features`)."""
        return self.native.late_features

    def added(self, node_type: NodeType | None = None) -> "Shaped[Ids, 'added']":
        """Ids of nodes that the batch added."""
        ids = self.native.added(self._graph.schema.node_type_index(node_type))
        return self._graph.node_ids.to_user_ids(ids[ids >= 0])

    def removed(self, node_type: NodeType | None = None) -> "Shaped[Ids, 'removed']":
        """Ids of nodes that the batch removed."""
        return self._graph.node_ids.to_user_ids(
            self.native.removed(self._graph.schema.node_type_index(node_type))
        )

    def num_edge_changes(self, edge_type: EdgeType | None = None) -> int:
        return self.native.num_edge_changes(self._graph.schema.edge_type_index(edge_type))

    def edges(self, edge_type: EdgeType | None = None, *, both_directions: bool = False) -> EdgeChanges:
        """The edges that changed. Read them before the next batch, which may reuse the indices of removed
        nodes. both_directions: list each undirected edge except loops again in the opposite direction.
        """
        index = self._graph.schema.edge_type_index(edge_type)
        source_type, _, target_type = list(self._graph.schema.edge_types)[index]
        edges = list(self._graph.schema.edge_types.values())[index]
        source, target, had, has, old, new, key, time = self.native.edges(index)
        changes = EdgeChanges(
            self._ids(source, source_type),
            self._ids(target, target_type),
            had,
            has,
            old,
            new,
            key if edges.duplicates == "keep" else None,
            time if edges.timed else None,
        )
        return changes.both_directions() if both_directions and edges.undirected else changes

    def edge_attr(self, edge_type: EdgeType | None = None) -> EdgeAttrChanges:
        """The new features of edges. Like `edges`, read them before the next batch. While the batch is
        staged, `Graph.edge_attr` still returns the old ones.
        """
        index = self._graph.schema.edge_type_index(edge_type)
        width = list(self._graph.schema.edge_types.values())[index].edge_dim
        positions, features = self.native.edge_features(index, width)
        changes = self.edges(edge_type)
        keys = None if changes.key is None else changes.key[positions]
        return EdgeAttrChanges(changes.source[positions], changes.target[positions], features, keys)

    def _ids(self, indices: "npt.NDArray[np.uint32]", node_type: NodeType) -> Ids:
        return self._graph.node_ids.to_user_ids(self.numbers_of(indices, node_type))

    def numbers_of(
        self, indices: "UInt32[npt.NDArray[np.uint32], 'nodes']", node_type: NodeType
    ) -> "Int64[IntArray, 'nodes']":
        """The internal numbers of nodes with these indices, whether a node exists now, was removed by the
        batch, or is added by it; also while the batch is staged.
        """
        return self._graph.numbers_of(indices, node_type, self.native)
