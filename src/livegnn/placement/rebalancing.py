"""A better partition of a graph that is divided already, for which few nodes change their owners."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from livegnn.arguments import check_int
from livegnn.graph import Graph
from livegnn.placement.numbered import NumberedGraph
from livegnn.placement.owners import MOST_WORKERS
from livegnn.placement.partition import Partition, check_workers, describe
from livegnn.placement.partitioners import Partitioner, check_partitioner, divide
from livegnn.types import NodeType

if TYPE_CHECKING:
    from jaxtyping import UInt16
    from numpy.typing import NDArray

_PASSES = 8


class Rebalanced(NamedTuple):
    """A partition that replaces another one. moved: how many nodes have another owner."""

    before: Partition
    after: Partition
    moved: int

    @property
    def better(self) -> bool:
        """Whether fewer edges are cut, or the nodes of a type are spread more evenly."""
        before, after = self.before, self.after
        return after.cut < before.cut or any(
            after.balance[name] < balance for name, balance in before.balance.items()
        )


def rebalance_partition(
    graph: Graph,
    owners: "Mapping[NodeType, UInt16[NDArray[np.uint16], 'capacity']]",
    workers_before: int,
    workers: int,
    partitioner: Partitioner,
) -> Rebalanced:
    """Divides a graph among `workers`, which `workers_before` workers own.

    owners: by index, at present. partitioner: "fennel" moves nodes at the boundaries of parts in passes, and
    those of parts with too many; "metis" divides the graph afresh, and then calls its parts by the numbers of
    those with which they share most nodes. With another number of workers both divide it afresh. Raises
    InputError as `partition_graph`.
    """
    check_partitioner(partitioner)
    workers = check_int(workers, "workers", 1, MOST_WORKERS)
    with graph.writer:
        check_workers(graph, workers)
        numbered, seq = NumberedGraph.of(graph), graph.seq
        ids = {name: graph.ids(name) for name in graph.schema.node_types}
        at = [owners[name][graph.native.indices(number)] for number, name in enumerate(ids)]
    present = np.concatenate(at).astype(np.uint16)
    if workers != workers_before:
        placed = divide(numbered, workers, partitioner)
    elif partitioner == "metis":
        placed = _renumber(divide(numbered, workers, partitioner), present, workers)
    else:
        placed = present.copy()
        numbered.even_out(placed, workers)
        numbered.rebalance(placed, workers, passes=_PASSES)
    before = describe(numbered, present, workers_before, "present owners", seq, ids)
    after = describe(numbered, placed, workers, partitioner, seq, ids)
    return Rebalanced(before, after, int(np.count_nonzero(placed != present)))


def _renumber(
    placed: "UInt16[NDArray[np.uint16], 'nodes']",
    present: "UInt16[NDArray[np.uint16], 'nodes']",
    workers: int,
) -> "UInt16[NDArray[np.uint16], 'nodes']":
    """The same parts, under numbers for which few nodes move: the two that share most nodes get one number,
    then the next two."""
    shared = np.bincount(placed.astype(np.int64) * workers + present, minlength=workers * workers)
    numbers = np.full(workers, -1)
    taken = np.zeros(workers, np.bool_)
    for pair in np.argsort(-shared, kind="stable").tolist():
        part, number = divmod(pair, workers)
        if numbers[part] < 0 and not taken[number]:
            numbers[part], taken[number] = number, True
    return numbers[placed].astype(np.uint16)
