"""What an import, a cold start and the command line load: no torch, and no server where none is used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import livegnn
from livegnn import Engine, checkpoint
from streams import make_graph, make_model

HEAVY = ("torch", "torch_geometric", "fastapi", "granian", "pyarrow", "scipy", "ray", "zmq")


def run(code: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules that are loaded after `code` ran in a fresh process."""
    tail = "\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    return set(json.loads(run(code + tail, *arguments).splitlines()[-1]))


def test_importing_the_package_loads_next_to_nothing() -> None:
    modules = loaded("import livegnn")
    assert not modules & {*HEAVY, "numpy", "livegnn._core", "livegnn.server", "livegnn.events"}


def test_a_process_ends_without_a_word_whatever_lives() -> None:
    """Held by C, as by the frames of a thread that never ended."""
    code = "import ctypes\nimport livegnn._core as _core\n"
    code += "ctypes.pythonapi.Py_IncRef(ctypes.py_object(_core.TextIds()))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stderr == ""


def test_restoring_and_predicting_needs_neither_torch_nor_the_server(tmp_path: Path) -> None:
    graph = make_graph()
    engine = Engine(graph, make_model(), threads=1)
    make_model().save(tmp_path / "model.lgnn")
    checkpoint.write(tmp_path / "saved", {"graph": graph.state(), "engine": engine.state()}, 0)
    code = """
import sys
from livegnn import Engine, Graph, Model, checkpoint
states = checkpoint.read(sys.argv[1]).states
engine = Engine(Graph.from_state(states["graph"]), Model.load(sys.argv[2]), state=states["engine"])
print(engine.predict([0, 1]).tobytes().hex())
"""
    arguments = (str(tmp_path / "saved"), str(tmp_path / "model.lgnn"))
    assert run(code, *arguments).strip() == engine.predict([0, 1]).tobytes().hex()
    modules = loaded(code, *arguments)
    assert "livegnn._core" in modules
    assert not modules & {*HEAVY, "livegnn.server", "livegnn.runtime"}


def test_the_command_line_loads_a_command_only_when_it_runs() -> None:
    modules = loaded("import livegnn.cli")
    assert not modules & {*HEAVY, "numpy", "livegnn.runtime", "livegnn.server"}


def test_ray_is_loaded_only_where_a_cluster_is_asked() -> None:
    assert "ray" not in loaded("import livegnn.cluster.actors, livegnn.cluster.app, livegnn.deployment")


def test_zmq_is_loaded_only_for_channels_between_processes() -> None:
    assert "zmq" not in loaded("import livegnn.channels.exchange, livegnn.cluster.actors, livegnn.deployment")


def test_every_public_name_is_there() -> None:
    for name in livegnn.__all__:
        assert getattr(livegnn, name) is not None
    assert set(livegnn.__all__) <= set(dir(livegnn))
    with pytest.raises(AttributeError, match="has no attribute 'Grpah'"):
        _ = livegnn.Grpah


def test_an_import_of_a_module_warns_of_nothing_by_itself() -> None:
    code = """
import warnings
import torch
from torch_geometric.nn import GraphSAGE
from livegnn import Model

module = GraphSAGE(4, 8, num_layers=2, out_channels=3).eval()
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    Model.from_pyg(module)
    warnings.warn("of the user")
print([str(one.message) for one in given])
"""
    assert run(code).strip() == "['of the user']"
