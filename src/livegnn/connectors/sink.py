"""A sink: a writer of predictions to another system, as files, a topic or a table (see docs/sinks.md).

This module is all that a sink of your own needs.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import orjson

from livegnn.errors import LiveGNNError
from livegnn.types import FloatArray, IntArray, NodeType


class SinkError(LiveGNNError):
    """A sink of predictions, such as a table, cannot be written. The rows that it lacks are sent later."""


class PredictionRows(NamedTuple):
    """Rows for a sink, each the newest prediction of a node, or the news that the node was removed.

    model: its name. node_type: of all rows. ids: of the nodes, each once, integers or text. seqs [rows]: the
    event that each row reflects. predictions [rows, channels]: of the first output of the model. removed
    [rows]: whether the node is not in the graph any more; its prediction is then NaN.

    For a sink of scores of edges, the edges stand in place of nodes. Their type has commas between its parts,
    and the id of an edge is the text of a JSON list: its source, its target and, in a type that keeps
    parallel edges, its key.
    """

    model: str
    node_type: NodeType
    ids: Sequence[int] | Sequence[str]
    seqs: IntArray
    predictions: FloatArray
    removed: "np.ndarray[tuple[int], np.dtype[np.bool_]]"

    def records(self) -> Iterator[dict[str, object]]:
        """The rows as dicts for JSON: `seq`, `model`, `id`, and an array `prediction`, or `removed`, True."""
        rows = zip(self.ids, self.seqs.tolist(), self.predictions, self.removed.tolist(), strict=True)
        for id, seq, prediction, removed in rows:
            record: dict[str, object] = {"seq": seq, "model": self.model, "id": id}
            yield record | ({"removed": True} if removed else {"prediction": prediction})

    def lines(self) -> Iterator[bytes]:
        """The rows as JSON, each with the end of a line. A number that is infinite, or none, is null."""
        option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        return (orjson.dumps(record, option=option) for record in self.records())


class Sink(Protocol):
    """A writer of predictions. One thread calls it."""

    def write(self, rows: PredictionRows) -> None:
        """Stores rows durably, each in place of older ones of its node, or raises any error.

        After an error the same nodes are given again, with their predictions of then: some of the rows may
        have been stored. So may they be after a crash: storing a row twice must do no harm.
        """

    def close(self) -> None:
        """Releases connections and files; it is called once, after the last `write`."""
