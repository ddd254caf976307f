"""Scores of edges of a graph in parts are those of one engine, to the bit, with its errors: after every
batch, after events that are only supposed, and while batches run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divided_streams import BUYS, shop, weights_of
from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, LiveGNNError, Model, Schema
from livegnn.model import EdgeInput, Step
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.types import DEFAULT_EDGE_TYPE
from scored_edges import NODES, WIDTH, edge_schemas, make_batch, make_scorer, name
from waiting import PATIENCE

TRUSTS = ("user", "trusts", "user")
PAIRS = 9

drawn = settings(max_examples=draws(12, 300), suppress_health_check=list(HealthCheck), deadline=None)
few_parts = st.builds(Owners, st.sampled_from(["jump", "modulo"]), st.integers(1, 3))


def outcome(read: Callable[..., np.ndarray], *ends: Any, **settings: Any) -> tuple[object, object]:
    """The shape and bits of scores, or the kind and text of an error."""
    try:
        rows = read(*ends, **settings)
    except LiveGNNError as error:
        return type(error), str(error)
    assert rows.dtype == np.float32
    return rows.shape, rows.tobytes()


def assert_same_scores(one: Any, parts: Any, asked: list[tuple[Any, Any, dict[str, Any]]]) -> None:
    """one, parts: what scores, or supposes events."""
    for src, dst, columns in asked:
        expected, got = (outcome(each.score, src, dst, **columns) for each in (one, parts))
        assert got == expected, columns


def draw_pairs(
    rng: np.random.Generator, edges: EdgeSchema, text: bool
) -> list[tuple[Any, Any, dict[str, Any]]]:
    """Arguments of scores, some of nodes that are not there."""
    most = NODES + int(rng.integers(0, 3))
    src, dst = (name(ends, text) for ends in rng.integers(0, most, (2, PAIRS)))
    risk: dict[str, Any] = {"output": "risk"}
    if edges.edge_dim:
        risk["edge_attr"] = rng.normal(size=(PAIRS, edges.edge_dim))
    if edges.weighted:
        risk["edge_weight"] = rng.uniform(0.1, 3, PAIRS)
    wrong = {"output": "alike", "edge_attr": np.ones((PAIRS, 1))}
    other = name(rng.integers(0, NODES, PAIRS), not text)
    ends = ((src, dst), (src, other), (other, dst))
    alike = [(*pair, {"output": "alike"}) for pair in ends]
    return [(src, dst, risk), *alike, (src[0], dst[0], {}), (src, dst, wrong)]


def assert_same_edges(rng: np.random.Generator, engine: Engine, parts: LocalPartitions) -> None:
    """Scores of edges of each edge output, of which some lack a node, are no edge, or have another key."""
    graph, snapshot = engine.graph, engine.graph.snapshot()
    for output, scores in engine.model.edge_scores.items():
        source, _, target = edge_type = scores.edge_type
        u, v = snapshot.edge_index[edge_type]
        some = rng.integers(0, len(u), PAIRS if len(u) else 0)
        src, dst = snapshot.ids[source][u[some]], snapshot.ids[target][v[some]]
        one = {"output": output}
        assert outcome(parts.predict_edges, src, dst, **one) == outcome(engine.predict_edges, src, dst, **one)
        asked = [{}, {"key": rng.integers(0, 3, len(some))}]
        if graph.schema.edge_types[edge_type].duplicates == "keep":
            asked.append({"key": snapshot.key[edge_type][some]})
        for wrong in range(3):
            ids = np.concatenate([snapshot.ids[source], snapshot.ids[target]])
            ids = np.append(ids, name(np.array([99]), ids.dtype.kind == "U"))
            for at in rng.integers(0, max(len(some), 1), min(wrong, len(some))):
                src[at] = rng.choice(ids)
                dst[at] = rng.choice(ids)
            for keys in asked:
                expected, got = (
                    outcome(each.predict_edges, src, dst, output=output, **keys) for each in (engine, parts)
                )
                assert got == expected, keys


@drawn
@given(
    seed=st.integers(0, 2**32 - 1),
    edges=edge_schemas(),
    text=st.booleans(),
    messages=st.booleans(),
    owners=few_parts,
)
def test_scores_of_pairs_are_those_of_one_engine(
    seed: int, edges: EdgeSchema, text: bool, messages: bool, owners: Owners
) -> None:
    rng = np.random.default_rng(seed)
    model = make_scorer(seed % 7, edge_dim=edges.edge_dim, weighted=edges.weighted, messages=messages)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text), threads=1)
    graph.apply(Events().add_nodes(name(np.arange(NODES), text), rng.normal(size=(NODES, WIDTH))))
    engine = Engine(graph, model, threads=1)
    with closing(LocalPartitions.from_graph(graph, model, owners, threads=1)) as parts:
        for _ in range(int(rng.integers(2, 6))):
            batch = make_batch(rng, edges, np.ones(WIDTH), text)
            moved = Events().remove_nodes(name(np.array([2]), text))
            moved.add_nodes(name(np.array([NODES]), text), rng.normal(size=(1, WIDTH)))
            asked = draw_pairs(rng, edges, text)
            for events in (batch, moved):
                assert_same_scores(engine.what_if(events), parts.what_if(events), asked)
            engine.apply(batch)
            parts.apply(batch)
            assert_same_scores(engine, parts, asked)
            assert_same_edges(rng, engine, parts)
            assert parts.score_apart([], [], output="alike").seq == graph.seq
        assert parts.score([], [], output="alike").shape == (0, 1)


def scored_shop() -> Model:
    """The model of a shop with edge outputs: of purchases, ``"likes"``, of both ends, the weight and the
    features, and ``"spends"``, of the user alone; and of trust, ``"trusts"``."""
    of_nodes, rng = shop(), np.random.default_rng(6)

    def at(end: str, value: str, output: str, edge_type: tuple[str, str, str]) -> Step:
        return Step(end, (value,), output, attrs={"edge_type": edge_type})

    decoders = (
        at("source", "out", "buyer", BUYS),
        at("target", "hidden", "bought", BUYS),
        Step("concat", ("buyer", "bought", "amount", "columns"), "purchase"),
        Step("linear", ("purchase",), "likes", {"weight": "likes"}),
        Step("relu", ("buyer",), "spends"),
        at("source", "out", "from", TRUSTS),
        at("target", "out", "to", TRUSTS),
        Step("concat", ("from", "to"), "pair"),
        Step("linear", ("pair",), "trusts", {"weight": "trusts"}),
    )
    return Model(
        inputs=of_nodes.inputs,
        steps=(*of_nodes.steps, *decoders),
        tensors={
            **of_nodes.tensors,
            "likes": weights_of(rng, 2, 13),
            "trusts": weights_of(rng, 3, 10),
        },
        output="out",
        layers=of_nodes.layers,
        edge_inputs={"amount": EdgeInput(BUYS, 1, "weight"), "columns": EdgeInput(BUYS, 2)},
        outputs={"out": "out", "hidden": "hidden"},
        edge_outputs={"likes": "likes", "spends": "spends", "trusts": "trusts"},
    )


def draw_purchases(rng: np.random.Generator, users: int, items: int) -> Events:
    count = int(rng.integers(1, 12))
    events = Events().add_edges(
        rng.integers(0, users, count),
        rng.integers(0, items, count),
        weight=rng.uniform(0.5, 2, count),
        edge_attr=rng.normal(size=(count, 2)),
        edge_type=BUYS,
    )
    return events.add_edges(*rng.integers(0, users, (2, 2)), edge_type=TRUSTS)


@drawn
@given(seed=st.integers(0, 2**32 - 1), owners=few_parts)
def test_ends_of_two_types_and_several_edge_types(seed: int, owners: Owners) -> None:
    """Also where a decoder reads nothing of one end, which must still be there."""
    rng, users, items = np.random.default_rng(seed), 8, 6
    edges = {
        BUYS: EdgeSchema(weighted=True, duplicates="replace", edge_dim=2),
        TRUSTS: EdgeSchema(duplicates="replace"),
    }
    graph = Graph(Schema({"user": 3, "item": 2}, edges), threads=1)
    engine = Engine(graph, scored_shop(), threads=1)
    with closing(LocalPartitions(graph.schema, scored_shop(), owners, threads=1)) as parts:
        new = Events().add_nodes(range(users), rng.normal(size=(users, 3)), node_type="user")
        new.add_nodes(range(items), rng.normal(size=(items, 2)), node_type="item")
        for batch in (new, *(draw_purchases(rng, users, items) for _ in range(3))):
            engine.apply(batch)
            parts.apply(batch)
            user, other = rng.integers(0, users + 1, (2, PAIRS))
            item = rng.integers(0, items + int(rng.integers(0, 2)), PAIRS)
            columns = {"edge_attr": rng.normal(size=(PAIRS, 2)), "edge_weight": rng.uniform(1, 2, PAIRS)}
            asked = [
                (user % users, item, {"output": "likes", **columns}),
                (user, item, {"output": "likes", **columns}),
                (user % users, item, {"output": "spends"}),
                (user % users, other % users, {"edge_type": TRUSTS}),
                (user, other, {"output": "trusts"}),
                (user, item, {"edge_type": BUYS}),
            ]
            assert outcome(engine.score, user % users, other % users, output="trusts")[0] == (PAIRS, 3)
            assert_same_scores(engine, parts, asked)
            assert_same_edges(rng, engine, parts)
            removed = draw_purchases(rng, users, items).remove_nodes(rng.integers(items), node_type="item")
            assert_same_scores(engine.what_if(removed), parts.what_if(removed), asked)


def test_scores_beside_batches_are_of_one_event() -> None:
    """Several threads score pairs, whose ends are in other parts, while batches become visible."""
    rng, edges = np.random.default_rng(3), EdgeSchema(weighted=True, duplicates="replace", edge_dim=2)
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}), threads=1)
    model, ids = make_scorer(), np.arange(NODES)
    graph.apply(Events().add_nodes(ids, rng.normal(size=(NODES, WIDTH))))
    src, dst = np.repeat(ids, NODES), np.tile(ids, NODES)

    def draw(src: np.ndarray, dst: np.ndarray) -> Events:
        weight, attr = rng.uniform(1, 2, len(src)), rng.normal(size=(len(src), 2))
        return Events().add_edges(src, dst, weight=weight, edge_attr=attr)

    graph.apply(draw(ids, ids))
    engine = Engine(graph, model, threads=1)

    def scores_now() -> tuple[object, object]:
        alike = outcome(engine.score, src, dst, output="alike")
        return alike, outcome(engine.predict_edges, ids, ids, output="risk")

    expected = {graph.seq: scores_now()}
    ended = threading.Event()
    found: list[tuple[int, int, object]] = []
    with closing(LocalPartitions.from_graph(graph, model, Owners("modulo", 3), threads=1)) as parts:

        def read_both(last: int) -> int:
            scores = parts.score_apart(src, dst, output="alike")
            edges = parts.predict_edges_apart(ids, ids, output="risk")
            assert last <= scores.seq <= edges.seq
            found.append((scores.seq, 0, outcome(lambda: scores.values)))
            found.append((edges.seq, 1, outcome(lambda: edges.values)))
            return edges.seq

        def read() -> None:
            last = 0
            while not ended.is_set():
                last = read_both(last)

        read_both(0)
        with ThreadPoolExecutor() as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                for _ in range(25):
                    batch = draw(*(np.append(ids, ends) for ends in rng.integers(0, NODES, (2, 5))))
                    engine.apply(batch)
                    expected[graph.seq] = scores_now()
                    parts.apply(batch)
            finally:
                ended.set()
            for one in readers:
                one.result(PATIENCE)
        assert read_both(0) == graph.seq
    for seq, kind, scores in found:
        assert scores == expected[seq][kind]
