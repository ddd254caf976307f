"""One part of a divided graph, as the object that leads all parts sees it."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
from jaxtyping import UInt16
from numpy.typing import NDArray

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.graph import Graph
from livegnn.inference import Engine
from livegnn.partitions.questions import Answer, Answers
from livegnn.partitions.sets import write_part
from livegnn.types import FloatArray, Ids, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from jaxtyping import Float32, Int64

    from livegnn.channels.frames import Buffer
    from livegnn.events import Events


Placed: TypeAlias = "Mapping[int, UInt16[NDArray[np.uint16], '_']]"
"""By the number of a node type: the owners of the nodes that a batch adds, in their order."""


class Outcome(NamedTuple):
    """The effect of a batch on one part.

    changed: ids of its nodes whose predictions changed, as numbers. affected: how many nodes were computed
    again. ends: of edges at its nodes, in all, by node type.
    """

    changed: "Int64[IntArray, 'changed']"
    affected: int
    ends: "Int64[IntArray, 'types']"


class Reader(Protocol):
    """A part, as reads reach it. Any thread may call."""

    def predict(self, ids: Ids, output: str | None) -> "Float32[FloatArray, 'ids channels']":
        """Predictions of nodes that the part owns, as of `Engine.predict`."""

    def asking(self, question: "Buffer") -> "AbstractContextManager[Answer]":
        """Sends a question about the graph; the result waits for the answer (`questions.py`)."""

    def memory(self) -> dict[str, int]:
        """Bytes, as of `Engine.memory`."""

    def find_loss(self) -> str | None:
        """Why the part does not answer; None if it does, as far as is known without a question."""

    def write(self, path: "Path", mark: str) -> None:
        """Writes its file of a set (`sets.py`). No batch may be applied meanwhile."""

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

    def give_up(self) -> None:
        """Ends the rounds of a batch for the other parts, as this one cannot continue them."""


class LocalPart:
    """A part in this process: a graph and its engine, which exchanges rows with those of the others."""

    def __init__(self, number: int, graph: Graph, engine: Engine, exchange: _core.LocalExchange) -> None:
        self._number = number
        self.graph, self.engine, self._exchange = graph, engine, exchange
        self._answers = Answers(graph, chosen_threads(engine.options.threads))

    def apply(
        self, events: "Events", seq: int, vote: "Callable[[], None]", placed: Placed, *, trusted: bool
    ) -> Outcome:
        native = self.graph.native
        for node_type, owners in placed.items():
            _core.give_owners(native, node_type, owners)
        self.graph.apply(events, seq=seq, on_staged=lambda _: vote(), trusted=trusted)
        changed, _, work = self.engine.core.view.outcome()
        return Outcome(changed, work[0], _core.ends_of_edges(native))

    def give_up(self) -> None:
        self._exchange.end()

    def predict(self, ids: Ids, output: str | None) -> "Float32[FloatArray, 'ids channels']":
        return self.engine.predict(ids, output=output)

    def asking(self, question: "Buffer") -> "AbstractContextManager[Answer]":
        return nullcontext(partial(self._answers.to, question))

    def memory(self) -> dict[str, int]:
        return self.engine.memory()

    def find_loss(self) -> None:
        """None: it ends with this process."""

    def write(self, path: "Path", mark: str) -> None:
        write_part(path, self._number, self.graph, self.engine, mark)

    def close(self) -> None:
        """Does nothing."""
