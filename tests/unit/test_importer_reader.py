"""Modules as the importer reads them: equal to themselves in float64, and classed as a person would."""

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import expression_interpreter as interpreter
from gate import EXPLORING
from imported_modules import (
    CASES,
    EDGES,
    GRAPHS,
    NAMES,
    NODE,
    OLDEST_LACKS,
    SMALL_GRAPHS,
    WIDTH,
    Two,
    X,
    call,
    compute,
    double,
    draw,
    fresh,
    imported,
    in_one_process,
)
from livegnn.errors import ModelError
from livegnn.graph import EdgeSchema, Schema
from livegnn.importers.expressions.expressions import walk
from livegnn.importers.program.export import Given, MethodCall, export_module
from livegnn.importers.program.tracing import ordinary
from livegnn.importers.reading.reader import read
from livegnn.importers.rules.propagation_kinds import classify, words
from livegnn.model import explain_import
from oldest import IS_OLDEST


def equal(got, expected, message: str) -> None:
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-11, atol=1e-11, err_msg=message)


@pytest.mark.parametrize(
    "name",
    [name for name in OLDEST_LACKS if EXPLORING or IS_OLDEST or name != "dna.py"],  # as DNA
)
def test_what_the_oldest_torch_cannot_export_is_refused_with_a_line(name: str) -> None:
    if IS_OLDEST:
        with pytest.raises(ModelError, match=r"cannot be traced: \w+\.py:\d+, '"):
            imported(name)
    else:
        imported(name)


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_equals_the_module(name: str) -> None:
    module = imported(name)
    for i, kind in enumerate(GRAPHS):
        graph = draw(module.case, kind, i)
        expected = call(fresh(name), module.case, graph)
        equal(module.compute(graph, normal=False), expected, f"read, {kind}")
        equal(module.compute(graph, normal=True), expected, f"normal form, {kind}")


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_equals_the_module_on_graphs_of_almost_nothing(name: str) -> None:
    module = imported(name)
    for i, kind in enumerate(SMALL_GRAPHS):
        graph = draw(module.case, kind, i)
        try:
            expected = call(fresh(name), module.case, graph)
        except (IndexError, RuntimeError, ValueError):
            continue  # the module itself cannot be called with such a graph
        equal(module.compute(graph, normal=False), expected, f"read, {kind}")
        equal(module.compute(graph, normal=True), expected, f"normal form, {kind}")


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_is_classed_as_a_person_would(name: str) -> None:
    module = imported(name)
    assert words(classify(module.program.make, module.normal)) == sorted(module.case.words)


@pytest.mark.parametrize("name", in_one_process(NAMES))
def test_messages_keep_their_bits_when_what_they_do_not_read_changes(name: str) -> None:
    """Edges run from the first nodes to the last; targets' rows change; what does not read them stays."""
    module = imported(name)
    make = module.program.make
    found = classify(make, module.normal)
    graph = draw(module.case, "random", 5)
    for atom in graph.ends:
        sources, targets = graph.sizes[atom.source], graph.sizes[atom.target]
        graph.ends[atom][0] %= sources // 2
        graph.ends[atom][1] = targets // 2 + graph.ends[atom][1] % (targets - targets // 2)
    changed = interpreter.Rows(graph.sizes, graph.ends, {name: v.clone() for name, v in graph.inputs.items()})
    of_nodes = {one.attrs[0]: one.atom for one in walk(module.program.rows) if one.op == "input"}
    for name_of, atom in of_nodes.items():
        if atom.source is None and changed.inputs[name_of].is_floating_point():
            changed.inputs[name_of][graph.sizes[atom] // 2 :] += 1.0
    if len({end for atom in graph.ends for end in (atom.source, atom.target)}) > 1:
        return  # edges lead back from the second half of one type to the first of another
    first = [one for one in found if not any(reads_a_scatter(part) for part in one.scatter.args)]
    for one in first:
        if one.upkeep == "recomputed" or one.what == "last":
            continue
        for message, index, _ in one.scatter.pieces:
            if (
                index.op != "end"
                or not index.attrs[0]
                or "exp" in repr([part.op for part in walk([message])])
            ):
                continue
            before, after = (interpreter.compute([message], rows)[0] for rows in (graph, changed))
            same = torch.equal(before, after)
            assert same or "target" in one.reads, one.what


def reads_a_scatter(one) -> bool:
    return any(part.op == "scatter" for part in walk([one]))


# What is found by itself


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(WIDTH, 4)

    def forward(self, h, adj, edge_weight, speed):
        return self.conv(h, adj, edge_weight) * speed


def test_inputs_are_found_by_name_place_and_data() -> None:
    data = Data(x=torch.zeros(5, WIDTH), edge_index=torch.zeros(2, 7, dtype=torch.int64))
    data.edge_weight, data.velocity = torch.zeros(7), torch.zeros(5, 1)
    explained = explain_import(Weighed(), data, inputs={"speed": "velocity"})
    assert explained.inputs == (
        "x (node[8])", "edge_index (node-to-node)", "edge_weight (node-to-node[1])", "velocity (node[1])",
    )  # fmt: skip
    with pytest.raises(ModelError, match="'speed'"):
        explain_import(Weighed(), data)
    with pytest.raises(ModelError, match="'haste'"):
        explain_import(Weighed(), data, inputs={"speed": "velocity", "haste": "velocity"})
    by_width = explain_import(Weighed(), inputs={"speed": ("node", 1)})
    assert by_width.inputs[-1] == "speed (node[1])"


def test_inputs_of_several_types_are_found() -> None:
    data = HeteroData()
    for name, rows in (("author", 5), ("paper", 7)):
        data[name].x = torch.zeros(rows, WIDTH)
    data["author", "writes", "paper"].edge_index = torch.zeros(2, 3, dtype=torch.int64)
    data["paper", "written", "author"].edge_index = torch.zeros(2, 4, dtype=torch.int64)

    class Papers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = {edge_type: pyg.SAGEConv((WIDTH, WIDTH), 4) for edge_type in data.edge_types}
            self.conv = pyg.HeteroConv(layers)

        def forward(self, x_dict, edge_index_dict):
            return self.conv(x_dict, edge_index_dict)["paper"]

    explained = explain_import(Papers(), data)
    assert [one.what for one in explained.propagations if not one.support] == ["sum source"]


def test_inputs_name_the_rows_of_one_type() -> None:
    data = HeteroData()
    data["node"].x, data["other"].num_nodes = torch.zeros(5, WIDTH), 3
    for relation in ("likes", "hates"):
        data["node", relation, "node"].edge_index = torch.zeros(2, 3, dtype=torch.int64)
    inputs = {
        "x": ("node", "x"),
        "pos_edge_index": ("node", "likes", "node"),
        "neg_edge_index": ("node", "hates", "node"),
    }
    conv = pyg.SignedConv(WIDTH, 4, first_aggr=True)
    assert explain_import(conv, data, inputs=inputs).inputs == (
        "x:node (node[8])",
        "edge_index:('node', 'likes', 'node') (node-likes-node)",
        "edge_index:('node', 'hates', 'node') (node-hates-node)",
    )
    with pytest.raises(ModelError, match="the types of the data are 'node', 'other'"):
        explain_import(conv, data, inputs={**inputs, "x": ("nobody", "x")})
    with pytest.raises(ModelError, match="'x' of 'other', which the data does not have"):
        explain_import(conv, data, inputs={**inputs, "x": ("other", "x")})


@pytest.mark.parametrize(("edge_dim", "reads"), [(None, False), (2, True)])
def test_features_of_edges_are_read_by_layers_made_for_them(edge_dim: int | None, reads: bool) -> None:
    data = Data(torch.zeros(5, WIDTH), torch.zeros(2, 7, dtype=torch.int64), torch.zeros(7, 2))
    found = explain_import(pyg.GATv2Conv(WIDTH, 4, edge_dim=edge_dim), data).inputs
    assert ("edge_attr (node-to-node[2])" in found) == reads


def test_a_schema_tells_the_inputs() -> None:
    author, paper = ("author", "writes", "paper"), ("paper", "written", "author")
    schema = Schema({"author": WIDTH, "paper": WIDTH}, {author: EdgeSchema(), paper: EdgeSchema()})
    layers = {edge_type: pyg.SAGEConv((WIDTH, WIDTH), 4) for edge_type in (author, paper)}
    explained = explain_import(pyg.HeteroConv(layers), schema)
    assert {one.upkeep for one in explained.propagations} == {"incremental"}
    one = Schema({"user": WIDTH}, {("user", "knows", "user"): EdgeSchema(weighted=True)})
    assert explain_import(pyg.GCNConv(WIDTH, 4), one).inputs == (
        "x (user[8])",
        "edge_index (user-knows-user)",
        "edge_weight (user-knows-user[1])",
    )


def test_an_embedding_of_the_nodes_is_an_input() -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.nodes, self.conv = nn.Embedding(5, WIDTH), pyg.SAGEConv(WIDTH, 4)

        def forward(self, edge_index):
            return self.conv(self.nodes.weight, edge_index)

    data = Data(edge_index=torch.zeros(2, 7, dtype=torch.int64), num_nodes=5)
    assert explain_import(Embedded(), data).inputs[0] == "nodes.weight (node[8])"


def test_the_explanation_speaks_of_the_users_names_and_lines() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = pyg.SAGEConv(WIDTH, 6), pyg.GATv2Conv(6, 4)

        def forward(self, x, edge_index):
            x = self.first(x, edge_index).relu()
            return self.second(x, edge_index)

    text = str(explain_import(Net()))
    assert "first" in text
    assert "test_importer_reader.py:" in text
    assert "sum source: incremental" in text
    assert "general logit source+target, value source: constrained" in text
    assert "second.lin_r.weight" in text


# What stays as it was


def test_the_module_stays_as_it_was() -> None:
    torch.manual_seed(0)
    module = Two(pyg.GCNConv(WIDTH, 6, cached=True), pyg.GCNConv(6, 4, cached=True)).train()
    calls = []
    module.first.register_forward_hook(lambda *_: calls.append(1))
    x, edges = torch.randn(5, WIDTH), torch.tensor([[0, 1], [1, 2]])
    module(x, edges)
    cache = module.first._cached_edge_index
    before = copy.deepcopy(module.state_dict())
    flags = torch.get_default_dtype(), torch.is_grad_enabled(), len(calls)
    explain_import(module)
    assert module.training
    assert module.first._cached_edge_index is cache
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == flags[:2]
    assert {name: value.dtype for name, value in module.state_dict().items()} == {
        name: value.dtype for name, value in before.items()
    }
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert pyg.HeteroLinear.forward.__module__ == "torch_geometric.nn.dense.linear"


def test_a_cache_is_no_part_of_a_module() -> None:
    """What a layer has kept of a graph is not what it computes of another."""
    with double():
        module = pyg.GCNConv(WIDTH, 4, cached=True).eval()
        module(torch.randn(5, WIDTH), torch.tensor([[0, 1], [1, 2]]))
        program = read(export_module(module, MethodCall((X, EDGES), {})))
        graph = draw(CASES["GCN"], "random", 0)
        again = pyg.GCNConv(WIDTH, 4).eval()
        again.load_state_dict(module.state_dict())
        equal(compute(program, program.rows, graph), call(again, CASES["GCN"], graph), "cached")


def test_modules_are_read_in_threads_as_alone() -> None:
    results = []

    def explain() -> None:
        results.append([one.what for one in explain_import(pyg.SAGEConv(WIDTH, 4)).propagations])

    threads = [threading.Thread(target=explain) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [results[0]] * 3


def test_imports_at_the_same_time_put_back_what_was_set() -> None:
    """One that begins first and ends first leaves what the other needs; the last one puts all back."""
    seen, inside, outside = [], threading.Event(), threading.Event()

    def first() -> None:
        with ordinary():
            inside.set()
            outside.wait()

    def refuse(graph: object, inputs: object) -> None:
        raise AssertionError("compiled")

    torch.set_default_dtype(torch.float64)
    try:
        thread = threading.Thread(target=first)
        thread.start()
        inside.wait()
        with ordinary():
            outside.set()
            thread.join()
            seen.append(torch.get_default_dtype())
            torch.compile(nn.Linear(2, 2), backend=refuse)(torch.ones(1, 2))
        seen.append(torch.get_default_dtype())
    finally:
        torch.set_default_dtype(torch.float32)
    assert seen == [torch.float32, torch.float64]
    with pytest.raises(Exception, match="compiled"):
        torch.compile(nn.Linear(2, 2), backend=refuse)(torch.ones(1, 2))


def test_float32_models_are_read_in_float64() -> None:
    explained = explain_import(pyg.GCNConv(WIDTH, 4), Data(
        x=torch.zeros(5, WIDTH, dtype=torch.float64), edge_index=torch.zeros(2, 7, dtype=torch.int64),
    ))  # fmt: skip
    assert explained.propagations[0].upkeep == "incremental"


# What is refused


class Holding(nn.Module):
    """A module that holds another, as a wrapper of the user's own does."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.conv = inner, pyg.SAGEConv(WIDTH, 4)

    def forward(self, x, edge_index):
        return self.conv(self.inner(x), edge_index)


def aggregating(aggr: str, **settings: int) -> nn.Module:
    return pyg.SAGEConv(WIDTH, 4, aggr=aggr, aggr_kwargs=settings)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: pyg.SAGEConv(WIDTH, 4).half(), r"float16.*module\.float\(\)"),
        (lambda: pyg.SAGEConv(WIDTH, 4).bfloat16(), r"bfloat16.*module\.float\(\)"),
        (lambda: nn.Linear(WIDTH, 4).to(torch.complex64), "complex64"),
        (lambda: pyg.SAGEConv((-1, -1), 4), "no shape yet: call the module once"),
        (lambda: torch.jit.script(nn.Linear(WIDTH, 4)), "ScriptModule"),
        (lambda: Holding(torch.jit.script(nn.Linear(WIDTH, WIDTH))), "inner is a .*ScriptModule"),
        (lambda: aggregating("median"), "aggr_module is a MedianAggregation, which sorts"),
        (
            lambda: aggregating("lstm", in_channels=8, out_channels=8),
            "LSTMAggregation, .* order of the edges",
        ),
    ],
)
def test_is_refused(make, reason: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make()
    with pytest.raises(ModelError, match=reason):
        explain_import(module, Data(x=torch.zeros(5, WIDTH), edge_index=torch.zeros(2, 7, dtype=torch.int64)))


def test_a_module_that_counts_its_calls() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x, edge_index):
            self.calls += 1
            return x * self.calls

    with pytest.raises(ModelError, match="changes a buffer"):
        explain_import(
            Counting(), Data(x=torch.zeros(5, WIDTH), edge_index=torch.zeros(2, 7, dtype=torch.int64))
        )


def test_a_method_that_there_is_none_of() -> None:
    with pytest.raises(ModelError, match="no method 'encode'"):
        explain_import(pyg.SAGEConv(WIDTH, 4), method="encode")


class Training(pyg.SAGEConv):
    """What a module of Lightning's is for an importer: it has no trainer, and asking for it raises."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 4)
        self._trainer = None

    @property
    def trainer(self):
        if self._trainer is None:
            raise RuntimeError("not attached to a trainer")
        return self._trainer

    def training_step(self, batch, batch_index):
        return self(batch.x, batch.edge_index).sum()


def compiled_in_place() -> nn.Module:
    module = pyg.SAGEConv(WIDTH, 4)
    module.compile()
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(pyg.SAGEConv(WIDTH, 4)),
        compiled_in_place,
        lambda: nn.DataParallel(pyg.SAGEConv(WIDTH, 4)),
        lambda: nn.DataParallel(torch.compile(pyg.SAGEConv(WIDTH, 4))),
        Training,
    ],
)
def test_wrappers_are_taken_off(make) -> None:
    assert "sum source" in [one.what for one in explain_import(make()).propagations]


def test_a_distributed_module_is_the_module_in_it(tmp_path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rank", rank=0, world_size=1)
    try:
        module = nn.parallel.DistributedDataParallel(pyg.SAGEConv(WIDTH, 4))
        assert explain_import(module).module == "SAGEConv.forward"
    finally:
        torch.distributed.destroy_process_group()


def test_a_compiled_layer_keeps_the_name_that_it_has_in_the_module() -> None:
    module = Two(torch.compile(pyg.SAGEConv(WIDTH, 6), backend="eager"), pyg.SAGEConv(6, 4))
    if IS_OLDEST:
        with pytest.raises(ModelError, match=r"return self\.second"):
            explain_import(module)
        return
    explained = explain_import(module)
    assert all("_orig_mod" not in one.origin.module for one in explained.propagations)


def test_an_import_compiles_nothing() -> None:
    def refuse(graph: object, inputs: object) -> None:
        raise AssertionError("a part of the module is compiled")

    class Headed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = pyg.SAGEConv(WIDTH, 4), torch.compile(nn.Linear(4, 3), backend=refuse)

        def forward(self, x, edge_index):
            return self.head(self.conv(x, edge_index))

    module = Headed()
    if IS_OLDEST:
        with pytest.raises(ModelError, match=r"return self\.head"):
            explain_import(module)
        return
    assert "sum source" in [one.what for one in explain_import(module).propagations]
    with pytest.raises(Exception, match="a part of the module is compiled"):
        module.head(torch.ones(2, 4))  # as before, where it is called


def test_counts_stand_for_numbers_of_nodes() -> None:
    class Counted(nn.Module):
        def forward(self, x, edge_index, num_nodes):
            return x.new_zeros(num_nodes, WIDTH).index_add(0, edge_index[1], x[edge_index[0]])

    args = (X, EDGES, Given("num_nodes", NODE, count=True))
    program = read(export_module(Counted(), MethodCall(args, {})))
    assert words(classify(program.make, program.rows)) == ["sum source"]
