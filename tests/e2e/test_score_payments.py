"""The example that scores payments: live scores are the better ones, and the saved deployment gives them."""

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import livegnn as lg
import loopback
from serving import serve_saved

ROOT = Path(__file__).parents[2]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # as for a script: one example reads another
    return importlib.import_module("score_payments")


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    """Payments in the form of AMLSim's: 400 accounts, of which 40 pay each other small amounts."""
    rng = np.random.default_rng(0)
    size = 6000
    is_fraud = np.arange(400) < 40
    ring = rng.random(size) < 0.1
    src, dst = np.where(ring, rng.integers(0, 40, (2, size)), rng.integers(0, 400, (2, size)))
    amount = np.where(ring & (rng.random(size) < 0.5), rng.uniform(2, 50, size), rng.uniform(20, 600, size))
    step = rng.integers(1, 110, size)
    path = tmp_path / "payments.npz"
    np.savez(path, src=src, dst=dst, amount=amount.astype(np.float32), step=step, is_fraud_account=is_fraud)
    return path


@pytest.mark.explored
def test_payments_are_scored_before_they_are_made(example: ModuleType, rings: Path, tmp_path: Path) -> None:
    payments = example.load(rings)
    known, later = payments.between(0, example.TRAIN_DAYS), payments.between(example.TRAIN_DAYS, 10**6)
    model = example.train(known, 400, epochs=20)
    scores = example.score_stream(model, payments, 400, {"live": 0, "last night": 1, "last week": 7})
    for name, found in scores.items():
        assert example.area_under_curve(later.is_laundering, found) > 0.75, name
    # The first payment of the stream has the same rows of live and of the last night.
    assert scores["live"][0] == scores["last night"][0]
    assert not np.array_equal(scores["live"], scores["last night"])

    example.save_service(tmp_path / "saved", "payments", model, example.graph_of(known, 400))
    server = serve_saved(tmp_path / "saved")
    try:
        body = {
            "sources": later.src[:5].tolist(),
            "targets": later.dst[:5].tolist(),
            "edge_attr": later.amount[:5, None].tolist(),
        }
        answer = loopback.post(f"{server.address}/v1/edge-scores", json=body)
        assert answer.status_code == 200, answer.text
        engine = lg.Engine(example.graph_of(known, 400), model)
        wanted = engine.score(later.src[:5], later.dst[:5], edge_attr=later.amount[:5, None])
        assert np.array_equal(np.float32(answer.json()["scores"]), wanted)
    finally:
        server.kill()


def test_data_that_is_not_there_is_named(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["score_payments.py", "--data", "nowhere.npz"])
    with pytest.raises(SystemExit):
        example.main()
    assert re.search(
        r"nowhere\.npz is not there: give the path of amlsim_20k\.npz with --data", capsys.readouterr().err
    )
