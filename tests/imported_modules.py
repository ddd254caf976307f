"""Modules that the importer reads, by name: how each is made and called, and what its messages read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn import models

import expression_interpreter as interpreter
from layered_modules import (
    EDGE_WIDTH,
    METADATA,
    RELATIONS,
    WIDTH,
    Agnn,
    Deep,
    Dna,
    Encoder,
    Genie,
    HeteroModel,
    Initial,
    Normed,
    Once,
    OwnEdges,
    Relations,
    Saint,
    Sequence,
    Skips,
    Stack,
    Super,
    Tgn,
    Two,
    Undirected,
    UniMP,
    Variational,
    labels,
    network,
    pna,
    polynormer,
)
from livegnn.importers.expressions.expressions import Atom, Expression
from livegnn.importers.program.export import Given, MethodCall, export_module, fill, leaves
from livegnn.importers.reading.reader import Program, read
from livegnn.importers.rules.normal_form import normalize
from oldest import IS_OLDEST

NODE = Atom("node")
EDGE = Atom("node-to-node", NODE, NODE)
AUTHOR, PAPER = Atom("author"), Atom("paper")
WRITES, CITES = Atom("author-writes-paper", AUTHOR, PAPER), Atom("paper-cites-paper", PAPER, PAPER)
WRITTEN = Atom("paper-written-author", PAPER, AUTHOR)
POSITIVE, NEGATIVE = Atom("node-likes-node", NODE, NODE), Atom("node-hates-node", NODE, NODE)
HETERO_EDGES = dict(zip(METADATA[1], (WRITES, CITES, WRITTEN), strict=True))

X = Given("x", NODE, (WIDTH,), torch.float64)
EDGES = Given("edge_index", EDGE, ends=True)
WEIGHT = Given("edge_weight", EDGE, (), torch.float64)
ATTR = Given("edge_attr", EDGE, (EDGE_WIDTH,), torch.float64)
TYPE = Given("edge_type", EDGE, (), torch.int64)
LIKES, HATES = Given("likes", POSITIVE, ends=True), Given("hates", NEGATIVE, ends=True)
X_DICT = {atom.name: Given(f"x:{atom}", atom, (WIDTH,), torch.float64) for atom in (AUTHOR, PAPER)}
EDGES_DICT = {name: Given(f"edge_index:{atom}", atom, ends=True) for name, atom in HETERO_EDGES.items()}
LABELS = Given("y", NODE, (), torch.int64)


@dataclass(frozen=True)
class Case:
    """build: makes the module. words: what is reduced, counts and what serves softmaxes left out."""

    build: Callable[[], nn.Module]
    words: tuple[str, ...]
    args: tuple[object, ...] = (X, EDGES)
    kwargs: Mapping[str, object] = field(default_factory=dict)
    method: str = "forward"
    parameters: tuple[Given, ...] = ()


@dataclass
class Imported:
    """A case that was read. The fresh module says what is right."""

    case: Case
    program: Program
    normal: list[Expression]

    def compute(self, graph: interpreter.Rows, normal: bool) -> list[torch.Tensor]:
        """Each output's rows, by the form that was read or the normal one."""
        return compute(self.program, self.normal if normal else self.program.rows, graph)


def compute(program: Program, expressions: list[Expression], graph: interpreter.Rows) -> list[torch.Tensor]:
    """Each output of a program, whose pieces' rows and masks are the expressions."""
    graph.computed.clear()
    with torch.no_grad():
        values = interpreter.compute(expressions, graph)
    results, at = [], 0
    for value in program.outputs.values():
        parts = []
        for piece in value.pieces:
            rows = 1 if piece.atom is None else graph.sizes[piece.atom]
            row, mask = (v.expand(rows, *v.shape[1:]) for v in values[at : at + 2])
            parts.append(row[mask] if piece.atom is not None else row)
            at += 2
        results.append(torch.cat(parts))
    return results


@cache
def imported(name: str) -> Imported:
    """A case, read once for all tests."""
    case = CASES[name]
    with double():
        program = read(
            export_module(fresh(name), MethodCall(case.args, case.kwargs, case.method, case.parameters))
        )
        return Imported(case, program, normalize(program.make, program.rows))


class double:
    """Weights and defaults in float64."""

    def __enter__(self) -> None:
        self.before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *error: object) -> None:
        torch.set_default_dtype(self.before)


def fresh(name: str) -> nn.Module:
    """The module of a case, with the same weights each time, in float64 and evaluation mode."""
    with double():
        torch.manual_seed(7)
        module = CASES[name].build().eval()
        if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
            call(module, CASES[name], draw(CASES[name], "random", 0))
    random = torch.Generator().manual_seed(8)
    for parameter in module.parameters():  # biases and scales that begin as 0 or 1 would show nothing
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
            part.running_mean.data = torch.randn(
                part.running_mean.shape, generator=random, dtype=torch.float64
            )
            part.running_var.data = (
                torch.rand(part.running_var.shape, generator=random, dtype=torch.float64) + 0.5
            )
    return module


GRAPHS = ("random", "loops", "one target", "one edge repeated", "two edges", "dense")
SMALL_GRAPHS = ("one node", "one loop", "one edge", "no edges")


def draw(case: Case, kind: str, seed: int) -> interpreter.Rows:
    """A graph that a case can be called with: one of `GRAPHS` or `SMALL_GRAPHS`."""
    random = np.random.default_rng(seed)
    given = [*leaves(list(case.args)), *leaves(dict(case.kwargs)), *case.parameters]
    ends, inputs = {}, {}
    atoms = dict.fromkeys(end for one in given for end in (one.atom.source, one.atom.target, one.atom) if end)
    fixed = {"one node": 1, "one loop": 1, "one edge": 2}.get(kind)
    sizes = {atom: fixed or 9 + i for i, atom in enumerate(a for a in atoms if a.source is None)}
    for atom in (a for a in atoms if a.source is not None):
        sources, targets = sizes[atom.source], sizes[atom.target]
        pairs = {
            "random": lambda s=sources, t=targets: random.integers([[min(s, 6)], [min(t, 6)]], size=(2, 14)),
            "loops": lambda s=sources, t=targets: np.tile(random.integers(min(s, t), size=5), (2, 1)),
            "one target": lambda s=sources: np.stack([random.integers(s, size=8), np.full(8, 3)]),
            "one edge repeated": lambda: np.tile([[2], [1]], (1, 5)),
            "two edges": lambda: np.array([[0, 4], [4, 2]]),
            "one node": lambda: np.zeros((2, 0), dtype=np.int64),
            "no edges": lambda: np.zeros((2, 0), dtype=np.int64),
            "one loop": lambda: np.array([[0], [0]]),
            "one edge": lambda: np.array([[1], [0]]),
            "dense": lambda s=sources, t=targets: random.integers([[s], [t]], size=(2, 60)),
        }[kind]()
        if kind == "random" and sources == targets:
            pairs[:, :4] = [[1, 1, 2, 2], [1, 1, 3, 3]]
        ends[atom], sizes[atom] = torch.from_numpy(pairs), pairs.shape[1]
    for one in given:
        if one.ends or one.count:
            continue
        shape = (sizes[one.atom], *one.channels)
        number = random.normal(size=shape) if one.name != "edge_weight" else random.random(shape) + 0.1
        rows = number if one.dtype.is_floating_point else random.integers(RELATIONS, size=shape)
        inputs[one.name] = torch.from_numpy(np.asarray(rows))
    return interpreter.Rows(sizes, ends, inputs)


def call(module: nn.Module, case: Case, graph: interpreter.Rows) -> list[torch.Tensor]:
    """What the module itself says of a graph: its tensors, in order."""
    return list(flat(answer(module, case, graph)))


def answer(module: nn.Module, case: Case, graph: interpreter.Rows) -> object:
    """What the module itself says of a graph, in float64."""
    with double():
        return called(module, case, graph)


def called(module: nn.Module, case: Case, graph: interpreter.Rows) -> object:
    """What the module itself says of a graph, in the precision of both."""

    def tensor(one: Given) -> object:
        if one.count:
            return graph.sizes[one.atom]
        return graph.ends[one.atom].clone() if one.ends else graph.inputs[one.name].clone()

    rows = iter([tensor(one) for one in (*leaves(list(case.args)), *leaves(dict(case.kwargs)))])
    args, kwargs = fill(list(case.args), rows), fill(dict(case.kwargs), rows)
    with torch.no_grad():
        for one in case.parameters:
            owner, _, name = one.name.rpartition(".")
            setattr(module.get_submodule(owner), name, nn.Parameter(graph.inputs[one.name]))
        return getattr(module, case.method)(*args, **kwargs)


def flat(result: object):
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for part in result.values():
            yield from flat(part)
    elif isinstance(result, list | tuple):
        for part in result:
            yield from flat(part)
    elif isinstance(result, Data):
        yield from flat(result.to_dict())


SOURCE = ("sum source",)
TARGET = ("sum reads target",)
ADDITIVE = ("softmax sum, additive logit source+target, value source",)
DOT = ("softmax sum, dot logit source+target, value source",)
GENERAL = ("softmax sum, general logit source+target, value source",)
SINGLE = ("softmax sum, single logit source, value source",)
WEIGHTED = ("last", "sum edge", "sum source*weight")
GLOBAL = ("global sum", "sum source")
WITH_WEIGHT = (X, EDGES, WEIGHT)
WITH_ATTR = (X, EDGES, ATTR)
TYPED = (X, EDGES, TYPE)
HETERO = (X_DICT, EDGES_DICT)

CASES: dict[str, Case] = {
    # Convolutions as they stand
    "SAGE": Case(lambda: pyg.SAGEConv(WIDTH, 4), SOURCE),
    "GraphConv": Case(lambda: pyg.GraphConv(WIDTH, 4), SOURCE),
    "GIN": Case(lambda: pyg.GINConv(network(WIDTH, 4), train_eps=True), SOURCE),
    "GCN": Case(lambda: pyg.GCNConv(WIDTH, 4), SOURCE),
    "ARMA": Case(lambda: pyg.ARMAConv(WIDTH, 4, num_stacks=2, num_layers=2), SOURCE),
    "TAG": Case(lambda: pyg.TAGConv(WIDTH, 4), SOURCE),
    "SG": Case(lambda: pyg.SGConv(WIDTH, 4, K=2), SOURCE),
    "APPNP": Case(lambda: Once(pyg.APPNP(3, 0.1), lambda f, x, e: f(x, e)), SOURCE),
    "EG": Case(lambda: pyg.EGConv(WIDTH, 8, ["symnorm", "mean"], num_heads=4), SOURCE),
    "Cluster": Case(lambda: pyg.ClusterGCNConv(WIDTH, 4), SOURCE),
    "LE": Case(lambda: pyg.LEConv(WIDTH, 4), SOURCE),
    "Gated": Case(lambda: pyg.GatedGraphConv(WIDTH, 2), SOURCE),
    "GAT": Case(lambda: pyg.GATConv(WIDTH, 4, heads=2), ADDITIVE),
    "GATnoloop": Case(lambda: pyg.GATConv(WIDTH, 4, heads=2, add_self_loops=False), ADDITIVE),
    "GATv2": Case(lambda: pyg.GATv2Conv(WIDTH, 4, heads=2), GENERAL),
    "Super": Case(lambda: pyg.SuperGATConv(WIDTH, 4, heads=2), GENERAL),
    "Trans": Case(lambda: pyg.TransformerConv(WIDTH, 4, heads=2), DOT),
    "AGNN": Case(lambda: pyg.AGNNConv(), DOT),
    "ResGated": Case(lambda: pyg.ResGatedGraphConv(WIDTH, 4), TARGET),
    "FiLM": Case(lambda: pyg.FiLMConv(WIDTH, 4), TARGET),
    "SAGEmax": Case(lambda: pyg.SAGEConv(WIDTH, 4, aggr="max"), ("max source",)),
    "GCNw": Case(lambda: pyg.GCNConv(WIDTH, 4), WEIGHTED, WITH_WEIGHT),
    "GINE": Case(
        lambda: pyg.GINEConv(network(WIDTH, 4), edge_dim=EDGE_WIDTH), ("sum f(source,edge)",), WITH_ATTR
    ),
    "PNA": Case(
        lambda: pna(aggregators=["mean", "max"], scalers=["identity", "amplification"]),
        ("max source", "sum source"),
    ),
    "GEN": Case(lambda: pyg.GENConv(WIDTH, 8), SINGLE),
    "Cheb": Case(lambda: pyg.ChebConv(WIDTH, 4, K=3), ("global max", "sum reads target")),
    # Further convolutions and basic models
    "GCN2": Case(lambda: Initial(2), SOURCE),
    "RGCN": Case(lambda: pyg.RGCNConv(WIDTH, 4, RELATIONS), SOURCE, TYPED),
    "RGCNbasis": Case(lambda: pyg.RGCNConv(WIDTH, 4, RELATIONS, num_bases=2), SOURCE, TYPED),
    "Signed": Case(lambda: pyg.SignedConv(WIDTH, 4, first_aggr=True), SOURCE, (X, LIKES, HATES)),
    "DirGNN": Case(lambda: pyg.DirGNNConv(pyg.SAGEConv(WIDTH, 4)), SOURCE),
    "AntiSym": Case(lambda: pyg.AntiSymmetricConv(WIDTH), SOURCE),
    "WLCont": Case(lambda: pyg.WLConvContinuous(), SOURCE),
    "MF": Case(lambda: pyg.MFConv(WIDTH, 4, max_degree=3), SOURCE),
    "SAGEproject": Case(lambda: pyg.SAGEConv(WIDTH, 4, project=True, normalize=True), SOURCE),
    "GCNm": Case(lambda: models.GCN(WIDTH, 8, 2, 4, norm="BatchNorm", jk="cat"), SOURCE),
    "SAGEm": Case(lambda: models.GraphSAGE(WIDTH, 8, 2, 4, jk="max"), SOURCE),
    "JKlstm": Case(lambda: models.GCN(WIDTH, 8, 2, 4, jk="lstm"), SOURCE),
    "LabelProp": Case(
        lambda: Once(models.LabelPropagation(2, 0.9), labels),
        SOURCE,
        (X, LABELS, EDGES),
    ),
    "MixHop": Case(lambda: pyg.MixHopConv(WIDTH, 4), SOURCE),
    "SSG": Case(lambda: pyg.SSGConv(WIDTH, 4, alpha=0.1, K=2), SOURCE),
    "HeteroConv": Case(lambda: HeteroModel(lambda: pyg.SAGEConv((WIDTH, WIDTH), 6)), SOURCE, HETERO),
    "to_hetero": Case(
        lambda: pyg.to_hetero(Two(pyg.SAGEConv((WIDTH, WIDTH), 6), pyg.SAGEConv((6, 6), 4)), METADATA),
        SOURCE,
        HETERO,
    ),
    "LightGCN": Case(
        lambda: models.LightGCN(9, WIDTH, 2),
        SOURCE,
        (EDGES,),
        method="get_embedding",
        parameters=(Given("embedding.weight", NODE, (WIDTH,), torch.float64, parameter=True),),
    ),
    "LINKX": Case(
        lambda: models.LINKX(9, WIDTH, 6, 4, 1),
        SOURCE,
        parameters=(Given("edge_lin.weight", NODE, (6,), torch.float64, parameter=True),),
    ),
    "FA": Case(lambda: pyg.FAConv(WIDTH), TARGET, (X, X, EDGES)),
    "CG": Case(lambda: pyg.CGConv(WIDTH, EDGE_WIDTH), TARGET, WITH_ATTR),
    "DNA": Case(Dna, TARGET),
    "GINm": Case(lambda: models.GIN(WIDTH, 8, 2, 4, norm="LayerNorm"), GLOBAL),
    "PairNorm": Case(lambda: Normed(pyg.PairNorm()), GLOBAL),
    "InstanceNorm": Case(lambda: Normed(pyg.InstanceNorm(WIDTH)), GLOBAL),
    "NNConv": Case(
        lambda: pyg.NNConv(WIDTH, 4, nn.Linear(EDGE_WIDTH, WIDTH * 4)), ("sum f(source,edge)",), WITH_ATTR
    ),
    "GMM": Case(lambda: pyg.GMMConv(WIDTH, 4, EDGE_WIDTH, kernel_size=2), ("sum f(source,edge)",), WITH_ATTR),
    "Gen": Case(lambda: pyg.GENConv(WIDTH, 8, learn_t=True, aggr="softmax", msg_norm=True), SINGLE),
    "SAGEsoftmax": Case(lambda: pyg.SAGEConv(WIDTH, 4, aggr="softmax"), SINGLE),
    "GATm": Case(lambda: models.GAT(WIDTH, 8, 2, 4, heads=2), ADDITIVE),
    "HeteroGAT": Case(
        lambda: HeteroModel(lambda: pyg.GATConv((WIDTH, WIDTH), 6, add_self_loops=False)), ADDITIVE, HETERO
    ),
    "FastRGCN": Case(lambda: pyg.FastRGCNConv(WIDTH, 4, RELATIONS), ("sum edge", "sum reads target"), TYPED),
    "RGAT": Case(
        lambda: pyg.RGATConv(WIDTH, 4, RELATIONS),
        ("softmax sum, additive logit source+target+edge, value edge+source",),
        TYPED,
    ),
    "PDN": Case(lambda: pyg.PDNConv(WIDTH, 4, EDGE_WIDTH, 6), WEIGHTED, WITH_ATTR),
    "PNAstd": Case(pna, ("max source", "min source", "sum reads target", "sum source")),
    "SAGElist": Case(
        lambda: pyg.SAGEConv(WIDTH, 4, aggr=["mean", "max", "add"]), ("max source", "sum source")
    ),
    "EdgeConv": Case(lambda: pyg.EdgeConv(nn.Linear(2 * WIDTH, 4)), ("max source",)),
    "PNAm": Case(
        lambda: models.PNA(
            WIDTH, 8, 2, 4, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([1, 4, 3, 2])
        ),
        ("max source", "sum source"),
    ),
    "EdgeCNNm": Case(lambda: models.EdgeCNN(WIDTH, 8, 2, 4), ("max reads target",)),
    "GraphNorm": Case(lambda: Normed(pyg.GraphNorm(WIDTH)), GLOBAL),
    "HAN": Case(
        lambda: Once(pyg.HANConv(WIDTH, 8, METADATA, heads=2), lambda f, x, e: f(x, e)["paper"]),
        (*("global sum",), *ADDITIVE),
        HETERO,
    ),
    "HGT": Case(lambda: Once(pyg.HGTConv(WIDTH, 8, METADATA, heads=2), lambda f, x, e: f(x, e)), DOT, HETERO),
    # Models of PyG's examples
    "gcn.py": Case(lambda: Stack(pyg.GCNConv(WIDTH, 6, cached=True), pyg.GCNConv(6, 4, cached=True)), SOURCE),
    "arma.py": Case(
        lambda: Stack(*(pyg.ARMAConv(a, b, 3, 2, shared_weights=True) for a, b in ((WIDTH, 6), (6, 4)))),
        SOURCE,
    ),
    "sgc.py": Case(lambda: pyg.SGConv(WIDTH, 4, K=2, cached=True), SOURCE),
    "tagcn.py": Case(lambda: Stack(pyg.TAGConv(WIDTH, 6), pyg.TAGConv(6, 4)), SOURCE),
    "gcn2_cora.py": Case(lambda: Initial(8, relu_after=True), SOURCE),
    "gcn2_ppi.py": Case(lambda: Initial(3, shared=False), SOURCE),
    "mixhop.py": Case(
        lambda: Stack(pyg.MixHopConv(WIDTH, 4), pyg.MixHopConv(12, 4, [0, 1])),
        SOURCE,
    ),
    "graph_sage_unsup.py": Case(lambda: models.GraphSAGE(WIDTH, 8, 2), SOURCE),
    "reddit.py": Case(lambda: Stack(pyg.SAGEConv(WIDTH, 6), pyg.SAGEConv(6, 4)), SOURCE),
    "link_pred.py": Case(lambda: Encoder(), SOURCE, method="encode"),
    "ogbn_train.py SAGE": Case(
        lambda: models.GraphSAGE(WIDTH, 8, 3, 4, norm="BatchNorm", act="relu"), SOURCE
    ),
    "LGConv": Case(lambda: pyg.LGConv(), SOURCE),
    "graph_saint.py": Case(lambda: Saint(), SOURCE),
    "cluster_gcn_ppi.py": Case(
        lambda: Stack(pyg.ClusterGCNConv(WIDTH, 6, diag_lambda=1), pyg.ClusterGCNConv(6, 4, diag_lambda=1)),
        SOURCE,
    ),
    "dir_gnn.py": Case(
        lambda: Stack(pyg.DirGNNConv(pyg.SAGEConv(WIDTH, 6)), pyg.DirGNNConv(pyg.SAGEConv(6, 4))), SOURCE
    ),
    "egc.py": Case(lambda: pyg.EGConv(WIDTH, 8, ["symnorm"], num_heads=4, num_bases=4), SOURCE),
    "pmlp.py": Case(lambda: models.PMLP(WIDTH, 8, 4, 2), GLOBAL),
    "rev_gnn.py": Case(lambda: models.GroupAddRev(pyg.SAGEConv(4, 4), num_groups=2), SOURCE),
    "autoencoder.py GCNEncoder": Case(lambda: Stack(pyg.GCNConv(WIDTH, 8), pyg.GCNConv(8, 4)), SOURCE),
    "autoencoder.py VariationalGCN": Case(Variational, SOURCE),
    "autoencoder.py GAE": Case(
        lambda: models.GAE(Stack(pyg.GCNConv(WIDTH, 8), pyg.GCNConv(8, 4))), SOURCE, method="encode"
    ),
    "infomax": Case(lambda: Sequence(pyg.GCNConv(WIDTH, 8), nn.PReLU(8)), SOURCE),
    "linkx.py": Case(
        lambda: models.LINKX(9, WIDTH, 6, 4, 2, 1, 2),
        SOURCE,
        parameters=(Given("edge_lin.weight", NODE, (6,), torch.float64, parameter=True),),
    ),
    "gat.py": Case(
        lambda: Stack(pyg.GATConv(WIDTH, 4, heads=2), pyg.GATConv(8, 4, concat=False), between=F.elu),
        ADDITIVE,
    ),
    "ogbn_train.py GAT": Case(lambda: models.GAT(WIDTH, 8, 3, 4, heads=2, norm="BatchNorm"), ADDITIVE),
    "ppi.py": Case(lambda: Skips(lambda a, b: pyg.GATConv(a, b, heads=2, concat=False)), ADDITIVE),
    "geniepath.py": Case(Genie, ADDITIVE),
    "agnn.py": Case(Agnn, DOT),
    "unimp_arxiv.py": Case(lambda: UniMP(False), DOT),
    "gcn.py weights": Case(lambda: Stack(pyg.GCNConv(WIDTH, 6), pyg.GCNConv(6, 4)), WEIGHTED, WITH_WEIGHT),
    "dna.py": Case(Dna, TARGET),
    "film.py": Case(
        lambda: Stack(pyg.FiLMConv(WIDTH, 6), pyg.FiLMConv(6, 4, act=None)),
        ("sum reads target", "sum source"),
    ),
    "pna.py": Case(
        lambda: pna(towers=2, post_layers=1),
        ("max source", "min source", "sum reads target", "sum source"),
    ),
    "PNA mean max": Case(
        lambda: pna(aggregators=["mean", "max"], scalers=["identity"]), ("max source", "sum source")
    ),
    "rgat.py": Case(
        lambda: Relations(pyg.RGATConv(WIDTH, 6, RELATIONS), pyg.RGATConv(6, 4, RELATIONS)),
        ("softmax sum, additive logit source+target+edge, value edge+source",),
        TYPED,
    ),
    "super_gat.py": Case(Super, GENERAL),
    "ogbn_proteins_deepgcn.py": Case(
        Deep, ("softmax sum, single logit source+edge, value edge+source",), WITH_ATTR
    ),
    # Composed
    "SignedGCN": Case(lambda: models.SignedGCN(WIDTH, 8, 2), SOURCE, (X, LIKES, HATES)),
    "Polynormer": Case(
        lambda: Once(models.Polynormer(WIDTH, 8, 4, local_layers=2, global_layers=1), polynormer), SOURCE
    ),
    "undirected": Case(Undirected, SOURCE),
    "Cheb given": Case(
        lambda: Once(pyg.ChebConv(WIDTH, 4, K=3), lambda f, x, e: f(x, e, lambda_max=2.0)), SOURCE
    ),
    "tgn": Case(
        Tgn,
        ("softmax sum, dot logit source+target+edge, value edge+source",),
        (X, Given("last_update", NODE, (), torch.float64), EDGES, ATTR, Given("t", EDGE, (), torch.float64)),
    ),
    "Transformer edge_dim": Case(
        lambda: pyg.TransformerConv(WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH, beta=True),
        ("softmax sum, dot logit source+target+edge, value edge+source",),
        WITH_ATTR,
    ),
    "unimp labels": Case(lambda: UniMP(True), DOT, (X, EDGES, LABELS)),
    "own edges": Case(OwnEdges, (*ADDITIVE, "sum source")),
    "PNA edge_dim towers": Case(
        lambda: pna(edge_dim=EDGE_WIDTH, towers=2, pre_layers=2),
        ("max reads target", "min reads target", "sum reads target"),
        WITH_ATTR,
    ),
    "GAT edge_dim": Case(
        lambda: pyg.GATConv(WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH, add_self_loops=False),
        ("softmax sum, additive logit source+target+edge, value source",),
        WITH_ATTR,
    ),
    "GAT edge_dim mean": Case(
        lambda: pyg.GATConv(WIDTH, 4, heads=2, edge_dim=EDGE_WIDTH, fill_value="mean"),
        ("softmax sum, additive logit source+target+edge, value source", "sum edge"),
        WITH_ATTR,
    ),
    "GCN improved": Case(lambda: pyg.GCNConv(WIDTH, 4, improved=True), WEIGHTED, WITH_WEIGHT),
    "SAGE powermean var": Case(
        lambda: pyg.SAGEConv(WIDTH, 4, aggr=["powermean", "var", "min"]),
        ("min source", "sum reads target", "sum source"),
    ),
}


QUICK = (
    "GCNw",
    "GATv2",
    "Trans",
    "AGNN",
    "ResGated",
    "GINE",
    "GEN",
    "RGCN",
    "DirGNN",
    "MF",
    "LightGCN",
    "GINm",
    "NNConv",
    "RGAT",
    "EdgeConv",
    "HAN",
    "HGT",
    "link_pred.py",
    "undirected",
    "own edges",
    "GAT edge_dim mean",
    "pna.py",
)
"""One of each kind of module, for every run; `make imports` takes them all."""


OLDEST_LACKS = {
    "arma.py": "a slice of a ModuleList whose layers share a module",
    "DNA": "a product of matrices, one for each node",
    "dna.py": "as DNA",
    "geniepath.py": "an LSTM that is given its states for a batch of sequences",
}
"""Modules that PyTorch 2.6 cannot export; newer versions can."""
ALL_MODULES = bool(os.environ.get("LIVEGNN_ALL_MODULES"))
NAMES = [name for name in (CASES if ALL_MODULES else QUICK) if not (IS_OLDEST and name in OLDEST_LACKS)]
"""Of the modules those that tests read: all, or a choice of every kind."""


def in_one_process(names: Iterable[str]) -> list[object]:
    """Parameters of tests: all tests of a name run in one process, which imports its module once."""
    return [pytest.param(name, marks=pytest.mark.xdist_group(f"imported {name}")) for name in names]
