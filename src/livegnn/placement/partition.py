"""A graph that is divided among workers: the owner of each node, and the file that has it.

A partition file is a checkpoint with the part `partition`; docs/partition.md describes it.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from livegnn.arguments import as_path, check_int
from livegnn.checkpoint import read, write
from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph
from livegnn.placement.numbered import NumberedGraph
from livegnn.placement.owners import MOST_WORKERS, NO_OWNER, Owners
from livegnn.placement.partitioners import Partitioner, divide
from livegnn.types import JSON, Array, Ids, NodeType, State
from livegnn.wording import format_count, kind_of

if TYPE_CHECKING:
    from jaxtyping import Shaped, UInt16
    from numpy.typing import NDArray

_STATE: Final = "partition"


@dataclass(frozen=True, eq=False)
class Partition:
    """The owners of the nodes of a graph, as of event `seq`.

    workers: the number of workers. ids, owners: of each node type, in the same order. cut: the share of edges
    between nodes of different owners. balance: by node type, the most nodes of a worker over the mean.
    """

    workers: int
    partitioner: str
    seq: int
    ids: "Mapping[NodeType, Shaped[Ids, '_']]"
    owners: "Mapping[NodeType, UInt16[NDArray[np.uint16], '_']]"
    cut: float
    balance: Mapping[NodeType, float]

    def digests(self) -> dict[NodeType, str]:
        """SHA-256 of the ids of each node type; their order does not count."""
        return {name: _digest(ids) for name, ids in self.ids.items()}

    def owners_in(self, graph: Graph, workers: int) -> dict[NodeType, Owners]:
        """The owners of a graph's nodes by index, for each type.

        Raises InputError if this partition is of other nodes, or of another number of workers.
        """
        if workers != self.workers:
            raise InputError(
                f"the partition must be of {format_count(workers, 'worker')}, got one of {self.workers}: "
                "partition the graph again"
            )
        with graph.writer:
            _check_nodes(self, graph)
            found = {}
            for index, (name, ids) in enumerate(self.ids.items()):
                table = np.full(graph.native.capacity(index), NO_OWNER, np.uint16)
                table[graph.indices_of(ids, name)] = self.owners[name]
                found[name] = Owners("table", workers, table=table)
        return found

    def write(self, path: Path | str) -> int:
        """Writes a partition file, durably and at once; returns its bytes. Raises as `write` does."""
        meta: dict[str, JSON] = {
            "kind": _STATE,
            "workers": self.workers,
            "partitioner": self.partitioner,
            "cut": self.cut,
            "node_types": [
                {"name": name, "digest": digest, "balance": self.balance[name]}
                for name, digest in self.digests().items()
            ],
        }
        arrays: dict[str, Array] = {f"ids/{name}": ids for name, ids in self.ids.items()}
        arrays |= {f"owners/{name}": owners for name, owners in self.owners.items()}
        return write(path, {_STATE: State(meta, arrays)}, self.seq)

    @classmethod
    def read(cls, path: Path | str) -> "Partition":
        """The partition of a file. Raises FileFormatError if it is damaged or of another kind, OSError."""
        path = as_path(path, "path")
        found = read(path)
        state = found.states.get(_STATE)
        if state is None or state.meta.get("kind") != _STATE:
            parts = ", ".join(map(repr, found.states)) or "none"
            raise FileFormatError(f"{path} must be a partition file, with the part {_STATE!r}, got {parts}")
        try:
            return _from_state(state, found.seq)
        except (KeyError, TypeError, ValueError) as error:
            raise FileFormatError(f"{path} must have a partition that fits together: {error}") from error

    def __str__(self) -> str:
        types = ", ".join(
            f"{format_count(len(ids), 'node')} of {name} (balance {self.balance[name]:.3f})"
            for name, ids in self.ids.items()
        )
        return (
            f"{format_count(self.workers, 'worker')} by {self.partitioner}, event {self.seq:,}: {types}; "
            f"{self.cut:.1%} of edges are cut"
        )


def partition_graph(
    graph: Graph, workers: int, *, partitioner: Partitioner = "metis", seed: int = 0
) -> Partition:
    """Divides the nodes of a graph among `workers`, so that few edges are cut and each has its share.

    partitioner: "metis" (needs pymetis), or "fennel", a pass over the nodes in the order of `graph.ids`.
    Then both move nodes at the boundaries of parts.
    Each worker owns at most 5 % more nodes of each type than the mean, or less than one more. seed: of the
    random numbers of METIS. Raises InputError.
    """
    if not isinstance(graph, Graph):
        raise InputError(f"graph must be a Graph, got {kind_of(graph)}")
    workers = check_int(workers, "workers", 1, MOST_WORKERS)
    seed = check_int(seed, "seed", 0, 2**31 - 1)
    with graph.writer:
        check_workers(graph, workers)
        numbered, seq = NumberedGraph.of(graph), graph.seq
        ids = {name: graph.ids(name) for name in graph.schema.node_types}
    owners = divide(numbered, workers, partitioner, seed=seed)
    return describe(numbered, owners, workers, partitioner, seq, ids)


def describe(
    numbered: NumberedGraph,
    owners: "UInt16[NDArray[np.uint16], 'nodes']",
    workers: int,
    partitioner: str,
    seq: int,
    ids: "Mapping[NodeType, Shaped[Ids, '_']]",
) -> Partition:
    """The partition of a graph at event `seq` with these owners. ids: of each type, in the order of their
    numbers."""
    starts = numbered.type_starts
    balance = numbered.balance(owners, workers)
    return Partition(
        workers,
        partitioner,
        seq,
        ids,
        {name: owners[starts[at] : starts[at + 1]] for at, name in enumerate(ids)},
        numbered.cut(owners),
        dict(zip(ids, balance, strict=True)),
    )


def check_workers(graph: Graph, workers: int) -> None:
    """Raises InputError if a graph has fewer nodes than there are workers."""
    nodes = sum(map(graph.num_nodes, graph.schema.node_types))
    if nodes < workers:
        raise InputError(
            f"a graph of {format_count(nodes, 'node')} can be divided among as many workers at most, got "
            f"workers={workers}"
        )


def _digest(ids: "Shaped[Ids, 'nodes']") -> str:
    if ids.dtype.kind == "U":
        texts = sorted(text.encode("utf-8", "surrogatepass") for text in ids.tolist())
        lengths = np.array([len(text) for text in texts], "<i8")
        return hashlib.sha256(b"text" + lengths.tobytes() + b"".join(texts)).hexdigest()
    return hashlib.sha256(b"integers" + np.sort(ids).astype("<i8").tobytes()).hexdigest()


def _check_nodes(partition: Partition, graph: Graph) -> None:
    """Raises InputError unless partition and graph have the same nodes, of the same types."""
    if list(partition.ids) != list(graph.schema.node_types):
        raise InputError(
            f"the partition must have the node types {', '.join(map(repr, graph.schema.node_types))}, got "
            f"{', '.join(map(repr, partition.ids))}: it is of another graph"
        )
    for name, digest in partition.digests().items():
        actual = _digest(graph.ids(name))
        if digest != actual:
            raise InputError(
                f"the partition must be of the {format_count(graph.num_nodes(name), 'node')} of type "
                f"{name!r} with the digest {actual[:16]}, got {len(partition.ids[name]):,} with "
                f"{digest[:16]}: it is of another graph, or of other events; partition the graph again"
            )


def _from_state(state: State, seq: int) -> Partition:
    meta, arrays = state.meta, dict(state.arrays)
    workers = check_int(meta["workers"], "workers", 1, MOST_WORKERS)
    ids, owners, balance = {}, {}, {}
    for entry in cast("list[dict[str, JSON]]", meta["node_types"]):
        name = str(entry["name"])
        ids[name] = cast("Ids", arrays.pop(f"ids/{name}"))
        owners[name] = cast("NDArray[np.uint16]", arrays.pop(f"owners/{name}"))
        balance[name] = _number(entry["balance"])
        if ids[name].dtype.kind != "U" and ids[name].dtype != np.int64:
            raise ValueError(f"ids of {name!r} are integers or text, got {ids[name].dtype}")
        if owners[name].dtype != np.uint16 or owners[name].shape != ids[name].shape or ids[name].ndim != 1:
            raise ValueError(f"{name!r} needs an owner, uint16, for each id")
        if len(owners[name]) and owners[name].max() >= workers:
            raise ValueError(f"an owner of {name!r} is none of {workers} workers")
        if _digest(ids[name]) != entry["digest"]:
            raise ValueError(f"the ids of {name!r} have another digest")
        if len(np.unique(ids[name])) != len(ids[name]):
            raise ValueError(f"an id of {name!r} is listed twice")
    if arrays:
        raise ValueError(f"there is an array {next(iter(arrays))!r} of no node type")
    return Partition(workers, str(meta["partitioner"]), seq, ids, owners, _number(meta["cut"]), balance)


def _number(value: JSON) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"cut and balance are numbers, got {value!r}")
    return float(value)
