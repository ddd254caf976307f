"""A fresh process answers from a checkpoint of the demo: the same bits, no torch, no server."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_a_fresh_process_predicts_from_a_checkpoint_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cold_start

    file, model, member, expected = cold_start.save(tmp_path)
    modules = cold_start.PREDICT + "\nprint(*sorted(sys.modules))"
    _, printed = cold_start.run(modules, str(file), str(model), str(member))
    prediction, imported = printed.splitlines()
    assert float(prediction) == expected
    assert {"torch", "torch_geometric", "fastapi", "granian", "livegnn.oracle.reference"}.isdisjoint(
        imported.split()
    )


def test_import_livegnn_imports_neither_torch_nor_the_server() -> None:
    script = "import livegnn, sys; print(*sorted(sys.modules))"
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    imported = set(printed.split())
    assert "livegnn" in imported
    assert {"torch", "torch_geometric", "fastapi", "granian"}.isdisjoint(imported)
