"""`Engine.explain_edge` and `explain_score`: the shares of a score, and the edges and arguments refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from asgi_requests import post
from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Schema, UnknownEdgeError, UnknownNodeError
from livegnn.errors import TimeoutExpired, UnknownTypeError
from livegnn.log.sqlite import SqliteLog
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.runtime import Runtime
from livegnn.server import create_app
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType


def make_product(edge_type: EdgeType = DEFAULT_EDGE_TYPE, *, column: str | None = None) -> Model:
    """The sum of a node's neighbours; the score is the product of both ends' sums, and of the weight or the
    feature of the edge."""
    source, _, target = edge_type
    ends = (source,) if source == target else (source, target)
    steps: list[Step] = []
    for end, other in zip(ends, ends[::-1], strict=True):
        ways = Propagate(edge_type, reverse=len(ends) == 2 and end == source)
        steps.append(Step("propagate", (f"x:{other}",), f"sum:{end}", attrs=ways.to_attrs()))
    at = {"edge_type": edge_type}
    steps += [
        Step("source", (f"sum:{source}",), "a", attrs=at),
        Step("target", (f"sum:{target}",), "b", attrs=at),
        Step("multiply", ("a", "b"), "product"),
    ]
    edge_inputs, score = {}, "product"
    if column is not None:
        edge_inputs, score = {"column": EdgeInput(edge_type, 1, column)}, "score"
        steps.append(Step("multiply", ("product", "column"), "score"))
    return Model(
        {f"x:{end}": Input(end, 1) for end in ends},
        tuple(steps),
        {},
        f"sum:{target}",
        (f"x:{target}", f"sum:{target}"),
        edge_inputs=edge_inputs,
        outputs={target: f"sum:{target}", **({} if len(ends) == 1 else {source: f"sum:{source}"})},
        edge_outputs={"score": score},
    )


def make_engine(model: Model | None = None, **columns: object) -> Engine:
    """Edges 0 -> 1 -> 2 -> 3 -> 4; node i has the feature i."""
    graph = Graph.from_edges(np.arange(4), np.arange(1, 5), x=np.arange(5)[:, None], **columns)
    return Engine(graph, model or make_product(), threads=1, history=100)


def test_events_and_neighbors_of_both_ends_have_the_shares_that_they_moved() -> None:
    engine = make_engine()  # sums 0 0 1 2 3
    engine.apply(Events().add_edges([4, 0], [2, 4]).set_features(2, [10]))
    found = engine.explain_edge(2, 3, since=0)
    assert (found.source, found.target, found.key, found.output) == (2, 3, None, "score")
    assert (found.since, found.seq, found.before.tolist(), found.after.tolist()) == (0, 3, [2], [50])
    assert [(one.seq, one.what, one.share.tolist()) for one in found.events] == [
        (1, "add_edge 4 -> 2", [8]),
        (3, "set_features 2", [40]),
    ]
    assert [(one.what, one.id, one.end, one.share.tolist()) for one in found.neighbors] == [
        ("source: 4 to", 4, "source", [8]),
        ("target: 2 to", 2, "target", [40]),
    ]
    assert found.edge_share.tolist() == [0]
    assert str(found).splitlines() == [
        "score of 2 -> 3, from event 0 to 3: [48.]",
        "events",
        "  3 set_features 2   [40.]",
        "  1 add_edge 4 -> 2  [8.]",
        "neighbors",
        "  target: 2 to  [40.]",
        "  source: 4 to  [8.]",
        "the edge itself",
        "  [0.]",
    ]
    assert engine.explain_edge(3, 4, since=3).events == []


def test_an_edge_that_was_not_there_had_no_score() -> None:
    engine = make_engine()
    engine.apply(Events().set_features(3, [5]).add_edges(2, 4))
    found = engine.explain_edge(2, 4, since=0)
    assert (found.before, found.after.tolist()) == (None, [7])  # 1 * (5 + 2)
    assert [(one.seq, one.share.tolist()) for one in found.events] == [(2, [7])]
    # Without the edge's existence, its target's sum was 3, and is 7: 4 more. The rest is the edge's.
    assert [(one.what, one.share.tolist()) for one in found.neighbors] == [
        ("target: 2 to", [2]),
        ("target: 3 to", [2]),
    ]
    assert found.edge_share.tolist() == [3]
    assert engine.explain_edge(2, 4, since=2).before.tolist() == [7]
    engine.apply(Events().remove_edges(2, 4).add_edges(2, 4))
    assert [one.share.tolist() for one in engine.explain_edge(2, 4, since=2).events] == [[-7], [7]]
    assert engine.explain_edge(2, 4, since=2).edge_share.tolist() == [0]


@pytest.mark.parametrize("column", ["weight", "edge_attr"])
def test_the_columns_of_the_edge_are_its_own_share(column: str) -> None:
    columns = {"weight": np.ones(4)} if column == "weight" else {"edge_attr": np.ones((4, 1))}
    engine = make_engine(make_product(column=column), **columns)
    given = {"weight": [3.0]} if column == "weight" else {"edge_attr": [[3.0]]}
    engine.apply(Events().add_edges(2, 3, **given).set_features(2, [4]))
    found = engine.explain_edge(2, 3, since=0)
    assert [one.share.tolist() for one in found.events] == [[4], [6]]
    assert [(one.what, one.share.tolist()) for one in found.neighbors] == [("target: 2 to", [2])]
    assert found.edge_share.tolist() == [8]
    pair = {"edge_weight" if column == "weight" else "edge_attr": [2.0]}
    assert engine.explain_score(2, 4, since=0, **pair).movement.tolist() == [0]
    moved = engine.explain_score(2, 3, since=0, **pair)
    assert (moved.movement.tolist(), moved.edge_share.tolist()) == ([4], [0])
    assert moved.movement.tolist() == moved.neighbors[0].share.tolist()


def test_one_of_parallel_edges() -> None:
    graph = Graph(Schema({"node": 1}, {DEFAULT_EDGE_TYPE: EdgeSchema(duplicates="keep", weighted=True)}))
    graph.apply(
        Events()
        .add_nodes([0, 1], [[1], [2]])
        .add_edges([0, 1, 1], [1, 0, 0], weight=[1, 2, 3], key=[0, 4, 7])
    )
    engine = Engine(graph, make_product(column="weight"), history=100)
    engine.apply(Events().add_edges([1, 1], [0, 0], weight=[5, 6], key=[4, 7]))
    begin = 5
    for key, weights in ((4, (2, 5)), (7, (3, 6)), (None, (3, 6))):
        found = engine.explain_edge(1, 0, since=begin, key=key)
        assert found.key == (7 if key is None else key)
        assert [found.before.tolist(), found.after.tolist()] == [[4 * weight] for weight in weights]
        assert [one.seq for one in found.events] == [begin + (1 if key == 4 else 2)]
        assert found.edge_share.tolist() == found.movement.tolist() == [12]
        assert "with the key" in str(found)
    with pytest.raises(UnknownEdgeError, match="with the key 5"):
        engine.explain_edge(1, 0, since=begin, key=5)


def test_an_undirected_edge_in_both_directions() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], x=[[1], [2], [3]], undirected=True)
    engine = Engine(graph, make_product(), history=9)
    engine.apply(Events().set_features(2, [7]))
    there, back = (engine.explain_edge(*ends, since=0) for ends in ((0, 1), (1, 0)))
    assert there.movement.tolist() == back.movement.tolist() == [8]
    assert [one.end for one in (*there.neighbors, *back.neighbors)] == ["target", "source"]


BUYS = ("user", "buys", "item")


def make_shop(**columns: bool) -> Graph:
    """Users a and b, items a and z; both users have bought item a."""
    graph = Graph(Schema({"user": 1, "item": 1}, {BUYS: EdgeSchema(weighted=True, **columns)}, text_ids=True))
    events = Events().add_nodes(["a", "b"], [[1], [2]], node_type="user")
    events.add_nodes(["a", "z"], [[3], [5]], node_type="item")
    graph.apply(events.add_edges(["a", "b"], ["a", "a"], weight=[1, 1], edge_type=BUYS))
    return graph


def test_ends_of_two_types() -> None:
    engine = Engine(make_shop(), make_product(BUYS), history=100)
    later = Events().add_edges("a", "z", weight=2, edge_type=BUYS)
    engine.apply(later.set_features("b", [9], node_type="user"))
    found = engine.explain_edge("a", "a", since=6)
    assert (found.before.tolist(), found.after.tolist()) == ([9], [80])  # 3 * (1 + 2), (3 + 5) * (1 + 9)
    assert [one.what for one in found.events] == ["add_edge a -> z", "set_features b"]
    assert [(one.what, one.share.tolist()) for one in found.neighbors] == [
        ("source: z buys in reverse", [15]),
        ("target: b buys", [56]),
    ]
    new = engine.explain_edge("a", "z", since=6)
    assert (new.before, new.after.tolist()) == (None, [8])


def test_edges_without_in_neighbors() -> None:
    """The edge is found among the out-edges of its source."""
    at = {"edge_type": BUYS}
    steps = (
        Step("scale", ("x",), "twice", attrs={"value": 2.0}),
        Step("source", ("twice",), "from", attrs=at),
        Step("multiply", ("from", "weight"), "score"),
    )
    model = Model(
        {"x": Input("user", 1)},
        steps,
        {},
        "twice",
        ("x", "twice"),
        edge_inputs={"weight": EdgeInput(BUYS, 1, "weight")},
        edge_outputs={"score": "score"},
    )
    engine = Engine(make_shop(in_neighbors=False), model, history=100)
    engine.apply(
        Events().add_edges("a", "a", weight=3, edge_type=BUYS).set_features("a", [4], node_type="user")
    )
    engine.apply(Events().add_edges("a", "z", weight=5, edge_type=BUYS))
    found = engine.explain_edge("a", "a", since=6)
    assert [(one.seq, one.share.tolist()) for one in found.events] == [(7, [4]), (8, [18])]
    assert [(one.what, one.share.tolist()) for one in found.neighbors] == [("source: itself", [6])]
    assert found.edge_share.tolist() == [16]
    assert engine.explain_edge("a", "z", since=6).before is None


def test_a_pair_whose_end_was_not_there() -> None:
    engine = make_engine()
    engine.apply(Events().add_nodes(9, [1]).add_edges([3, 4], [9, 9]))
    found = engine.explain_score(2, 9, since=0)
    assert (found.before, found.after.tolist(), found.key) == (None, [7], None)
    assert [(one.seq, one.share.tolist()) for one in found.events] == [(2, [3]), (3, [4])]


def test_what_is_refused() -> None:
    engine = make_engine()
    engine.apply(Events().add_edges(0, 4))
    for call in (engine.explain_edge, engine.explain_score):
        with pytest.raises(UnknownNodeError, match="99"):
            call(2, 99, since=0)
        with pytest.raises(InputError, match="since must be at most 1"):
            call(2, 3, since=2)
        with pytest.raises(InputError, match="since, a sequence number, must be an integer"):
            call(2, 3, since=-1)
        with pytest.raises(InputError, match="output must be one of the edge outputs, 'score'"):
            call(2, 3, since=0, output="node")
        with pytest.raises(InputError, match="the id of one node"):
            call([2, 3], 4, since=0)
        with pytest.raises(TimeoutExpired, match="got as far as event 1 of 1"):
            call(3, 4, since=0, timeout=0)
    with pytest.raises(UnknownEdgeError, match="3 -> 1"):
        engine.explain_edge(3, 1, since=0)
    with pytest.raises(InputError, match="key is for edge types that keep parallel edges"):
        engine.explain_edge(2, 3, since=0, key=1)
    with pytest.raises(InputError, match="reads no edge_weight"):
        engine.explain_score(2, 3, since=0, edge_weight=1.0)
    with pytest.raises(InputError, match="must remember some events"):
        Engine(engine.graph, make_product()).explain_edge(2, 3, since=0)
    likes = ("node", "likes", "node")
    of_others = Model(
        {"x": Input("node", 1)},
        (
            Step("propagate", ("x",), "sum", attrs=Propagate(DEFAULT_EDGE_TYPE).to_attrs()),
            Step("source", ("sum",), "score", attrs={"edge_type": likes}),
        ),
        {},
        "sum",
        ("x", "sum"),
        edge_outputs={"score": "score"},
    )
    engine = make_engine(of_others)
    engine.apply(Events().set_features(1, [4]))
    assert engine.explain_score(2, 3, since=0).movement.tolist() == [3]
    assert engine.explain(2, since=0).movement.tolist() == [3]  # which reads none of those edges
    with pytest.raises(UnknownTypeError, match="the graph has no node,likes,node edges"):
        engine.explain_edge(2, 3, since=0)


def test_over_http(tmp_path: Path) -> None:
    engine = make_engine(make_product(column="weight"), weight=np.ones(4))
    with closing(SqliteLog(tmp_path / "log.db")) as log:
        runtime = Runtime(log, engine.graph, engine)
        app = create_app(runtime)
        runtime.append(Events().add_edges(2, 3, weight=3).set_features(2, [4]))
        runtime.step()
        ends, to = {"source": 2, "target": 3, "since": 0}, list(DEFAULT_EDGE_TYPE)
        answer = post(app, "/v1/edge-scores/explain", {**ends, "existing": True}).json()
        assert answer == {
            "seq": 2,
            "source": 2,
            "target": 3,
            "key": None,
            "output": "score",
            "since": 0,
            "before": [2.0],
            "after": [12.0],
            "events": [
                {
                    "seq": 1,
                    "event": "add_edge",
                    "type": list(DEFAULT_EDGE_TYPE),
                    "ids": [2, 3],
                    "share": [4.0],
                },
                {"seq": 2, "event": "set_features", "type": "node", "ids": [2], "share": [6.0]},
            ],
            "neighbors": [
                {"edge_type": to, "id": 2, "share": [2.0], "reverse": False, "end": "target"},
            ],
            "edge_share": [8.0],
        }
        pair = post(app, "/v1/edge-scores/explain", {**ends, "edge_weight": 2.0, "min_seq": 2}).json()
        assert (pair["before"], pair["after"], pair["edge_share"]) == ([4.0], [8.0], [0.0])
        for change, status, text in (
            ({"edge_weight": 1.0, "existing": True}, 400, "existing edges have their own columns"),
            ({"key": 1}, 400, "pairs have no keys"),
            ({}, 400, "reads edge_weight"),
            ({"existing": True, "target": 1}, 400, "2 -> 1"),
            ({"existing": True, "target": 77}, 404, "77"),
            ({"existing": True, "target": "3"}, 400, "ids must be all integers"),
            ({"existing": True, "source": "2", "target": "3"}, 400, "ids must be integers"),
            ({"existing": True, "since": 3}, 400, "since must be at most 2"),
            ({"existing": True, "since": -1}, 400, "body.since"),
            ({"existing": True, "timeout": 1e-9}, 503, "got as far as"),
            ({"existing": True, "model": "other"}, 400, "other"),
        ):
            answer = post(app, "/v1/edge-scores/explain", {**ends, **change})
            assert (answer.status_code, text in answer.text) == (status, True), answer.text
