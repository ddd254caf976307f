"""Forward passes over samples, beside the oracle on the sample as a graph, and beside the engine."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from model_examples import EDGES, ITEM_USER, make_sage, propagate, typed_graph, typed_model

from livegnn import EdgeSchema, Engine, Events, Graph, InputError, Model, ModelError, Schema
from livegnn.compiler.lowering import projects_sources
from livegnn.graph.snapshot import Snapshot
from livegnn.inference import Degrees, SampledForward
from livegnn.model import Input, Propagate, Step, reference
from livegnn.oracle.exactness import judge
from livegnn.sampling import HeteroSubgraph, Subgraph, sample_subgraph


def draw(
    random: np.random.Generator, width: int, hops: int, neighbors: int, *, scale: float = 1.0
) -> Subgraph:
    """A sample around node 0 as a sampler lists it, with parallel edges, loops and nodes without edges."""
    row, col, nodes, first = [], [], 1, 0
    for _ in range(hops):
        end = nodes
        for node in range(first, end):
            for _ in range(random.integers(neighbors + 1)):
                known = random.random() < 0.3
                row.append(int(random.integers(nodes)) if known else nodes)
                col.append(node)
                nodes += not known
        first = end
    return make_subgraph(random, width, nodes, row, col, scale=scale)


def make_subgraph(random, width, nodes, row, col, *, seeds=(0,), scale=1.0) -> Subgraph:
    return Subgraph(
        node=np.arange(nodes) + 100,
        row=np.array(row, np.int64),
        col=np.array(col, np.int64),
        edge=None,
        batch=None,
        num_sampled_nodes=[nodes],
        num_sampled_edges=[len(row)],
        inverse=np.array(seeds, np.int64),
        seed=0,
        x=(random.standard_normal((nodes, width)) * scale).astype(np.float32),
        edge_weight=random.uniform(0.1, 2, len(row)).astype(np.float32),
        time=None,
        edge_attr=None,
    )


def spoiled(sample: object, **changes: object) -> object:
    """The sample with other columns, whatever they are."""
    other = copy.copy(sample)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    return other


def as_snapshot(sample: Subgraph) -> Snapshot:
    """The sample as a graph of its own."""
    assert sample.x is not None
    weight = np.ones(len(sample.row), np.float32) if sample.edge_weight is None else sample.edge_weight
    attr = {} if sample.edge_attr is None else {EDGES: sample.edge_attr}
    return Snapshot(
        {"node": sample.node},
        {"node": sample.x},
        {EDGES: np.stack([sample.row, sample.col]).astype(np.int64)},
        {EDGES: weight},
        attr,
    )


def assert_as_oracle(model: Model, sample: Subgraph) -> None:
    """The rows of the seeds, and of all nodes, are the oracle's on the sample as a graph."""
    snapshot = as_snapshot(sample)
    forward = SampledForward(model)
    expected = reference.compute(model, snapshot)[model.output]
    rounded = reference.compute(model, snapshot, dtype=np.float32)[model.output]
    everything = forward.predict(sample, all_nodes=True)
    found = judge(everything, expected, rounded)
    assert found.ok, found
    # The seeds alone need less, and are the same bits.
    assert forward.predict(sample).tobytes() == everything[sample.inverse].tobytes()


def steps_of(*operators: Propagate, width: int = 3) -> Model:
    """A linear layer and a ReLU after each propagation."""
    random = np.random.default_rng(3)
    steps, tensors, name = [], {}, "x"
    for i, each in enumerate(operators):
        steps += [
            propagate(name, f"a{i}", each),
            Step("linear", (f"a{i}",), f"l{i}", {"weight": f"w{i}", "bias": f"b{i}"}),
            Step("relu", (f"l{i}",), f"h{i}"),
        ]
        tensors |= {
            f"w{i}": random.standard_normal((4, width if i == 0 else 4), dtype=np.float32),
            f"b{i}": random.standard_normal(4, dtype=np.float32),
        }
        name = f"h{i}"
    return Model({"x": Input("node", width)}, tuple(steps), tensors, name, ("x", name))


GCN = Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt", self_loops=1.0)
MODELS = {
    "sage, norm and skip": make_sage(),
    "gcn": steps_of(GCN, GCN),
    "gcn, improved": steps_of(replace(GCN, self_loops=2.0), replace(GCN, self_loops=2.0)),
    "gcn, in reverse": steps_of(replace(GCN, reverse=True), GCN),
    "sum": steps_of(Propagate(EDGES), Propagate(EDGES)),
    "mean of weights": steps_of(
        Propagate(EDGES, ("weight",), "sum", "divide"), Propagate(EDGES, ("weight",))
    ),
    "max": steps_of(Propagate(EDGES, aggregate="max"), Propagate(EDGES, aggregate="max")),
    "max and min of weights": steps_of(
        Propagate(EDGES, ("weight",), aggregate="max"), Propagate(EDGES, ("weight",), aggregate="min")
    ),
    "three layers": steps_of(GCN, Propagate(EDGES, (), "count", "divide"), Propagate(EDGES, aggregate="max")),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_rows_are_those_of_the_oracle_on_the_sample(model: Model, scale: float) -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        assert_as_oracle(model, draw(random, 3, int(random.integers(4)), 6, scale=scale))


@pytest.mark.parametrize(("inner", "outer"), [(40, 1), (40, 30), (2, 30)])
@pytest.mark.parametrize("linear_first", [False, True])
def test_a_linear_layer_may_stand_on_either_side_of_its_sum(
    inner: int, outer: int, linear_first: bool
) -> None:
    random = np.random.default_rng(1)
    tensors = {"w": random.standard_normal((outer, inner), dtype=np.float32)}
    for operators in (Propagate(EDGES), Propagate(EDGES, (), "count", "divide"), GCN):
        steps = (propagate("x", "a", operators), Step("linear", ("a",), "out", {"weight": "w"}))
        if linear_first:
            steps = (Step("linear", ("x",), "a", {"weight": "w"}), propagate("a", "out", operators))
        model = Model({"x": Input("node", inner)}, steps, tensors, "out", ("x", "out"))
        for seed in range(4):
            assert_as_oracle(model, draw(np.random.default_rng(seed), inner, 2, 6))
    # Behind the sum, where that means fewer products.
    assert projects_sources(inner, outer) == (outer == 1)


def test_an_empty_sample_has_no_rows() -> None:
    random = np.random.default_rng(0)
    forward = SampledForward(MODELS["gcn"])
    assert forward.predict(make_subgraph(random, 3, 0, [], [], seeds=[])).shape == (0, 4)
    alone = make_subgraph(random, 3, 1, [], [])
    assert forward.predict(alone).shape == (1, 4)
    # No seeds, but nodes.
    assert forward.predict(replace(alone, inverse=np.zeros(0, np.int64))).shape == (0, 4)


def test_only_what_the_seeds_need_is_read() -> None:
    random = np.random.default_rng(0)
    path = make_subgraph(random, 3, 4, [1, 2, 3], [0, 1, 2])
    for model in (MODELS["gcn"], MODELS["sage, norm and skip"]):
        forward = SampledForward(model)
        expected = forward.predict(path)
        far = np.array(path.x)
        far[3] = np.nan  # three hops away from the seed of two layers
        assert forward.predict(replace(path, x=far)).tobytes() == expected.tobytes()
        with pytest.raises(InputError, match="must be finite"):
            forward.predict(replace(path, x=far), all_nodes=True)


@pytest.mark.parametrize("name", MODELS)
def test_the_order_of_nodes_and_edges_does_not_matter(name: str) -> None:
    for seed in range(4):
        random = np.random.default_rng(seed)
        sample = draw(random, 3, 2, 5)
        assert sample.x is not None
        assert sample.edge_weight is not None
        place, edges = random.permutation(len(sample.node)), random.permutation(len(sample.row))
        x = np.zeros_like(sample.x)
        x[place] = sample.x
        moved = replace(
            sample,
            x=x,
            row=place[sample.row][edges],
            col=place[sample.col][edges],
            edge_weight=sample.edge_weight[edges],
            inverse=place[sample.inverse],
        )
        assert_as_oracle(MODELS[name], moved)


def test_a_hub_of_very_many_neighbours_is_summed_in_blocks() -> None:
    random = np.random.default_rng(0)
    count = 20_000
    hub = make_subgraph(random, 3, count + 1, np.arange(1, count + 1), np.zeros(count))
    hub = replace(hub, x=np.full((count + 1, 3), np.float32(1 / 3)), edge_weight=None)
    assert_as_oracle(MODELS["sum"], hub)
    assert_as_oracle(MODELS["gcn"], hub)


def test_sums_that_fit_are_finite_though_their_parts_do_not() -> None:
    random = np.random.default_rng(0)
    sample = make_subgraph(random, 3, 4, [1, 2, 3], [0, 0, 0])
    x = np.array([0, 3e38, 3e38, -3e38], np.float32)[:, None].repeat(3, axis=1)
    identity = {"one": np.eye(3, dtype=np.float32)}
    steps = (propagate("x", "a"), Step("linear", ("a",), "out", {"weight": "one"}))
    model = Model({"x": Input("node", 3)}, steps, identity, "out", ("x", "out"))
    rows = SampledForward(model).predict(replace(sample, x=x, edge_weight=None))
    assert (rows == np.float32(3e38)).all()


def live_graph(*, parallel: bool = False, nodes: int = 120) -> Graph:
    """A graph with loops, weights and nodes without edges."""
    random = np.random.default_rng(2)
    duplicates = "keep" if parallel else "replace"
    graph = Graph(Schema({"node": 3}, {EDGES: EdgeSchema(weighted=True, duplicates=duplicates)}))
    graph.apply(
        Events().add_nodes(np.arange(nodes) * 7, x=random.standard_normal((nodes, 3)).astype(np.float32))
    )
    source, target = random.integers(0, nodes - 3, (2, 4 * nodes)) * 7
    source[:9] = target[:9]
    key = {"key": np.arange(len(source))} if parallel else {}
    graph.apply(Events().add_edges(source, target, weight=random.uniform(0.1, 2, len(source)), **key))
    return graph


def true_degrees(graph: Graph, sample: Subgraph, direction: str) -> Degrees:
    """What the nodes of a sample have in the whole graph, edge by edge."""
    snapshot = graph.snapshot()
    source, target = snapshot.ids["node"][snapshot.edge_index[EDGES]]
    receiver = target if direction == "in" else source
    weight, loop = snapshot.weight[EDGES], source == target
    return Degrees(
        count=np.array([np.sum(receiver == node) for node in sample.node]),
        weight=np.array([weight[receiver == node].sum(dtype=np.float64) for node in sample.node]),
        loops=np.array([np.sum(loop & (receiver == node)) for node in sample.node]),
        loop_weight=np.array(
            [weight[loop & (receiver == node)].sum(dtype=np.float64) for node in sample.node]
        ),
    )


@pytest.mark.parametrize("name", [name for name in MODELS if "reverse" not in name])
def test_all_neighbours_and_true_degrees_give_what_the_engine_gives(name: str) -> None:
    graph, model = live_graph(), MODELS[name]
    engine = Engine(graph, model)
    forward = SampledForward(model)
    for seeds in ([0], [7, 35, 7], [119 * 7]):
        sample = sample_subgraph(graph, seeds, [-1] * 3, attributes=True)
        found = judge(
            forward.predict(sample, degrees=true_degrees(graph, sample, "in")), engine.predict(seeds)
        )
        assert found.ok, found


def test_true_degrees_of_out_edges_give_what_the_engine_gives() -> None:
    graph, backward = live_graph(), replace(GCN, reverse=True)
    model = steps_of(backward, backward)
    sample = sample_subgraph(graph, [0, 7, 70], [-1, -1], direction="out", attributes=True)
    degrees = {(EDGES, "out"): true_degrees(graph, sample, "out")}
    found = judge(
        SampledForward(model).predict(sample, degrees=degrees), Engine(graph, model).predict([0, 7, 70])
    )
    assert found.ok, found


def test_degrees_of_the_sample_are_not_those_of_the_graph() -> None:
    graph, model = live_graph(), MODELS["gcn"]
    sample = sample_subgraph(graph, [0, 7, 14], [2, 2], attributes=True, seed=0)
    forward = SampledForward(model)
    given = true_degrees(graph, sample, "in")
    sampled, true = forward.predict(sample), forward.predict(sample, degrees=given)
    assert not np.allclose(sampled, true)
    assert forward.predict(sample, degrees={(EDGES, "in"): given}).tobytes() == true.tobytes()
    # The other direction is not read by this model.
    assert forward.predict(sample, degrees={(EDGES, "out"): given}).tobytes() == sampled.tobytes()
    assert forward.predict(sample, degrees={}).tobytes() == sampled.tobytes()
    # Loops that are not given are those of the sample, and weights are ones.
    by_count = forward.predict(sample, degrees=Degrees(given.columns[0]))
    ones = Degrees(given.columns[0], given.columns[0])
    assert by_count.tobytes() == forward.predict(sample, degrees=ones).tobytes()


@pytest.mark.parametrize("name", ["gcn", "sum", "gcn, improved", "sage, norm and skip"])
@pytest.mark.parametrize("replace_drawn", [False, True])
def test_samples_of_parallel_edges_are_those_of_the_oracle(name: str, replace_drawn: bool) -> None:
    graph = live_graph(parallel=True, nodes=20)
    for seed in range(5):
        sample = sample_subgraph(graph, [0, 7], [9, 9], replace=replace_drawn, attributes=True, seed=seed)
        assert_as_oracle(MODELS[name], sample)


def test_a_maximum_of_weights_with_loops_refuses_parallel_loops() -> None:
    model = steps_of(Propagate(EDGES, ("weight",), aggregate="max", self_loops=1.0))
    random = np.random.default_rng(0)
    assert_as_oracle(model, make_subgraph(random, 3, 2, [0, 1], [0, 0]))
    with pytest.raises(InputError, match="several for node 100"):
        SampledForward(model).predict(make_subgraph(random, 3, 2, [0, 0], [0, 0]))


# -- several types


def typed_snapshot(sample: HeteroSubgraph) -> Snapshot:
    return Snapshot(
        sample.node,
        sample.x,
        {name: np.stack([sample.row[name], sample.col[name]]).astype(np.int64) for name in sample.row},
        {
            name: sample.edge_weight.get(name, np.ones(len(row), np.float32))
            for name, row in sample.row.items()
        },
        sample.edge_attr,
    )


def assert_typed_as_oracle(model: Model, sample: HeteroSubgraph) -> None:
    forward = SampledForward(model)
    snapshot = typed_snapshot(sample)
    for output, value in model.outputs.items():
        expected = reference.compute(model, snapshot)[value]
        rows = forward.predict(sample, output=output, all_nodes=True)
        found = judge(rows, expected)
        assert found.ok, found
        node_type = model.node_type(value)
        seeds = sample.inverse.get(node_type, np.zeros(0, np.int64))
        assert forward.predict(sample, output=output).tobytes() == rows[seeds].tobytes()


def test_samples_of_several_types_are_those_of_the_oracle() -> None:
    graph, model = typed_graph(), typed_model()
    for seed in range(6):
        for seeds in ({"user": [0, 5]}, {"item": [3], "user": [1, 1, 29]}, {"item": [29]}):
            sample = sample_subgraph(graph, seeds, [4, 3, 2][: 1 + seed % 3], attributes=True, seed=seed)
            assert_typed_as_oracle(model, sample)


def test_a_model_without_type_names_reads_the_only_types_of_a_sample() -> None:
    rows = ("account", "pays", "account")
    graph = Graph(Schema({"account": 3}, {rows: EdgeSchema(weighted=True)}))
    graph.apply(Events().add_nodes([1, 2, 3], x=np.eye(3, dtype=np.float32)))
    graph.apply(Events().add_edges([2, 3, 3], [1, 1, 2], weight=[1.0, 2.0, 3.0]))
    forward = SampledForward(MODELS["gcn"])
    alone = sample_subgraph(graph, [1, 2], [-1, -1], attributes=True)
    typed = sample_subgraph(graph, {"account": [1, 2]}, [-1, -1], attributes=True)
    expected = Engine(graph, MODELS["gcn"]).predict([1, 2])
    degrees = Degrees(graph.degree(alone.node), np.array([3.0, 3.0, 0.0]))
    for given in (degrees, {(rows, "in"): degrees}):
        assert judge(forward.predict(typed, degrees=given), expected).ok
    assert judge(forward.predict(alone, degrees=degrees), expected).ok


# -- pairs, threads, functions


def test_pairs_are_scored_by_the_dot_product_of_their_rows() -> None:
    graph = live_graph()
    forward = SampledForward(MODELS["gcn"])
    sample = sample_subgraph(graph, [0, 7, 14, 7], [5, 5], attributes=True, seed=1)
    rows = forward.predict(sample)
    pairs = np.array([[0, 1, 2, 2], [1, 3, 2, 0]])
    scores = forward.predict_pairs(sample, pairs)
    assert np.allclose(scores, (rows[pairs[0]] * rows[pairs[1]]).sum(axis=1))
    assert forward.predict_pairs(sample, np.zeros((2, 0), int)).shape == (0,)
    for wrong in ([[0], [4]], [[-1], [0]], [0, 1], [[0, 1]], [[0.5], [1]], "pairs"):
        with pytest.raises(InputError, match="pairs"):
            forward.predict_pairs(sample, wrong)


def test_pairs_of_two_types_take_an_output_each() -> None:
    graph, model = typed_graph(), typed_model()
    forward = SampledForward(model)
    sample = sample_subgraph(graph, {"user": [0, 5], "item": [3]}, [4, 4], attributes=True, seed=1)
    users, items = forward.predict(sample, output="user"), forward.predict(sample, output="item")
    scores = forward.predict_pairs(sample, [[0, 1], [0, 0]], outputs=("user", "item"))
    assert np.allclose(scores, users @ items[0])
    with pytest.raises(InputError, match="output must be one of"):
        forward.predict_pairs(sample, [[0], [0]], outputs=("user", "shop"))
    with pytest.raises(InputError, match="two outputs"):
        forward.predict_pairs(sample, [[0], [0]], outputs="user")  # type: ignore[arg-type]


def test_threads_predict_beside_each_other() -> None:
    graph = live_graph()
    forward = SampledForward(MODELS["sage, norm and skip"])
    samples = [sample_subgraph(graph, [7 * i], [9, 9], attributes=True, seed=i) for i in range(8)]
    expected = [forward.predict(sample).tobytes() for sample in samples]
    wrong: list[int] = []

    def work() -> None:
        for _ in range(30):
            wrong.extend(
                i for i, sample in enumerate(samples) if forward.predict(sample).tobytes() != expected[i]
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_functions_of_a_model_run_and_their_errors_pass_through() -> None:
    calls = []

    def double(rows: np.ndarray) -> np.ndarray:
        calls.append(len(rows))
        if not np.isfinite(rows).all() or (rows > 1e6).any():
            raise ValueError("too large")
        return 2 * rows

    steps = (propagate("x", "a"), Step("call", ("a",), "b", attrs={"function": "double", "width": 3}))
    model = Model({"x": Input("node", 3)}, steps, {}, "b", ("x", "b"), functions={"double": double})
    random = np.random.default_rng(0)
    sample = draw(random, 3, 2, 5)
    assert_as_oracle(model, sample)
    forward = SampledForward(model)
    with pytest.raises(ValueError, match="too large"):
        forward.predict(replace(sample, x=sample.x + 1e7))
    assert forward.predict(sample).shape == (1, 3)
    assert calls


def test_a_function_on_edges_that_fails_leaves_nothing_behind() -> None:
    broken = False

    def negate(rows: np.ndarray) -> np.ndarray:
        if broken:
            raise ValueError("broken")
        return -rows

    steps = (
        Step("source", ("x",), "e", attrs={"edge_type": EDGES}),
        Step("call", ("e",), "f", attrs={"function": "negate", "width": 3}),
        propagate("f", "a"),
    )
    model = Model({"x": Input("node", 3)}, steps, {}, "a", ("x", "a"), functions={"negate": negate})
    random = np.random.default_rng(0)
    forward = SampledForward(model)
    sample = make_subgraph(random, 3, 40, np.arange(1, 40), np.arange(1, 40) % 7)
    expected = forward.predict(sample).tobytes()
    broken = True
    with pytest.raises(ValueError, match="broken"):
        forward.predict(sample, all_nodes=True)
    broken = False
    assert forward.predict(sample).tobytes() == expected
    assert_as_oracle(model, sample)


# -- what is refused


WRONG: dict[str, tuple[Mapping[str, object], str]] = {
    "no features": ({"x": None}, "attributes=True"),
    "features of another width": ({"x": np.zeros((4, 2), np.float32)}, r"must be \[4, 3\], got \[4, 2\]"),
    "too few features": ({"x": np.zeros((3, 3), np.float32)}, r"must be \[4, 3\], got \[3, 3\]"),
    "features of text": ({"x": np.array([["a"] * 3] * 4)}, "must hold numbers"),
    "features that are not finite": (
        {"x": np.array([[1, 2, 3], [4, np.nan, 6], [7, 8, 9], [0, 0, 0]], np.float32)},
        r"must be finite, got \[4.0, nan, 6.0\] for node 101",
    ),
    "features that float32 has no room for": ({"x": np.full((4, 3), 1e300)}, "must be finite"),
    "a source that is no node": ({"row": np.array([1, 4, 3])}, "row of .* got 4 for edge 1"),
    "a negative target": ({"col": np.array([0, 0, -1])}, "col of .* got -1 for edge 2"),
    "fewer targets": ({"col": np.array([0, 0])}, r"must be \[edges\], got \[3\] and \[2\]"),
    "ends that are fractions": ({"row": np.array([1.0, 2.0, 3.0])}, "must hold integers"),
    "fewer weights": ({"edge_weight": np.ones(2, np.float32)}, r"must be \[3\], got \[2\]"),
    "a weight that is not finite": ({"edge_weight": np.array([1, 1, np.inf], np.float32)}, "finite.* edge 2"),
    "a seed that is no node": ({"inverse": np.array([0, 4])}, "inverse must hold .* seed 1"),
    "a negative seed": ({"inverse": np.array([-1])}, "inverse must hold .* seed 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_samples_are_refused_by_name(name: str) -> None:
    changes, message = WRONG[name]
    forward = SampledForward(MODELS["gcn"])
    sample = make_subgraph(np.random.default_rng(0), 3, 4, [1, 2, 3], [0, 0, 1])
    before = forward.predict(sample)
    with pytest.raises(InputError, match=message):
        forward.predict(spoiled(sample, **changes))
    assert forward.predict(sample).tobytes() == before.tobytes()


def test_samples_that_lack_what_the_model_reads_are_refused_by_name() -> None:
    graph, forward = typed_graph(), SampledForward(typed_model())
    sample = sample_subgraph(graph, {"user": [0]}, [3, 3], attributes=True, seed=0)
    part = sample_subgraph(graph, {"user": [0]}, {ITEM_USER: [3, 3]}, attributes=True, seed=0)
    for wrong, message in [
        (part, "propagates along .*likes"),
        (spoiled(sample, edge_attr={}), "2 features of .*liked.* edges, the sample has none"),
        (spoiled(sample, x={"user": sample.x["user"]}), "2 features of 'item' nodes, the sample has none"),
        (spoiled(sample, node={"item": sample.node["item"]}), "'user' nodes"),
        (
            live_sample := sample_subgraph(live_graph(), [0], [2], attributes=True),
            "sample seeds by node type",
        ),
        ("sample", "expected a Subgraph"),
        (None, "expected a Subgraph"),
    ]:
        with pytest.raises(InputError, match=message):
            forward.predict(wrong)  # type: ignore[arg-type]
    for options, message in [
        ({"degrees": "true"}, "degrees must be"),
        ({"degrees": 3}, "degrees must be"),
        ({"degrees": {EDGES: Degrees(np.zeros(1, int))}}, "by edge type of the model and direction"),
        ({"degrees": {(EDGES, "in"): [1, 2]}}, "by edge type of the model and direction"),
        ({"degrees": Degrees(np.zeros(1, int))}, r"one for each of \d+ 'node' nodes of the sample, got 1"),
        ({"all_nodes": "no"}, "True or False"),
        ({"output": "other"}, "output must be one of"),
    ]:
        with pytest.raises(InputError, match=message):
            SampledForward(MODELS["gcn"]).predict(live_sample, **options)
    with pytest.raises(InputError, match="by edge type and direction"):
        forward.predict(sample, degrees=Degrees(np.zeros(1, int)))
    with pytest.raises(InputError, match="expected a Model"):
        SampledForward(graph)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([-1],), "count must not be negative, got -1"),
        (([1], [1.0], [-2]), "loops must not be negative, got -2"),
        (([1], [np.nan]), "weight must be finite"),
        (([1, 2], [1.0]), "weight must be one number for each of 2 nodes"),
        (([[1]],), "count must be one number for each"),
        (([1.5],), "count must hold integers"),
        (([1], None, None, ["a"]), "loop_weight must hold numbers"),
    ],
)
def test_degrees_that_are_none_are_refused(given: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Degrees(*given)  # type: ignore[arg-type]


def test_a_model_that_the_engine_cannot_run_is_refused() -> None:
    model = Model({"x": Input("node", 3)}, (propagate("x", "a"),), {}, "x", ("x",))
    with pytest.raises(ModelError, match="output must be computed"):
        SampledForward(model)
