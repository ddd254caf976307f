"""A graph in parts keeps the bits of one graph, after every batch of any stream: of predictions and of
everything that engines keep.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divided_streams import (
    BATCHES,
    BUYS,
    EDGES,
    KINDS,
    MAGNITUDES,
    Stream,
    assert_same_state,
    check_stream,
    columns,
    outcome,
    owners,
    schema_of,
    shop,
    weights_of,
)
from gate import draws
from livegnn import Engine, EngineOptions, Events, Graph, InputError, Model
from livegnn.graph import EdgeSchema, GraphDelta, Schema, View
from livegnn.model import Convolution, Input, Propagate, Step
from livegnn.partitions import LocalPartitions, refuse_unfit
from livegnn.placement import Owners
from modules import EDGE_FEATURES, EDGE_WIDTH, WIDTH, designs_of, make
from streams import make_model, make_overflow


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=draws(3, 40), suppress_health_check=list(HealthCheck), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    columns=columns,
    undirected=st.booleans(),
    text=st.booleans(),
    negative=st.booleans(),
    magnitude=st.sampled_from(MAGNITUDES),
    owners=owners,
    first=st.integers(0, 60),
    capacity=st.sampled_from([4, 256]),
    trusted=st.booleans(),
    non_finite=st.sampled_from(["refuse", "refuse", "allow"]),
)
def test_parts_keep_the_bits_of_one_engine(
    kind, seed, columns, undirected, text, negative, magnitude, owners, first, capacity, trusted, non_finite
):
    if kind == "gcn max":  # its maximum covers all parallel loops, of which only one counts
        columns = columns.replace("keep", "")
    _, model = make(designs_of(kind)[0])
    featured = {"edge_dim": EDGE_WIDTH} if kind in EDGE_FEATURES else {}
    schema = schema_of(columns, undirected=undirected, text=text, capacity=capacity, **featured)
    edges = schema.edge_types[EDGES]
    rng = np.random.default_rng(seed)
    stream = Stream(rng, edges, negative and not kind.startswith("gcn"), text, magnitude)
    sizes = [first, *(int(n) for n in rng.integers(1, 6, BATCHES - 1))]
    check_stream(model, schema, owners, stream, sizes, trusted=trusted, non_finite=non_finite)


def both_ways() -> Model:
    """Sums along edges and then against them, of a layer's rows and of sums."""
    rng = np.random.default_rng(5)

    def propagate(source: str, name: str, *, reverse: bool) -> Step:
        operators = Propagate(edge_type=EDGES, message_local=("weight",), reverse=reverse)
        return Step("propagate", (source,), name, attrs=operators.to_attrs())

    return Model(
        inputs={"x": Input("node", WIDTH)},
        steps=(
            propagate("x", "around", reverse=False),
            propagate("around", "back", reverse=True),
            Step("linear", ("back",), "projected", {"weight": "w"}),
            Step("tanh", ("projected",), "hidden"),
            propagate("hidden", "out", reverse=True),
        ),
        tensors={"w": weights_of(rng, 5, WIDTH)},
        output="out",
        layers=("x", "hidden", "out"),
    )


@settings(max_examples=draws(8, 100), suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), undirected=st.booleans(), negative=st.booleans(), owners=owners)
def test_parts_keep_the_bits_of_messages_in_both_directions(seed, undirected, negative, owners):
    schema = schema_of("weight", undirected=undirected, text=False)
    rng = np.random.default_rng(seed)
    stream = Stream(rng, schema.edge_types[EDGES], negative, False)
    check_stream(both_ways(), schema, owners, stream, [40, *([4] * (BATCHES - 1))])


def next_of_shop(rng: np.random.Generator, present: dict[str, list[int]], count: int) -> Events:
    events = Events()
    for _ in range(count):
        kind, name = rng.random(), str(rng.choice(["user", "item"]))
        width = {"user": 3, "item": 2}[name]
        rows = rng.normal(size=(1, width)).astype(np.float32)
        if kind < 0.2 or len(present[name]) < 3:
            node = int(rng.integers(40))
            present[name] = [*{*present[name], node}]
            events.add_nodes([node], rows, node_type=name)
        elif kind < 0.25:
            node = present[name].pop(int(rng.integers(len(present[name]))))
            events.remove_nodes([node], node_type=name)
        elif kind < 0.4:
            events.set_features([int(rng.choice(present[name]))], rows, node_type=name)
        elif all(present.values()):
            src, dst = (rng.choice(present[one], 3) for one in ("user", "item"))
            if kind < 0.8:
                events.add_edges(src, dst, weight=rng.normal(size=3), edge_type=BUYS)
            else:
                events.remove_edges(src, dst, edge_type=BUYS)
    return events


@settings(max_examples=draws(8, 100), suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), owners=owners)
def test_parts_keep_the_bits_of_several_node_types(seed, owners):
    schema = Schema({"user": 3, "item": 2}, {BUYS: EdgeSchema(weighted=True)})
    rng, model = np.random.default_rng(seed), shop()
    present: dict[str, list[int]] = {"user": [], "item": []}
    graph = Graph(schema, threads=1)
    engine, parts = Engine(graph, model, threads=1), LocalPartitions(schema, model, owners, threads=1)
    for batch in range(BATCHES):
        events = next_of_shop(rng, present, 30 if batch == 0 else 4)
        update = engine.update_of(graph.apply(events))
        divided = parts.apply(events)
        assert sorted(divided.changed.tolist()) == sorted(update.changed.tolist())
        ids = graph.ids("user")
        assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
        assert {one.state().meta["touched"] for one in parts.engines} == {engine.state().meta["touched"]}
    parts.close()


@settings(max_examples=draws(4, 60), suppress_health_check=list(HealthCheck), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), owners=owners, saved=st.booleans())
def test_parts_of_several_node_types_begin_with_a_graph(seed, owners, saved, tmp_path_factory):
    schema = Schema({"user": 3, "item": 2}, {BUYS: EdgeSchema(weighted=True)})
    rng, model = np.random.default_rng(seed), shop()
    present: dict[str, list[int]] = {"user": [], "item": []}
    graph = Graph(schema, threads=1)
    for batch in range(10):
        graph.apply(next_of_shop(rng, present, 40 if batch == 0 else 4))
    engine = Engine(graph, model, threads=1)
    parts = LocalPartitions.from_graph(graph, model, owners, threads=1)
    if saved:
        directory = tmp_path_factory.mktemp("sets")
        parts.write(directory)
        parts.close()
        parts = LocalPartitions.from_checkpoint(directory, model, threads=1)
    for _ in range(20):
        events = next_of_shop(rng, present, 4)
        update, divided = engine.update_of(graph.apply(events)), parts.apply(events)
        assert sorted(divided.changed.tolist()) == sorted(update.changed.tolist())
        ids = graph.ids("user")
        assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
        assert {one.state().meta["touched"] for one in parts.engines} == {engine.state().meta["touched"]}
    parts.close()


@pytest.mark.parametrize("text", [False, True])
def test_parts_add_the_nodes_that_events_name(text):
    """All parts give the same owner to a node that no event has added."""
    schema = dataclasses.replace(
        schema_of("weight", undirected=False, text=text), auto_add={"node": [0.5] * WIDTH}
    )
    graph = Graph(schema, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    parts = LocalPartitions(schema, make_model(), Owners("jump", 3), threads=1)
    rng = np.random.default_rng(0)

    def some(count: int) -> Any:
        drawn = rng.integers(0, 40, count).tolist()
        return [f"n{one}" for one in drawn] if text else drawn

    for batch in range(BATCHES):
        events = Events().add_edges(some(4), some(4), weight=rng.uniform(0.5, 2, 4))
        events.set_features(some(1), rng.normal(size=(1, WIDTH)))
        if batch % 5 == 4:
            events.remove_nodes([graph.ids()[0]])
        graph.apply(events)
        parts.apply(events)
        ids = graph.ids()
        assert parts.predict(ids).tobytes() == engine.predict(ids).tobytes()
        assert_same_state(parts, engine)
    parts.close()


# -- batches that are not applied
# ---------------------------------------------------------------------------------------------------


@pytest.fixture
def divided():
    schema = schema_of("weight", undirected=False, text=False)
    graph = Graph(schema, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    parts = LocalPartitions(schema, make_model(), Owners("modulo", 3), threads=1)
    rng = np.random.default_rng(1)
    ids = np.arange(30)
    events = Events().add_nodes(ids, rng.normal(size=(30, WIDTH)))
    events.add_edges(rng.choice(ids, 90), rng.choice(ids, 90), weight=rng.uniform(0.5, 2, 90))
    graph.apply(events)
    parts.apply(events)
    yield parts, graph, engine
    parts.close()


def test_a_batch_that_is_not_finite_is_refused_with_the_same_text(divided):
    parts, graph, engine = divided
    refused = set()
    for node in range(30):
        events = Events().set_features([node], [make_overflow()])
        _, expected = outcome(lambda events=events: graph.apply(events))
        assert outcome(lambda events=events: parts.apply(events))[1] == expected
        assert_same_state(parts, engine)
        refused.add(expected)
    named = {text.split("for node ")[1].split()[0] for text in refused if text is not None}
    assert len(named) > 5  # nodes of several parts
    parts.apply(Events().set_features([3], [[1, 2, 3, 4]]))
    graph.apply(Events().set_features([3], [[1, 2, 3, 4]]))
    assert_same_state(parts, engine)


def test_a_batch_that_is_not_recorded_changes_no_part(divided):
    parts, graph, engine = divided
    events = Events().add_edges([1, 2, 3], [4, 5, 6]).remove_nodes([7])

    def fail(_: object) -> None:
        raise OSError("the log is full")

    for _ in range(3):
        with pytest.raises(OSError, match="the log is full"):
            parts.apply(events, on_staged=fail)
        assert_same_state(parts, engine)
    graph.apply(events)
    parts.apply(events)
    assert_same_state(parts, engine)
    assert parts.seq == graph.seq


class Failing(View):
    """A view that fails to prepare while `on`."""

    on = True

    def prepare(self, change: GraphDelta) -> None:
        if self.on:
            raise ValueError("this part fails")


@pytest.mark.parametrize("part", range(3))
def test_a_part_that_fails_takes_the_batch_from_all(divided, part):
    parts, graph, engine = divided
    failing = Failing(parts.graphs[part])
    parts.graphs[part].attach(failing)
    events = Events().add_edges([1, 2, 3], [4, 5, 6]).remove_nodes([7])
    for _ in range(3):
        with pytest.raises(ValueError, match="this part fails"):
            parts.apply(events)
        assert_same_state(parts, engine)
    failing.on = False
    graph.apply(events)
    parts.apply(events)
    assert_same_state(parts, engine)


def test_one_part_alone_prepares_no_batch(divided):
    parts, _, engine = divided
    with pytest.raises(RuntimeError, match="only batches that all parts prepare"):
        parts.engines[0].what_if(Events().set_features([3], [[1, 2, 3, 4]]))
    assert_same_state(parts, engine)


def test_reads_of_what_there_is_not(divided):
    parts, _, engine = divided
    assert parts.predict([]).shape == engine.predict([]).shape
    assert {name.partition(":")[0] for name in parts.memory()} == {"part 0", "part 1", "part 2"}
    for ask in (parts.predict, engine.predict):
        with pytest.raises(InputError, match="got 77, which is not in the graph"):
            ask([3, 77])
    with pytest.raises(InputError, match="output must be one of the model's"):
        parts.predict([3], output="other")


def test_each_part_has_its_directory(tmp_path):
    schema = schema_of("", undirected=True, text=False)
    parts = LocalPartitions(
        schema, make(designs_of("gin")[0])[1], Owners("jump", 2), threads=1, state_dir=tmp_path / "rows"
    )
    parts.apply(Events().add_nodes([1, 2], np.ones((2, WIDTH))))
    assert sorted(one.name for one in (tmp_path / "rows").iterdir()) == ["part-0", "part-1"]
    assert parts.predict([1, 2]).shape == (2, 3)
    parts.close()


# -- refusals
# ---------------------------------------------------------------------------------------------------


def fits(model: Model, schema: Schema | None = None, owners: Owners | None = None, **options: Any) -> None:
    schema = schema_of("weight", undirected=False, text=False) if schema is None else schema
    refuse_unfit(model, schema, EngineOptions(**options), Owners("modulo", 2) if owners is None else owners)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "lazy"}, "needs mode='eager', got 'lazy'"),
        ({"mode": ["eager", "lazy"]}, "needs mode='eager', got"),
        ({"keep": "aggregates"}, "needs keep='all', got 'aggregates'"),
        ({"keep_degree": 3}, "needs keep_degree=0, got 3"),
        ({"history": 5}, "needs history=0, got 5"),
    ],
)
def test_settings_that_do_not_fit(options, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        fits(make_model(), **options)


def test_owners_that_do_not_fit():
    with pytest.raises(InputError, match="must follow from a rule, got a table"):
        fits(make_model(), owners=Owners("table", 2, table=np.zeros(3, np.uint16)))
    with pytest.raises(InputError, match="at most 64 parts, got 65"):
        fits(make_model(), owners=Owners("modulo", 65))
    schema = Schema({"user": 3, "item": 2}, {BUYS: EdgeSchema()})
    for given_, reason in (
        ({"user": Owners("modulo", 2)}, "for the node types 'user', 'item', got 'user'"),
        ({"user": Owners("jump", 2), "item": Owners("fennel", 3)}, r"same number of parts, got \[2, 3\]"),
        (
            {"user": 2, "item": 2},
            "a mapping to them, got int for 'user'",
        ),
    ):
        with pytest.raises(InputError, match=reason):
            LocalPartitions(schema, shop(), cast("Owners", given_))
    with pytest.raises(InputError, match="owners must be Owners"):
        LocalPartitions(schema_of("", undirected=False, text=False), make_model(), cast("Owners", 3))


def test_functions_of_users_do_not_fit():
    model = Model(
        inputs={"x": Input("node", WIDTH)},
        steps=(Step("call", ("x",), "out", attrs={"function": "double", "width": WIDTH}),),
        tensors={},
        output="out",
        layers=("x", "out"),
        functions={"double": lambda rows: 2 * rows},
    )
    differences = Convolution(
        message_local=lambda source, target: source - target, transform="one", aggregate="max"
    )
    for one in (model, Model.from_convolutions([differences], in_channels=WIDTH)):
        with pytest.raises(InputError, match="may not call a function that is not LiveGNN's"):
            fits(one)
