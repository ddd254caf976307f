"""The best partners of a node: the targets with the highest scores of an edge output.

    source ─► its vector ─► CandidateIndex: nodes that may be among the best
                                   │
              scores, features, edges at one state of the graph ─► filters ─► the best k

Which nodes are found may be approximate. Their scores are those of `score`, to the bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, Unpack

import numpy as np

import livegnn._core as _core
from livegnn.arguments import check_bool, check_function, check_int, listed_ids, one_id
from livegnn.errors import InputError, UnknownNodeError
from livegnn.inference.candidate_index import CandidateIndex
from livegnn.inference.edge_pairs import Pairs, PairSettings, check_pairs
from livegnn.inference.edge_scoring import EdgePredictor
from livegnn.inference.native_engine import NativeEngine, missing_engine
from livegnn.network.inner_products import find_inner_product
from livegnn.network.outputs import EdgeOutput
from livegnn.texts import Texts
from livegnn.types import EdgeType, FloatArray, Ids, IntArray
from livegnn.wording import kind_of

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray

Predicate: TypeAlias = "Callable[[Float32[FloatArray, 'nodes channels']], Bool[NDArray[np.bool_], 'nodes']]"
"""Of the features of nodes: which of them may be candidates."""

MOST_CANDIDATES: Final = 10_000
MOST_COMPARED: Final = 131_072
"""The most nodes that are compared one by one where there is no index."""
_AT_ONCE: Final = 8192  # nodes whose scores are computed in one read
_OVERSAMPLE: Final = 8  # times as many nodes are found as are wanted
_LEAST_FOUND: Final = 256
_DEEPER: Final = 8
_TRIES: Final = 4  # before a search waits for the batch that is applied


class CandidateSettings(PairSettings, total=False):
    """The arguments of `candidates` beside the nodes and their number."""

    exclude_existing: bool
    where: "Predicate | None"


@dataclass(frozen=True, eq=False)
class Candidates:
    """The best partners of a node, best first.

    ids: at most k. scores: of the edge output, float32. seq: the sequence number that both reflect.
    """

    ids: "Shaped[Ids, 'candidates']"
    scores: "Float32[FloatArray, 'candidates']"
    seq: int


class CandidateFinder(EdgePredictor):
    """An `EdgePredictor` that also finds the pairs of a node with the highest scores."""

    _indexes: Mapping[str, CandidateIndex] = MappingProxyType({})

    def candidates(
        self,
        node: int | str,
        k: int = 10,
        *,
        output: str | None = None,
        edge_type: EdgeType | None = None,
        exclude_existing: bool = True,
        where: "Predicate | None" = None,
        edge_attr: "ArrayLike | None" = None,
        edge_weight: "ArrayLike | None" = None,
    ) -> Candidates:
        """The k nodes with the highest scores as targets of an edge from a node, of one edge output.

        k: at most 10,000. output, edge_type: as in `score`; a score must have one channel. exclude_existing:
        leaves out targets to which an edge of this type leads already. where: a function of the features of
        targets, float32 [nodes, channels], to bool [nodes]: whether they may be candidates; it may be called
        several times. edge_attr, edge_weight: the columns of all these edges, [width] and one number, for
        edge outputs that read them. The node itself is never its own candidate.

        If the edge output is an inner product, an index finds the nodes that are compared, where there are
        more than 4,096. Otherwise all are compared, at most 131,072.

        Raises `UnknownNodeError`, and `InputError` if there is no such edge output, for columns as `score`
        does, and if there are too many nodes to compare.
        """
        settings = CandidateSettings(
            output=output,
            edge_type=edge_type,
            exclude_existing=exclude_existing,
            where=where,
            edge_attr=edge_attr,
            edge_weight=edge_weight,
        )
        return self._search(k, settings).find(one_id(node))

    def candidates_of_each(
        self, nodes: "ArrayLike", k: int = 10, **settings: Unpack[CandidateSettings]
    ) -> list[Candidates]:
        """The candidates of each of several nodes, each of one state of the graph, which it names. The
        arguments and errors are those of `candidates`."""
        search, asked = self._search(k, settings), listed_ids(nodes, "nodes")
        return [search.find(asked[at : at + 1]) for at in range(len(asked))]

    def candidate_index(self, output: str | None = None, edge_type: EdgeType | None = None) -> CandidateIndex:
        """The index in which `candidates` looks; it is made now, if it was not yet. output, edge_type: as in
        `score`."""
        chosen = self.core.edge_outputs.find(output, edge_type)
        index = self._indexes.get(chosen.name)
        return _core.holding(self.core.graph.writer, self._make_index, chosen) if index is None else index

    def _make_index(self, chosen: EdgeOutput) -> CandidateIndex:
        index = self._indexes.get(chosen.name)
        if index is None:
            vectors = None if _lacks_index(self.core, chosen) else self.core.vectors[chosen.name]
            index = CandidateIndex(self.core, chosen, vectors)
            self._indexes = {**self._indexes, chosen.name: index}
        return index

    def _search(self, k: int, settings: CandidateSettings) -> "_Search":
        k = check_int(k, "k", 1, MOST_CANDIDATES)
        exclude = check_bool(settings.get("exclude_existing", True), "exclude_existing")
        where = settings.get("where")
        if where is not None:
            check_function(where, "where", "features [nodes, channels]")
        chosen = self.core.edge_outputs.find(settings.get("output"), settings.get("edge_type"))
        if chosen.scores.width != 1:
            raise InputError(
                f"candidates need an edge output of one channel, got {chosen.name!r} of "
                f"{chosen.scores.width}: add one to the model that gives one number"
            )
        columns = _columns(self.core, chosen, settings)
        index = self.candidate_index(chosen.name, chosen.scores.edge_type)
        return _Search(self.core, chosen, index, k, columns, exclude, where)

    def _candidate_memory(self) -> dict[str, int]:
        """The bytes of the indexes of candidates; empty if there are none."""
        indexes = self._indexes.values()
        return {"candidates": sum(sum(index.memory().values()) for index in indexes)} if indexes else {}


class _Compared(NamedTuple):
    """Nodes whose scores are known: their indices, and their ids as numbers."""

    nodes: "UInt32[NDArray[np.uint32], 'nodes']"
    numbers: "Int64[IntArray, 'nodes']"
    scores: "Float32[FloatArray, 'nodes']"

    def join(self, other: "_Compared") -> "_Compared":
        return _Compared(
            np.append(self.nodes, other.nodes),
            np.append(self.numbers, other.numbers),
            np.append(self.scores, other.scores),
        )

    def take(self, most: int) -> "_Compared":
        """The best, best first."""
        best = np.lexsort((self.numbers, -self.scores))[:most]  # NaN comes last
        return _Compared(self.nodes[best], self.numbers[best], self.scores[best])


@dataclass(frozen=True)
class _Search:
    """A search with checked arguments."""

    core: NativeEngine
    chosen: EdgeOutput
    index: CandidateIndex
    k: int
    columns: Pairs
    exclude_existing: bool
    where: "Predicate | None"

    def find(self, node: "Shaped[NDArray[np.generic], '1'] | Texts") -> Candidates:
        """The candidates of one node. Raises `UnknownNodeError`."""
        graph = self.core.graph
        with graph.pin():
            for _ in range(_TRIES):
                if (found := self._find_at_one_state(node)) is not None:
                    break
            else:
                found = _core.holding(graph.writer, self._find_between_batches, node)
            return found

    def _find_between_batches(self, node: "Shaped[NDArray[np.generic], '1'] | Texts") -> Candidates:
        self.core.graph.views.refuse_within_batch()
        epoch = self.core.epoch
        found = self._find_at_one_state(node)
        if found is None:
            if self.core.epoch != epoch:  # no other thread can have applied a batch
                raise InputError("where must not change the graph, got one that applied a batch")
            raise missing_engine()
        return found

    def _find_at_one_state(self, node: "Shaped[NDArray[np.generic], '1'] | Texts") -> Candidates | None:
        """The candidates; None if a batch became visible meanwhile."""
        graph, epoch = self.core.graph, self.core.epoch
        best = self._find(int(graph.to_numbers(node)[0]))
        if best is None:
            raise UnknownNodeError(graph.unknown_node(node[0], self.chosen.scores.edge_type[0]))
        seq = graph.seq
        if self.core.epoch != epoch or self.index.at != epoch:
            return None
        return Candidates(graph.to_user_ids(best.numbers), best.scores, seq)

    def _find(self, source: int) -> "_Compared | None":
        query = self._query_of(source)
        wanted = max(_OVERSAMPLE * self.k, _LEAST_FOUND)
        count = self.core.graph.native.num_nodes(self.index.node_type)
        while query is not None and wanted < count:
            found = self.index.search(query, wanted)
            if found is None:
                break
            best = self._best_of(source, found.nodes)
            if best is None:
                return None
            wanted *= _DEEPER
            if len(best.nodes) == self.k and (
                wanted > MOST_COMPARED or self.index.is_sure(query, found, best.nodes)
            ):
                return best
        return self._best_of(source, self._all())

    def _query_of(self, source: int) -> FloatArray | None:
        """The vector of a source; None if there is none, or no index."""
        vectors = self.index.vectors
        if vectors is None:
            return None
        ids = np.array([source])
        rows = self.core.native.score(
            vectors.source, ids, ids, self.columns.edge_attr, self.columns.edge_weight, False
        )
        if not isinstance(rows, np.ndarray):
            return None
        query = vectors.query_of(rows[0])
        return query if np.isfinite(query).all() else None

    def _all(self) -> "UInt32[NDArray[np.uint32], 'nodes']":
        """The indices of all nodes that may be targets. Raises `InputError` if they are too many."""
        graph, name = self.core.graph, self.chosen.scores.edge_type[2]
        count = graph.native.num_nodes(self.index.node_type)
        if self.index.vectors is None and count > MOST_COMPARED:
            raise InputError(
                f"candidates of {self.chosen.name!r} are found by comparing all {name!r} nodes, at most "
                f"{MOST_COMPARED:,}, got {count:,}: {_lacks_index(self.core, self.chosen)}"
            )
        return np.arange(graph.native.capacity(self.index.node_type), dtype=np.uint32)

    def _best_of(self, source: int, nodes: "UInt32[NDArray[np.uint32], 'nodes']") -> "_Compared | None":
        """The best k of these nodes, best first; None without such a source."""
        best = _Compared(np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0, np.float32))
        for first in range(0, max(1, len(nodes)), _AT_ONCE):
            some = self._candidates_among(source, nodes[first : first + _AT_ONCE])
            if some is None:
                return None
            best = best.join(some).take(self.k)
        return best

    def _candidates_among(
        self, source: int, nodes: "UInt32[NDArray[np.uint32], 'nodes']"
    ) -> "_Compared | None":
        weight = self.columns.edge_weight
        found = self.core.native.score_targets(
            self.chosen.position,
            source,
            nodes,
            self.columns.edge_attr,
            None if weight is None else float(weight[0]),
            self.exclude_existing,
            self.where is not None,
        )
        if found is None:
            return None
        targets, numbers, scores, linked, x = found
        allowed = np.ones(len(numbers), np.bool_) if not self.exclude_existing else linked == 0
        source_type, _, target_type = self.chosen.scores.edge_type
        if source_type == target_type:
            allowed &= numbers != source
        if self.where is not None and len(numbers):
            allowed &= _check_allowed(self.where(x), len(numbers))
        return _Compared(targets[allowed], numbers[allowed], scores[allowed, 0])


def _check_allowed(allowed: object, count: int) -> "Bool[NDArray[np.bool_], 'nodes']":
    if not isinstance(allowed, np.ndarray) or allowed.dtype != np.bool_ or allowed.shape != (count,):
        got = (
            f"{allowed.dtype} {list(allowed.shape)}" if isinstance(allowed, np.ndarray) else kind_of(allowed)
        )
        raise InputError(
            f"where must return an array of bool, [{count}], for features of {count} nodes, got {got}"
        )
    return allowed


def _columns(core: NativeEngine, chosen: EdgeOutput, settings: CandidateSettings) -> Pairs:
    """The columns that all pairs have. Raises `InputError`."""
    given = PairSettings(edge_attr=settings.get("edge_attr"), edge_weight=settings.get("edge_weight"))
    nothing = Texts.of(["any"])  # one pair, whose ends are not looked at
    return check_pairs(core.graph.schema, chosen, nothing, nothing, given)


def _lacks_index(core: NativeEngine, chosen: EdgeOutput) -> str | None:
    """Why there is no index for an edge output, and the correction; None if there can be one."""
    product = find_inner_product(chosen.scores, core.model)
    if isinstance(product, str):
        return (
            f"{product}; end the decoder with an inner product of a row of each end, and an index finds them"
        )
    if core.eager_steps is not None:
        return 'a lazy engine does not know which rows change; use mode="eager", and an index finds them'
    return None
