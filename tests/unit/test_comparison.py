"""How the predictions of two models differ, beside the same figures by hand."""

import numpy as np
import pytest

from livegnn import Engine, Graph, InputError, Model
from livegnn.runtime.comparison import compare
from streams import make_arrays, make_graph, make_model


@pytest.mark.parametrize(("nodes", "tolerance"), [(40, 0.0), (40, 0.5), (5000, 1e-4), (5000, 1e9)])
def test_the_figures_are_those_of_all_predictions(nodes: int, tolerance: float) -> None:
    graph = Graph.from_edges(**make_arrays(nodes, 3 * nodes))
    first, second = Engine(graph, make_model()), Engine(graph, make_model(3), name="second")
    found = compare(first, second, lambda ask: (graph.seq, ask()), sample=10**6, tolerance=tolerance)
    ids = graph.ids()
    a, b = first.predict(ids).astype(np.float64), second.predict(ids).astype(np.float64)
    differences = np.abs(a - b)
    assert (found.first, found.second, found.since, found.seq) == ("engine", "second", 0, 0)
    assert (found.nodes, found.tolerance, found.not_finite) == (nodes, tolerance, 0)
    assert found.different == (differences.max(1) > tolerance).sum()
    assert found.largest == differences.max()
    assert found.mean == pytest.approx(differences.mean())
    assert found.largest_id == ids[differences.max(1).argmax()]
    assert found.changed_class == (a.argmax(1) != b.argmax(1)).sum()
    degrees = graph.degree(ids)
    assert sum(one.nodes for one in found.degrees) == nodes
    for one in found.degrees:
        here = degrees == 0 if one.degree == 0 else (degrees >= one.degree) & (degrees < 2 * one.degree)
        assert (one.nodes, one.different) == (here.sum(), (differences.max(1) > tolerance)[here].sum())
        assert one.largest == differences[here].max()
        assert one.mean == pytest.approx(differences[here].mean())
    same = compare(first, first, lambda ask: (graph.seq, ask()))
    assert (same.different, same.largest, same.largest_id, same.changed_class) == (0, 0, None, 0)


def test_a_sample_is_drawn_by_its_seed() -> None:
    graph = make_graph()
    first, second = Engine(graph, make_model()), Engine(graph, make_model(3), name="second")

    def ask(seed: int) -> tuple[object, ...]:
        return compare(first, second, lambda question: (graph.seq, question()), sample=7, seed=seed)

    assert ask(1) == ask(1)
    assert ask(1)[4] == 7
    assert len({ask(seed) for seed in range(10)}) > 1


def test_models_of_another_width_cannot_be_compared() -> None:
    graph = make_graph()
    model = make_model()
    tensors = {name: model.tensors[name] for name in ("w1", "b1")}
    hidden = Model(model.inputs, model.steps[:4], tensors, "hidden", layers=("x", "hidden"))
    engine = Engine(graph, model)
    with pytest.raises(InputError, match=r"width 3 of 'engine' and 8 of 'hidden'"):
        compare(engine, Engine(graph, hidden, name="hidden"), lambda ask: (0, ask()))
    for wrong in ({"sample": 0}, {"tolerance": -1.0}, {"tolerance": float("nan")}, {"seed": -1}):
        with pytest.raises(InputError):
            compare(engine, engine, lambda ask: (0, ask()), **wrong)  # type: ignore[arg-type]
