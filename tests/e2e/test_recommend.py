"""The example that recommends members: live recommendations find partners, and the saved deployment too."""

import importlib
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
    return importlib.import_module("recommend")


def replies(example: ModuleType, size: int) -> "example.Ratings":
    """Half of the ratings are answered by the next: 100 members, who rate others at random."""
    rng = np.random.default_rng(0)
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < size:
        src, dst = (int(member) for member in rng.choice(100, 2, replace=False))
        pairs.update(dict.fromkeys([(src, dst), (dst, src)]))
    src, dst = np.array([*pairs][:size]).T
    return example.Ratings(src, dst, np.linspace(-200, 50, size))


@pytest.mark.explored
def test_partners_are_recommended_as_they_rate(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "BEGINNING", 200)
    ratings, cutoff = replies(example, 2000), 1600
    known = ratings.between(0, cutoff)
    model = example.train(known, steps=100)
    found = {
        name: example.ranks(model, ratings, cutoff, delay) for name, delay in (("live", 0), ("last night", 1))
    }
    share = {name: (ranks > 0).mean() for name, ranks in found.items()}
    assert share["live"] > 0.4 > 0.25 > share["last night"]
    baselines = example.baseline_ranks(ratings, cutoff)
    assert (baselines["not rated back"] > 0).mean() > 0.45
    assert 0.02 < (baselines["popular"] > 0).mean() < 0.25

    graph = example.Market(model, known).graph
    example.save_service(tmp_path / "saved", "partners", model, graph)
    server = serve_saved(tmp_path / "saved")
    try:
        answer = loopback.post(f"{server.address}/v1/candidates", json={"nodes": [3, 7], "k": 5})
        assert answer.status_code == 200, answer.text
        market = example.Market(model, known)
        assert market.engine.verify(output="output").ok
        for one in answer.json()["candidates"]:
            wanted = market.engine.candidates(one["node"], 5)
            assert one["ids"] == wanted.ids.tolist()
            assert np.array_equal(np.float32(one["scores"]), wanted.scores)
    finally:
        server.kill()
