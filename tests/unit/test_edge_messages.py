"""Messages made of both ends of an edge and of its features, kept by the engine: against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from gate import draws
from livegnn import Engine, Events, Graph, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from mirror import assert_exact

E = ("node", "to", "node")
WIDTH, HEADS, CHANNELS, FEATURES = 5, 3, 4, 2


def random_model(kind: str, seed: int = 0, scale: float = 1.0) -> Model:
    """One layer of a kind of message, then a linear layer and a second one, so that changes travel."""
    rng = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    steps: list[Step] = []
    edge_inputs = {}
    on = {"edge_type": E}

    def tensor(*shape: int) -> str:
        name = f"t{len(tensors)}"
        tensors[name] = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        return name

    def write(op: str, *inputs: str, weight: str = "", **attrs: object) -> str:
        name = f"{op}{len(steps)}"
        steps.append(Step(op, inputs, name, {"weight": weight} if weight else {}, attrs))
        return name

    def linear(x: str, width: int, outputs: int) -> str:
        return write("linear", x, weight=tensor(outputs, width))

    def layer(h: str, width: int) -> str:
        wide = HEADS * CHANNELS
        value = linear(h, width, wide)
        if kind.startswith("gat"):
            logits = {end: linear(value, wide, HEADS) for end in ("source", "target")}
            raw = write(
                "add",
                write("source", logits["source"], **on),
                write("target", logits["target"], **on),
            )
            own = write("add", logits["source"], logits["target"])
            if "features" in kind:
                edge_inputs["e"] = EdgeInput(E, FEATURES)
                tensors.setdefault("edge", rng.standard_normal((HEADS, FEATURES)).astype(np.float32))
                raw = write("add", raw, write("linear", "e", weight="edge"))
                mean = write(
                    "propagate",
                    "e",
                    **Propagate(E, (), "count", "divide", skip_loops=True).to_attrs(),
                )
                own = write("add", own, write("linear", mean, weight="edge"))
            alpha = write("exp", write("scale", write("leaky_relu", raw, slope=0.2), value=scale))
            inputs = [value, alpha]
            if "own" in kind:
                mine = write("exp", write("scale", write("leaky_relu", own, slope=0.2), value=scale))
                inputs += [value, mine]
            operators = Propagate(
                E, ("coefficient",), "sum", "divide", skip_loops="own" in kind, own_message="own" in kind
            )
            return write("propagate", *inputs, **operators.to_attrs())
        source, target = write("source", value, **on), write("target", linear(h, width, wide), **on)
        if kind == "dot":
            dot = write("sum_channels", write("multiply", source, target), heads=HEADS)
            return write(
                "propagate",
                source,
                write("exp", dot),
                **Propagate(E, ("coefficient",), "sum", "divide").to_attrs(),
            )
        if kind == "gate":
            gated = write("multiply", write("sigmoid", write("add", source, target)), source)
            return write("propagate", gated, **Propagate(E).to_attrs())
        if kind == "gate_mean":
            gate = write("sigmoid", write("add", source, target))
            operators = Propagate(E, ("coefficient",), "sum", "divide")
            return write("propagate", value, gate, **operators.to_attrs())
        if kind == "weights":
            edge_inputs["w"] = EdgeInput(E, 1, "weight")
            scaled = write("scale_heads", source, "w")
            return write("propagate", scaled, **Propagate(E, ("weight",), "sum", "divide").to_attrs())
        edge_inputs["e"] = EdgeInput(E, FEATURES)
        tensors.setdefault("wide", rng.standard_normal((wide, FEATURES)).astype(np.float32))
        message = write("relu", write("add", source, write("linear", "e", weight="wide")))
        aggregate = {"gine": "sum", "gine_max": "max", "gine_min": "min"}[kind]
        return write("propagate", message, **Propagate(E, aggregate=aggregate).to_attrs())

    first = write("tanh", layer("x", WIDTH))
    second = layer(first, HEADS * CHANNELS)
    output = linear(second, HEADS * CHANNELS, 3)
    return Model(
        {"x": Input("node", WIDTH)}, tuple(steps), tensors, output, ("x", first, output), edge_inputs
    )


KINDS = (
    "gat",
    "gat_own",
    "gat_own_features",
    "dot",
    "gate",
    "gate_mean",
    "weights",
    "gine",
    "gine_max",
    "gine_min",
)


def random_events(rng: np.random.Generator, graph: Graph, count: int) -> Events:
    events = Events()
    ids = graph.ids()
    width = graph.schema.node_types["node"]
    for _ in range(count):
        kind = rng.integers(0, 10)
        some = rng.choice(ids, 2)
        if kind < 4:
            row = rng.standard_normal((1, FEATURES)).astype(np.float32)
            events.add_edges(some[:1], some[1:], weight=rng.random(1) + 0.5, edge_attr=row)
        elif kind < 6:
            source, target = graph.snapshot().edge_index[E]
            if len(source):
                i = rng.integers(len(source))
                events.remove_edges(ids[source[i : i + 1]], ids[target[i : i + 1]])
        elif kind < 8:
            events.set_features(some[:1], rng.standard_normal((1, width)).astype(np.float32))
        elif kind == 8:
            events.add_edges(some[:1], some[:1], weight=[1.0], edge_attr=np.ones((1, FEATURES), np.float32))
        else:
            new = int(ids.max()) + 1 + len(events)
            events.add_nodes([new], rng.standard_normal((1, width)).astype(np.float32))
            events.add_edges([new], some[:1], weight=[1.5], edge_attr=np.ones((1, FEATURES), np.float32))
    return events


def make_graph(
    rng: np.random.Generator, undirected: bool, nodes: int = 12, edges: int = 40, width: int = WIDTH
) -> Graph:
    graph = Graph(
        Schema({"node": width}, {E: EdgeSchema(undirected=undirected, weighted=True, edge_dim=FEATURES)})
    )
    ends = np.unique(rng.integers(0, nodes, (2, edges)), axis=1)
    count = ends.shape[1]
    events = Events().add_nodes(np.arange(nodes), rng.standard_normal((nodes, width)).astype(np.float32))
    events.add_edges(
        ends[0],
        ends[1],
        weight=rng.random(count) + 0.5,
        edge_attr=rng.standard_normal((count, FEATURES)).astype(np.float32),
    )
    graph.apply(events)
    return graph


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_equals_the_oracle_through_events(kind, undirected):
    rng = np.random.default_rng(3)
    graph = make_graph(rng, undirected)
    model = random_model(kind)
    engine = Engine(graph, model, threads=1)
    assert_exact(engine)
    for turn in range(60):
        engine.apply(random_events(rng, graph, 1 + turn % 4))
        if turn % 7 == 3:
            engine.apply(Events().remove_nodes(rng.choice(graph.ids(), 1)))
        assert_exact(engine)


@pytest.mark.parametrize("kind", ["gat", "gat_own", "dot"])
def test_a_softmax_of_large_logits_stays_stable(kind):
    """Logits of some thousands, whose largest comes and goes. Float32 itself is coarse there, so the measure
    is an engine that starts anew with the same arithmetic."""
    rng = np.random.default_rng(5)
    graph = make_graph(rng, undirected=False, nodes=8, edges=40)
    model = random_model(kind, scale=1000.0)
    engine = Engine(graph, model, threads=1)
    for turn in range(80):
        events = random_events(rng, graph, 3)
        if turn % 5 == 0:  # one neighbour outweighs all others, and is itself again afterwards
            node = rng.choice(graph.ids(), 1)
            spike = np.full((1, WIDTH), 40.0, dtype=np.float32)
            engine.apply(Events().set_features(node, spike))
            events.set_features(node, rng.standard_normal((1, WIDTH)).astype(np.float32))
        engine.apply(events)
        got, expected = engine.embeddings(-1), Engine(graph, model, threads=1).embeddings(-1)
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_threads_and_what_if_keeps_nothing(kind):
    rng = np.random.default_rng(7)
    graph = make_graph(rng, undirected=True, nodes=150, edges=1500)
    model = random_model(kind)
    engines = [Engine(graph, model, threads=threads) for threads in (1, 2, 3)]
    for _ in range(draws(2, 5)):
        events = random_events(rng, graph, 20)
        before = [engine.embeddings(-1).tobytes() for engine in engines]
        imagined = engines[1].what_if(events).predict(graph.ids())
        assert [engine.embeddings(-1).tobytes() for engine in engines] == before
        known = graph.ids()
        engines[0].apply(events)
        assert engines[1].predict(known).tobytes() == imagined.tobytes()
        for layer in range(3):
            rows = {engine.embeddings(layer).tobytes() for engine in engines}
            assert len(rows) == 1


@pytest.mark.parametrize("kind", ["gat_own_features", "gate_mean", "gine", "gine_max"])
def test_a_restored_engine_goes_on_with_the_same_bits(kind):
    rng = np.random.default_rng(11)
    graph = make_graph(rng, undirected=False, nodes=30, edges=200)
    model = random_model(kind)
    engine = Engine(graph, model)
    engine.apply(random_events(rng, graph, 10))
    copy = Graph.from_state(graph.state())
    restored = Engine(copy, model, state=engine.state())
    for _ in range(5):
        events = random_events(rng, graph, 4)
        engine.apply(events)
        restored.apply(events)
        assert engine.embeddings(-1).tobytes() == restored.embeddings(-1).tobytes()


def test_only_targets_whose_own_row_changed_read_all_their_neighbours():
    """A hub of 200 in-neighbours: one of them changes, then the hub itself."""
    graph = Graph(Schema({"node": WIDTH}, {E: EdgeSchema(edge_dim=FEATURES)}))
    rng = np.random.default_rng(13)
    graph.apply(
        Events()
        .add_nodes(np.arange(202), rng.standard_normal((202, WIDTH)).astype(np.float32))
        .add_edges(np.arange(1, 201), np.zeros(200, np.int64))
        .add_edges([0], [201])
    )
    engine = Engine(graph, random_model("gat"), threads=1)
    row = rng.standard_normal((1, WIDTH)).astype(np.float32)
    engine.apply(Events().set_features([7], row))
    # Layer 1: the hub takes one message back and adds one; node 7 has nothing to read. Layer 2: the hub's own
    # row is another, so it reads all its 200 neighbours, and node 201 its only one.
    assert engine.last_work.edges == 1 + 0 + 200 + 1
    assert engine.last_work.recomputed == 3
    assert_exact(engine)
    engine.apply(Events().set_features([0], row))
    assert engine.last_work.edges == 2 * (200 + 1)
    assert_exact(engine)


def test_edge_features_that_do_not_fit_are_refused():
    graph = Graph(Schema({"node": WIDTH}, {E: EdgeSchema(edge_dim=FEATURES + 1)}))
    with pytest.raises(ModelError, match=r"reads 2 features of .* edges \('e'\), the graph has 3"):
        Engine(graph, random_model("gine"))
