"""The example that trains the demo's model: what it says of the model that the package ships is true."""

import json
import runpy
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegnn.demo.ratings import load
from livegnn.demo.session import load_model

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((files("livegnn.demo") / "data" / "bitcoin_otc.json").read_text(encoding="utf-8"))[
    "figures"
]


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "examples" / "train_bitcoin_otc.py"))


@pytest.mark.explored  # it trains the model
def test_the_figures_are_those_of_the_shipped_model(example: dict[str, Any]) -> None:
    ratings = load()
    scores = example["test"](load_model(), {}, ratings)
    negative = (ratings.rating[ratings.cutoff :] < 0).astype(np.float64)
    said = {figure["name"]: figure for figure in FIGURES}
    for kind, name in (
        ("share", "share of negative ratings so far, with a prior"),
        ("frozen", "the GNN as it stood at the cut-off"),
        ("live", "the GNN, kept live"),
    ):
        assert example["area_under_curve"](negative, scores[kind]) == pytest.approx(
            said[name]["roc_auc"], abs=1e-3
        )
        assert example["average_precision"](negative, scores[kind]) == pytest.approx(
            said[name]["average_precision"], abs=1e-3
        )


def test_the_docs_quote_the_figures() -> None:
    text = (ROOT / "docs" / "demo.md").read_text(encoding="utf-8")
    for figure in FIGURES:
        assert f"| {figure['name']} | {figure['roc_auc']:.3f} | {figure['average_precision']:.3f} |" in text


@pytest.mark.parametrize(
    ("scores", "area", "precision"),
    [
        ([0.9, 0.8, 0.2, 0.1], 1.0, 1.0),
        ([0.1, 0.2, 0.8, 0.9], 0.0, (1 / 3 + 2 / 4) / 2),
        ([0.5, 0.5, 0.5, 0.5], 0.5, 0.5),
        ([0.9, 0.3, 0.5, 0.1], 0.75, (1 + 2 / 3) / 2),
    ],
)
def test_the_measures_are_the_textbooks(
    example: dict[str, Any], scores: list[float], area: float, precision: float
) -> None:
    positive = np.array([1.0, 1.0, 0.0, 0.0])
    assert example["area_under_curve"](positive, np.array(scores)) == pytest.approx(area)
    assert example["average_precision"](positive, np.array(scores)) == pytest.approx(precision)


def test_no_snapshot_knows_what_comes_after_it(example: dict[str, Any]) -> None:
    """Changing the later ratings changes nothing that an earlier example is described by."""
    ratings = load()
    stop, changed_from = 1000, 600
    other = ratings.first(stop)
    other.rating[changed_from:] *= -1  # `load` made the array, so it is ours
    before, after = example["observe"](load(), stop), example["observe"](other, stop)
    for one, two in zip(before.snapshots, after.snapshots, strict=True):
        same = bool((one.x == two.x).all())
        assert same == (one.start <= changed_from)
