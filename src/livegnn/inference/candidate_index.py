"""Vectors of the targets of an edge output, kept fresh with the graph, and found by their inner products.

    batch ─► changed and removed nodes ─► notes ─► codes of their vectors, of a few bits a channel
                                                     │
                    the vector of a source ─► a scan of all codes ─► the nodes to compare

The notes are taken up at the end of a batch, and by each search, so no search misses a change. The codes of a
node depend on its own vector alone, so a change costs its own row, and the index does not wear out. Only the
scales of the channels are of other rows: those of the time when they were measured. They are measured again
after many changes, sooner if the changed rows are of another size, and then other codes are made a few nodes
at a time. A channel that had one value in all measured rows has no codes; the few nodes that differ there
are compared in each search.

Thread safety: any thread may call; batches note their changes without a lock.
"""

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from livegnn.arguments import chosen_threads
from livegnn.compiler.edge_outputs import VectorOutputs
from livegnn.errors import ViewMissingError
from livegnn.graph import GraphDelta, Growth, View
from livegnn.inference.coded_vectors import CodedVectors
from livegnn.inference.native_engine import NativeEngine
from livegnn.network.outputs import EdgeOutput
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64, UInt32
    from numpy.typing import NDArray

    Nodes = UInt32[NDArray[np.uint32], "nodes"]

_logger = logging.getLogger(__name__)

FEW: Final = 4096
"""The most rows that are compared one by one rather than through an index."""
_AT_ONCE: Final = 8192  # rows that are read in one call: some milliseconds, for which a commit may wait
_MEASURED: Final = 8192  # rows of which the scales are measured
_CHANGES: Final = 1  # of each row, on average, before scales are measured again
_RENEWED: Final = 4  # nodes that get other codes with each change
_UNLIKE: Final = 1 / 16  # changes of each row, of another size, before scales are measured again
_DEVIATIONS: Final = 2.5  # by which the product of a node may be larger than its codes say
_ALIKE: Final = 1e-5  # of a product: others may be larger by so much
_MOST_APART: Final = 1024  # nodes that are compared in each search


def watched_outputs(core: NativeEngine) -> list[int]:
    """The positions of the outputs of an engine of which any index needs the changed rows."""
    names = {name for vectors in core.vectors.values() for name in vectors.read}
    return sorted({core.outputs.find(name).position for name in names})


class FoundTargets(NamedTuple):
    """Nodes that may be the best, and about the inner product of each of the first ones. Nodes that are not
    here have about the least of these, or less. deviation: by which these are off, if that is random.
    typical: the product of a vector in the middle.
    """

    nodes: "Nodes"
    products: "Float64[NDArray[np.float64], 'found']"
    deviation: float
    typical: float


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
        self._codes: list[CodedVectors] = []
        self._renewed = 0
        self._rows = self._changed = self._unlike = 0  # when scales were measured, and since then
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
        """Makes the index again, by the scales of the vectors as they are now, if there are enough nodes."""
        if self.vectors is not None:
            with self._free:
                before = len(self._codes)
                if self._begin():
                    del self._codes[:before]

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
        """Makes the index, if there are enough nodes, as the last of `_codes`."""
        native = self._core.graph.native
        if native.num_nodes(self.node_type) <= FEW:
            return False
        taken = len(self._notes)
        codes = self._measure([])
        self._put(native.indices(self.node_type), [codes])
        if codes.num_apart > _MOST_APART:
            codes = self._measure([codes])
            self._put(native.indices(self.node_type), [codes])
        self._codes.append(codes)
        for _ in range(taken):
            self._notes.popleft()
        return True

    def _measure(self, before: list[CodedVectors]) -> CodedVectors:
        """Codes without nodes, of scales that fit the vectors of some nodes as they are now, those among them
        that are apart in `before`."""
        assert self.vectors is not None
        nodes = self._core.graph.native.indices(self.node_type)
        some = nodes[:: max(1, len(nodes) // _MEASURED)]
        for codes in before:
            some = np.union1d(some, codes.apart)
        _, rows = self._core.native.target_rows(self.vectors.target, np.ascontiguousarray(some))
        self._rows, self._changed, self._unlike = len(nodes), 0, 0
        capacity = self._core.graph.native.capacity(self.node_type)
        return CodedVectors(rows, capacity, chosen_threads(self._core.options.threads))

    def _put(self, nodes: "Nodes", tables: list[CodedVectors]) -> None:
        """Writes codes of the vectors that these nodes have now, and erases those of removed nodes."""
        assert self.vectors is not None
        for first in range(0, len(nodes), _AT_ONCE):
            some = nodes[first : first + _AT_ONCE]
            present, vectors = self._core.native.target_rows(self.vectors.target, some)
            for codes in tables:
                codes.erase(some)
                codes.put(present, vectors)
            if tables[0].scales.are_of_other_size(vectors):
                self._unlike += len(present)

    def _renew(self, changed: int) -> None:
        """Measures scales again after many changes, and gives more nodes codes of these."""
        self._changed += changed
        if len(self._codes) == 1:
            many = self._changed > _CHANGES * self._rows or self._unlike > _UNLIKE * self._rows
            if not many and self._codes[0].num_apart <= _MOST_APART:
                return
            self._codes.append(self._measure(self._codes))
            self._renewed = 0
        capacity = self._core.graph.native.capacity(self.node_type)
        end = min(capacity, self._renewed + _RENEWED * changed)
        self._put(np.arange(self._renewed, end, dtype=np.uint32), self._codes[1:])
        self._renewed = end
        if end == capacity:
            del self._codes[0]

    # -- searching

    def search(self, query: "Float32[FloatArray, 'width']", count: int) -> FoundTargets | None:
        """`count` nodes of about the largest inner products, and a few more; None if there are few nodes, so
        that each should be compared. Some may exist no more, if a batch was committed meanwhile."""
        with self._free:
            if not self._absorb():
                return None
            codes = self._codes[0]
            apart = codes.apart
        nodes, products, deviation = codes.search(query, count)
        typical = float(query.astype(np.float64) @ codes.scales.center.astype(np.float64))
        more = np.setdiff1d(apart, nodes) if len(apart) else apart
        return FoundTargets(np.concatenate([nodes, more]), products, deviation, typical)

    def is_sure(self, query: "Float32[FloatArray, 'width']", found: FoundTargets, best: "Nodes") -> bool:
        """Whether `best`, chosen of `found`, are very likely the best of all, or about as good: others could
        only be better if codes were off by far more than those of `found` are."""
        assert self.vectors is not None
        with_codes = found.nodes[: len(found.products)]
        nodes, rows = self._core.native.target_rows(self.vectors.target, with_codes)
        exact = rows.astype(np.float64) @ query.astype(np.float64)
        off = exact - found.products[np.searchsorted(with_codes, nodes)]
        chosen = exact[np.isin(nodes, best)]
        if not len(chosen):
            return True
        # Nodes that lie close to each other may be off by the same, and those further away by something else.
        beyond = max(off.mean() + _DEVIATIONS * off.std(), _DEVIATIONS * found.deviation)
        others = found.products.min() + beyond
        return not others - chosen.min() > _ALIKE * abs(chosen.max() - found.typical)

    def memory(self) -> dict[str, int]:
        """Bytes of the codes, and of the changes that wait."""
        held = sum(codes.bytes() for codes in [*self._codes])
        return {self.name: held + sum(nodes.nbytes for nodes in [*self._notes])}
