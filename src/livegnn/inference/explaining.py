"""The methods of an `Engine` that say why a prediction of a node, or a score of an edge, moved."""

from typing import TYPE_CHECKING

from livegnn.arguments import check_int, check_not_negative, one_id
from livegnn.errors import InputError
from livegnn.events.chunk import to_key
from livegnn.inference.edge_pairs import EdgeSettings, PairSettings, check_pairs, find_edge_output
from livegnn.inference.edge_scoring import EdgePredictor
from livegnn.inference.history import History
from livegnn.types import EdgeType

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from livegnn.inference.explanation import EdgeExplanation, Explanation


class Explaining(EdgePredictor):
    """An `EdgePredictor` that names the events and the neighbours that moved a value."""

    _history: History | None

    def explain(self, id: int | str, *, since: int, timeout: float | None = None) -> "Explanation":
        """The events and the neighbours that moved the prediction of a node between sequence number `since`
        and now, each with its share of the movement; see `docs/explain.md`.

        An event's share is the movement of the prediction when the event is applied, in the order of the log.
        A neighbour's share is the movement when the message of this neighbour in the last propagation
        changes from its old value to its new one; neighbours change one after the other, by edge type and id,
        the node's own row last. Both lists therefore add up to the whole movement for every model; for a
        model that is not linear, shares depend on the order. Everything is computed from scratch in float64,
        on the part of the graph that the prediction reads, once for each event in it. Batches wait only while
        that part is read. timeout: seconds, checked between two events; by default there is no limit.

        Raises `UnknownNodeError`, `TimeoutExpired`, and `InputError` if `since` is in the future or older
        than the engine's `history`. An old batch is dropped from the history as a whole; after a restart the
        history is empty.
        """
        from livegnn.inference.node_explanation import explain

        history, since, timeout = self._check_span(since, timeout)
        return explain(self.graph, history, self.model, id, since, timeout)

    def explain_edge(
        self,
        src: int | str,
        dst: int | str,
        *,
        since: int,
        key: int | None = None,
        output: str | None = None,
        edge_type: EdgeType | None = None,
        timeout: float | None = None,
    ) -> "EdgeExplanation":
        """The events and the neighbours that moved the score of the edge src -> dst between sequence number
        `since` and now, each with its share of the movement; see `docs/explain.md`.

        Shares are those of `explain`. Neighbours are those of the source, which become new first, then those
        of the target; the rest, of the edge's own columns and its existence, is its `edge_share`. key,
        output, edge_type: as in `predict_edges`.

        Raises the errors of `explain` and of `predict_edges`.
        """
        from livegnn.inference.edge_explanation import explain_edge

        history, since, timeout = self._check_span(since, timeout)
        chosen = self._find_output_of_edges(EdgeSettings(key=key, output=output, edge_type=edge_type))
        number = None if key is None else int(to_key(key, 1)[0])
        return explain_edge(
            self.graph, history, self.model, chosen, (src, dst), key=number, since=since, timeout=timeout
        )

    def explain_score(
        self,
        src: int | str,
        dst: int | str,
        *,
        since: int,
        edge_attr: "ArrayLike | None" = None,
        edge_weight: "ArrayLike | None" = None,
        output: str | None = None,
        edge_type: EdgeType | None = None,
        timeout: float | None = None,
    ) -> "EdgeExplanation":
        """As `explain_edge`, for the score of the pair src -> dst, which need not be an edge. edge_attr,
        edge_weight: its columns, [width] and one number, at all moments.

        Raises the errors of `explain` and of `score`.
        """
        from livegnn.inference.edge_explanation import explain_edge

        history, since, timeout = self._check_span(since, timeout)
        settings = PairSettings(
            edge_attr=edge_attr, edge_weight=edge_weight, output=output, edge_type=edge_type
        )
        chosen = find_edge_output(self.edge_outputs, settings)
        given = check_pairs(self.graph.schema, chosen, one_id(src), one_id(dst), settings)
        return explain_edge(
            self.graph, history, self.model, chosen, (src, dst), given=given, since=since, timeout=timeout
        )

    def _check_span(self, since: int, timeout: float | None) -> tuple[History, int, float | None]:
        """The history, and the checked arguments. Raises `InputError`."""
        since = check_int(since, "since, a sequence number,", 0)
        if self._history is None:
            raise InputError(
                "to explain, an engine must remember some events, got history = 0: set history, of the "
                "engine, to their number"
            )
        if timeout is not None:
            timeout = check_not_negative(timeout, "timeout, in seconds,")
        return self._history, since, timeout
