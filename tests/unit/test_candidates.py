"""The best partners of a node: as comparing all pairs, whatever happens to the graph, and what is refused."""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn.inference.candidate_index as candidate_index
import livegnn.inference.candidates as candidates
from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Model, Schema
from livegnn.errors import InputError, UnknownNodeError, ViewMissingError
from livegnn.model import Input, Step
from livegnn.network.inner_products import find_inner_product
from livegnn.types import EdgeType
from scored_edges import WIDTH, make_scorer
from waiting import PATIENCE

USER, ITEM = "user", "item"
BUYS: EdgeType = (USER, "buys", ITEM)
FOLLOWS: EdgeType = (USER, "follows", USER)
CHANNELS = 4


def decode(name: str, first: str, second: str) -> tuple[tuple[Step, ...], dict[str, np.ndarray]]:
    """The steps of a decoder of the values "from" and "to", which writes "score"."""
    random = np.random.default_rng(5)
    dot = (
        Step("multiply", ("from", "to"), "product"),
        Step("sum_channels", ("product",), "dot", attrs={"heads": 1}),
    )
    weights = {
        "square": random.normal(size=(CHANNELS, CHANNELS)).astype(np.float32),
        "wide": random.normal(size=(1, 2 * CHANNELS)).astype(np.float32),
        "row": random.normal(size=(1, CHANNELS)).astype(np.float32),
        "relation": random.normal(size=CHANNELS).astype(np.float32),
        "shift": random.normal(size=1).astype(np.float32),
    }

    def linear(value: str, output: str, weight: str) -> Step:
        return Step("linear", (value,), output, {"weight": weight})

    decoders: dict[str, tuple[Step, ...]] = {
        "dot": (*dot, Step("sigmoid", ("dot",), "score")),
        "away": (*dot, Step("neg", ("dot",), "score")),
        "relation": (
            Step("scale_shift", ("from",), "related", {"scale": "relation"}),
            Step("multiply", ("to", "related"), "product"),
            Step("sum_channels", ("product",), "dot", attrs={"heads": 1}),
            Step("scale", ("dot",), "score", attrs={"value": 0.5}),
        ),
        "layers": (
            linear("from", "sent", "square"),
            linear("to", "seen", "square"),
            Step("relu", ("seen",), "rectified"),
            Step("multiply", ("sent", "rectified"), "product"),
            linear("product", "score", "row"),
        ),
        "cosine": (
            Step("l2_normalize", ("from",), "sent", attrs={"eps": 1e-12, "heads": 1}),
            Step("l2_normalize", ("to",), "seen", attrs={"eps": 1e-12, "heads": 1}),
            Step("multiply", ("seen", "sent"), "product"),
            Step("sum_channels", ("product",), "dot", attrs={"heads": 1}),
            Step("constant", ("dot",), "tenth", attrs={"value": 0.1}),
            Step("divide", ("dot", "tenth"), "score"),
        ),
        "offsets": (
            *dot,
            linear("from", "mine", "row"),
            linear("to", "theirs", "row"),
            Step("subtract", ("dot", "mine"), "less"),
            Step("add", ("theirs", "less"), "more"),
            Step("scale_shift", ("more",), "score", {"shift": "shift"}),
        ),
        "log_sigmoid": (
            *dot,
            Step("constant", ("dot",), "zero", attrs={"value": 0.0}),
            Step("minimum", ("dot", "zero"), "least"),
            Step("abs", ("dot",), "size"),
            Step("neg", ("size",), "below"),
            Step("exp", ("below",), "power"),
            Step("log1p", ("power",), "rest"),
            Step("subtract", ("least", "rest"), "score"),
        ),
        "far": (  # 1 - sigmoid(dot)
            *dot,
            Step("sigmoid", ("dot",), "near"),
            Step("neg", ("near",), "less"),
            Step("scale_shift", ("less",), "score", {"shift": "shift"}),
        ),
        "cube": (
            *dot,
            Step("multiply", ("dot", "dot"), "square of it"),
            Step("multiply", ("square of it", "dot"), "score"),
        ),
        "narrow": (
            linear("from", "mine", "row"),
            linear("to", "theirs", "row"),
            Step("multiply", ("theirs", "mine"), "one"),
            Step("sum_channels", ("one",), "dot", attrs={"heads": 1}),
            Step("leaky_relu", ("dot",), "score", attrs={"slope": 0.2}),
        ),
        "size": (*dot, Step("abs", ("dot",), "score")),
        "square": (*dot, Step("multiply", ("dot", "dot"), "score")),
        "wave": (*dot, Step("sin", ("dot",), "score")),
        "perceptron": (
            Step("concat", ("from", "to"), "both"),
            Step("relu", ("both",), "rectified"),
            linear("rectified", "score", "wide"),
        ),
    }
    steps = decoders[name]
    used = {tensor for step in steps for tensor in step.tensors.values()}
    return steps, {tensor: rows for tensor, rows in weights.items() if tensor in used}


CURVED = ("dot", "log_sigmoid", "far", "cube", "narrow")
PRODUCTS = ("away", "relation", "layers", "cosine", "offsets", *CURVED)
_CURVE = "the score 'score' is not known to rise or to fall with 'dot', an inner product"
_STEP = "which reads both ends of an edge, makes no inner product"
REFUSED = {
    "size": _CURVE,
    "square": _CURVE,
    "wave": f"step 'sin' that writes 'score', {_STEP}",
    "perceptron": f"step 'concat' that writes 'both', {_STEP}",
}
DECODERS = (*PRODUCTS, *REFUSED)
MODES: tuple[dict[str, Any], ...] = ({}, {"keep": "aggregates"}, {"keep_degree": 3})


def make_model(decoder: str, edge_type: EdgeType = BUYS) -> Model:
    """The first output is of users, an embedding along follows; the second of items. One edge output."""
    from livegnn.model import Propagate

    random = np.random.default_rng(2)
    steps, tensors = decode(decoder, *edge_type[::2])
    to_user = Propagate(FOLLOWS, neighbor_context="count", combine="divide").to_attrs()
    to_item = Propagate(BUYS, neighbor_context="count", combine="divide").to_attrs()
    weights = {
        name: random.normal(size=(CHANNELS, WIDTH)).astype(np.float32) for name in ("wu", "wi", "wn", "wb")
    }
    ends = {USER: "of user", ITEM: "of item"}
    body = (
        Step("propagate", ("u",), "around user", attrs=to_user),
        Step("linear", ("around user",), "a", {"weight": "wn"}),
        Step("linear", ("u",), "own user", {"weight": "wu"}),
        Step("add", ("a", "own user"), "of user"),
        Step("propagate", ("u",), "around item", attrs=to_item),
        Step("linear", ("around item",), "b", {"weight": "wb"}),
        Step("linear", ("i",), "own item", {"weight": "wi"}),
        Step("add", ("b", "own item"), "of item"),
        Step("source", (ends[edge_type[0]],), "from", attrs={"edge_type": edge_type}),
        Step("target", (ends[edge_type[2]],), "to", attrs={"edge_type": edge_type}),
    )
    return Model(
        {"u": Input(USER, WIDTH), "i": Input(ITEM, WIDTH)},
        (*body, *steps),
        {**weights, **tensors},
        "of user",
        ("u", "of user"),
        outputs={"user": "of user", "item": "of item"},
        edge_outputs={"score": "score"},
    )


def make_graph(*, text: bool = False) -> Graph:
    return Graph(
        Schema({USER: WIDTH, ITEM: WIDTH}, {FOLLOWS: EdgeSchema(), BUYS: EdgeSchema()}, text_ids=text)
    )


def name(number: int, *, text: bool) -> int | str:
    return f"n{number}" if text else int(number)


class World:
    """A graph of users 0, 1, ... and items 1000, 1001, ..., an engine, and random events."""

    def __init__(
        self, decoder: str, seed: int, *, text: bool = False, edge_type: EdgeType = BUYS, **options: Any
    ) -> None:
        self.random, self.text, self.edge_type = np.random.default_rng(seed), text, edge_type
        self.graph = make_graph(text=text)
        self.ids: dict[str, list[int]] = {USER: [], ITEM: []}
        self.fresh = {USER: 0, ITEM: 1000}
        self.graph.apply(self.add(USER, 12).add_nodes([], node_type=ITEM))
        self.graph.apply(self.add(ITEM, 14))
        self.engine = Engine(self.graph, make_model(decoder, edge_type), **options)

    def named(self, numbers: Any) -> list[Any]:
        return [name(one, text=self.text) for one in numbers]

    def rows(self, count: int) -> np.ndarray:
        return self.random.normal(size=(count, WIDTH)).astype(np.float32)

    def add(self, node_type: str, count: int) -> Events:
        numbers = [*range(self.fresh[node_type], self.fresh[node_type] + count)]
        self.fresh[node_type] += count
        self.ids[node_type] += numbers
        return Events().add_nodes(self.named(numbers), self.rows(count), node_type=node_type)

    def draw(self, node_type: str, count: int) -> list[int]:
        return [int(one) for one in self.random.choice(self.ids[node_type], count)]

    def change(self) -> None:
        """Applies a batch of a random kind."""
        kind = self.random.integers(5)
        if kind == 0:
            self.engine.apply(
                self.add(str(self.random.choice([USER, ITEM])), int(self.random.integers(1, 4)))
            )
        elif kind == 1:
            node_type = str(self.random.choice([USER, ITEM]))
            gone = set(self.draw(node_type, 2)) if len(self.ids[node_type]) > 6 else set()
            self.ids[node_type] = [one for one in self.ids[node_type] if one not in gone]
            self.engine.apply(Events().remove_nodes(self.named(gone), node_type=node_type))
        elif kind == 2:
            node_type = str(self.random.choice([USER, ITEM]))
            some = self.named(dict.fromkeys(self.draw(node_type, 3)))
            self.engine.apply(Events().set_features(some, self.rows(len(some)), node_type=node_type))
        else:
            edge_type = FOLLOWS if kind == 3 else BUYS
            src, dst = self.draw(edge_type[0], 6), self.draw(edge_type[2], 6)
            events = Events().add_edges(self.named(src), self.named(dst), edge_type=edge_type)
            events.remove_edges(self.named(src[:2]), self.named(dst[:2]), edge_type=edge_type)
            self.engine.apply(events)

    def best(self, user: int, k: int, *, exclude: bool = True, least: float = -np.inf) -> dict[Any, float]:
        """The ids and scores of the best k, by comparing all pairs."""
        others = self.ids[self.edge_type[2]]
        x = self.graph.features(self.named(others), self.edge_type[2])
        linked = set(
            self.graph.neighbors(
                self.named([user])[0], edge_type=self.edge_type, direction="out"
            ).ids.tolist()
        )
        others = [
            one
            for one, row in zip(others, x, strict=True)
            if row[0] > least
            and not (exclude and self.named([one])[0] in linked)
            and not (self.edge_type[0] == self.edge_type[2] and one == user)
        ]
        scores = self.engine.score(self.named([user] * len(others)), self.named(others))[:, 0]
        order = np.argsort(-scores, kind="stable")[:k]
        return {self.named([others[i]])[0]: float(scores[i]) for i in order}

    def check(self, *, k: int = 5, exact: bool = True) -> float:
        """Asks for the candidates of a user, with random filters. exact: they must be the best. Returns the
        share of the best k that was found."""
        user = self.draw(USER, 1)[0]
        exclude = bool(self.random.integers(2))
        least = float(self.random.choice([-np.inf, 0.0, 1.0]))
        every = self.best(user, 1000, exclude=exclude, least=least)
        expected = dict([*every.items()][:k])
        found = self.engine.candidates(
            self.named([user])[0],
            k,
            exclude_existing=exclude,
            where=None if least == -np.inf else lambda x: x[:, 0] > least,
        )
        ids = found.ids.tolist()
        assert found.seq == self.graph.seq
        assert [every[one] for one in ids] == found.scores.tolist() == sorted(found.scores, reverse=True)
        assert len({*ids}) == len(ids) == len(expected)
        if exact:
            assert found.scores.tolist() == [*expected.values()]
        if len(set(expected.values())) == len(expected) and exact:
            assert ids == [*expected]
        return len({*ids} & {*expected}) / len(expected) if expected else 1.0


@pytest.fixture
def indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index in graphs of any size, which finds three times as many nodes as are wanted. A few rows are
    read at once, and renewed with each change."""
    monkeypatch.setattr(candidate_index, "FEW", 0)
    monkeypatch.setattr(candidates, "_LEAST_FOUND", 1)
    monkeypatch.setattr(candidates, "_OVERSAMPLE", 3)
    monkeypatch.setattr(candidate_index, "_AT_ONCE", 3)
    monkeypatch.setattr(candidate_index, "_RENEWED", 2)


@pytest.mark.parametrize("decoder", DECODERS)
@given(seed=st.integers(0, 2**32), text=st.booleans())
@settings(max_examples=draws(4, 60), deadline=None)
def test_all_are_compared_in_a_small_graph(decoder, seed, text) -> None:
    world = World(decoder, seed, text=text)
    for _ in range(6):
        world.check()
        world.change()
    world.engine.candidate_index().refresh()
    assert not world.engine.candidate_index()._codes


@pytest.mark.parametrize("decoder", PRODUCTS)
@pytest.mark.parametrize("edge_type", [BUYS, FOLLOWS])
@pytest.mark.usefixtures("indexed")
def test_an_index_finds_nearly_the_same_in_a_small_graph(decoder, edge_type) -> None:
    shares: list[float] = []
    for seed in range(draws(3, 60)):
        world = World(decoder, seed, edge_type=edge_type, text=seed % 3 == 2, **MODES[seed % 3])
        index = world.engine.candidate_index()
        for _ in range(12):
            shares.append(world.check(k=3, exact=False))
            world.change()
            check_codes(index)
    assert np.mean(shares) > 0.95


def check_codes(index: candidate_index.CandidateIndex) -> None:
    """Every node has codes, and no other index has."""
    found = index.search(np.zeros(index.vectors.width, np.float32), 1000)
    assert index.waiting == 0
    if found is None:  # it is made with the first of several nodes
        return
    assert sorted({*found.nodes.tolist()}) == sorted(
        index._core.graph.native.indices(index.node_type).tolist()
    )


@pytest.fixture
def few_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that finds no more nodes than are wanted."""
    monkeypatch.setattr(candidate_index, "FEW", 0)
    monkeypatch.setattr(candidates, "_LEAST_FOUND", 1)


@pytest.mark.parametrize("decoder", PRODUCTS)
@pytest.mark.usefixtures("few_found")
def test_most_of_the_best_are_found_after_all_rows_have_changed(decoder) -> None:
    count, k = 2000, 10
    random = np.random.default_rng(7)
    graph = make_graph()
    ids = np.arange(count)
    rows = rows_of(random, count)
    rows[7] *= 1e9
    graph.apply(Events().add_nodes(ids, rows, node_type=ITEM))
    graph.apply(Events().add_nodes(ids[:50], rows_of(random, 50), node_type=USER))
    engine = Engine(graph, make_model(decoder))
    index = engine.candidate_index()

    def recall() -> float:
        found = 0
        left = graph.ids(ITEM)
        for user in range(50):
            scores = engine.score(np.full(len(left), user), left)[:, 0]
            best = np.sort(scores)[-k]
            found += int((engine.candidates(user, k).scores >= best).sum())
        return found / (50 * k)

    least = 0.85 if decoder == "cosine" else 0.97  # unit vectors of four channels lie close to each other
    assert recall() > least
    first = index._codes[0]
    for part in np.array_split(random.permutation(count)[: count // 2], 5):
        engine.apply(Events().set_features(ids[part], 1 + rows_of(random, len(part)), node_type=ITEM))
    engine.apply(Events().remove_nodes(random.permutation(count)[: count // 10], node_type=ITEM))
    assert recall() > least
    assert index._codes[0] is first
    left = graph.ids(ITEM)
    for part in np.array_split(np.tile(left, 2), 20):  # other scales are measured: of rows far from these
        engine.apply(Events().set_features(part, 100 * rows_of(random, len(part)) + 300, node_type=ITEM))
        engine.candidates(0, k)
    assert index._codes[0] is not first
    assert recall() > least


def rows_of(random: np.random.Generator, count: int) -> np.ndarray:
    return random.normal(size=(count, WIDTH))


@pytest.mark.usefixtures("few_found")
def test_a_state_has_one_index_for_any_threads_and_any_batches_before() -> None:
    found = []
    for threads in (1, 3):
        world = World("dot", 11, threads=threads)
        for step in range(8):
            world.change()
            if step % threads == 0:  # whether it follows the batches or is made at the end
                world.engine.candidates(world.ids[USER][0])
        index = world.engine.candidate_index()
        index._codes.clear()
        index.refresh()
        found.append([index.search(query, 4).nodes.tolist() for query in np.eye(CHANNELS, dtype=np.float32)])
    assert found[0] == found[1]


@pytest.mark.usefixtures("indexed")
def test_searches_run_beside_batches() -> None:
    """Each answer is that of the state that it names."""
    world = World("dot", 3)
    world.change()
    index = world.engine.candidate_index()
    errors: list[BaseException] = []
    ended = threading.Event()
    found: list[candidates.Candidates] = []
    expected = {world.graph.seq: world.best(0, 100, exclude=False)}

    def search() -> None:
        try:
            while not ended.is_set():
                found.append(world.engine.candidates(0, 4, exclude_existing=False))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(1000):
        if step > 60 and len({one.seq for one in [*found]}) > 3:
            break
        world.ids[USER].remove(0)  # so that it stays
        world.change()
        world.ids[USER].append(0)
        expected[world.graph.seq] = world.best(0, 100, exclude=False)
    ended.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert not errors
    assert len({one.seq for one in found}) > 3
    for one in found:
        best = expected[one.seq]
        assert [best[id] for id in one.ids.tolist()] == one.scores.tolist()
        assert one.scores.tolist() == [*best.values()][:4]
    world.check(exact=False)
    check_codes(index)


def test_an_index_ends_with_its_engine(monkeypatch) -> None:
    monkeypatch.setattr(candidate_index, "FEW", 0)
    world = World("dot", 3)
    reference = weakref.ref(world.engine.candidate_index())
    reference().refresh()
    assert world.engine.memory()["candidates"] > 0
    del world.engine
    gc.collect()
    assert reference() is None
    world.graph.apply(world.add(ITEM, 1))


def test_an_engine_that_is_replaced_answers_no_more() -> None:
    world = World("dot", 3)
    engine = world.engine
    engine.candidates(0)
    world.engine = Engine(world.graph, engine.model, state=engine)
    world.check()
    with pytest.raises(ViewMissingError):
        engine.candidates(0)


@pytest.mark.parametrize("decoder", DECODERS)
def test_products_are_recognised(decoder) -> None:
    model = make_model(decoder)
    found = find_inner_product(model.edge_scores["score"], model)
    if decoder in PRODUCTS:
        assert not isinstance(found, str)
        assert found.linear == (decoder not in CURVED)
    else:
        assert found == REFUSED[decoder]


def test_columns_of_all_edges() -> None:
    """A decoder that reads the edge's features and weight, with a score of one channel."""
    scorer = make_scorer()
    steps = (*scorer.steps, Step("slice", ("risk",), "first", attrs={"start": 0, "stop": 1}))
    model = replace(scorer, steps=steps, edge_outputs={"first": "first"})
    random = np.random.default_rng(0)
    graph = Graph(Schema({"node": WIDTH}, {("node", "to", "node"): EdgeSchema(weighted=True, edge_dim=2)}))
    graph.apply(Events().add_nodes(range(20), random.normal(size=(20, WIDTH))))
    engine = Engine(graph, model)
    columns: dict[str, Any] = {"edge_attr": [0.5, -1], "edge_weight": 2.0}
    found = engine.candidates(3, 19, **columns)
    pairs = np.full(19, 3), found.ids
    scores = engine.score(*pairs, edge_attr=[[0.5, -1]] * 19, edge_weight=[2.0] * 19)
    np.testing.assert_array_equal(scores[:, 0], found.scores)
    assert set(found.ids.tolist()) == {*range(20)} - {3}
    with pytest.raises(InputError, match="reads edge_attr"):
        engine.candidates(3)


def test_several_nodes_at_once() -> None:
    world = World("dot", 1, text=True)
    found = world.engine.candidates_of_each(["n0", "n1", "n0"], 3)
    assert [one.ids.tolist() for one in found] == [
        world.engine.candidates(node, 3).ids.tolist() for node in ("n0", "n1", "n0")
    ]
    assert world.engine.candidates_of_each([]) == []


def test_what_is_refused(monkeypatch) -> None:
    world = World("perceptron", 1)
    engine = world.engine
    with pytest.raises(UnknownNodeError, match="99"):
        engine.candidates(99)
    for k in (0, 10_001, True, 1.5):
        with pytest.raises(InputError, match="k must be"):
            engine.candidates(0, k)
    with pytest.raises(InputError, match="exclude_existing must be True or False"):
        engine.candidates(0, exclude_existing="no")
    with pytest.raises(InputError, match="where must be a function"):
        engine.candidates(0, where=3)
    for where in (lambda x: x[:, 0], lambda x: True, lambda x: np.ones(1, np.bool_)):
        with pytest.raises(InputError, match="where must return an array of bool"):
            engine.candidates(0, where=where)

    def change(x: np.ndarray) -> np.ndarray:
        engine.apply(Events().set_features([0], np.zeros((1, WIDTH)), node_type=USER))
        return np.ones(len(x), np.bool_)

    with pytest.raises(InputError, match="where must not change the graph"):
        engine.candidates(0, where=change)
    with pytest.raises(InputError, match="reads no edge_attr"):
        engine.candidates(0, edge_attr=[1.0])
    with pytest.raises(InputError, match="one of the edge outputs"):
        engine.candidates(0, output="other")
    monkeypatch.setattr(candidates, "MOST_COMPARED", 4)
    with pytest.raises(InputError, match="at most 4, got 14: step 'concat'"):
        engine.candidates(0)
    lazy = Engine(world.graph, make_model("dot"), mode="lazy", name="lazy")
    with pytest.raises(InputError, match='mode="eager"'):
        lazy.candidates(0)
    graph = Graph(Schema({"node": WIDTH}, {("node", "to", "node"): EdgeSchema(weighted=True, edge_dim=2)}))
    with pytest.raises(InputError, match="one channel, got 'risk' of 2"):
        Engine(graph, make_scorer()).candidates(0, output="risk", edge_attr=[0, 0], edge_weight=1)
    with pytest.raises(InputError, match="no edge output"):
        Engine(graph, replace(make_scorer(), edge_outputs={})).candidates(0)
