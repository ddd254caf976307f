"""Vectors of the targets of an edge output, kept fresh with the graph, and found by their inner products.

    batch ─► changed and removed nodes ─► notes ─► codes of their vectors, of a few bits a channel
                                                     │
                    the vector of a source ─► a scan of all codes ─► the nodes to compare

The notes are taken up at the end of a batch, and by each search, so no search misses a change. The codes of a
node depend on its own vector alone, so a change costs its own row, and the index does not wear out. Only the
scales of the channels are of other rows: those of the time when they were measured. Now and then they are
measured again, and other codes are made a few nodes at a time.

Thread safety: any thread may call; batches note their changes without a lock.
"""

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.compiler.edge_outputs import VectorOutputs
from livegnn.errors import ViewMissingError
from livegnn.graph import GraphDelta, Growth, View
from livegnn.inference.native_engine import NativeEngine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32, UInt32
    from numpy.typing import NDArray

    Nodes = UInt32[NDArray[np.uint32], "nodes"]

_logger = logging.getLogger(__name__)

FEW: Final = 4096
"""The most rows that are compared one by one rather than through an index."""
_AT_ONCE: Final = 8192  # rows that are read in one call: some milliseconds, for which a commit may wait
_MEASURED: Final = 8192  # rows of which the scales are measured
_CHANGES: Final = 1  # of each row, on average, before scales are measured again
_RENEWED: Final = 4  # nodes that get other codes with each change
_SORTED: Final = 2048  # rows of which the quantiles are computed
_TAIL: Final = 0.05  # of the rows, at either end, which a spread leaves out
_NARROWEST: Final = 1e-30  # the spread of a channel; of narrower ones, as of constant ones, it is 1


def watched_outputs(core: NativeEngine) -> list[int]:
    """The positions of the outputs of an engine of which any index needs the changed rows."""
    names = {name for vectors in core.vectors.values() for name in vectors.read}
    return sorted({core.outputs.find(name).position for name in names})


class CandidateIndex(View):
    """The targets of one edge output, in an index if it is an inner product.

    vectors: None if it is none; then there is no index, and nothing to search.
    """

    name = "candidates"

    def __init__(self, core: NativeEngine, chosen: EdgeOutput, vectors: VectorOutputs | None) -> None:
        super().__init__(core.graph)
        self._core, self.vectors = core, vectors
        self.node_type = core.graph.node_type_index(chosen.scores.edge_type[2])
        watched = watched_outputs(core)
        self._watched = (
            [] if vectors is None else [watched.index(core.outputs.find(n).position) for n in vectors.read]
        )
        self.at = core.epoch
        """The engine's epoch after the last batch that is committed here; its number is `Graph.seq`."""
        self._notes: deque[Nodes] = deque()
        self._free = threading.Lock()  # for the fields below
        # The first are searched. Others that are being made replace them; `_renewed` is the first node that
        # these do not have yet.
        self._codes: list[_core.VectorCodes] = []
        self._renewed = 0
        self._rows = self._changed = 0  # when scales were measured, and since then
        if vectors is not None:
            core.view.watch(watched)
        core.graph.attach(self)

    # -- following the graph

    def check_growth(self, growth: Growth) -> None:
        pass  # as of the engine

    def grow(self, change: GraphDelta) -> None:
        self.at = self._core.epoch

    def commit(self, change: GraphDelta) -> None:
        view = self._core.view
        if self._watched:
            changed = [view.changed_rows(one) for one in self._watched]
            nodes = np.concatenate([*changed, change.native.removed_indices(self.node_type)])
            if len(nodes):
                self._notes.append(nodes)
        self.at = self._core.epoch

    def publish(self, change: GraphDelta) -> None:
        if not self._notes or not self._free.acquire(blocking=False):
            return
        try:
            if self._codes:
                self._absorb()
            else:
                self._notes.clear()  # an index that is made later begins with all nodes
        except ViewMissingError:
            pass  # of an engine that its graph no longer updates
        except Exception:
            _logger.exception("rows cannot be added to the index of candidates: the next search tries again")
        finally:
            self._free.release()

    @property
    def waiting(self) -> int:
        """Rows that changed since the index was searched or refreshed; the next search begins with them."""
        return sum(map(len, [*self._notes]))

    def refresh(self) -> None:
        """Makes the index now, if there are enough nodes for one, or takes up all changes."""
        if self.vectors is not None:
            with self._free:
                self._absorb()

    def _absorb(self) -> bool:
        """Takes up all changes. Returns whether there is an index. The caller holds `_free`."""
        if not self._codes and not self._begin():
            return False
        while self._notes:
            nodes = self._notes[0]
            self._put(nodes, self._codes)
            self._renew(len(nodes))
            self._notes.popleft()  # not before: this may be interrupted
        return True

    def _begin(self) -> bool:
        """Makes the index, if there are enough nodes."""
        self._notes.clear()
        native = self._core.graph.native
        if native.num_nodes(self.node_type) <= FEW:
            return False
        codes = self._measure()
        self._put(native.indices(self.node_type), [codes])
        self._codes.append(codes)
        return True

    def _measure(self) -> _core.VectorCodes:
        """Codes without nodes, of scales that fit the vectors of some nodes as they are now."""
        assert self.vectors is not None
        nodes = self._core.graph.native.indices(self.node_type)
        some = np.ascontiguousarray(nodes[:: max(1, len(nodes) // _MEASURED)])
        _, rows = self._core.native.target_rows(self.vectors.target, some)
        rows = rows[np.isfinite(rows).all(axis=1)]
        center, spread = _scales(rows)
        self._rows, self._changed = len(nodes), 0
        capacity = self._core.graph.native.capacity(self.node_type)
        return _core.VectorCodes(center, spread, capacity, chosen_threads(self._core.options.threads))

    def _put(self, nodes: "Nodes", tables: "list[_core.VectorCodes]") -> None:
        """Writes codes of the vectors that these nodes have now, and erases those of removed nodes."""
        assert self.vectors is not None
        for first in range(0, len(nodes), _AT_ONCE):
            some = nodes[first : first + _AT_ONCE]
            present, vectors = self._core.native.target_rows(self.vectors.target, some)
            for codes in tables:
                codes.erase(some)
                codes.put(present, vectors)

    def _renew(self, changed: int) -> None:
        """Measures scales again after many changes, and gives more nodes codes of these."""
        self._changed += changed
        if len(self._codes) == 1:
            if self._changed > _CHANGES * self._rows:
                self._codes.append(self._measure())
                self._renewed = 0
            return
        capacity = self._core.graph.native.capacity(self.node_type)
        end = min(capacity, self._renewed + _RENEWED * changed)
        self._put(np.arange(self._renewed, end, dtype=np.uint32), self._codes[1:])
        self._renewed = end
        if end == capacity:
            del self._codes[0]

    # -- searching

    def search(self, query: "Float32[FloatArray, 'width']", count: int) -> "Nodes | None":
        """Indices of `count` nodes of about the largest inner products; None if there are few nodes, so that
        each should be compared. Some may exist no more, if a batch was committed meanwhile."""
        with self._free:
            if not self._absorb():
                return None
            codes = self._codes[0]
        return codes.search(query, count)

    def memory(self) -> dict[str, int]:
        """Bytes of the codes, and of the changes that wait."""
        held = sum(codes.bytes() for codes in [*self._codes])
        return {self.name: held + sum(nodes.nbytes for nodes in [*self._notes])}


def _scales(
    rows: "Float32[FloatArray, 'rows width']",
) -> "tuple[Float32[FloatArray, 'width'], Float32[FloatArray, 'width']]":
    """The center and the spread of each channel. Quantiles, because with means and deviations one row that is
    a million times as large as the others would leave them no codes."""
    width = rows.shape[1]
    if not len(rows):
        return np.zeros(width, np.float32), np.ones(width, np.float32)
    some = rows[:: -(-len(rows) // _SORTED)].astype(np.float64)
    low, center, high = np.quantile(some, (_TAIL, 0.5, 1 - _TAIL), axis=0)
    spread = (high - low) / 2
    alike = spread < _NARROWEST  # in nearly all rows, as after a ReLU that is seldom open
    spread[alike] = some[:, alike].std(axis=0)
    spread[spread < _NARROWEST] = 1
    farthest = np.abs(rows - center).max(axis=0)
    return center.astype(np.float32), np.maximum(spread, _NARROWEST * farthest).astype(np.float32)
