"""Bad input gives a typed error that says what was expected and what came, and changes not a bit."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from livegnn import (
    EdgeSchema,
    Engine,
    Events,
    Graph,
    InputError,
    Schema,
    UnknownNodeError,
    UnknownTypeError,
)
from livegnn.arguments import LONGEST_TEXT
from livegnn.sampling import sample_metapath, sample_neighbors, sample_subgraph
from livegnn.training import NodeLoader
from livegnn.types import DEFAULT_EDGE_TYPE, State
from modules import Design, make

X = np.random.default_rng(5).standard_normal((6, 4)).astype(np.float32)
NAN, INF = float("nan"), float("inf")


def bits(state: State) -> tuple[str, dict[str, tuple[str, bytes]]]:
    arrays = {name: (str(array.dtype), array.tobytes()) for name, array in state.arrays.items()}
    return repr(sorted(state.meta.items())), arrays


@pytest.fixture
def engine() -> Engine:
    graph = Graph.from_edges(
        [0, 1, 2, 3, 4], [1, 2, 3, 4, 5], x=X, weight=np.ones(5), time=np.arange(5.0), undirected=False
    )
    _, model = make(Design("gcn", weighted=True))
    return Engine(graph, model)


GOOD = Events().set_features(0, X[1]).add_edges(5, 0, weight=2.0, time=9.0).add_nodes(77, X[0])

BAD = {
    "unknown id in set_features": (lambda e: e.set_features(99, X[0]), UnknownNodeError, "99"),
    "unknown source": (lambda e: e.add_edges(98, 0), UnknownNodeError, "98"),
    "unknown target": (lambda e: e.add_edges([0, 1], [2, 97]), UnknownNodeError, "97"),
    "unknown id to remove": (lambda e: e.remove_nodes(96), UnknownNodeError, "96"),
    "removing an edge of an unknown node": (lambda e: e.remove_edges(0, 95), UnknownNodeError, "95"),
    "edge to a node removed before it": (
        lambda e: e.remove_nodes(3).add_edges(0, 3),
        UnknownNodeError,
        "3.*removed earlier",
    ),
    "features of a node removed before them": (
        lambda e: e.remove_nodes(3).set_features(3, X[0]),
        UnknownNodeError,
        "3.*removed earlier",
    ),
    "narrow features": (
        lambda e: e.set_features(0, [1.0, 2.0]),
        InputError,
        "4 features for node type 'node', got 2",
    ),
    "wide features of a new node": (
        lambda e: e.add_nodes(50, np.zeros(5)),
        InputError,
        "4 features for node type 'node', got 5",
    ),
    "NaN in features": (
        lambda e: e.set_features(0, [1, NAN, 2, 3]),
        InputError,
        "finite, got nan in column 1 for node 0 of type",
    ),
    "infinity in features": (
        lambda e: e.add_nodes(50, [1, INF, 2, 3]),
        InputError,
        "finite, got inf in column 1 for node 50 of type",
    ),
    "NaN as weight": (
        lambda e: e.add_edges(0, 2, weight=NAN),
        InputError,
        "weights must be finite.+for the edge 0 -> 2",
    ),
    "infinity as weight": (
        lambda e: e.add_edges(0, 2, weight=-INF),
        InputError,
        "weights must be finite.+for the edge 0 -> 2",
    ),
    "NaN as time": (
        lambda e: e.add_edges(0, 2, time=NAN),
        InputError,
        "times must be finite, got nan for the edge 0 -> 2",
    ),
    "negative id": (lambda e: e.add_nodes(-1, X[0]), InputError, "-1"),
    "negative end": (lambda e: e.add_edges(0, -7), InputError, "-7"),
    "fraction as id": (lambda e: e.add_nodes(1.5, X[0]), InputError, "integers"),
    "text as id": (lambda e: e.add_nodes("a", X[0]), InputError, "integers"),
    "unknown node type": (lambda e: e.add_nodes(50, X[0], node_type="user"), UnknownTypeError, "user"),
    "unknown edge type": (
        lambda e: e.add_edges(0, 1, edge_type=("a", "b", "c")),
        UnknownTypeError,
        r"\('a', 'b', 'c'\)",
    ),
    "ends that differ in number": (lambda e: e.add_edges([0, 1], [2]), InputError, "2"),
    "weights that differ in number": (lambda e: e.add_edges([0, 1], [2, 3], weight=[1.0]), InputError, "2"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("after_good", [False, True], ids=["alone", "after good events"])
def test_nothing_changes(engine, name, after_good):
    spoil, error, message = BAD[name]
    graph_before, engine_before = bits(engine.graph.state()), bits(engine.state())
    updates = []
    engine.subscribe(updates.append)
    with pytest.raises(error) as caught:
        engine.apply(spoil(Events.concatenate([GOOD]) if after_good else Events()))
    assert re.search(message, str(caught.value)), str(caught.value)
    assert bits(engine.graph.state()) == graph_before
    assert bits(engine.state()) == engine_before
    assert updates == []
    assert engine.apply(GOOD).seq == len(GOOD)  # and it goes on
    assert engine.verify().ok


@pytest.mark.parametrize("name", BAD)
def test_a_what_if_refuses_the_same(engine, name):
    spoil, error, message = BAD[name]
    before = bits(engine.state())
    with pytest.raises(error, match=message):
        engine.what_if(spoil(Events()))
    assert bits(engine.state()) == before


def test_asking_for_an_unknown_node(engine):
    with pytest.raises(UnknownNodeError, match="4711"):
        engine.predict([0, 4711])
    engine.apply(Events().remove_nodes(2))
    for ask in (engine.predict, engine.graph.features, engine.graph.degree, engine.graph.neighbors):
        with pytest.raises(UnknownNodeError, match="2"):
            ask(2)


def test_integers_are_no_ids_of_a_graph_of_texts():
    graph = Graph.from_edges(["a", "b"], ["b", "c"])
    before = bits(graph.state())
    with pytest.raises(InputError, match="text"):
        graph.apply(Events().add_edges(1, 2))
    with pytest.raises(UnknownNodeError, match="'z'"):
        graph.apply(Events().add_nodes("new").add_edges("a", "z"))
    assert bits(graph.state()) == before


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf"), 3e38, -8e28])
def test_weights_that_cannot_be_summed(weight):
    """A negative weight is kept, since models use it; it is the size that sums cannot bear."""
    graph = Graph.from_edges([0, 1], [1, 2], weight=[1, -2])
    before = bits(graph.state())
    with pytest.raises(InputError, match=r"finite"):
        graph.apply(Events().add_edges([0, 2], [2, 0], weight=[1, weight]))
    assert bits(graph.state()) == before


def test_weights_that_add_up_to_too_much():
    edges = EdgeSchema(weighted=True, duplicates="add")
    graph = Graph(Schema(edge_types={DEFAULT_EDGE_TYPE: edges}))
    graph.apply(Events().add_nodes([0, 1]).add_edges(0, 1, weight=7e28))
    before = bits(graph.state())
    with pytest.raises(InputError, match=r"at most 2\^96"):
        graph.apply(Events().add_edges(0, 1, weight=7e28))
    assert bits(graph.state()) == before


def test_a_callback_that_refuses_a_staged_batch(engine):
    """What records a batch before it is visible may fail: then the batch did not happen."""

    def refuse(delta):
        raise OSError("the disk is full")

    before = bits(engine.graph.state()), bits(engine.state())
    with pytest.raises(OSError, match="disk"):
        engine.apply(GOOD, on_staged=refuse)
    assert (bits(engine.graph.state()), bits(engine.state())) == before
    assert engine.apply(GOOD).seq == len(GOOD)
    assert engine.verify().ok


@pytest.mark.parametrize("seq", ["x", 1.5, -1, True, 1 << 63])
def test_a_sequence_number_that_would_end_the_graph(engine, seq):
    engine.apply(GOOD, seq=5)
    before = bits(engine.graph.state())
    with pytest.raises(InputError, match=r"seq must be an integer of at least 0"):
        engine.apply(Events().add_edges(5, 1, weight=1.0, time=10.0), seq=seq)
    assert bits(engine.graph.state()) == before
    assert engine.apply(Events().add_edges(5, 1, weight=1.0, time=10.0)).seq == 6


def test_a_sequence_number_that_goes_back(engine):
    """Who reads their own writes, the feed and the history rely on numbers that never do."""
    engine.apply(GOOD, seq=5)
    before = bits(engine.graph.state()), bits(engine.state())
    more = Events().add_edges(5, 1, weight=1.0, time=10.0)
    for act in (engine.apply, engine.graph.apply, engine.graph.stage):
        with pytest.raises(InputError, match=r"seq must be at least 5, where the graph is, got 4"):
            act(more, seq=4)
    assert (bits(engine.graph.state()), bits(engine.state())) == before
    assert engine.apply(more, seq=5).seq == 5  # as for events that come before the first of a log
    assert engine.apply(Events(), seq=9).seq == 9


@pytest.mark.parametrize("layer", ["x", 1.5, None, True, [0], 9, -9])
def test_layers_that_are_none(engine, layer):
    last = len(engine.model.layers) - 1
    with pytest.raises(
        InputError, match=rf"layer, of which -1 is the last, must be an integer from -{last + 1} to {last}"
    ):
        engine.embeddings(layer)
    assert np.array_equal(engine.embeddings(np.int64(last)), engine.embeddings(-1))


@pytest.mark.parametrize("sample", [0, -1, -3, 1.5, "x", True])
def test_samples_of_no_nodes(engine, sample):
    for look in (engine.verify, engine.scrub, engine.scrubbed):
        with pytest.raises(
            InputError, match="sample, a number of nodes, must be an integer of at least 1, got"
        ):
            look(sample)
        with pytest.raises(InputError, match="seed must be an integer of at least 0, got -1"):
            look(1, seed=-1)
    assert engine.verify(np.int64(2)).ok
    assert engine.verify(99).ok
    assert engine.scrub(99) < 1e-5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep_degree": -1}, "keep_degree must be an integer from 0 to 4294967295, got -1"),
        ({"keep_degree": "all"}, "keep_degree must be an integer from 0 to 4294967295, got 'all'"),
        ({"history": True}, "history, a number of events, must be an integer of at least 0, got True"),
        ({"mode": 5}, "mode must be 'eager', 'lazy' or 'presampled', or a list of 'eager' and 'lazy', got 5"),
        ({"state": {}}, r"state must be what Engine.state\(\) returned, got dict"),
        ({"state_dir": 5}, "state_dir must be a path, as text or a pathlib.Path, got 5"),
    ],
)
def test_settings_of_an_engine(engine, settings, message):
    with pytest.raises(InputError, match=message):
        Engine(engine.graph, engine.model, **settings)


def test_one_node_is_asked_for(engine):
    for ids in ([0, 1], [], [[0]]):
        with pytest.raises(InputError, match="expected the id of one node, got"):
            engine.graph.neighbors(ids)


@pytest.mark.parametrize("now", ["noon", None, NAN])
def test_times_at_which_nothing_can_expire(engine, now):
    with pytest.raises(InputError, match="now must be a finite number"):
        engine.graph.expire(now)


def test_states_that_are_none():
    with pytest.raises(InputError, match=r"expected what Graph.state\(\) returned, got NoneType"):
        Graph.from_state(None)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**6, 1.5, True, "2"])
def test_numbers_of_threads(engine, threads):
    for make_one in (
        lambda: Graph(threads=threads),
        lambda: Engine(engine.graph, engine.model, threads=threads),
    ):
        with pytest.raises(InputError, match=r"threads must be an integer from 1 to 1024"):
            make_one()


def test_no_ids_are_ids_of_any_kind(engine):
    assert engine.predict([]).shape == (0, engine.predict([0]).shape[1])
    assert engine.graph.features([]).shape == (0, X.shape[1])
    assert len(engine.graph.degree([])) == len(engine.graph.contains([])) == 0
    text = Graph.from_edges(["a"], ["b"], x=X[:2], ids=["a", "b"])
    assert text.features([]).shape == (0, X.shape[1])


def test_ids_in_more_than_one_dimension(engine):
    for read in (engine.predict, engine.graph.features, engine.graph.degree, engine.graph.contains):
        with pytest.raises(InputError, match=r"one id or a list of ids, got an array of shape \[1, 2\]"):
            read([[0, 1]])


@pytest.mark.parametrize("x", [X.astype(complex), "x", [["a"] * 4] * 6], ids=["complex", "text", "texts"])
def test_features_that_are_no_numbers(x):
    with pytest.raises(InputError, match=r"x must be numbers"):
        Graph.from_edges([0, 1], [1, 2], x=x)


LONG = "it is long " * 1_000_000
LONGEST = LONG[:LONGEST_TEXT]
ASKED: dict[str, Callable[[Graph, Engine], object]] = {
    "apply": lambda g, e: e.apply(Events().remove_nodes(LONG)),
    "apply the longest": lambda g, e: e.apply(Events().remove_nodes(LONGEST)),
    "predict the longest": lambda g, e: e.predict([LONGEST]),
    "add_edges": lambda g, e: g.apply(Events().add_edges(LONG, "b")),
    "features": lambda g, e: g.features([LONG]),
    "edge_attr": lambda g, e: g.edge_attr([LONG], ["b"]),
    "an edge that is not there": lambda g, e: g.edge_attr(["b"], ["a"]),
    "neighbors": lambda g, e: g.neighbors(LONG),
    "degree": lambda g, e: g.degree([LONG]),
    "indices_of": lambda g, e: g.indices_of([LONG]),
    "node_type": lambda g, e: g.num_nodes(LONG),
    "edge_type": lambda g, e: g.num_edges(LONG),  # type: ignore[arg-type]
    "predict": lambda g, e: e.predict([LONG]),
    "what_if": lambda g, e: e.what_if(Events()).predict([LONG]),
    "explain": lambda g, e: e.explain(LONG, since=0),
    "sample_neighbors": lambda g, e: sample_neighbors(g, [LONG], 3),
    "sample_subgraph": lambda g, e: sample_subgraph(g, ["a", LONG], [3]),
    "sample_metapath": lambda g, e: sample_metapath(g, [LONG], [(DEFAULT_EDGE_TYPE, 3)]),
    "NodeLoader": lambda g, e: NodeLoader(g, [3], [LONG]),
    "parallel edges": lambda g, e: Graph.from_edges(["a" + LONG] * 2, [LONG] * 2),
    "NUL": lambda g, e: Events().add_nodes(LONG + "\0"),
    "surrogate": lambda g, e: Events().add_nodes(LONG + "\ud800"),
    "not finite": lambda g, e: Events().add_nodes(LONG, [np.inf]).check(),
    "a record": lambda g, e: Events.from_records([{"event": LONG}]),
    "a line": lambda g, e: Events.from_json_lines(LONG),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_message_about_something_long_is_short(name: str) -> None:
    ends = np.array(["a", "b"])
    graph = Graph.from_edges(ends[:1], ends[1:], x=np.ones((2, 4), np.float32), ids=ends)
    engine = Engine(graph, make(Design("gcn"))[1], history=10)
    with pytest.raises(InputError) as error:
        ASKED[name](graph, engine)
    assert len(str(error.value)) <= 2000
    if name == "node_type":
        assert "characters ...]" in str(error.value)
    if name in ("predict", "apply"):
        assert "got one of 11,000,000" in str(error.value)
        with pytest.raises(InputError) as error:
            ASKED[f"{name} the longest"](graph, engine)
        said = str(error.value)
        assert said.startswith("expected the id of a node of type 'node', got 'it is long it is long")
        assert said.endswith("add it first")
