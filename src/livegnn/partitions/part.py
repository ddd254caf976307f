"""One part of a divided graph, as the object that leads all parts sees it."""

from collections.abc import Mapping, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import UInt16
from numpy.typing import NDArray

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.graph import Claim, Graph, Transaction
from livegnn.inference import Engine, WhatIf
from livegnn.partitions.edge_columns import AskedEdges, WaitForEdges
from livegnn.partitions.edges import Counts, KeepsEdges, expired_of
from livegnn.partitions.questions import Answer, Answers
from livegnn.partitions.reads import RowAnswers, WaitForRows
from livegnn.partitions.sets import write_part
from livegnn.partitions.shares import ShareOrder, write_share
from livegnn.types import FloatArray, Ids, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jaxtyping import Float32, Int64, Shaped

    from livegnn.channels.frames import Buffer
    from livegnn.events import Events
    from livegnn.partitions.edges import Names
    from livegnn.snapshots.manifest import Layer


Placed: TypeAlias = "Mapping[int, UInt16[NDArray[np.uint16], '_']]"
"""By the number of a node type: the owners of the nodes that a batch adds, in their order."""


class Asked(NamedTuple):
    """A question to a part about a batch that is only supposed: predictions of nodes that it would own.
    output: as of `Engine.predict`. numbers: the ids, as numbers."""

    output: str | None
    numbers: "Int64[IntArray, 'ids']"


class Given(NamedTuple):
    """A batch, as all parts get it. seq: of its last event. asked: the question to each part, if the batch is
    only supposed."""

    events: "Events"
    seq: int
    trusted: bool
    asked: "Sequence[Asked] | None" = None


class Outcome(NamedTuple):
    """The effect of a batch on one part.

    changed: ids of its nodes whose predictions changed, as numbers. affected: how many nodes were computed
    again. ends: of edges at its nodes, in all, by node type; none of a batch that is only supposed. rows: the
    predictions of the question about such a batch.
    """

    changed: "Int64[IntArray, 'changed']"
    affected: int
    ends: "Int64[IntArray, 'types']"
    rows: "Float32[FloatArray, 'ids channels'] | None" = None


class Reader(KeepsEdges, Protocol):
    """A part, as reads reach it. Any thread may call."""

    def ask_rows(self, numbers: "Int64[IntArray, 'ids']", output: str | None, commits: int) -> WaitForRows:
        """Begins to read predictions of nodes that the part owns, as of `Engine.predict`, after this number
        of batches; the result waits for them. numbers: the ids, as numbers."""

    def ask_edges(self, asked: AskedEdges) -> WaitForEdges:
        """Begins to read columns of edges from nodes that the part owns; the result waits for them."""

    def ask(self, question: "Buffer") -> Answer:
        """Sends a question about the graph; the result waits for the answer (`questions.py`)."""

    def memory(self) -> Mapping[str, int]:
        """Bytes, as of `Engine.memory`. Does not wait for a part that is silent: of this one, the last that
        are known, none before the first."""

    def last_counts(self) -> Counts | None:
        """The result of `counts`, in the same way."""

    def find_loss(self) -> str | None:
        """Why the part does not answer; None if it does, as far as is known without a question."""

    def write(self, path: "Path", mark: str) -> None:
        """Writes its file of a set (`sets.py`). No batch may be applied meanwhile."""

    def share(self, order: ShareOrder) -> "Layer":
        """Writes its share of a snapshot. No batch may be applied meanwhile. Raises `SnapshotError`."""

    def close(self) -> None:
        """Ends the part. No batch may be applied meanwhile."""


class Part(Reader, Protocol):
    """A part that applies batches together with the others.

    Thread safety: one thread applies batches; any thread may call the other functions meanwhile.
    """

    def apply(
        self, events: "Events", seq: int, vote: "Callable[[], None]", placed: Placed, *, trusted: bool
    ) -> Outcome:
        """Applies a batch, whose number of the last event is `seq`, while all other parts do the same.

        placed: owners of the nodes that it adds, where Fennel chooses them. vote: called once it is
        prepared; returns if all parts commit it, or raises, and then nothing changes.
        Raises the errors of `Graph.apply`.
        """

    def suppose(
        self, events: "Events", seq: int, vote: "Callable[[], None]", placed: Placed, asked: Asked
    ) -> Outcome:
        """The effect that a batch would have, as all other parts find it at the same time; nothing changes.
        vote: called once it is known. Raises the errors of `Graph.apply`."""

    def give_up(self) -> None:
        """Ends the rounds of a batch for the other parts, as this one cannot continue them."""


def give_placed(graph: Graph, placed: Placed) -> None:
    """Gives a part's graph the owners of nodes that its next batch adds."""
    for node_type, owners in placed.items():
        _core.give_owners(graph.native, node_type, owners)


def suppose(engine: Engine, events: "Events", ids: "Shaped[Ids, 'ids']", output: str | None) -> Outcome:
    """The effect of a batch on the engine of a part, which the others find at the same time. ids: of
    the nodes whose predictions it returns."""
    try:
        supposed = WhatIf(engine.core, events, engine, together=True)
        rows = supposed.predict(ids, output=output)
        return Outcome(supposed.changed_numbers(), supposed.affected, np.empty(0, np.int64), rows)
    finally:
        _core.holding(engine.graph.writer, engine.core.view.abandon)  # what the rounds have noted


class LocalPart:
    """A part in this process: a graph and its engine, which exchanges rows with those of the others."""

    def __init__(self, number: int, graph: Graph, engine: Engine, exchange: _core.LocalExchange) -> None:
        self._number = number
        self.graph, self.engine, self._exchange = graph, engine, exchange
        self._answers = Answers(graph, chosen_threads(engine.options.threads))
        visible = RLock()
        self._claim = Claim(self, visible)
        self._rows = RowAnswers(graph, engine, visible)

    def apply(
        self, events: "Events", seq: int, vote: "Callable[[], None]", placed: Placed, *, trusted: bool
    ) -> Outcome:
        give_placed(self.graph, placed)
        Transaction(
            self.graph.core,
            self.graph.views,
            events,
            seq=seq,
            on_staged=lambda _: vote(),
            trusted=trusted,
            claim=self._claim,
        ).run()
        changed, _, work = self.engine.core.view.outcome()
        return Outcome(changed, work[0], _core.ends_of_edges(self.graph.native))

    def suppose(
        self, events: "Events", seq: int, vote: "Callable[[], None]", placed: Placed, asked: Asked
    ) -> Outcome:
        give_placed(self.graph, placed)
        outcome = suppose(self.engine, events, self.graph.to_user_ids(asked.numbers), asked.output)
        vote()
        return outcome

    def give_up(self) -> None:
        self._exchange.end()

    def ask_rows(self, numbers: "Int64[IntArray, 'ids']", output: str | None, commits: int) -> WaitForRows:
        return partial(self._rows.predict, self.graph.to_user_ids(numbers), output, commits)

    def ask_edges(self, asked: AskedEdges) -> WaitForEdges:
        return partial(self._rows.read_edges, asked)

    def ask(self, question: "Buffer") -> Answer:
        return partial(self._answers.to, question)

    def expired(self, edge_type: int, horizon: float) -> "Names":
        return expired_of(self.graph, edge_type, horizon)

    def memory(self) -> dict[str, int]:
        return self.engine.memory()

    def counts(self) -> Counts:
        return Counts.of(self.engine)

    def last_counts(self) -> Counts:
        return self.counts()

    def find_loss(self) -> None:
        """None: it ends with this process."""

    def write(self, path: "Path", mark: str) -> None:
        write_part(path, self._number, self.graph, self.engine, mark)

    def share(self, order: ShareOrder) -> "Layer":
        return write_share(self.graph, self._number, order)

    def close(self) -> None:
        """Does nothing."""
