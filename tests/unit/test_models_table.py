"""The table of what of PyG is imported: it names every convolution, and what it is made with is right."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric import nn as layers
from torch_geometric.nn import models

import imported_modules
import models_table
import pyg_convolutions
import pyg_examples
from import_findings import Found, data_of, draw, import_model, in_order, judge_row, make
from imported_modules import ATTR, EDGES, HETERO, WEIGHT, Case, X
from layered_modules import WIDTH
from livegnn import Model
from livegnn.importers.program.export import leaves
from typed_mirror import TypedMirror, edge_type


def test_every_convolution_of_pyg_has_a_row() -> None:
    assert pyg_convolutions.unknown_convolutions() == []


def test_a_file_has_rows_or_is_left_out() -> None:
    files = {pyg_examples.file_of(name) for name in pyg_examples.ROWS}
    assert not files & set(pyg_examples.LEFT_OUT)


EXAMPLE = """
import torch
from torch import nn
from a_library_that_is_not_here import Loader
from a_library_that_is_not_here import Base

dataset = Loader("path")
width, depth = 3, 2
channels = 5
loader = Loader(dataset)
open(REACHED, "w").close()

def train():
    return loader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(dataset.num_features, channels)

class Missing(Base):
    pass

model = Net().to(device)
model = torch.compile(model)
train()
"""


def test_of_an_example_only_its_model_is_executed(tmp_path: Path) -> None:
    reached = tmp_path / "reached"
    file = tmp_path / "example.py"
    file.write_text(EXAMPLE.replace("REACHED", repr(str(reached))), encoding="utf-8")
    example = pyg_examples.open_example(file, pyg_examples.dataset(7, 2))
    model = example.made()
    assert model.lin.weight.shape == (5, 7)
    assert not hasattr(example, "loader")
    assert not hasattr(example, "train")
    assert not reached.exists()
    with pytest.raises(KeyError):
        example.made("another")


def test_rows_come_from_a_copy_of_the_repository(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "new.py").write_text("", encoding="utf-8")
    assert pyg_examples.unknown_files(tmp_path) == ["new.py"]
    assert set(pyg_examples.cases(tmp_path)) == set(pyg_examples.ROWS)


@pytest.mark.parametrize(
    "call", [(X, EDGES), (X, EDGES, WEIGHT, ATTR), HETERO], ids=["plain", "edges carry", "types"]
)
def test_a_mirror_is_the_graph(call: tuple[object, ...]) -> None:
    mirror = TypedMirror(list(leaves(list(call))), seed=1)
    graph = mirror.make_graph()
    for events in chain([mirror.fill(nodes=8, edges=20)], mirror.batches(20)):
        graph.apply(events)
        snapshot = graph.snapshot()
        for atom in mirror.node_atoms:
            order = np.argsort(snapshot.ids[atom.name])
            assert snapshot.ids[atom.name][order].tolist() == mirror.ids(atom).tolist()
            rows = [mirror.packed(atom, row) for row in mirror.nodes[atom].values()]
            np.testing.assert_array_equal(snapshot.x[atom.name][order], rows)
        for atom in mirror.edge_atoms:
            kind = edge_type(atom)
            sources, targets = (snapshot.ids[t] for t in (kind[0], kind[2]))
            ends = snapshot.edge_index[kind]
            for i, (u, v) in enumerate(zip(sources[ends[0]], targets[ends[1]], strict=True)):
                row = mirror.edges[atom][int(u), int(v)]
                np.testing.assert_array_equal(snapshot.edge_attr[kind][i], mirror.packed(atom, row))
                weight = mirror.weight(atom)
                assert snapshot.weight[kind][i] == (row[weight] if weight else 1.0)
            assert ends.shape[1] == len(mirror.edges[atom])


def test_a_mirror_has_every_kind_of_event() -> None:
    mirror = TypedMirror([X, EDGES, WEIGHT, ATTR], seed=0)
    mirror.fill(nodes=12, edges=40)
    kinds = {chunk.kind for events in mirror.batches(20) for chunk in events.chunks}
    assert kinds == {"add_edges", "remove_edges", "set_features", "add_nodes", "remove_nodes"}


def test_a_convolution_is_judged() -> None:
    found = judge_row(Found("convolutions", "GCNConv"), pyg_convolutions.CONVOLUTIONS["GCNConv"])
    assert found.reason == ""
    assert (found.imports, found.exact) == (True, True)
    assert found.upkeep == "incremental"
    assert found.words == ["sum source"]
    assert found.engine is not None
    assert 0 < max(found.engine) < 1e-5
    assert found.oracle is not None
    assert max(found.oracle) < 1e-6


def test_what_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from_pyg = Model.from_pyg

    def wrong(module: torch.nn.Module, *args: object, **settings: object) -> Model:
        module.lin.weight.data += 1e-3
        return from_pyg(module, *args, **settings)

    monkeypatch.setattr(Model, "from_pyg", wrong)
    found = judge_row(Found("convolutions", "GCNConv"), pyg_convolutions.CONVOLUTIONS["GCNConv"])
    assert found.reason == "DIFFERS in the engine in the oracle"


def test_the_columns_of_the_graph_are_in_the_order_of_the_call() -> None:
    """Rows of parameters come first, then the arguments; a number of rows is no column."""
    case = imported_modules.CASES["LINKX"]
    module = make(case).float()
    _, program = import_model(module, case, data_of(case, draw(case, "random", 0)))
    assert [one.name for one in in_order(case, program)] == ["edge_lin.weight", "x", "edge_index"]


@pytest.mark.parametrize(
    "case",
    [
        pyg_convolutions.CONVOLUTIONS["SignedConv"],
        pyg_convolutions.CONVOLUTIONS["HypergraphConv"],
        Case(lambda: Rest(), (), (X, EDGES, WEIGHT)),
        Case(lambda: models.GAE(layers.GCNConv(WIDTH, 4)), (), (X, EDGES), method="encode"),
    ],
    ids=["two edge_index", "a number of rows", "further arguments", "any arguments"],
)
def test_a_user_can_say_what_a_module_is_called_with(case: Case) -> None:
    found = judge_row(Found("modules", "one"), case)
    assert (found.reason, found.imports, found.exact) == ("", True, True)


class Rest(torch.nn.Module):
    """A module whose arguments after the first have no names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = layers.GraphConv(WIDTH, 4)

    def forward(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        return self.conv(x, *rest)


def test_a_graph_of_the_modules_own_is_refused() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edges, self.conv = torch.tensor([[0, 1], [1, 2]]), layers.GCNConv(WIDTH, 4)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.conv(x, self.edges)

    found = judge_row(Found("modules", "own"), Case(Own, ()))
    assert "the module has a graph of its own" in found.reason


def test_the_page_is_what_was_found() -> None:
    results = json.loads(models_table.RESULTS.read_text(encoding="utf-8"))
    assert models_table.page(results) in models_table.PAGE.read_text(encoding="utf-8")


def test_every_row_was_tried_and_none_is_wrong() -> None:
    rows = json.loads(models_table.RESULTS.read_text(encoding="utf-8"))["rows"]
    wanted = (
        {("convolutions", name) for name in pyg_convolutions.CONVOLUTIONS}
        | {("examples", name) for name in pyg_examples.ROWS}
        | {("modules", name) for name in imported_modules.CASES}
    )
    assert sorted({(row["group"], row["name"]) for row in rows} ^ wanted) == []
    for row in rows:
        assert row["imports"] or row["reason"], row
        assert not row["imports"] or row["exact"], row
        assert not row["reason"].startswith(("BUG", "DIFFERS")), row


def test_a_crash_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(found: Found, case: Case) -> Found:
        raise SystemExit(3)

    monkeypatch.setattr(models_table, "judge_row", die)
    found = models_table.apart("modules", "dies", Case(torch.nn.Identity, ()))
    assert found.reason == "its process ended with 3"


def test_the_table_is_markdown() -> None:
    row = vars(Found("modules", "one", reason="a | b")) | {"engine": [1e-7, 2e-7], "oracle": None}
    assert models_table.table([row]).splitlines()[-1] == "| `one` | no |  | 1e-07 → 2e-07 |  | a \\| b |"
