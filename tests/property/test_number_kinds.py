"""Random modules of whole numbers, float32 and float64 are refused, or say what torch says."""

import numpy as np
import torch
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Engine, Events, Graph, Model, ModelError
from number_kinds import (
    COLUMNS,
    KINDS,
    SIZES,
    TABLE,
    Ends,
    Expression,
    Grammar,
    Judge,
    Numbers,
    columns,
    find_wrong,
)

NODES, EDGES, DEPTH = 24, 60, 4
ROUNDINGS = 4
FIRST: Expression = ("column", (), 0)
SECOND: Expression = ("cast", (("column", (), 1),), "int")
PLACE: Expression = ("add", (("mul number", (("cast", (FIRST,), "int"),), 5), SECOND), None)
HASHED: Expression = ("mod number", (("mul number", (SECOND,), 1000003),), 7)
DEGREE: Expression = ("degree", (), "double")
DIFFERENCE: Expression = ("sub", tuple(("mul number", (SECOND,), n) for n in (1000003, 1000000)), None)
NEGATIVE: Expression = ("cast", (("cast", (("mul number", (FIRST,), 0.001),), "int"),), "float")


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    grammar = Grammar(lambda options: draw(st.sampled_from(options)))
    return grammar.numbers(draw(st.sampled_from([*KINDS])), draw(st.integers(1, DEPTH)))


datasets = st.lists(
    st.tuples(st.tuples(*[st.sampled_from([*SIZES])] * COLUMNS), st.integers(0, 2**16), st.booleans()),
    min_size=4,
    max_size=4,
)
SMALL_AND_LARGE = [((size, size, size), 7, size == "all") for size in ("digits", "the edge", "all")]


@settings(max_examples=draws(15, 300))
@given(one=expressions(), data=datasets)
@example(one=("lookup", (("mod number", (PLACE,), TABLE),), None), data=SMALL_AND_LARGE)
@example(one=HASHED, data=SMALL_AND_LARGE)
@example(one=("mul", (("cast", (("log", (DEGREE,), None),), "float"), FIRST), None), data=SMALL_AND_LARGE)
@example(one=("div", (FIRST, NEGATIVE), None), data=SMALL_AND_LARGE)
@example(one=DIFFERENCE, data=[(("millions",) * COLUMNS, 7, False)])
@example(one=("fmod number", (DEGREE,), 0.001), data=SMALL_AND_LARGE)
def test_numbers_of_any_kind_and_size_are_refused_or_right(one, data):
    module = Numbers([one])
    try:
        model = Model.from_pyg(module, in_channels=COLUMNS)
    except ModelError as error:
        note(f"refused: {error}")
        return
    for sizes, seed, changed in data:
        rng = np.random.default_rng(seed)
        source, target = rng.integers(0, NODES - 2, (2, EDGES))
        x = columns(sizes, seed, NODES)
        before = columns(["all"] * COLUMNS, seed + 1, NODES) if changed else x
        graph = Graph.from_edges(source, target, x=before.numpy(), parallel="keep", num_nodes=NODES)
        engine = Engine(graph, model, non_finite="allow")
        if changed:
            engine.apply(Events().add_nodes(np.arange(NODES), x.numpy()))
        got = torch.from_numpy(engine.predict(np.arange(NODES))[:, 0])
        ends = Ends(torch.from_numpy(np.stack([source, target])), NODES, module.table)
        try:
            tracks, *others = [Judge(x, ends, i, changed=changed)(one) for i in range(ROUNDINGS)]
        except (RuntimeError, IndexError):
            continue  # torch itself says nothing, as of a place that a table has not
        wrong = find_wrong(got, tracks, others)
        if bool(wrong.any()):
            others += [Judge(x, ends, i, changed=changed)(one) for i in range(ROUNDINGS, 10 * ROUNDINGS)]
            wrong = find_wrong(got, tracks, others)
        note(f"{sizes}: torch {tracks.value.view(-1)[wrong]}, model {got[wrong]}, x {x[wrong]}")
        assert not bool(wrong.any())
