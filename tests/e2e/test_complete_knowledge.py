"""The example that completes a knowledge graph: live rows rank better than old ones, and the saved deployment
gives them."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import loopback
from serving import serve_saved

ROOT = Path(__file__).parents[2]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module("complete_knowledge")
    monkeypatch.setattr(module, "TAUGHT", 400)
    monkeypatch.setattr(module, "EPOCHS", 4)
    return module


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Ratings of 120 members; half of them are answered by the rated member with the next rating."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 120, (2, 800))
    dst = np.where(src == dst, (dst + 1) % 120, dst)
    src[1::2], dst[1::2] = dst[::2], src[::2]
    path = tmp_path / "ratings.npz"
    time, rating = np.arange(800) * 3600.0, np.where(rng.random(800) < 0.1, -1, 1)
    np.savez(path, src=src, dst=dst, rating=rating, time=time)
    return path


@pytest.mark.explored
def test_live_rows_complete_the_graph(example: ModuleType, ratings: Path, tmp_path: Path) -> None:
    facts = example.load(ratings)
    known = facts.part(0, 600)
    model = example.train(known)
    live, night = (1 / example.rank_stream(model, facts, 600, delay, 1) for delay in (0, 1))
    answers = np.arange(600, 800) % 2 == 1
    assert live[answers].mean() > 0.5 > 0.2 > night[answers].mean()
    rule = 1 / example.rank_by_rule(facts, 600, 1, rate_back=True)
    assert rule[answers].mean() > 0.5 > (1 / example.rank_by_rule(facts, 600, 1, rate_back=False)).mean()

    ranking = example.Ranking(model, example.rows_of(122))
    ranking.add(known)
    example.save_service(tmp_path / "saved", "knowledge", model, ranking.engine.graph)
    server = serve_saved(tmp_path / "saved")
    try:
        output = f"output:{example.TRUSTS}"
        body = {"sources": [3] * 5, "targets": [5, 6, 7, 8, 9], "output": output}
        answer = loopback.post(f"{server.address}/v1/edge-scores", json=body)
        assert answer.status_code == 200, answer.text
        wanted = ranking.engine.score(body["sources"], body["targets"], output=output)
        assert np.array_equal(np.float32(answer.json()["scores"]), wanted)
    finally:
        server.kill()


def test_places(example: ModuleType) -> None:
    assert example.place_of(np.array([5.0, 9.0, 7.0, 7.0]), 2, []) == 2.5
    assert example.place_of(np.array([5.0, 9.0, 7.0, 7.0]), 2, [1, 3, 9]) == 1.0
    assert example.place_of(np.array([5.0, 9.0]), 0, [0]) == 2.0


def test_data_that_is_not_there_is_named(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["complete_knowledge.py", "--data", "nowhere.npz"])
    with pytest.raises(SystemExit):
        example.main()
    assert re.search(
        r"nowhere\.npz is not there: give the path of bitcoin_otc\.npz with --data", capsys.readouterr().err
    )
