"""The examples that train while edges arrive: the score rises, and the guide quotes figures of this kind."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    monkeypatch.syspath_prepend(str(EXAMPLES))  # as for a script: one example reads another
    return lambda name: runpy.run_path(str(EXAMPLES / name))


@pytest.mark.explored
def test_the_score_rises_as_the_edges_of_tolokers_arrive(run: Callable[[str], dict[str, Any]]) -> None:
    example = run("train_on_stream.py")
    workers = example["load"](example["DATA"])
    assert not np.intersect1d(workers.train, workers.test).size
    first, *_, last = example["train_on_stream"](workers, slices=2, steps=60)
    assert (first.edges, last.edges) == (0, 519_000)
    assert last.roc_auc > first.roc_auc + 0.03
    assert last.average_precision > first.average_precision + 0.03


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A small network in the form of the LDBC sample: 20 circles of friends, who like each other's posts."""
    rng = np.random.default_rng(0)
    persons, posts, likes = 200, 1000, 6000
    circle = np.arange(persons) % 20
    src, dst = np.nonzero(np.triu(circle[:, None] == circle, 1))
    author = rng.integers(0, persons, posts)
    liked = rng.integers(0, posts, likes)
    liker = (author[liked] + 20 * rng.integers(1, 10, likes)) % persons
    path = tmp_path / "network.npz"
    np.savez(
        path,
        node__Person=np.arange(persons),
        node__Post=np.arange(posts),
        edge__Person__knows__Person__src=src,
        edge__Person__knows__Person__dst=dst,
        edge__Person__knows__Person__time=rng.integers(0, 3000, len(src)),
        edge__Post__hasCreator__Person__src=np.arange(posts),
        edge__Post__hasCreator__Person__dst=author,
        edge__Person__likes__Post__src=liker,
        edge__Person__likes__Post__dst=liked,
        edge__Person__likes__Post__time=np.arange(likes),
    )
    return path


@pytest.mark.explored
def test_likes_are_foreseen_better_as_a_network_grows(
    run: Callable[[str], dict[str, Any]], archive: Path
) -> None:
    example = run("train_heterogeneous.py")
    scores = list(example["train_on_network"](example["load"](archive), slices=4))
    assert scores[0].edges == 0
    assert scores[0].roc_auc == pytest.approx(0.5, abs=0.05), "nothing is known yet"
    assert scores[-1].roc_auc > max(0.8, scores[0].roc_auc + 0.2)
    assert [score.edges for score in scores] == sorted(score.edges for score in scores)


@pytest.mark.parametrize("name", ["train_on_stream.py", "train_heterogeneous.py"])
def test_data_that_is_not_there_is_named(
    run: Callable[[str], dict[str, Any]],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--data", "nowhere.npz"])
    with pytest.raises(SystemExit):
        run(name)["main"]()
    assert re.search(
        r"nowhere\.npz is not there: give the path of \w+\.npz with --data", capsys.readouterr().err
    )
