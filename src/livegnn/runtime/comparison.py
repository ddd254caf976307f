"""How the predictions of two engines on one graph differ."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from livegnn.arguments import not_negative, whole
from livegnn.errors import InputError
from livegnn.inference import Engine
from livegnn.types import FloatArray, Ids

if TYPE_CHECKING:
    from jaxtyping import Float32, Shaped

_AT_ONCE: Final = 2048  # nodes: batches wait while so many are read

_Rows: TypeAlias = (
    "tuple[Shaped[Ids, 'nodes'], Float32[FloatArray, 'nodes c'], Float32[FloatArray, 'nodes c']]"
)
Read: TypeAlias = "Callable[[Callable[[], _Rows]], tuple[int, _Rows]]"


class Comparison(NamedTuple):
    """How the predictions of the model `second` differ from those of `first`, between events `since` and
    `seq`.

    nodes: how many were compared. different: how many of them have a channel that differs by more than
    `tolerance`. largest, mean: absolute differences, over all channels. largest_id: the node with the largest
    one, None if none differs. changed_class: how many nodes have their largest channel elsewhere, None if
    there is only one channel. not_finite: how many nodes have a channel that is infinite or NaN in either
    model; the other figures leave these nodes out.
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


def compare(
    first: Engine, second: Engine, read: Read, *, sample: int = 65_536, tolerance: float = 1e-4, seed: int = 0
) -> Comparison:
    """Compares the first outputs for `sample` nodes drawn at random, or for all if there are no more.

    read: `Runtime.read`: each part of the nodes is read at one event, and batches come between two parts.
    Raises `InputError` if the outputs are of nodes of other types, or of another width.
    """
    sample, seed = whole(sample, "sample, a number of nodes,", 1), whole(seed, "seed", 0)
    tolerance = not_negative(tolerance, "tolerance")
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
            return there, first.predict(there), second.predict(there)

        seq, rows = read(ask)
        since = seq if begin == 0 else since
        tally.add(*rows)
    return tally.result(first.name, second.name, since, seq)


class _Tally:
    """The figures of a comparison, part by part."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._nodes = self._different = self._changed_class = self._not_finite = self._numbers = 0
        self._largest, self._sum = 0.0, 0.0
        self._largest_id: int | str | None = None
        self._width = 0

    def add(
        self,
        ids: "Shaped[Ids, 'nodes']",
        first: "Float32[FloatArray, 'nodes channels']",
        second: "Float32[FloatArray, 'nodes channels']",
    ) -> None:
        self._nodes, self._width = self._nodes + len(ids), first.shape[1]
        finite = np.isfinite(first).all(1) & np.isfinite(second).all(1)
        self._not_finite += int((~finite).sum())
        ids, first, second = ids[finite], first[finite], second[finite]
        if not first.size:
            return
        differences = np.abs(first.astype(np.float64) - second)
        of_nodes = differences.max(1)
        self._different += int((of_nodes > self._tolerance).sum())
        self._changed_class += int((first.argmax(1) != second.argmax(1)).sum())
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
        )
