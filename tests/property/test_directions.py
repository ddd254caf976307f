"""Messages from targets to sources: any stream of events, held against the oracle, against the same model
with every direction turned on the graph with every edge turned, and against PyG with `edge_index` flipped.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_multigraphs import BATCHES, WIDTH, Multigraph, write
from torch_geometric import nn as pyg

from gate import draws, share
from livegnn import EdgeSchema, Engine, Events, Graph, Model, ModelError, Schema
from livegnn.model import Degree, EdgeInput, Input, Propagate, Step, verify
from livegnn.oracle import reference
from mirror import assert_exact, frozen

EDGES = ("node", "to", "node")
FEATURES, HIDDEN, HEADS = 2, 4, 2


class Writer:
    """Steps that are written one after the other, with random weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.steps: list[Step] = []
        self.tensors: dict[str, np.ndarray] = {}

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"v{len(self.steps)}"
        self.steps.append(Step(op, inputs, name, attrs=attrs))  # type: ignore[arg-type]
        return name

    def linear(self, value: str, inner: int, outer: int) -> str:
        name = f"v{len(self.steps)}"
        self.tensors[name] = self.rng.normal(0, 0.5, (outer, inner)).astype(np.float32)
        self.steps.append(Step("linear", (value,), name, {"weight": name}))
        return name

    def propagate(self, *inputs: str, reverse: bool, **operators: object) -> str:
        given_ = Propagate(**{"edge_type": EDGES, **operators}, reverse=reverse)  # type: ignore[arg-type]
        return self.add("propagate", *inputs, **given_.to_attrs())

    def ends(self, value: str) -> tuple[str, str]:
        return tuple(self.add(end, value, edge_type=EDGES) for end in ("source", "target"))  # type: ignore[return-value]

    def attention(self, h: str, reverse: bool, **operators: object) -> str:
        """Additive logits, of what each end says and of the edge's features."""
        say, hear = self.linear(h, HIDDEN, HEADS), self.linear(h, HIDDEN, HEADS)
        source, _ = self.ends(say)
        _, target = self.ends(hear)
        both = self.add("add", source, target)
        logits = self.add("add", self.add("tanh", both), self.linear("e", FEATURES, HEADS))
        inputs = [h, self.add("exp", logits)]
        if operators.get("own_message"):
            inputs += [h, self.add("exp", self.add("tanh", say))]
        settings_ = {"message_local": ("coefficient",), "neighbor_context": "sum", "combine": "divide"}
        return self.propagate(*inputs, reverse=reverse, **settings_, **operators)

    def gate(self, h: str, reverse: bool, **operators: object) -> str:
        source, target = self.ends(h)
        opened = self.add("sigmoid", self.add("add", source, target))
        weighed = self.add("scale_heads", opened, "w")
        sender = target if reverse else source
        return self.propagate(self.add("multiply", weighed, sender), reverse=reverse, **operators)


KINDS = {
    "sum": lambda w, h, r: w.propagate(h, reverse=r),
    "weighted sum": lambda w, h, r: w.propagate(h, reverse=r, message_local=("weight",)),
    "mean": lambda w, h, r: w.propagate(h, reverse=r, neighbor_context="count", combine="divide"),
    "maximum": lambda w, h, r: w.propagate(h, reverse=r, aggregate="max"),
    "minimum": lambda w, h, r: w.propagate(h, reverse=r, aggregate="min"),
    "gcn": lambda w, h, r: w.propagate(
        h,
        reverse=r,
        message_local=("weight", "source_rsqrt"),
        neighbor_context="sum",
        combine="rsqrt",
        self_loops=1.0,
    ),
    "gcn without loops": lambda w, h, r: w.propagate(
        h, reverse=r, message_local=("source_rsqrt",), neighbor_context="count", combine="rsqrt"
    ),
    "others' mean": lambda w, h, r: w.propagate(
        h, reverse=r, neighbor_context="count", combine="divide", skip_loops=True
    ),
    "attention": lambda w, h, r: w.attention(h, r),
    "attention with an own message": lambda w, h, r: w.attention(h, r, skip_loops=True, own_message=True),
    "gate": lambda w, h, r: w.gate(h, r),
    "gate maximum": lambda w, h, r: w.gate(h, r, aggregate="max"),
    "own loop": lambda w, h, r: w.propagate(h, reverse=r, only_loops=True, message_local=("weight",)),
    "own loop's features": lambda w, h, r: w.propagate(
        w.linear("e", FEATURES, HIDDEN), reverse=r, only_loops=True
    ),
    "own loop's attention": lambda w, h, r: w.attention(h, r, only_loops=True, own_message=True),
    "own loop's maximum": lambda w, h, r: w.gate(h, r, only_loops=True, aggregate="max"),
    "degree": lambda w, h, r: w.add(
        "scale_heads",
        w.propagate(h, reverse=not r),
        w.add("degree", **Degree(EDGES, "sum", reverse=r).to_attrs()),
    ),
}
ON_EDGES = {"attention", "attention with an own message", "gate", "gate maximum", "others' mean"}
ON_EDGES |= {kind for kind in KINDS if kind.startswith("own loop")}
MODES = {
    "eager": {},
    "lazy": {"mode": "lazy"},
    "aggregates": {"keep": "aggregates"},
    "residents": {"keep_degree": 3},
}


def make_model(kinds: list[tuple[str, bool]], seed: int = 0) -> Model:
    """Layers of one propagation each, or of one forwards and one in reverse that are added up."""
    writer, h, layers = Writer(seed), "x", ["x"]
    width = WIDTH
    for kind, reverse in kinds:
        h = writer.linear(h, width, HIDDEN)
        width = HIDDEN
        h = writer.add("leaky_relu", writer.add("add", h, KINDS[kind](writer, h, reverse)), slope=0.1)
        layers.append(h)
    return written(writer, layers)


def written(writer: Writer, layers: list[str]) -> Model:
    """The model that a writer has written; its last layer is the output."""
    reads = {name for step in writer.steps for name in step.inputs}
    columns = {"e": EdgeInput(EDGES, FEATURES), "w": EdgeInput(EDGES, 1, "weight")}
    return Model(
        {"x": Input("node", WIDTH)},
        tuple(writer.steps),
        writer.tensors,
        layers[-1],
        tuple(layers),
        {name: given_ for name, given_ in columns.items() if name in reads},
    )


def turned(model: Model) -> Model:
    """The same model with every direction turned, for the graph with every edge turned."""
    ends = {"source": "target", "target": "source"}

    def turn(step: Step) -> Step:
        step = replace(step, op=ends.get(step.op, step.op))
        if step.op not in ("propagate", "degree"):
            return step
        kind = Propagate if step.op == "propagate" else Degree
        read = kind.from_step(step)
        return replace(step, attrs=replace(read, reverse=not read.reverse).to_attrs())

    return Model(
        model.inputs,
        tuple(map(turn, model.steps)),
        model.tensors,
        model.output,
        model.layers,
        model.edge_inputs,
    )


def flipped(events: Events) -> Events:
    """The same events with every edge the other way round."""
    turned_ = Events.from_bytes(events.to_bytes())
    for i, chunk in enumerate(turned_.chunks):
        if chunk.dst is not None:
            turned_.chunks[i] = chunk._replace(ids=chunk.dst, dst=chunk.ids)
    return turned_


def make_graph(schema: EdgeSchema) -> Graph:
    return Graph(Schema({"node": WIDTH}, {EDGES: schema}))


def schemas() -> st.SearchStrategy[EdgeSchema]:
    return st.builds(
        EdgeSchema,
        undirected=st.booleans(),
        weighted=st.booleans(),
        duplicates=st.sampled_from(["keep", "replace"]),
        edge_dim=st.just(FEATURES),
        capacity=st.sampled_from([4, 256]),
    )


def unkeyed(batches: list[list[tuple]]) -> list[list[tuple]]:
    """The same changes without keys."""
    at = {"add": 3, "remove": 3, "loop": 2}
    return [
        [c if c[0] not in at else (*c[: at[c[0]]], None, *c[at[c[0]] + 1 :]) for c in batch]
        for batch in batches
    ]


def write_batch(mirror: Multigraph, changes: list[tuple]) -> Events:
    return write(mirror, changes)


@pytest.mark.parametrize(
    ("kind", "mode"),
    share(((k, m) for k in KINDS for m in MODES if m != "residents" or k not in ON_EDGES), 0),
)
def test_any_stream(kind: str, mode: str) -> None:
    others = [other for other in KINDS if mode != "residents" or other not in ON_EDGES]

    @settings(max_examples=draws(5, 30), deadline=None)
    @given(
        schema=schemas(),
        batches=BATCHES,
        first=st.tuples(st.sampled_from(others), st.booleans()),
        last=st.booleans(),
    )
    def check(schema: EdgeSchema, batches: list[list[tuple]], first: tuple[str, bool], last: bool) -> None:
        follow(kind, mode, schema, batches, first, last)

    check()


def add(u: int, v: int) -> tuple:
    return ("add", u, v, None, 0.25, 0, None)


@pytest.mark.parametrize("kind", ["weighted sum", "gcn without loops"])
def test_lazy_engines_that_settle_together_have_the_same_bits(kind: str) -> None:
    """The last of these batches is added to other values, and rounded in another way, if only one engine has
    settled after the batch before it."""
    schema = EdgeSchema(undirected=True, duplicates="keep", edge_dim=FEATURES, capacity=4)
    batches = [[add(0, 0)], [("leave", 0), add(0, 0), add(0, 0), add(0, 1)], [add(0, 2)], [add(0, 0)]]
    follow(kind, "lazy", schema, batches, ("sum", False), last=False)


def follow(
    kind: str,
    mode: str,
    schema: EdgeSchema,
    batches: list[list[tuple]],
    first: tuple[str, bool],
    last: bool,
) -> None:
    """Holds what engines predict along a stream against the oracle and against each other."""
    if schema.duplicates != "keep":
        batches = unkeyed(batches)
    model = make_model([(kind, True), first] if last else [first, (kind, True)])
    if schema.duplicates == "keep" and schema.weighted and {"maximum", "minimum"} & {kind, first[0]}:
        model = make_model([(kind, True)])
    options = MODES[mode]
    graph, mirror = make_graph(schema), Multigraph(schema)
    engine = Engine(graph, model, threads=1, **options)
    second = Engine(graph, model, threads=2, **options)
    other = Engine(make_graph(schema), turned(model), threads=1, **options)
    # Judging the others settles them after every batch; the record of this one grows.
    unsettled = Engine(graph, model, threads=2, **options) if mode == "lazy" else None
    for changes in batches:
        events = write(mirror, changes)
        known = set(graph.ids().tolist())
        before = dict(zip(graph.ids().tolist(), engine.predict(graph.ids()), strict=True))
        after = Graph.from_state(graph.state())
        after.apply(events)
        what_if = None if mode == "lazy" else engine.what_if(events)
        imagined = what_if.predict(after.ids()) if what_if and len(after.ids()) else None
        update = engine.apply(events)
        other.apply(flipped(events))
        ids = graph.ids()
        got = engine.predict(ids) if len(ids) else np.zeros((0, HIDDEN), np.float32)
        assert second.predict(ids).tobytes() == engine.predict(ids).tobytes()
        if imagined is not None:
            assert engine.predict(after.ids()).tobytes() == imagined.tobytes()
        if update.exact:
            gone = {i for c in events.chunks if c.kind == "remove_nodes" for i in c.ids.tolist()}
            now = dict(zip(ids.tolist(), got, strict=True))
            moved = {i for i in now if i in gone or i not in known or now[i].tobytes() != before[i].tobytes()}
            assert set(update.changed.tolist()) == moved
        assert_exact(engine)
        assert_exact(other)
        if len(ids):
            expected = reference.compute(model, graph.snapshot())[model.output]
            scale = max(1e-2, float(np.abs(expected).max()))
            assert np.abs(other.predict(ids) - expected).max() <= 1e-4 * scale
            if unsettled is not None:
                assert np.abs(unsettled.predict(ids) - expected).max() <= 1e-4 * scale
        assert engine.scrub() <= 1e-4
    state = engine.state()
    restored = Engine(Graph.from_state(graph.state()), model, threads=2, state=state, **options)
    assert frozen(restored.state()) == frozen(state)
    more = write(mirror, [("add", 0, 1, None, 0.5, 0, None), ("loop", 1, None, 2.0), ("set", 0, 2.0)])
    engine.apply(more)
    restored.apply(more)
    assert engine.predict(graph.ids()).tobytes() == restored.predict(graph.ids()).tobytes()
    assert_exact(restored)
    if unsettled is not None:
        assert_exact(unsettled)


LAYERS = {
    "sage": (lambda i: pyg.SAGEConv(i, HIDDEN), "mean"),
    "sum": (lambda i: pyg.SAGEConv(i, HIDDEN, aggr="sum"), "sum"),
    "gcn": (lambda i: pyg.GCNConv(i, HIDDEN), "gcn"),
    "gat": (lambda i: pyg.GATConv(i, 2, heads=2), "gat"),
    "gatv2": (lambda i: pyg.GATv2Conv(i, 2, heads=2), "gatv2"),
    "transformer": (lambda i: pyg.TransformerConv(i, 2, heads=2), "transformer"),
    "max": (lambda i: pyg.SAGEConv(i, HIDDEN, aggr="max"), "max"),
}


class Both(torch.nn.Module):
    """A layer along the edges and one against them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.out, self.back = LAYERS[kind][0](WIDTH), LAYERS[kind][0](HIDDEN)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.back(self.out(x, edge_index).relu(), edge_index.flip(0))


class Forwards(Both):
    """The same layers, both along the edges, for the importer."""

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.back(self.out(x, edge_index).relu(), edge_index)


def reverse_last(model: Model, hidden: str) -> Model:
    """The same model whose steps that depend on the last layer's input go the other way."""
    late, ends = {hidden}, {"source": "target", "target": "source"}
    steps = []
    for step in model.steps:
        if late.intersection(step.inputs):
            late.add(step.output)
            step = replace(step, op=ends.get(step.op, step.op))
            if step.op == "propagate":
                step = replace(step, attrs=replace(Propagate.from_step(step), reverse=True).to_attrs())
        steps.append(step)
    return Model(model.inputs, tuple(steps), model.tensors, model.output, model.layers, model.edge_inputs)


@pytest.mark.parametrize("kind", LAYERS)
def test_it_is_pyg_with_edges_flipped(kind: str) -> None:
    torch.manual_seed(4)
    module = Forwards(kind).eval()
    model = Model.from_pyg(module)
    model = reverse_last(model, model.layers[1])
    expected = Both(kind).eval()
    expected.load_state_dict(module.state_dict())

    @settings(max_examples=draws(8, 30), deadline=None)
    @given(schema=schemas(), batches=BATCHES)
    def check(schema: EdgeSchema, batches: list[list[tuple]]) -> None:
        if schema.duplicates != "keep":
            batches = unkeyed(batches)
        graph, mirror = (
            make_graph(replace(schema, weighted=False)),
            Multigraph(replace(schema, weighted=False)),
        )
        engine = Engine(graph, model)
        for changes in batches:
            engine.apply(write(mirror, changes))
            ids = graph.ids()
            if not len(ids):
                continue
            snapshot = graph.snapshot()
            x = torch.from_numpy(snapshot.x["node"]).double()
            with torch.no_grad():
                rows = expected.double()(x, torch.from_numpy(snapshot.edge_index[EDGES])).numpy()
            assert np.abs(engine.predict(ids) - rows).max() <= 1e-4 * max(np.abs(rows).max(), 1e-2)
            assert engine.verify().ok

    check()


@settings(max_examples=draws(25, 100), deadline=None)
@given(
    schema=schemas(),
    batches=BATCHES,
    kinds=st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.booleans()), min_size=1, max_size=2),
    node=st.integers(0, 3),
    beside=st.booleans(),
)
def test_explanations(
    schema: EdgeSchema,
    batches: list[list[tuple]],
    kinds: list[tuple[str, bool]],
    node: int,
    beside: bool,
) -> None:
    """Shares of events and of neighbours add up to the movement, and the ends are those of the engine."""
    if schema.duplicates != "keep":
        batches = unkeyed(batches)
    model = beside_itself(kinds[0][0]) if beside else make_model(kinds)
    if refused(model, schema):
        return
    graph, mirror = make_graph(schema), Multigraph(schema)
    engine = Engine(graph, model, history=1000)
    engine.apply(
        write(mirror, [("add", node, (node + 1) % 5, None, 1.0, 0, None), ("loop", node, None, 2.0)])
    )
    seq, past = engine.seq, engine.predict(node)[0]
    for changes in batches:
        engine.apply(write(mirror, [c for c in changes if c != ("leave", node)]))
    explained = engine.explain(node, since=seq)
    scale = max(1.0, float(np.abs(past).max()), float(np.abs(engine.predict(node)).max()))
    assert np.abs(explained.before - past).max() <= 1e-4 * scale
    assert np.abs(explained.after - engine.predict(node)[0]).max() <= 1e-4 * scale
    for shares in (explained.events, explained.neighbors):
        total = sum((one.share for one in shares), np.zeros(len(past)))
        assert np.abs(total - explained.movement).max() <= 1e-9 * scale


def beside_itself(kind: str) -> Model:
    """One layer, both ways at once."""
    return one_layer(kind, False, True)


def one_way(kind: str, reverse: bool) -> Model:
    return one_layer(kind, reverse)


def one_layer(kind: str, *ways: bool) -> Model:
    writer = Writer(1)
    h = writer.linear("x", WIDTH, HIDDEN)
    rows = [KINDS[kind](writer, h, reverse) for reverse in ways]
    y = rows[0] if len(rows) == 1 else writer.add("add", *rows)
    return written(writer, ["x", y])


def refused(model: Model, schema: EdgeSchema) -> bool:
    try:
        Engine(make_graph(schema), model)
    except ModelError:
        return True
    return False


def test_shares_of_neighbors_in_reverse() -> None:
    graph = make_graph(EdgeSchema(edge_dim=FEATURES))
    graph.apply(Events().add_nodes([0, 1, 2], np.ones((3, WIDTH))).add_edges([0, 2], [1, 0]))
    engine = Engine(graph, make_model([("sum", True)]), history=10)
    seq = engine.seq
    engine.apply(Events().set_features([1, 2], np.zeros((2, WIDTH))))
    shares = engine.explain(0, since=seq).neighbors
    assert [(one.id, one.edge_type, one.reverse) for one in shares] == [(1, EDGES, True)]
    assert shares[0].what == "1 to in reverse"


@pytest.mark.parametrize("kind", ["gcn", "gcn without loops"])
def test_degrees_of_senders_both_ways(kind: str) -> None:
    """A neighbour that reaches the node both ways, whose row alone changes, has the whole movement."""
    graph = make_graph(EdgeSchema(weighted=True, edge_dim=FEATURES))
    events = Events().add_nodes(np.arange(5), np.ones((5, WIDTH)))
    events.add_edges([0, 1, 1, 3, 1, 0, 4], [1, 0, 2, 1, 1, 0, 0], weight=np.arange(1.0, 8.0))
    graph.apply(events)
    engine = Engine(graph, beside_itself(kind), history=10)
    seq = engine.seq
    engine.apply(Events().set_features(1, np.zeros(WIDTH)))
    explained = engine.explain(0, since=seq)
    assert [(one.id, one.reverse) for one in explained.neighbors] == [(1, False), (1, True)]
    total = sum(one.share for one in explained.neighbors)
    np.testing.assert_allclose(total, explained.movement, rtol=1e-12)
    for one in explained.neighbors:
        alone = Engine(graph, one_way(kind, one.reverse))
        now = alone.predict(0)[0]
        then = alone.what_if(Events().set_features(1, np.ones(WIDTH))).predict(0)[0]
        np.testing.assert_allclose(one.share, now - then, rtol=1e-5, atol=1e-6)


# -- several types

LIKES, RATES = ("user", "likes", "item"), ("user", "rates", "item")


def test_several_edge_types_in_reverse() -> None:
    """What users' items send them: one step over two edge types, of which one is weighted."""
    both = Propagate(LIKES + RATES, (), "count", "divide", reverse=True)
    with pytest.raises(ModelError, match="is not kept incrementally"):
        Engine(
            Graph(Schema({"user": 1, "item": 1}, {LIKES: EdgeSchema(), RATES: EdgeSchema()})),
            Model(
                {"i": Input("item", 1), "u": Input("user", 1)},
                (Step("propagate", ("i", "i"), "y", attrs=both.to_attrs()),),
                {},
                "y",
                ("u", "y"),
            ),
        )
    attention = Propagate(LIKES + RATES, ("coefficient",), "sum", "divide", reverse=True)
    assert attention.target_type == "user"
    steps = (
        Step("target", ("i",), "liked", attrs={"edge_type": LIKES}),
        Step("exp", ("liked",), "a"),
        Step("source", ("u",), "rating", attrs={"edge_type": RATES}),
        Step("add", ("rating", "w"), "logit"),
        Step("exp", ("logit",), "b"),
        Step("propagate", ("i", "a", "i", "b"), "y", attrs=attention.to_attrs()),
    )
    model = Model(
        {"i": Input("item", 1), "u": Input("user", 1)},
        steps,
        {},
        "y",
        ("u", "y"),
        {"w": EdgeInput(RATES, 1, "weight")},
    )
    graph = Graph(Schema({"user": 1, "item": 1}, {LIKES: EdgeSchema(), RATES: EdgeSchema(weighted=True)}))
    engine = Engine(graph, model)
    rng = np.random.default_rng(0)
    for name in ("user", "item"):
        engine.apply(Events().add_nodes(np.arange(6), rng.normal(size=(6, 1)), node_type=name))
    for step in range(40):
        events, (u, i) = Events(), rng.integers(0, 6, (2, 2))
        if step % 3 == 0:
            events.add_edges(u, i, edge_type=LIKES)
        elif step % 3 == 1:
            events.add_edges(u, i, weight=rng.uniform(0, 2, 2), edge_type=RATES)
        else:
            events.remove_edges(u, i, edge_type=LIKES)
            events.set_features(i[:1], rng.normal(size=(1, 1)), node_type="item")
            events.set_features(u[:1], rng.normal(size=(1, 1)), node_type="user")
        engine.apply(events)
        assert_exact(engine)
    engine.apply(Events().remove_nodes([1, 2], node_type="item").remove_nodes(3, node_type="user"))
    assert_exact(engine)
    assert verify(model).constrained == ("y",)


def test_what_reads_its_receiver_is_constrained() -> None:
    def model(end: str, reverse: bool) -> Model:
        steps = (
            Step(end, ("x",), "m", attrs={"edge_type": EDGES}),
            Step("propagate", ("m",), "y", attrs=Propagate(EDGES, reverse=reverse).to_attrs()),
        )
        return Model({"x": Input("node", 1)}, steps, {}, "y", ("x", "y"))

    assert verify(model("target", False)).constrained == ("y",)
    assert verify(model("source", True)).constrained == ("y",)
    assert verify(model("source", False)).constrained == verify(model("target", True)).constrained == ()


def test_settings() -> None:
    assert "reverse" not in Propagate(EDGES).to_attrs()
    assert "reverse" not in Degree(EDGES).to_attrs()
    step = Step("propagate", ("x",), "y", attrs=Propagate(LIKES, reverse=True).to_attrs())
    assert Propagate.from_step(step) == Propagate(LIKES, reverse=True)
    assert Propagate(LIKES, reverse=True).target_type == "user"
    assert Degree(LIKES, reverse=True).node_type == "user"
    with pytest.raises(ModelError, match="must read 'item' rows, got 'user'"):
        Model({"u": Input("user", 1)}, (replace(step, inputs=("u",)),), {}, "y", ("u", "y"))
    with pytest.raises(ModelError, match="edges must begin at nodes of one type"):
        Propagate((*LIKES, "item", "near", "item"), reverse=True)
    with pytest.raises(ModelError, match="reverse must be true or false, got 1"):
        Propagate.from_step(replace(step, attrs={**step.attrs, "reverse": 1}))


def test_a_graph_without_in_neighbors() -> None:
    for reverse in (False, True):
        with pytest.raises(ModelError, match="keeps no in-neighbours: make it with in_neighbors=True"):
            Engine(
                make_graph(EdgeSchema(in_neighbors=False, edge_dim=FEATURES)), make_model([("sum", reverse)])
            )
