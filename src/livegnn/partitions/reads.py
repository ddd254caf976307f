"""Reads of rows of a graph in parts, and the answers of a part.

A read requests each row from the owner of the node, after the batch that the names show, by its number. It
holds no lock while it waits: a part that is slow, frozen or lost delays no read of other parts. A part that
shows another batch says so, and the read begins again.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

import livegnn._core as _core
from livegnn.arguments import listed_ids
from livegnn.errors import LiveGNNError, UnknownNodeError, WorkerUnavailableError
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.inference.predictions import Prediction
from livegnn.inference.row_predictor import RowsApart, WantedRows
from livegnn.network import Model
from livegnn.network.outputs import Outputs
from livegnn.partitions.edge_columns import AskedEdges, EdgeColumns, FoundColumns, WaitForEdges, WantedEdges
from livegnn.types import NO_INDEX, FloatArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Bool, Float32, Int64, Shaped, UInt16, UInt32
    from numpy.typing import ArrayLike, NDArray

    from livegnn.texts import Texts
    from livegnn.types import Ids

    Listed = NDArray[np.generic] | Texts

_Read = TypeVar("_Read")

WaitForRows: TypeAlias = Callable[[], Prediction | None]
"""Waits for the rows of a part, and returns them; None if the part shows another batch."""

_TRIES: Final = 4  # beside batches, before a read keeps the next batch from becoming visible
_EVERY, _LONGEST_WAIT = 0.001, 1.0  # seconds between two looks at a part, and for a batch that it commits now


class RowAnswers:
    """Answers reads of a part of this process. visible: a lock that is held while a batch becomes visible.
    Thread safety: any thread may call."""

    def __init__(self, graph: Graph, engine: Engine, visible: threading.RLock) -> None:
        self._graph, self._engine, self._visible = graph, engine, visible

    def predict(self, ids: "Shaped[Ids, 'ids']", output: str | None, commits: int) -> "Prediction | None":
        """Predictions after this number of batches, of nodes that the part owns. None if it shows a later
        batch, or an earlier one that does not pass: the leader shows a batch before its parts do."""

        def predict() -> Prediction:
            return Prediction(self._graph.core.seq, self._engine.predict(ids, output=output))

        return self._read_after(commits, predict)

    def read_edges(self, asked: AskedEdges) -> EdgeColumns | None:
        """The columns of edges from nodes that the part owns. None as of `predict`."""
        return self._read_after(asked.commits, partial(asked.read, self._graph))

    def _read_after(self, commits: int, read: Callable[[], _Read]) -> _Read | None:
        ends = monotonic() + _LONGEST_WAIT
        while _core.part_commits(self._graph.native) < commits and monotonic() < ends:
            sleep(_EVERY)

        def read_if_shown() -> _Read | None:
            return read() if _core.part_commits(self._graph.native) == commits else None

        return _core.holding(self._visible, read_if_shown)


class ReadsRows(Protocol):
    """A part."""

    def ask_rows(self, numbers: "Int64[IntArray, 'ids']", output: str | None, commits: int) -> WaitForRows:
        """Begins to read predictions, after this number of batches. numbers: of nodes that it owns."""

    def ask_edges(self, asked: AskedEdges) -> WaitForEdges:
        """Begins to read columns of edges from nodes that it owns."""


class Led(Protocol):
    """The parts and their leader: `Partitions`."""

    names: Graph
    model: Model
    outputs: Outputs

    @property
    def parts(self) -> Sequence[ReadsRows]: ...

    @property
    def is_applying(self) -> bool:
        """Whether some parts may show a batch that others do not show yet."""


class RowsTogether(NamedTuple):
    """seq: the event that all rows reflect. rows: of each of the wanted ones, by its outputs; of the nodes
    that are there. present: which these are. columns: of the wanted edges."""

    seq: int
    rows: "Sequence[Sequence[Float32[FloatArray, 'present channels']]]"
    present: "Sequence[Bool[NDArray[np.bool_], 'ids']]"
    columns: FoundColumns | None = None


Take: TypeAlias = Callable[[], int | None]
"""Waits for an answer of a part and notes it. Returns its event; None if the part shows another batch."""

CheckPresent: TypeAlias = "Callable[[Sequence[Bool[NDArray[np.bool_], ids]]], None]"
"""Gets which of the wanted nodes are there, before their rows are read, and may raise."""


class _Now(NamedTuple):
    """The parts, and the number of batches that the names show."""

    parts: Sequence[ReadsRows]
    commits: int


class _Nodes(NamedTuple):
    """Nodes of one type. indices: of all, `NO_INDEX` of one that is not there. numbers: the ids of those that
    are there, as numbers. owners: of these."""

    present: "Bool[NDArray[np.bool_], 'ids']"
    indices: "UInt32[NDArray[np.uint32], 'ids']"
    numbers: "Int64[IntArray, 'present']"
    owners: "UInt16[NDArray[np.uint16], 'present']"


class RowReads:
    """Reads from the parts of `led`. exchanging: a lock that is held while it gets other parts. Thread
    safety: any thread may call; a thread that holds `Graph.writer` of the names may, and so may one that
    keeps batches from becoming visible."""

    def __init__(self, led: Led) -> None:
        self._led = led
        self.exchanging: Final = threading.Lock()

    def read(self, ids: "ArrayLike", outputs: Sequence[str | None], *, present: bool = False) -> RowsApart:
        """As `RowPredictor.predict_apart`. Raises `WorkerUnavailableError` if the part of a node is lost."""
        asked, find = listed_ids(ids), self._led.outputs.find
        wanted = [WantedRows(find(output).node_type, asked, (output,)) for output in outputs]

        def refuse_missing(found: "Sequence[Bool[NDArray[np.bool_], 'ids']]") -> None:
            for (node_type, *_), there in zip(wanted, found, strict=True):
                if not there.all():
                    id = asked[int(there.argmin())]
                    raise UnknownNodeError(self._led.names.unknown_node(id, node_type))

        found = self.read_all(wanted, (lambda _: None) if present else refuse_missing)
        return RowsApart(found.seq, [each[0] for each in found.rows], found.present)

    def read_all(
        self, wanted: Sequence[WantedRows], check: CheckPresent, edges: WantedEdges | None = None
    ) -> RowsTogether:
        """Rows of nodes of several types, and columns of edges between them, all of one event. Raises what
        `check` raises, and `WorkerUnavailableError` if the part of a node is lost."""
        names = self._led.names
        pin = names.node_ids.pin()  # no number gets another text meanwhile
        try:
            for _ in range(_TRIES):
                if (found := self._try(wanted, check, edges)) is not None:
                    return found
            found = _core.holding(names.writer, self._try, wanted, check, edges)
        finally:
            pin.let_go()
        if found is None:
            raise _differ()
        return found

    def _try(
        self, wanted: Sequence[WantedRows], check: CheckPresent, edges: WantedEdges | None
    ) -> RowsTogether | None:
        """None if another batch became visible meanwhile, or there are other parts."""
        led = self._led
        now, seq = self._now(), led.names.core.seq
        located = [self._locate(one) for one in wanted]
        settled = not led.is_applying
        if self._now() != now:
            return None
        check([nodes.present for nodes in located])
        rows = [
            [
                np.empty((len(nodes.numbers), led.model.width(led.outputs.find(output).value)), np.float32)
                for output in one.outputs
            ]
            for nodes, one in zip(located, wanted, strict=True)
        ]
        columns = None if edges is None else FoundColumns(edges)
        try:
            takes: list[Take] = []
            for nodes, one, each in zip(located, wanted, rows, strict=True):
                for output, values in zip(one.outputs, each, strict=True):
                    takes += _ask_rows(now, nodes, output, values)
            if edges is not None and columns is not None:
                takes += _ask_edges(now, located, edges, columns)
            for take in takes:
                if (shown := take()) is None:
                    if settled and self._now() == now:
                        raise _differ()
                    return None
                seq = shown
        except WorkerUnavailableError:
            if led.parts is now.parts:
                raise
            return None
        return RowsTogether(seq, rows, [nodes.present for nodes in located], columns)

    def _now(self) -> _Now:
        return _core.holding(self.exchanging, self._look)

    def _look(self) -> _Now:
        return _Now(self._led.parts, _core.part_commits(self._led.names.native))

    def _locate(self, wanted: WantedRows) -> _Nodes:
        names = self._led.names
        node_type, numbers = names.node_type_index(wanted.node_type), names.to_numbers(wanted.ids)
        indices = names.native.indices_of(node_type, numbers)
        there = indices != NO_INDEX
        return _Nodes(
            there, indices, numbers[there], _core.owners_at(names.native, node_type, indices[there])
        )


def _ask_rows(
    now: _Now, nodes: _Nodes, output: str | None, rows: "Float32[FloatArray, 'present channels']"
) -> Iterator[Take]:
    """Requests rows of one output from the parts of their nodes."""

    def take(own: "Bool[NDArray[np.bool_], 'present']", wait: WaitForRows) -> int | None:
        if (answer := wait()) is None:
            return None
        seq, rows[own] = answer
        return seq

    for part in np.unique(nodes.owners):
        own = nodes.owners == part
        yield partial(take, own, now.parts[part].ask_rows(nodes.numbers[own], output, now.commits))


def _ask_edges(
    now: _Now, located: Sequence[_Nodes], edges: WantedEdges, columns: FoundColumns
) -> Iterator[Take]:
    """Requests the columns of edges whose ends are there from the parts of their sources."""
    sources, targets = located[0], located[-1]
    owners = np.zeros(len(sources.present), np.uint16)
    owners[sources.present] = sources.owners
    there, owner = sources.present[edges.sources] & targets.present[edges.targets], owners[edges.sources]
    names = [sources.indices[edges.sources], targets.indices[edges.targets]]
    if edges.keys is not None:
        names.append(edges.keys)
    for part in np.unique(owner[there]):
        places = np.flatnonzero(there & (owner == part))
        own = np.stack(names)[:, places]
        asked = AskedEdges(edges.edge_type, own, edges.featured, now.commits)
        yield partial(columns.take, places, now.parts[part].ask_edges(asked))


def _differ() -> LiveGNNError:
    return LiveGNNError("the parts of the graph show different batches: start all parts again")
