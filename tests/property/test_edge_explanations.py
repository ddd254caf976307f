"""After any stream of events, the shares of a score are those of the oracle, event by event: of the score of
the edge, or of the pair, computed on the whole graph, from scratch in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Schema
from livegnn.graph import Snapshot
from livegnn.inference.explanation import EdgeExplanation, Shares
from livegnn.model import Model
from livegnn.oracle import edge_reference, reference
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import NODES, WIDTH, edge_schemas, make_batch, make_scorer, name

EDGES = 3
OUTPUTS = ("risk", "alike")


class Moments:
    """A graph whose events are applied one by one, and its state after each: the oracle."""

    def __init__(self, graph: Graph, model: Model) -> None:
        self.graph, self.model = graph, model
        self.snapshots = [graph.snapshot()]
        self._rows: dict[int, dict[str, np.ndarray]] = {}

    def apply(self, events: Events) -> None:
        for event in events.parts(1):
            self.graph.apply(event)
            self.snapshots.append(self.graph.snapshot())

    def rows(self, seq: int) -> dict[str, np.ndarray]:
        """Every value of the model after so many events."""
        if seq not in self._rows:
            self._rows[seq] = reference.compute(self.model, self.snapshots[seq])
        return self._rows[seq]

    def columns(self, snapshot: Snapshot, ends: tuple, key: int | None) -> tuple | None:
        """The features and the weight of an edge; None if it is not in the graph."""
        places = [np.flatnonzero(snapshot.ids["node"] == one) for one in ends]
        sources, targets = snapshot.edge_index[DEFAULT_EDGE_TYPE]
        if not all(map(len, places)):
            return None
        found = (sources == places[0][0]) & (targets == places[1][0])
        if key is not None:
            found &= snapshot.key[DEFAULT_EDGE_TYPE] == key
        if not found.any():
            return None
        return snapshot.edge_attr[DEFAULT_EDGE_TYPE][found], snapshot.weight[DEFAULT_EDGE_TYPE][found]

    def score(
        self, seq: int, output: str, ends: tuple, key: int | None, given: tuple | None
    ) -> np.ndarray | None:
        snapshot = self.snapshots[seq]
        places = [np.flatnonzero(snapshot.ids["node"] == one) for one in ends]
        columns = self.columns(snapshot, ends, key) if given is None else given
        if columns is None or not all(map(len, places)):
            return None
        return edge_reference.compute_edge_output(
            self.model, output, self.rows(seq), np.stack(places), edge_attr=columns[0], weight=columns[1]
        )[0]

    def score_mixed(self, output: str, ends: tuple, seqs: tuple[int, int], columns: tuple) -> np.ndarray:
        """The score with the row of each end as it was at its own moment."""
        values: dict[str, np.ndarray] = {}
        for end, seq in zip(ends, seqs, strict=True):
            snapshot = self.snapshots[seq]
            (place,) = np.flatnonzero(snapshot.ids["node"] == end)
            rows = self.rows(seq)
            for value in self.model.outputs.values():
                values[value] = np.concatenate(
                    [*([values[value]] if value in values else []), rows[value][[place]]]
                )
        at = np.array([[0], [1]])
        return edge_reference.compute_edge_output(
            self.model, output, values, at, edge_attr=columns[0], weight=columns[1]
        )[0]

    def bound(self, since: int, ends: tuple, columns: tuple) -> float:
        """More than the rounding of any score since then."""
        largest = 1 + float(np.abs(columns[0]).max(initial=0))
        for seq, snapshot in list(enumerate(self.snapshots))[since:]:
            rows = self.rows(seq)
            here = np.isin(snapshot.ids["node"], ends)
            for value in self.model.outputs.values():
                largest = max(largest, float(np.abs(rows[value][here]).max(initial=0)))
        return 1e-11 * largest**2


def check_sums(found: Shares, rest: np.ndarray, bound: float) -> None:
    zeros = np.zeros_like(found.after)
    events = sum((one.share for one in found.events), zeros)
    neighbors = sum((one.share for one in found.neighbors), rest)
    np.testing.assert_allclose(events, found.movement, atol=bound)
    np.testing.assert_allclose(neighbors, found.movement, atol=bound)
    assert all(one.share.any() for one in [*found.events, *found.neighbors])


def check(moments: Moments, found: EdgeExplanation, given: tuple | None) -> None:
    """Compares an explanation with the scores of each moment, and the shares of each end with its rows."""
    ends = found.source, found.target
    columns = moments.columns(moments.snapshots[-1], ends, found.key) if given is None else given
    assert columns is not None
    bound = moments.bound(found.since, ends, columns)
    scores = [moments.score(seq, found.output, ends, found.key, given) for seq in range(found.seq + 1)]
    before, after = scores[found.since], scores[-1]
    assert (found.before is None) == (before is None)
    if before is not None:
        np.testing.assert_allclose(found.before, before, atol=bound)
    np.testing.assert_allclose(found.after, after, atol=bound)
    shares = {one.seq: one.share for one in found.events}
    assert list(shares) == sorted(shares)
    zeros = np.zeros_like(found.after)
    for seq in range(found.since + 1, found.seq + 1):
        then, now = (zeros if scores[one] is None else scores[one] for one in (seq - 1, seq))
        np.testing.assert_allclose(shares.get(seq, zeros), now - then, atol=bound, err_msg=f"event {seq}")
    check_sums(found, found.edge_share, bound)
    if before is None:
        return
    then = moments.columns(moments.snapshots[found.since], ends, found.key) if given is None else given
    mixed = [
        moments.score_mixed(found.output, ends, seqs, then)
        for seqs in ((found.since, found.since), (found.seq, found.since), (found.seq, found.seq))
    ]
    for end, moved in (("source", mixed[1] - mixed[0]), ("target", mixed[2] - mixed[1])):
        got = sum((one.share for one in found.neighbors if one.end == end), zeros)
        np.testing.assert_allclose(got, moved, atol=bound, err_msg=end)
    assert [one.end for one in found.neighbors] == sorted(str(one.end) for one in found.neighbors)


@settings(max_examples=draws(4, 400), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    seed=st.integers(0, 2**32 - 1),
    edges=edge_schemas(),
    text=st.booleans(),
    mode=st.sampled_from(["eager", "lazy"]),
    messages=st.booleans(),
)
def test_shares_are_the_oracles(seed: int, edges: EdgeSchema, text: bool, mode: str, messages: bool) -> None:
    rng = np.random.default_rng(seed)
    model = make_scorer(seed % 7, edge_dim=edges.edge_dim, weighted=edges.weighted, messages=messages)
    schema = Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text)
    begin = Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH)))
    begin = Events.concatenate([begin, make_batch(rng, edges, np.ones(WIDTH), text)])
    graph, twin = Graph(schema), Graph(schema)
    for live in (graph, twin):
        live.apply(begin, seq=0)
    engine, moments = Engine(graph, model, history=1000, mode=mode), Moments(twin, model)
    for _ in range(int(rng.integers(1, 4))):
        batch = make_batch(rng, edges, np.ones(WIDTH), text)
        engine.apply(batch)
        moments.apply(batch)
    since = int(rng.integers(0, graph.seq + 1))
    snapshot = graph.snapshot()
    ids, (sources, targets) = snapshot.ids["node"], snapshot.edge_index[DEFAULT_EDGE_TYPE]
    for output in OUTPUTS:
        for edge in rng.integers(0, len(sources), min(EDGES, len(sources))).tolist():
            key = int(snapshot.key[DEFAULT_EDGE_TYPE][edge]) if edges.duplicates == "keep" else None
            ends = ids[sources[edge]].item(), ids[targets[edge]].item()
            found = engine.explain_edge(*ends, since=since, key=key, output=output)
            assert (found.source, found.target, found.key) == (*ends, key)
            check(moments, found, None)
        u, v = (ids[place].item() for place in rng.integers(0, len(ids), 2))
        attr = rng.normal(size=(1, edges.edge_dim)).astype(np.float32)
        weight = rng.uniform(0.1, 3, 1).astype(np.float32) if edges.weighted else None
        given_columns = {"edge_attr": attr if edges.edge_dim else None, "edge_weight": weight}
        if output == "alike":
            given_columns = {}
        found = engine.explain_score(u, v, since=since, output=output, **given_columns)
        check(moments, found, (attr, np.ones(1, np.float32) if weight is None else weight))


def test_a_wrong_share_is_seen() -> None:
    """The comparison is able to fail."""
    graph, twin = (Graph.from_edges([0, 1], [1, 2], x=np.eye(3), weight=[1.0, 2.0]) for _ in range(2))
    model = make_scorer(edge_dim=0)
    engine, moments = Engine(graph, model, history=10), Moments(twin, model)
    batch = Events().set_features([0], [[3.0, 1.0, 2.0]]).set_features([1], [[3.0, 0.0, 2.0]])
    engine.apply(batch)
    moments.apply(batch)
    found = engine.explain_edge(1, 2, since=0, output="risk")
    check(moments, found, None)
    found.events[0].share[0] += 1e-6
    with pytest.raises(AssertionError, match="event"):
        check(moments, found, None)
