"""The comparison of the predictions of two engines on one graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from livegnn.arguments import check_int, check_not_negative
from livegnn.errors import InputError
from livegnn.graph import Graph
from livegnn.presampling import Predictor
from livegnn.types import FloatArray, Ids, IntArray, NodeType

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64, Shaped

_CLASSES: Final = 65
_AT_ONCE: Final = 2048  # nodes that are read at once: batches wait meanwhile

_Rows: TypeAlias = (
    "tuple[Shaped[Ids, 'nodes'], Int64[IntArray, 'nodes'], Float32[FloatArray, 'nodes c'], "
    "Float32[FloatArray, 'nodes c']]"
)
Read: TypeAlias = "Callable[[Callable[[], _Rows]], tuple[int, _Rows]]"


class DegreeClass(NamedTuple):
    """The figures of the nodes with at least `degree` in-edges, and fewer than twice as many.

    nodes: the number compared; different: the number with a difference above the tolerance; largest, mean:
    differences.
    """

    degree: int
    nodes: int
    different: int
    largest: float
    mean: float


class Comparison(NamedTuple):
    """The differences of the predictions of the model `second` from `first`, between events `since` and
    `seq`.

    nodes: the number compared. different: the number of nodes with a channel that differs by more than
    `tolerance`. largest, mean: absolute differences, over all channels. largest_id: the node with the largest
    difference, None if no node differs. changed_class: the number of nodes whose largest channel is another
    one, None if there is only one channel. not_finite: the number of nodes with a channel that is infinite or
    NaN in either model; the other figures leave these nodes out. degrees: the same figures by in-degree, over
    all edge types: of nodes without in-edges, with 1, 2 or 3, 4 to 7, and so on; classes without nodes are
    left out.
    """

    first: str
    second: str
    since: int
    seq: int
    nodes: int
    tolerance: float
    different: int
    largest: float
    mean: float
    largest_id: int | str | None
    changed_class: int | None
    not_finite: int
    degrees: tuple[DegreeClass, ...]


def compare(
    first: Predictor,
    second: Predictor,
    read: Read,
    *,
    sample: int = 65_536,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> Comparison:
    """Compares the first outputs for `sample` nodes drawn at random, or for all if there are no more.

    read: `Runtime.read`: each part of the nodes is read at one event, and batches are applied between two
    parts. Raises `InputError` if the outputs differ in node type or width.
    """
    sample, seed = check_int(sample, "sample, a number of nodes,", 1), check_int(seed, "seed", 0)
    tolerance = check_not_negative(tolerance, "tolerance")
    for name, ours, theirs in (
        ("width", first.model.width(first.model.output), second.model.width(second.model.output)),
        ("node type", first.output_type_name, second.output_type_name),
    ):
        if ours != theirs:
            raise InputError(
                f"expected models whose predictions can be compared, got {name} {ours!r} of {first.name!r} "
                f"and {theirs!r} of {second.name!r}"
            )
    graph, node_type = first.graph, first.output_type_name
    ids = graph.ids(node_type)
    if len(ids) > sample:
        ids = np.random.default_rng(seed).choice(ids, sample, replace=False)
    tally = _Tally(tolerance)
    since = seq = graph.seq
    for begin in range(0, len(ids), _AT_ONCE):
        part = ids[begin : begin + _AT_ONCE]

        def ask(part: Ids = part) -> _Rows:
            there = part[graph.contains(part, node_type)]
            return there, _degrees(graph, node_type, there), first.predict(there), second.predict(there)

        seq, rows = read(ask)
        since = seq if begin == 0 else since
        tally.add(*rows)
    return tally.result(first.name, second.name, since, seq)


def _degrees(graph: Graph, node_type: NodeType, ids: Ids) -> "Int64[IntArray, 'nodes']":
    """Returns in-degrees over all edge types."""
    found = np.zeros(len(ids), np.int64)
    for edge_type in graph.schema.edge_types:
        if edge_type[2] == node_type:
            found += graph.degree(ids, edge_type=edge_type)
    return found


class _Tally:
    """The figures of a comparison, summed part by part."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._nodes = self._different = self._changed_class = self._not_finite = self._numbers = 0
        self._largest, self._sum = 0.0, 0.0
        self._largest_id: int | str | None = None
        self._width = 0
        self._classes = np.zeros((_CLASSES, 4))  # nodes, different, the largest, the sum; by `_class_of`

    def add(
        self,
        ids: "Shaped[Ids, 'nodes']",
        degrees: "Int64[IntArray, 'nodes']",
        first: "Float32[FloatArray, 'nodes channels']",
        second: "Float32[FloatArray, 'nodes channels']",
    ) -> None:
        self._nodes, self._width = self._nodes + len(ids), first.shape[1]
        finite = np.isfinite(first).all(1) & np.isfinite(second).all(1)
        self._not_finite += int((~finite).sum())
        ids, degrees, first, second = ids[finite], degrees[finite], first[finite], second[finite]
        if not first.size:
            return
        differences = np.abs(first.astype(np.float64) - second)
        of_nodes = differences.max(1)
        self._different += int((of_nodes > self._tolerance).sum())
        self._changed_class += int((first.argmax(1) != second.argmax(1)).sum())
        classes = np.frexp(degrees)[1]  # the number of bits of a degree
        np.add.at(self._classes[:, 0], classes, 1)
        np.add.at(self._classes[:, 1], classes, of_nodes > self._tolerance)
        np.maximum.at(self._classes[:, 2], classes, of_nodes)
        np.add.at(self._classes[:, 3], classes, differences.mean(1))
        self._sum, self._numbers = self._sum + float(differences.sum()), self._numbers + differences.size
        at = int(of_nodes.argmax())
        if of_nodes[at] > self._largest:
            self._largest, self._largest_id = float(of_nodes[at]), ids[at].item()

    def result(self, first: str, second: str, since: int, seq: int) -> Comparison:
        return Comparison(
            first,
            second,
            since,
            seq,
            self._nodes,
            self._tolerance,
            self._different,
            self._largest,
            self._sum / max(1, self._numbers),
            self._largest_id,
            self._changed_class if self._width > 1 else None,
            self._not_finite,
            tuple(
                DegreeClass(1 << bits >> 1, int(nodes), int(different), float(largest), float(total / nodes))
                for bits, (nodes, different, largest, total) in enumerate(self._classes)
                if nodes
            ),
        )
