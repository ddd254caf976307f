"""Models of exported programs: as `Model.from_pyg` makes them of the modules; what is refused, and why."""

import contextlib
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch_geometric
from torch.export import Dim, ExportedProgram, export, save
from torch.utils._pytree import tree_leaves
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import livegnn as lg
from gate import EXPLORING
from livegnn.errors import FileFormatError, ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.model import Model, explain_exported
from livegnn.oracle import reference
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE
from oldest import IS_OLDEST

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch's own, of what it deprecates
    pytest.mark.filterwarnings("ignore:There exist node types"),
]

NODES, EDGES = Dim("nodes"), Dim("edges")
X, ENDS, ROWS = {0: NODES}, {1: EDGES}, {0: EDGES}
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


class Net(torch.nn.Module):
    """Two convolutions, and what stands between them."""

    def __init__(self, first: torch.nn.Module, second: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.norm = torch.nn.BatchNorm1d(8)
        self.norm.running_mean.uniform_(-1, 1)

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        given = {"edge_weight": edge_weight, "edge_attr": edge_attr}
        given = {name: one for name, one in given.items() if one is not None}
        x = self.norm(self.first(x, edge_index, **given)).relu()
        x = torch.nn.functional.dropout(x, 0.5, self.training)
        return self.second(x, edge_index, **given)


class Hetero(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv({WRITES: pyg.SAGEConv((3, 4), 5), CITES: pyg.GATConv(4, 5)})
        self.author = torch.nn.Linear(3, 2)

    def forward(self, x_dict, edge_index_dict):
        return {**self.conv(x_dict, edge_index_dict), "author": self.author(x_dict["author"])}


class Relational(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.RGCNConv(4, 3, 2)

    def forward(self, x, edge_index, edge_type):
        return self.conv(x, edge_index, edge_type)


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mu, self.scale = pyg.GCNConv(4, 3), pyg.SAGEConv(4, 2)

    def forward(self, x, edge_index):
        return self.mu(x, edge_index), self.scale(x, edge_index)


def ends(edges: int = 23, sources: int = 9, targets: int = 9) -> torch.Tensor:
    return torch.stack([torch.randint(sources, (edges,)), torch.randint(targets, (edges,))])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def program_of(
    module: torch.nn.Module, *, strict: bool = False, fixed: bool = False, **given
) -> ExportedProgram:
    """Exported, called with these by name."""
    shapes = {
        name: ENDS
        if name == "edge_index"
        else X
        if name == "x"
        else ROWS
        if name.startswith("edge")
        else None
        for name in given
    }
    dynamic = None if fixed else shapes
    return export(module.eval(), (), given, dynamic_shapes=dynamic, strict=strict)


def weighted(**given) -> dict[str, torch.Tensor]:
    return {"x": torch.rand(9, 4), "edge_index": ends(), **given}


def rows_of(
    model: Model, x: torch.Tensor, edge_index: torch.Tensor, **columns: torch.Tensor
) -> dict[str, object]:
    """By the oracle, of a graph with one type of each."""
    weight = columns.get("edge_weight", torch.ones(edge_index.shape[1]))
    graph = SimpleNamespace(
        edge_index={DEFAULT_EDGE_TYPE: edge_index.numpy()},
        weight={DEFAULT_EDGE_TYPE: weight.double().numpy()},
        x={DEFAULT_NODE_TYPE: x.double().numpy()},
        edge_attr={
            DEFAULT_EDGE_TYPE: columns["edge_attr"].double().numpy() if "edge_attr" in columns else None
        },
    )
    values = reference.compute(model, graph)
    return {name: values[value] for name, value in model.outputs.items()}


HOMOGENEOUS: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, tuple[int, ...]]]] = {
    "gcn": (lambda: Net(pyg.GCNConv(4, 8), pyg.GCNConv(8, 3)), {}),
    "weights": (lambda: Net(pyg.GCNConv(4, 8), pyg.GraphConv(8, 3)), {"edge_weight": ()}),
    "attributes": (
        lambda: Net(pyg.GINEConv(torch.nn.Linear(4, 8), edge_dim=2), pyg.GATConv(8, 3, edge_dim=2)),
        {"edge_attr": (2,)},
    ),
    "pna": (lambda: Net(pyg.SAGEConv(4, 8, aggr="max"), pyg.TransformerConv(8, 3)), {}),
}


@pytest.mark.parametrize(
    ("name", "strict", "decomposed"),
    [
        *((name, False, False) for name in HOMOGENEOUS if EXPLORING or name in ("attributes", "pna")),
        *(("gcn", True, False), ("weights", False, True)),
    ],
)
def test_a_program_says_what_its_module_says(
    name: str, strict: bool, decomposed: bool, tmp_path: Path
) -> None:
    make, columns = HOMOGENEOUS[name]
    module = make().eval()
    given = weighted(**{column: torch.rand(23, *width) for column, width in columns.items()})
    program = program_of(module, strict=strict, **given)
    if decomposed:
        program = program.run_decompositions()
    model = Model.from_exported(program)
    if EXPLORING or decomposed:  # other tests read such files as well
        save(program, tmp_path / "model.pt2")
        assert Model.from_exported(tmp_path / "model.pt2").digest == model.digest
    of_module = Model.from_pyg(module, Data(**given))
    expected = module(**given).detach().numpy()
    (rows,) = rows_of(model, **given).values()
    (by_module,) = rows_of(of_module, **given).values()
    np.testing.assert_allclose(rows, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(rows, by_module, rtol=0, atol=1e-6)


def typed() -> tuple[dict[str, torch.Tensor], dict[tuple[str, str, str], torch.Tensor]]:
    x_dict = {"paper": torch.rand(9, 4), "author": torch.rand(7, 3)}
    return x_dict, {WRITES: ends(19, 7, 9), CITES: ends(13, 9, 9)}


def hetero_program(module: torch.nn.Module) -> ExportedProgram:
    papers, authors = Dim("papers"), Dim("authors")
    shapes = {
        "x_dict": {"paper": {0: papers}, "author": {0: authors}},
        "edge_index_dict": {WRITES: {1: Dim("writes")}, CITES: {1: Dim("cites")}},
    }
    return export(module.eval(), typed(), dynamic_shapes=shapes, strict=False)


def test_dicts_by_type_and_several_outputs(tmp_path: Path) -> None:
    module = Hetero()
    save(hetero_program(module), tmp_path / "model.pt2")
    x_dict, edge_index_dict = typed()
    data = HeteroData()
    for name, x in x_dict.items():
        data[name].x = x
    for edge_type, edge_index in edge_index_dict.items():
        data[edge_type].edge_index = edge_index
    schema = Schema({"author": 3, "paper": 4}, {WRITES: EdgeSchema(), CITES: EdgeSchema()})
    for given in (None, schema, lg.Graph(schema), data) if EXPLORING else (lg.Graph(schema), data):
        model = Model.from_exported(tmp_path / "model.pt2", schema=given, output=["paper", "author"])
        assert list(model.outputs) == ["paper", "author"]
        assert {model.node_type(value) for value in model.outputs.values()} == {"paper", "author"}
    graph = SimpleNamespace(
        edge_index={key: one.numpy() for key, one in edge_index_dict.items()},
        weight={key: np.ones(one.shape[1]) for key, one in edge_index_dict.items()},
        x={key: one.double().numpy() for key, one in x_dict.items()},
        edge_attr={},
    )
    values = reference.compute(model, graph)
    expected = module(x_dict, edge_index_dict)
    for value in model.outputs.values():
        rows = expected[model.node_type(value)].detach().numpy()
        np.testing.assert_allclose(values[value], rows, rtol=0, atol=1e-5)
    papers = Model.from_exported(tmp_path / "model.pt2", output_type="paper")
    assert papers.node_type(papers.output) == "paper"
    of_module = Model.from_pyg(module, data, output_type="paper")
    rows, by_module = (reference.compute(one, graph)[one.output] for one in (papers, of_module))
    np.testing.assert_allclose(rows, by_module, rtol=0, atol=1e-6)

    wider = Schema({"author": 3, "paper": 6}, {WRITES: EdgeSchema(), CITES: EdgeSchema()})
    with pytest.raises(ModelError, match=r"reads 4 channels of 'paper'.*schema has 6"):
        Model.from_exported(tmp_path / "model.pt2", schema=wider)
    fewer = Schema({"paper": 4}, {CITES: EdgeSchema()})
    with pytest.raises(ModelError, match=r"writes.*schema has the edge types"):
        Model.from_exported(tmp_path / "model.pt2", schema=fewer)


def test_relations_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_geometric.backend, "use_segment_matmul", False)
    module, given = Relational(), weighted(edge_type=torch.randint(2, (23,)))
    relations = [("node", "likes", "node"), ("node", "knows", "node")]
    program = program_of(module, **given)
    model = Model.from_exported(program, relations=relations)
    graph = SimpleNamespace(x={"node": given["x"].double().numpy()}, edge_attr={}, edge_index={}, weight={})
    for number, relation in enumerate(relations):
        chosen = given["edge_index"][:, given["edge_type"] == number].numpy()
        graph.edge_index[relation], graph.weight[relation] = chosen, np.ones(chosen.shape[1])
    rows = reference.compute(model, graph)[model.output]
    np.testing.assert_allclose(rows, module(**given).detach().numpy(), rtol=0, atol=1e-5)
    with pytest.raises(ModelError, match="schema lacks"):
        Model.from_exported(program, relations=relations, schema=Schema({"node": 4}))


def test_several_outputs_and_one_of_them() -> None:
    module, given = Two(), weighted()
    program = program_of(module, **given)
    rows = rows_of(Model.from_exported(program), **given)
    assert list(rows) == ["output[0]", "output[1]"]
    for found, expected in zip(rows.values(), module(**given), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=0, atol=1e-5)
    assert list(Model.from_exported(program, output="output[1]").outputs) == ["output[1]"]
    with pytest.raises(ModelError, match="output must be one of"):
        Model.from_exported(program, output="mu")


class Named(torch.nn.Module):
    """Called with names that tell nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv((3, 4), 2)

    def forward(self, left, right, joins, strength, unused=None):
        return self.conv((left, right), joins, strength)


def test_inputs_say_what_is_not_clear() -> None:
    buys = ("user", "buys", "item")
    given = (torch.rand(7, 3), torch.rand(9, 4), ends(19, 7, 9), torch.rand(19), None)
    shapes = ({0: Dim("users")}, {0: Dim("items")}, {1: EDGES}, {0: EDGES}, None)
    program = export(Named().eval(), given, dynamic_shapes=shapes, strict=False)
    schema = Schema(
        {"user": 3, "item": 4}, {buys: EdgeSchema(weighted=True), ("item", "b", "user"): EdgeSchema()}
    )
    with pytest.raises(ModelError, match=r"joins may be edges of several types.*inputs="):
        Model.from_exported(program, schema=schema)
    with pytest.raises(ModelError, match=r"left may be rows of several types.*inputs="):
        Model.from_exported(program, schema=schema, inputs={"joins": buys})
    said = {"joins": buys, "left": "user", "right": "item", "strength": "edge_weight"}
    model = Model.from_exported(program, schema=schema, inputs=said)
    assert {one.node_type for one in model.inputs.values()} == {"user", "item"}
    assert not model.edge_inputs
    features = Model.from_exported(program, inputs={**said, "strength": buys})
    assert [one.column for one in features.edge_inputs.values()] == ["edge_attr"]
    assert model.node_type(model.output) == "item"
    without = Model.from_exported(program, inputs=said)
    assert without.digest == model.digest
    with pytest.raises(ModelError, match="'middle', which the program is not called with"):
        Model.from_exported(program, schema=schema, inputs={"middle": "user"})
    with pytest.raises(ModelError, match="must be a node type, an edge type"):
        Model.from_exported(program, schema=schema, inputs={"left": 3})
    with pytest.raises(ModelError, match="schema has the node types"):
        Model.from_exported(program, schema=schema, inputs={**said, "left": "shop"})


class Counted(torch.nn.Module):
    def forward(self, x, edge_index, num_nodes):
        degree = x.new_zeros(num_nodes).scatter_add(0, edge_index[1], x.new_ones(edge_index.shape[1]))
        return x * degree.view(-1, 1)


def test_the_number_of_nodes_as_an_argument() -> None:
    given = (torch.rand(9, 4), ends(), 9)
    shapes = (X, ENDS, Dim.DYNAMIC)
    model = Model.from_exported(export(Counted(), given, dynamic_shapes=shapes, strict=False))
    (rows,) = rows_of(model, *given[:2]).values()
    np.testing.assert_allclose(rows, Counted()(*given).numpy(), rtol=0, atol=1e-5)


def test_what_is_understood_is_said() -> None:
    program = program_of(Net(pyg.GCNConv(4, 8), pyg.GATConv(8, 3)), **weighted())
    explained = explain_exported(program)
    assert explained.module == "Net.forward"
    assert [one.upkeep for one in explained.propagations if not one.support] == ["incremental", "constrained"]
    assert {one.origin.module for one in explained.propagations} >= {"first", "second"}


# What is refused


def test_fixed_sizes_are_refused_with_the_line_to_write() -> None:
    with pytest.raises(ModelError, match="fixed size") as refused:
        Model.from_exported(program_of(Two(), fixed=True, **weighted()))
    line = next(line for line in str(refused.value).splitlines() if line.startswith("torch.export.export("))
    given = weighted()
    names = {"torch": torch, "Dim": Dim, "module": Two(), "args": tuple(given.values())}
    model = Model.from_exported(eval(line, names))
    np.testing.assert_allclose(
        rows_of(model, **given)["output[0]"], names["module"](**given)[0].detach().numpy(), rtol=0, atol=1e-5
    )
    module, given = Hetero(), typed()
    with pytest.raises(ModelError, match="fixed size") as refused:
        Model.from_exported(export(module.eval(), given, strict=False))
    line = next(line for line in str(refused.value).splitlines() if line.startswith("torch.export.export("))
    program = eval(line, {"torch": torch, "Dim": Dim, "module": module, "args": given})
    assert Model.from_exported(program, output_type="paper").inputs


class Closed(torch.nn.Module):
    """Has a graph of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.edge_index = pyg.SAGEConv(4, 3), ends()

    def forward(self, x):
        return self.conv(x, self.edge_index)


class Mixed(Closed):
    def forward(self, x, edge_index):
        return self.conv(x, self.edge_index) + self.conv(x, edge_index)


class Counting(Two):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, edge_index):
        self.calls += 1
        return self.mu(x, edge_index)


class Sorted(Two):
    def forward(self, x, edge_index):
        return self.mu(x, edge_index).cumsum(0)


@torch.library.custom_op("livegnn_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _twice_of(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(Two):
    def forward(self, x, edge_index):
        return twice(self.mu(x, edge_index))


def test_operators_of_others_are_refused(tmp_path: Path) -> None:
    program = program_of(Custom(), **weighted())
    with pytest.raises(ModelError, match=r"the operator livegnn_tests.twice.default is not known"):
        Model.from_exported(program)
    save(program, tmp_path / "model.pt2")
    with pytest.raises(FileFormatError, match=r"livegnn_tests.twice.default, which is none of torch's own"):
        Model.from_exported(tmp_path / "model.pt2")


def test_what_another_export_would_mend_is_refused() -> None:
    given = weighted()
    half = {**given, "x": given["x"].half()}
    meta = {name: one.to("meta") for name, one in given.items()}
    training = export(
        Net(pyg.SAGEConv(4, 8), pyg.SAGEConv(8, 3)).train(),
        (),
        given,
        dynamic_shapes={"x": X, "edge_index": ENDS},
        strict=False,
    )
    same = Dim("rows")
    one_dim = {"x": {0: same}, "edge_index": {1: same}}
    as_many = {"x": torch.rand(9, 4), "edge_index": ends(9)}
    small = {"x": {0: Dim("few", min=2, max=100)}, "edge_index": ENDS}
    refused = [
        ("exported as in training.*eval", training),
        ("exported as in training|changes a buffer", training.run_decompositions()),
        ("float16.*float\\(\\)", program_of(Two().half(), **half)),
        ("on meta.*cpu\\(\\)", program_of(Two().to("meta"), **meta)),
        ("changes a buffer", program_of(Counting(), **given)),
        ("no ends of edges", program_of(Closed(), x=given["x"])),
        ("cumsum", program_of(Sorted(), **given)),
        ("Mixed.forward", program_of(Mixed(), **given)),
        ("x has as many rows", export(Two().eval(), (), as_many, dynamic_shapes=one_dim, strict=False)),
        ("sizes from 2 to 100", export(Two().eval(), (), given, dynamic_shapes=small, strict=False)),
    ]
    for match, program in refused:
        with pytest.raises(ModelError, match=match):
            Model.from_exported(program)


def test_other_things_are_refused() -> None:
    for given in (None, 3, Two()):
        with pytest.raises(ModelError, match=r"torch.export.export returns, or the path"):
            Model.from_exported(given)


class Last(torch.nn.Module):
    """Its result has an axis for rows only where there are several."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GATConv(3, 1)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index).squeeze()


class Pair(torch.nn.Module):
    """Of its two results, one is a mean, which has no terms where there are no edges."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.sum = pyg.SAGEConv(3, 2), pyg.GCNConv(3, 1)

    def forward(self, x, edge_index):
        return self.mean(x, edge_index), {"sum": self.sum(x, edge_index).squeeze(-1)}


class Outer(torch.nn.Module):
    """Multiplies other axes of a single row than of several."""

    def forward(self, x, edge_index):
        return (pyg.SimpleConv()(x, edge_index).squeeze().unsqueeze(1) * torch.tensor([1.0, 2, 4])).sum(1)


@pytest.mark.parametrize("sizes", [(NODES, EDGES), (Dim.AUTO, Dim.AUTO), (Dim("two", min=2), EDGES)])
@pytest.mark.parametrize("kind", [Last, Pair])
def test_a_model_says_what_its_program_does_on_few_rows(kind, sizes) -> None:
    """torch.export reads a module as if it had two rows or more of each, and may say so of its program."""
    torch.manual_seed(0)
    module = kind().eval()
    shapes = {"x": {0: sizes[0]}, "edge_index": {1: sizes[1]}}
    example = {"x": torch.rand(9, 3), "edge_index": ends(20)}
    program = export(module, (), example, dynamic_shapes=shapes, strict=False)
    model, random = Model.from_exported(program), np.random.default_rng(0)
    for nodes, edges in ((1, 0), (1, 1), (2, 0), (2, 1), (3, 5)):
        x = random.random((nodes, 3), np.float32)
        source, target = random.integers(0, nodes, (2, edges))
        results = module(torch.from_numpy(x), torch.from_numpy(np.stack([source, target])))
        graph = lg.Graph.from_edges(source, target, x=x, parallel="keep")
        engine = lg.Engine(graph, model)
        for name, expected in zip(model.outputs, tree_leaves(results), strict=True):
            got = engine.predict(np.arange(nodes), output=name)
            np.testing.assert_allclose(got, expected.detach().reshape(nodes, -1), rtol=1e-5, atol=1e-6)


def test_a_program_that_does_something_else_on_one_row_is_refused() -> None:
    program = program_of(Outer(), x=torch.rand(9, 3), edge_index=ends(20))
    with pytest.raises(ModelError, match="on a graph of 1 node"):
        Model.from_exported(program)


# Files


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs") / "model.pt2"
    save(program_of(Two(), **weighted()), path)
    return path


def test_files_of_another_kind_are_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.pt2"
    with pytest.raises(FileNotFoundError):
        Model.from_exported(path)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="is empty"):
        Model.from_exported(path)
    path.write_bytes(b"not an archive" * 100)
    with pytest.raises(FileFormatError, match=r"must be a file that torch.export.save wrote"):
        Model.from_exported(path)
    torch.save(Two().state_dict(), path)
    with pytest.raises(FileFormatError, match=r"a file of torch\.save"):
        Model.from_exported(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(FileFormatError, match=r"must hold a program of torch.export, got another archive"):
        Model.from_exported(path)


def test_damaged_files_are_refused_or_read_as_they_were(saved: Path, tmp_path: Path) -> None:
    content, path = saved.read_bytes(), tmp_path / "damaged.pt2"
    expected = Model.from_exported(saved).digest
    random = np.random.default_rng(0)
    for length in random.integers(1, len(content), 5):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            Model.from_exported(path)
    for place in random.integers(0, len(content), 20):
        spoiled = bytearray(content)
        spoiled[place] ^= 1 << int(random.integers(8))
        path.write_bytes(spoiled)
        with contextlib.suppress(FileFormatError, ModelError):
            assert Model.from_exported(path).digest == expected


def rewrite(saved: Path, path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """The same archive with other contents, and their right checksums."""
    with zipfile.ZipFile(saved) as before, zipfile.ZipFile(path, "w") as after:
        for name in before.namelist():
            after.writestr(name, change(name, before.read(name)))


class Bomb:
    """Would make a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


# Files of the archive: the program, those that are unpickled, and those that name such files.
if IS_OLDEST:
    PROGRAM, CONFIGS = "serialized_exported_program.json", ()
    PICKLES = ("serialized_example_inputs.pt", "serialized_state_dict.pt", "serialized_constants.pt")
else:
    PROGRAM, PICKLES = "models/model.json", ("sample_inputs/model.pt",)
    CONFIGS = ("weights_config.json", "constants_config.json")


def replaced(ending: str, function: Callable[[bytes], bytes]) -> Callable[[str, bytes], bytes]:
    return lambda name, content: function(content) if name.endswith(ending) else content


def test_nothing_that_a_file_holds_is_run(saved: Path, tmp_path: Path) -> None:
    path, mark = tmp_path / "strange.pt2", tmp_path / "was_run"
    config = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    code = f"open({str(mark)!r}, 'w')"

    def program(old: str, new: str) -> Callable[[str, bytes], bytes]:
        def change(content: bytes) -> bytes:
            assert old in content.decode()
            return content.decode().replace(old, new).encode()

        return replaced(PROGRAM, change)

    archive = zipfile.ZipFile(saved)
    first = json.loads(archive.read(next(name for name in archive.namelist() if name.endswith(PROGRAM))))
    sizes = json.dumps(first).split('"expr_str": ')[1].split('", "hint"')[0][1:]
    configs = json.dumps({"config": {"mu.bias": config}}).encode()
    changes = [
        *(replaced(ending, lambda _: pickle.dumps(Bomb(mark))) for ending in PICKLES),
        *(replaced(ending, lambda _: configs) for ending in CONFIGS),
        program("torch.ops.aten.select.int", "torch.os.system"),
        program("torch.ops.aten.select.int", "_operator.methodcaller"),
        program(sizes, code),
        program("builtins.tuple", "collections.defaultdict"),
    ]
    for change in changes:
        rewrite(saved, path, change)
        with pytest.raises(FileFormatError, match=r"not loaded|objects that code would have to be run for"):
            Model.from_exported(path)
        assert not mark.exists()
    rewrite(saved, path, lambda _, content: content)
    assert Model.from_exported(path).digest == Model.from_exported(saved).digest


def test_a_file_from_a_gpu_is_refused(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "gpu.pt2"
    rewrite(saved, path, lambda name, content: content.replace(b'"type": "cpu"', b'"type": "cuda"'))
    with pytest.raises(FileFormatError, match=r"exported on cuda: export module\.cpu\(\)"):
        Model.from_exported(path)
