"""The table of practitioners' modules: how files are read, graphs change, and what is found is judged."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch

import import_findings
import practitioners
from checkouts import Checkout, made_of
from imported_modules import ATTR, EDGES, WEIGHT, Case, X
from livegnn import Model
from livegnn.importers.program.export import leaves
from practitioners import COMMITS, ROWS, Found, Multigraph
from practitioners_modules import Row
from pyg_examples import of_edges, x
from separate import separately
from typed_mirror import edge_type

MODEL = """
import a_library_that_is_not_here.layers as layers
import pytorch_lightning as pl
import torch
from torch import nn
from torch_geometric.nn import GATConv, SAGEConv

from .parts import WIDTH, head
from modules import GRAPHS

steps = [head]
device = torch.device("cuda")
open(REACHED, "w").close()

@layers.register("net")
class Net(pl.LightningModule):
    def __init__(self, inputs: layers.Width):
        super().__init__()
        self.save_hyperparameters()
        self.conv, self.head = SAGEConv(inputs, WIDTH), head(GRAPHS)

    def forward(self, x, edge_index):
        return self.head(self.conv(x, edge_index))


class Edged(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GATConv(6, 4, edge_dim=3)

    def forward(self, x, edge_index, links):
        return self.conv(x, edge_index, links)


class Pooled(Net):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index).mean(dim=0)


class Fails(Net):
    def forward(self, x, edge_index):
        raise KeyError("x")
"""
PARTS = """
import another_library_that_is_not_here
from torch import nn

WIDTH, table = 5, {"a": another_library_that_is_not_here.value}


def head(width):
    return nn.Linear(WIDTH, width)
"""


@pytest.fixture
def repositories(tmp_path: Path) -> Path:
    """A folder with the checkout of one repository; its modules have names that these tests have too."""
    package = tmp_path / "one__repository" / "package"
    package.mkdir(parents=True)
    reached = repr(str(tmp_path / "reached"))
    (package / "models.py").write_text(MODEL.replace("REACHED", reached), encoding="utf-8")
    (package / "parts.py").write_text(PARTS, encoding="utf-8")
    (package.parent / "modules.py").write_text("GRAPHS = 7\n", encoding="utf-8")
    return tmp_path


def row(name: str, **settings: object) -> Row:
    return Row("one/repository", "package/models.py", name, **settings)


def study(one: Row, repositories: Path) -> Found:
    """What is found of a row, in a process of its own, as a checkout replaces libraries that are not here."""
    found, reason = separately(lambda: practitioners.study(one, repositories), 120)
    assert reason == ""
    return found


NET = {"settings": {"inputs": 6}}


def test_only_what_a_module_needs_is_executed(repositories: Path) -> None:
    root = repositories / "one__repository"

    def load() -> tuple[list[int], list[str]]:
        file = Checkout([root]).load(root / "package" / "models.py")
        module = made_of(file, "Net")(6)
        return list(module(torch.zeros(4, 6), torch.zeros(2, 1, dtype=torch.int64)).shape), sorted(vars(file))

    (shape, names), reason = separately(load, 60)
    assert reason == ""
    assert shape == [4, 7]
    assert "steps" in names
    assert "device" not in names
    assert not (repositories / "reached").exists()


def test_a_class_that_cannot_be_defined_says_why(repositories: Path) -> None:
    root = repositories / "one__repository"
    (root / "broken.py").write_text("class Broken:\n    width = missing\n", encoding="utf-8")

    def load() -> str:
        with pytest.raises(NameError, match="missing"):
            made_of(Checkout([root]).load(root / "broken.py"), "Broken")
        return "said"

    assert separately(load, 60) == ("said", "")


@pytest.mark.parametrize("wide", [False, True], ids=["plain", "wide"])
def test_a_multigraph_is_the_graph(wide: bool) -> None:
    mirror = Multigraph(list(leaves([X, EDGES, WEIGHT, ATTR])), seed=1, wide=wide)
    graph, most = mirror.make_graph(), 0
    (atom,) = mirror.edge_atoms
    (nodes,) = mirror.node_atoms
    for events in chain([mirror.fill(nodes=8, edges=20)], mirror.batches(20)):
        graph.apply(events)
        snapshot, rows = graph.snapshot(), mirror.rows()
        order = np.argsort(snapshot.ids[nodes.name])
        assert snapshot.ids[nodes.name][order].tolist() == mirror.ids(nodes).tolist()
        np.testing.assert_array_equal(snapshot.x[nodes.name][order], rows.inputs["x"])
        kind = edge_type(atom)
        ends = np.argsort(order)[snapshot.edge_index[kind]]
        same = np.lexsort((np.arange(ends.shape[1]), ends[1], ends[0]))
        np.testing.assert_array_equal(ends[:, same], rows.ends[atom])
        np.testing.assert_array_equal(snapshot.edge_attr[kind][same], rows.inputs["edge_attr"])
        np.testing.assert_array_equal(snapshot.weight[kind][same], rows.inputs["edge_weight"])
        most = max(most, max(np.unique(ends, axis=1, return_counts=True)[1]))
    assert most > 1
    assert (len(mirror.wide) == 3) == wide


def test_a_module_is_exact(repositories: Path) -> None:
    found = study(row("Net", **NET), repositories)
    assert (found.status, found.good, [one.reason for one in found.attempts]) == ("exact", True, [""])
    assert set(found.differences) == {"plain", "wide", "no node", "one node", "one loop"}
    assert 0 < max(found.differences.values()) < 1


def test_what_a_refusal_says_is_given(repositories: Path) -> None:
    found = study(row("Edged", args=(x(6), EDGES, of_edges("links", (3,)))), repositories)
    assert (found.status, found.untold) == ("exact", False)
    assert "inputs={'links': ...}" in found.attempts[0].reason
    assert found.attempts[-1].given == ["inputs"]


def test_a_refusal_is_true_if_it_says_what_is_expected(repositories: Path) -> None:
    found = study(row("Pooled", **NET, refused="no row for each node"), repositories)
    assert (found.status, found.true, found.good) == ("refused", True, True)
    found = study(row("Pooled", **NET, refused="something else"), repositories)
    assert (found.true, found.good) == (False, False)


def test_a_module_that_fails_by_itself_says_where(repositories: Path) -> None:
    found = study(row("Fails", **NET), repositories)
    assert found.status == "fails by itself"
    assert found.detail.startswith("KeyError: 'x' [models.py:")


def test_a_wrong_model_is_wrong(repositories: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_pyg = Model.from_pyg

    def wrong(module: torch.nn.Module, *args: object, **settings: object) -> Model:
        module.conv.lin_l.weight.data += 1e-2
        return from_pyg(module, *args, **settings)

    monkeypatch.setattr(Model, "from_pyg", wrong)
    found = study(row("Net", **NET), repositories)
    assert (found.status, found.good) == ("wrong", False)
    assert "plain: not ok" in found.detail


def test_an_error_of_the_importer_is_no_refusal() -> None:
    assert practitioners.is_internal("N.forward cannot be imported: n.py:1, 'x': IndexError: list index")
    assert not practitioners.is_internal("N.forward cannot be imported: rows are filtered")


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("N.forward: n.py:1, 'x = x.mean()': reduced", "N.forward: n.py:1: reduced"),
        ("n.py:1, \"x = d['x']\": N.forward fails", "n.py:1: N.forward fails"),
        ("n.py:1, 'y = f(x)' by way of m.py:2, 'z': no", "n.py:1 by way of m.py:2: no"),
        ("a.N_propagate_t9xhg18z.py:99, 'size': no", "a.N_propagate.py:99: no"),
        ("give it as inputs={'x': ...}", "give it as inputs={'x': ...}"),
    ],
)
def test_no_code_of_others_is_kept(said: str, kept: str) -> None:
    assert practitioners.without_code(said) == kept


def test_a_user_can_say_all_of_it_without_data(repositories: Path) -> None:
    one = row("Edged", args=(x(6), EDGES, of_edges("links", (3,))))
    case = Case(torch.nn.Identity, (), one.args)

    class Called(torch.nn.Module):
        def forward(self, x: object, edge_index: object, links: object) -> None: ...

    assert practitioners.said_without_data(one, case, Called()) == {
        "x": ("node", 6),
        "edge_index": "edge_index",
        "links": ("edge", 3),
    }
    assert list(import_findings.arguments_of(Called(), case)) == ["x", "edge_index", "links"]


# -- the table


def test_every_row_was_tried_and_is_good() -> None:
    results = json.loads(practitioners.RESULTS.read_text(encoding="utf-8"))
    assert [one["name"] for one in results["rows"]] == [one.title for one in ROWS]
    assert results["repositories"] == COMMITS
    assert [one["name"] for one in results["rows"] if not practitioners.is_good(one)] == []


def test_twenty_repositories_have_rows() -> None:
    assert {one.repository for one in ROWS} == set(COMMITS)
    assert len(COMMITS) >= 20
    assert len({one.title for one in ROWS}) == len(ROWS)


def test_the_page_is_what_was_found() -> None:
    results = json.loads(practitioners.RESULTS.read_text(encoding="utf-8"))
    assert practitioners.PAGE.read_text(encoding="utf-8") == practitioners.page(results)


def test_what_a_reason_says_word_by_word_is_given() -> None:
    assert practitioners.literal("no: say inputs={'h': ('node', 3, int), 'x': ['x', 'edge_index']}") == {
        "h": ("node", 3, int),
        "x": ["x", "edge_index"],
    }
    assert practitioners.literal("say inputs={'h': ('node', channels)} or inputs={'h': None}") == {"h": None}
    assert practitioners.literal("give it as inputs={'x': ...}") == {}
