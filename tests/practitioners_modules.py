"""The modules of public repositories that `practitioners` looks at: how each is made and called.

Facts only: names, commits, arguments. A module's own code stays where it was published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch_geometric
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn.models.tgn import TimeEncoder

from checkouts import Checkout, made_of
from imported_modules import EDGES, WEIGHT, Case
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given, Record
from pyg_examples import hetero, of_edges, of_nodes, row_each, x

IBM, DGRAPH = "IBM/Multi-GNN", "DGraphXinye/DGraphFin_baseline"
SCIENTIST, ELLIPTIC = "giovannicozzolongo/gnn-fraud-detection", "Adredes-weslee/elliptic-gnn-project"
AML = "simonemarasi/aml-elliptic-gnn"
MOTIFS = "Minixx33/Motif-Aware-Temporal-GNNs-for-Anti-Money-Laundering-Detection"
PIDS, EULER, SEARCH = "ubc-provenance/PIDSMaker", "iHeartGraph/Euler", "EnesAltinisik/ProvG-Searcher"
STGAN, IDS = "anyuan1999/STGAN", "zhenlus/GNN-IDS"
MMREC, SHEAF, SHOPS = "enoche/MMRec", "antoniopurificato/Sheaf4Rec", "njmarko/gnn-recommender-system"
TEMPORAL = "benedekrozemberczki/pytorch_geometric_temporal"
WEATHER, GRAPHCAST, OCELOT = "openclimatefix/graph_weather", "ashiksufaid/graphcast", "NOAA-EMC/ocelot"
OGB, CRYSTALS = "snap-stanford/ogb", "junming732/GNN-Molecular-Property-Prediction"
SCREENS = "ntua-unit-of-control-and-informatics/gnn-molecular-modelling"
QM, ALGEBRA = "mniyas/gnn-molecule-properties", "nrouli/GNN-molecular"

COMMITS = {
    "Adredes-weslee/elliptic-gnn-project": "95b586ca834009abac3157dee5f477b119bfcb7c",
    "DGraphXinye/DGraphFin_baseline": "113b1f7d9b556862eb2af0b34011694bb483c2df",
    "EnesAltinisik/ProvG-Searcher": "ac85b4e4e6f387cbf3bd8b94c87c62015f7440bb",
    "IBM/Multi-GNN": "252b0252afca109d1d216c411c59ff70753b25fc",
    "Joltsy10/gnn-weather-from-scratch": "9d9456554a063d263358060ec6b0080fcd24e513",
    "Jusminno2/gnn_research": "75191283dc3250f6d784b4793ffb97e3b8529330",
    MOTIFS: "c4b5fbe7228158d976f3a55838dbd660d5d5effa",
    "NOAA-EMC/ocelot": "fb54ebaa1c456dad9761c470d448dab3616938cd",
    "ProvenanceAnalytics/kairos": "0e0b633beb46a1117c0a6d63be5d2481b59ac0dc",
    "XiaoxinHe/TAPE": "26f1e43b6aa9de39a8f68ab79d1f2b607d8baf01",
    "antoniopurificato/Sheaf4Rec": "2cd476fd95cee8f2e6e6d5c6c21c37d2cef5ebdd",
    "anyuan1999/STGAN": "e0d8ff28b336d44b3c1caa86d4c9dee563ae3c31",
    "ashiksufaid/graphcast": "9fa06445d4df4098447a42c4f49aa8c6f5b8a1df",
    "benedekrozemberczki/pytorch_geometric_temporal": "adefe44265ad8faf239fd6cf3b59b95ca3ee60aa",
    "dream-faster/laplace-gnn-recommendation": "6cf76313eddadec4239e476fef3b1b8551183626",
    "echowve/meshGraphNets_pytorch": "afe3f51a08d100d88312a269662076904ae95f8d",
    "enoche/MMRec": "e775373b3ab1354a92165b0885ce4ab3dc4d7497",
    "frin10/Fraud_detection-using-gnn": "3544b7e5e239031ad55c02f4e0ec67e78de0294c",
    "gautica/meshgraphnet_pytorch": "24866ab27c0f115b183d9a86fdfe49a2bb50967f",
    "giovannicozzolongo/gnn-fraud-detection": "5ea6b43f1c7e569ce74b4f24f3796fd36fb197ae",
    "iHeartGraph/Euler": "b6ab8fdf0adbc7fb1ad1e8968b2dff3ce7245b02",
    "junming732/GNN-Molecular-Property-Prediction": "8ecfc499ef0c8d7675fd37f83119af592d458b56",
    "mniyas/gnn-molecule-properties": "27c95c70c25b71ee391a83d726e207e656211e44",
    "njmarko/gnn-recommender-system": "dccc91e17e2a54942606f59db9c08716e6f91c44",
    "nrouli/GNN-molecular": "5b8c805d2dd2ad2fbf6e8959f1155dfe13f651c2",
    SCREENS: "fbcd3af7e8a4e4c8e42269c8af4cd97289eefb86",
    "openclimatefix/graph_weather": "cbf72b3482ce6468debc8117e71c2b9c66bcd926",
    "pranayreddys/CS224-project": "2b12b4259ce0cdeccc127df509341707545a93c0",
    "rshirzadkhani/gnn-molecule": "8f0695c970ac6605dbb5581e325227331afe5eb0",
    "simonemarasi/aml-elliptic-gnn": "2ecace58b488fc798473aa3ab24a5f8f273143e1",
    "snap-stanford/ogb": "61e9784ca76edeaa6e259ba0f836099608ff0586",
    "snap-stanford/relbench": "dd8d6ef5dc2a6c41b768bf98538b48def58147c3",
    "ubc-provenance/PIDSMaker": "216df3aaf76224c0a9311e66ae2110fd8d3730d7",
    "wambuiterry/hybrid-gnn-fraud-intel": "7364c5bc54cf15332a5e359553dd7601f468a391",
    "yuasosnin/gnn-traffic": "681e6a82a3b3485496711a88918518ba18b80f44",
    "zhenlus/GNN-IDS": "7e941cba9711961d87bab36cd6bbc8a6c9a0b9b7",
}
"""Repository -> the commit that was looked at."""


BESIDE = ("snap-stanford__ogb", "benedekrozemberczki__pytorch_geometric_temporal")
"""Checkouts of libraries that others import."""


@dataclass(frozen=True)
class Change:
    """What is done to a module because a refusal tells it. told: in the reason. what: for the table."""

    told: str
    what: str
    change: Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class Row:
    """A class of a file, how it is made and called.

    settings: the arguments of its constructor. make: makes it otherwise, of the file's names. roots: folders
    of the repository that its imports begin in. constants: names of the file whose values are calls. names:
    what the file finds under these names instead of its own. given: what a user says in any case. output,
    output_type: what is asked for where the module returns several things. pick: that, of its tensors in
    order. scores: the model's edge output that is held, if it is not rows of nodes. refused: what the true
    reason of a refusal says, where there is no way round. graph: one that it can be called with, of
    `imported_modules.GRAPHS`. changes: what else the reasons tell to do.
    """

    repository: str
    file: str
    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[object, ...] = (x(6), EDGES)
    note: str = ""
    kwargs: Mapping[str, object] = field(default_factory=dict)
    method: str = "forward"
    make: Callable[[ModuleType], nn.Module] | None = None
    parameters: tuple[Given, ...] = ()
    roots: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    names: Mapping[str, object] = field(default_factory=dict)
    given: Mapping[str, object] = field(default_factory=dict)
    output: str | None = None
    output_type: str | None = None
    pick: Callable[[list[torch.Tensor]], torch.Tensor] = lambda tensors: tensors[0]
    scores: str = ""
    refused: str = ""
    graph: str = "random"
    changes: tuple[Change, ...] = ()

    @property
    def title(self) -> str:
        method = "" if self.method == "forward" else f".{self.method}"
        return f"{self.repository} {self.file} {self.name}{method}{f', {self.note}' if self.note else ''}"

    def case(self, folder: Path) -> Case:
        def build() -> nn.Module:
            root = folder / self.repository.replace("/", "__")
            file = root / self.file
            roots = [
                *(root / one for one in self.roots),
                root,
                file.parent,
                *(folder / one for one in BESIDE),
            ]
            module = Checkout(roots, self.constants, dict(self.names)).load(file)
            return self.make(module) if self.make else made_of(module, self.name)(**self.settings)

        return Case(build, (), self.args, self.kwargs, self.method, self.parameters)


def attr(width: int = 4) -> Given:
    return of_edges("edge_attr", (width,))


def record(*rows: Given) -> Record:
    """PyG data with these."""
    return Record({(None, one.name): one for one in rows})


GRID, MESH = Atom("grid"), Atom("mesh")
TO_MESH = Atom("grid-to-mesh", GRID, MESH)
GRID_X, MESH_X = (Given(f"x:{atom}", atom, (6,), torch.float64) for atom in (GRID, MESH))
TO_MESH_ENDS = Given(f"edge_index:{TO_MESH}", TO_MESH, ends=True)
TO_MESH_ATTR = Given(f"edge_attr:{TO_MESH}", TO_MESH, (4,), torch.float64)
TYPE = of_edges("edge_type", (), torch.int64)
SHOP = (
    {"customer": 6, "product": 6},
    [("product", "metapath_0", "product"), ("product", "rev_buys", "customer")],
)
BOTH_WAYS = (
    {"customer": 6, "product": 5},
    [("customer", "buys", "product"), ("product", "rev_buys", "customer")],
)
TABLES = (
    {"users": 8, "posts": 8},
    [("users", "writes", "posts"), ("posts", "rev_writes", "users"), ("posts", "links", "posts")],
)
BUYS = Atom("product-rev_buys-customer", Atom("product"), Atom("customer"))
SHOP_LINKS = (SHOP[0], [*SHOP[1], ("customer", "buys", "product")])
PAIRS_OF_SHOP = Atom("customer-buys-product", Atom("customer"), Atom("product"), pairs=True)
SHOP_PAIRS = Given("edge_label_index", PAIRS_OF_SHOP, ends=True)
LABEL = Given(f"edge_attr:{BUYS}", BUYS, (1,), torch.float64)


def of_types(
    kinds: tuple[dict[str, int], list[tuple[str, str, str]]],
) -> tuple[list[str], list[tuple[str, str, str]]]:
    return list(kinds[0]), kinds[1]


def rows_normed(module: nn.Module) -> nn.Module:
    """A norm over all nodes becomes one over each row's channels."""
    for part in module.modules():
        for name, child in part.named_children():
            if isinstance(child, pyg.GraphNorm):
                setattr(part, name, _Rows(child.in_channels))
    return module


class _Rows(pyg.LayerNorm):
    """Called as GraphNorm is."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, mode="node")


NORMS = Change(
    "every row of the graph is reduced to one", "GraphNorm replaced by LayerNorm(mode='node')", rows_normed
)

POOLED = r"every row of the graph is reduced to one|no row for each node|depends on data"
"""The prediction is of a graph, or reads a mean over all nodes."""
LAST = r"the last of which have no edges"
"""It fails if the last nodes have no edges."""
LAMBDA = r"lambda_max"
"""ChebConv takes the greatest eigenvalue from all edges, where it is not given."""
RANDOM = r"random"
ORDER = r"order|position|sort|depends on data"


_MULTI = {"num_features": 6, "num_gnn_layers": 2, "n_hidden": 20, "edge_dim": 4}
_DGRAPH = {"in_channels": 6, "hidden_channels": 8, "out_channels": 2, "num_layers": 2, "dropout": 0.5}
_DEEP = {**_DGRAPH, "num_layers": 3}
_PIDS = {"in_dim": 6, "hid_dim": 8, "out_dim": 5, "dropout": 0.1, "activation": nn.ReLU()}
_MAGIC = {"in_dim": 6, "hid_dim": 4, "out_dim": 5, "n_layers": 2, "n_heads": 2, "concat_out": True}
_EDGED = (x(6), EDGES, attr())
_ELLIPTIC = {"in_dim": 6, "hidden_dim": 8}
_TIME = of_nodes("timesteps", (), torch.int64)
_STEP = of_nodes("t_idx", (), torch.int64)
_STATE, _CELL = of_nodes("h", (8,)), of_nodes("c", (8,))
_HELD = {"inputs": {"H": ("node", 8)}}
_HELD_CELL = {"inputs": {"H": ("node", 8), "C": ("node", 8)}}
_ATOMS = (of_nodes("x", (7,), torch.int64), EDGES, of_edges("edge_attr", (2,), torch.int64))
_OGB = ("allowable_features", "full_atom_feature_dims", "full_bond_feature_dims")
_BATCH = of_nodes("batch", (), torch.int64)
_RECURRENT = {"in_channels": 6, "out_channels": 8}
_CHEB = {**_RECURRENT, "K": 2}
_WEIGHTED = (x(6), EDGES, WEIGHT)
_MESH = {"in_dim_node": 8, "in_dim_edge": 8, "hidden_dim": 8, "hidden_layers": 1}
_LONG = (x(4), EDGES, WEIGHT)


def _recurrent(name: str) -> str:
    return f"torch_geometric_temporal/nn/recurrent/{name}.py"


def _example(name: str) -> str:
    return f"examples/recurrent/{name}_example.py"


def _with_layers(module: ModuleType) -> ModuleType:
    """As the file imports its layers in lines that are commented out."""
    vars(module).update(LightGCNConv=module.lightgcn.LightGCNConv, NGCFConv=module.ngcf.NGCFConv)
    return module


ROWS: Sequence[Row] = (
    # Fraud
    Row(IBM, "models.py", "GINe", _MULTI, _EDGED, scores="output"),
    Row(IBM, "models.py", "GINe", {**_MULTI, "edge_updates": True}, _EDGED, "edge updates", scores="output"),
    Row(IBM, "models.py", "GATe", {**_MULTI, "n_heads": 2}, _EDGED, scores="output"),
    Row(IBM, "models.py", "PNA", {**_MULTI, "deg": torch.tensor([1, 4, 3, 2])}, _EDGED, scores="output"),
    Row(DGRAPH, "models/gcn.py", "GCN", _DEEP),
    Row(DGRAPH, "models/sage.py", "SAGE", _DEEP),
    Row(DGRAPH, "models/gat.py", "GAT", {**_DGRAPH, "layer_heads": [2, 1]}),
    Row(DGRAPH, "models/gat.py", "GATv2", {**_DGRAPH, "layer_heads": [2, 1]}),
    Row(SCIENTIST, "src/models/gnn.py", "GCN", _ELLIPTIC),
    Row(SCIENTIST, "src/models/gnn.py", "GraphSAGE", _ELLIPTIC),
    Row(SCIENTIST, "src/models/gnn.py", "GraphSAGE", _ELLIPTIC, method="encode"),
    Row(SCIENTIST, "src/models/gnn.py", "GraphSAGEJK", _ELLIPTIC),
    Row(SCIENTIST, "src/models/gnn.py", "GAT", {**_ELLIPTIC, "heads": 2}),
    Row(SCIENTIST, "src/models/temporal.py", "TemporalSAGE", _ELLIPTIC, (x(6), EDGES, _TIME)),
    Row(
        SCIENTIST,
        "src/models/ssl.py",
        "GraphMAE",
        refused=RANDOM,
        make=lambda m: m.GraphMAE(pyg.GAE(pyg.GCNConv(6, 8)), 6, 8),
    ),
    Row(ELLIPTIC, "src/models/gnn.py", "GCNNet", _ELLIPTIC),
    Row(ELLIPTIC, "src/models/gnn.py", "SAGENet", _ELLIPTIC),
    Row(ELLIPTIC, "src/models/gnn.py", "GATNet", {**_ELLIPTIC, "heads": 2}),
    Row(ELLIPTIC, "src/models/gnn.py", "SAGEResBNNet", _ELLIPTIC),
    Row(
        ELLIPTIC,
        "src/models/gnn.py",
        "SAGEResBNNet",
        {**_ELLIPTIC, "time_embed_dim": 4},
        (x(6), EDGES, _STEP),
        "learned times",
    ),
    Row(
        ELLIPTIC,
        "src/models/gnn.py",
        "SAGEResBNNet",
        {**_ELLIPTIC, "time_embed_dim": 4, "time_embed_type": "sin"},
        (x(6), EDGES, _STEP),
        "sinusoids",
    ),
    Row(
        AML,
        "models/models.py",
        "GCNConvolution",
        {"args": {"num_classes": 2}, "num_features": 6, "hidden_units": 8},
        ([x(6), EDGES],),
    ),
    Row(
        AML,
        "models/models.py",
        "SAGEConvolution",
        {"args": {"num_classes": 2}, "num_features": 6, "hidden_units": 8},
        ([x(6), EDGES],),
    ),
    Row(
        AML,
        "models/models.py",
        "GATConvolution",
        {"args": {"num_classes": 2}, "num_features": 6, "hidden_units": 8},
        ([x(6), EDGES],),
    ),
    Row(
        AML,
        "models/models.py",
        "GATv2Convolution",
        {"args": {"num_classes": 2}, "num_features": 6, "hidden_units": 8},
        ([x(6), EDGES],),
    ),
    Row(
        AML,
        "models/models.py",
        "ChebyshevConvolution",
        {"args": {"num_classes": 2}, "kernel": (2, 3), "num_features": 6, "hidden_units": 8},
        ([x(6), EDGES],),
        refused=LAMBDA,
    ),
    Row(
        AML,
        "models/custom_gat/model.py",
        "GAT",
        {
            "num_of_layers": 2,
            "num_heads_per_layer": [2, 1],
            "num_features_per_layer": [6, 4, 3],
            "device": "cpu",
        },
        ([x(6), EDGES],),
        refused=POOLED,
    ),
    Row("frin10/Fraud_detection-using-gnn", "model.py", "FraudGNN", {"in_channels": 6}),
    Row(MOTIFS, "scripts/training/train_graphsage.py", "GraphSAGEEncoder", {"in_dim": 6, "hidden_dim": 8}),
    Row(
        MOTIFS,
        "scripts/training/train_graphsage_t.py",
        "GraphSAGE_T",
        method="encode",
        make=lambda m: m.GraphSAGE_T(6, 4, {"hidden_dim": 8, "aggregator": "max"}),
    ),
    Row(
        "wambuiterry/hybrid-gnn-fraud-intel",
        "tests/test_gnn.py",
        "GNNEncoder",
        args=hetero(*BOTH_WAYS),
        make=lambda m: pyg.to_hetero(m.GNNEncoder(8, 5), of_types(BOTH_WAYS), aggr="mean"),
        output_type="customer",
    ),
    # Intrusion detection
    Row(PIDS, "pidsmaker/encoders/gat.py", "GAT", {**_PIDS, "num_heads": 2, "concat": True, "num_layers": 2}),
    Row(PIDS, "pidsmaker/encoders/gin.py", "GIN", {**_PIDS, "edge_dim": 4, "num_layers": 2}, _EDGED),
    Row(
        PIDS,
        "pidsmaker/encoders/graph_attention.py",
        "GraphAttentionEmbedding",
        {**_PIDS, "edge_dim": 4, "num_heads": 2, "concat": True, "num_layers": 2},
        _EDGED,
    ),
    Row(
        PIDS,
        "pidsmaker/encoders/graph_attention.py",
        "GraphAttentionEmbedding",
        {
            **_PIDS,
            "edge_dim": None,
            "num_heads": 2,
            "concat": False,
            "num_layers": 2,
            "flow": "target_to_source",
        },
        note="without edges' features, reversed",
    ),
    Row(PIDS, "pidsmaker/encoders/magic_encoder.py", "MagicGAT", _MAGIC),
    Row(
        PIDS,
        "pidsmaker/encoders/magic_encoder.py",
        "MagicGAT",
        {
            **_MAGIC,
            "edge_dim": 4,
            "residual": True,
            "activation": nn.PReLU(),
            "is_decoder": True,
        },
        _EDGED,
        "decoder",
    ),
    Row(
        PIDS,
        "pidsmaker/encoders/rcaid_encoder.py",
        "RCaidGAT",
        {"in_dim": 6, "hid_dim": 8, "out_dim": 5, "dropout": 0.1},
    ),
    Row(PIDS, "pidsmaker/encoders/sage.py", "SAGE", {**_PIDS, "num_layers": 2}),
    Row(
        PIDS,
        "pidsmaker/encoders/sum_aggregation.py",
        "SumAggregation",
        {"in_dim": 6, "hid_dim": 8, "out_dim": 5},
    ),
    Row(
        PIDS,
        "pidsmaker/encoders/glstm.py",
        "GLSTM",
        {"in_features": 6, "out_features": 5},
        (x(6), EDGES, attr(), of_edges("edge_types", (10,))),
        refused=ORDER,
    ),
    Row(
        "ProvenanceAnalytics/kairos",
        "DARPA/CADETS_E3/model.py",
        "GraphAttentionEmbedding",
        {"in_channels": 6, "out_channels": 4, "msg_dim": 5, "time_enc": TimeEncoder(3)},
        (x(6), of_nodes("last_update"), EDGES, of_edges("t"), of_edges("msg", (5,))),
        names={
            "device": "cpu",
            "TransformerConv": pyg.TransformerConv,
            "F": torch.nn.functional,
            "torch": torch,
        },
    ),
    Row(EULER, "benchmarks/models/euler_serial.py", "GAE", {"feat_dim": 6, "embed_dim": 4, "hidden_dim": 8}),
    Row(
        EULER,
        "benchmarks/models/euler_serial.py",
        "GAE",
        {"feat_dim": 6, "embed_dim": 4, "hidden_dim": 8},
        _WEIGHTED,
        "weights",
    ),
    Row(
        EULER,
        "benchmarks/models/vgrnn.py",
        "VGAE",
        {"x_dim": 6, "hidden_dim": 8, "embed_dim": 4},
        output="output[0]",
    ),
    Row(EULER, "euler/embedders.py", "PoolSAGEConv", {"in_channels": 6, "out_channels": 5}),
    Row(SEARCH, "common/models.py", "SAGEConv", {"in_channels": 6, "out_channels": 5}),
    Row(SEARCH, "common/models.py", "GINConv", {"in_channels": 6, "out_channels": 5, "train_eps": True}),
    Row(SEARCH, "common/models.py", "GINConv", {"in_channels": 6, "out_channels": 5}, _WEIGHTED, "weights"),
    Row(
        SEARCH,
        "common/models.py",
        "ConvEdgeType",
        args=(x(6), EDGES, TYPE),
        refused=r"filter it by a condition",
        make=lambda m: m.ConvEdgeType(m.SAGEConv, 6, 5, n_edge_types=2),
    ),
    Row(
        SEARCH,
        "common/models.py",
        "ConvEdgeType",
        make=lambda m: m.ConvEdgeType(m.SAGEConv, 6, 5),
        note="one type",
    ),
    Row(STGAN, "model/GAT.py", "GAT", {"in_channel": 6, "out_channel": 3, "hidden_channels": 4, "heads": 2}),
    Row(IDS, "src/models.py", "GCN", {"in_dim": 6, "hidden_dim": 8, "out_dim": 2}),
    Row(
        IDS,
        "src/models.py",
        "GCN",
        {"in_dim": 6, "hidden_dim": 8, "out_dim": 1},
        note="one output",
    ),
    Row(
        IDS,
        "src/models.py",
        "GAT",
        {"hidden_channels": 4, "heads": 2, "in_dim": 6, "out_dim": 2},
    ),
    Row(
        IDS,
        "src/models.py",
        "GCN_EW",
        args=(x(6), EDGES),
        refused=r"row for each edge",
        make=lambda m: m.GCN_EW(6, 8, 2, torch.zeros(2, 14)),
    ),
    # Recommendation
    Row(MMREC, "src/models/grcn.py", "GATConv", {"in_channels": 6, "out_channels": 6}),
    Row(
        MMREC,
        "src/models/grcn.py",
        "GATConv",
        {"in_channels": 6, "out_channels": 6, "self_loops": True},
        note="loops",
    ),
    Row(
        MMREC, "src/models/grcn.py", "SAGEConv", {"in_channels": 6, "out_channels": 6}, (x(6), EDGES, attr(1))
    ),
    Row(
        MMREC,
        "src/models/mmgcn.py",
        "BaseModel",
        {"in_channels": 6, "out_channels": 5},
        names={"torch_geometric": torch_geometric},
    ),
    Row(MMREC, "src/models/dragon.py", "Base_gcn", {"in_channels": 6, "out_channels": 6}),
    Row(
        MMREC,
        "src/models/dualgnn.py",
        "Base_gcn",
        {"in_channels": 6, "out_channels": 6, "aggr": "mean"},
        note="mean",
    ),
    Row(SHEAF, "competitors/lightgcn.py", "LightGCNConv"),
    Row(SHEAF, "competitors/ngcf.py", "NGCFConv", {"latent_dim": 6, "dropout": 0.1}),
    *(
        Row(
            SHEAF,
            "models.py",
            "RecSysGNN",
            args=(EDGES,),
            parameters=row_each("embedding.weight", 6),
            note=kind,
            make=lambda m, kind=kind: _with_layers(m).RecSysGNN(6, 2, 10, 20, kind),
            given={"output": "output[1]"},
            pick=lambda tensors: tensors[1],
        )
        for kind in ("lightgcn", "ngcf")
    ),
    Row("pranayreddys/CS224-project", "code/model.py", "LGCN_layer"),
    Row("pranayreddys/CS224-project", "code/model.py", "LGCN_Network", {"num_layers": 3}),
    Row(
        "dream-faster/laplace-gnn-recommendation",
        "model/encoder_decoder.py",
        "GNNEncoder",
        make=lambda m: m.GNNEncoder(nn.ModuleList([pyg.SAGEConv(6, 8), pyg.SAGEConv(8, 5)]), None, 0.2),
    ),
    Row(SHOPS, "model/bipartite_sage.py", "ItemGNNEncoder", {"hidden_channels": 8, "out_channels": 5}),
    Row(
        SHOPS,
        "model/bipartite_sage.py",
        "UserGNNEncoder",
        {"hidden_channels": 8, "out_channels": 5},
        hetero(*SHOP),
    ),
    Row(
        SHOPS,
        "model/bipartite_sage.py",
        "MetaSage",
        {"num_customers": 5, "hidden_channels": 8, "out_channels": 5},
        (*hetero(*SHOP_LINKS), SHOP_PAIRS),
        scores="output",
    ),
    Row(SHOPS, "model/bipartite_gat.py", "ItemGNNEncoder", {"hidden_channels": 8, "out_channels": 5}),
    Row(
        SHOPS,
        "model/bipartite_gat.py",
        "UserGNNEncoder",
        {"hidden_channels": 8, "out_channels": 5, "edge_channels": 1},
        (*hetero(*SHOP), LABEL),
    ),
    Row(
        SHOPS,
        "model/model.py",
        "GNNEncoder",
        args=hetero(*BOTH_WAYS),
        output_type="product",
        make=lambda m: pyg.to_hetero(m.GNNEncoder(8, 5), of_types(BOTH_WAYS), aggr="sum"),
    ),
    Row(
        SHOPS,
        "model/model.py",
        "GAT",
        args=hetero(*BOTH_WAYS),
        output_type="product",
        make=lambda m: pyg.to_hetero(m.GAT(8, 5), of_types(BOTH_WAYS), aggr="sum"),
    ),
    Row(
        "snap-stanford/relbench",
        "relbench/modeling/nn.py",
        "HeteroGraphSAGE",
        args=hetero(*TABLES),
        output_type="users",
        make=lambda m: m.HeteroGraphSAGE(*of_types(TABLES), 8),
    ),
    Row(
        "snap-stanford/relbench",
        "relbench/modeling/nn.py",
        "HeteroGAT",
        args=hetero(*TABLES),
        output_type="posts",
        make=lambda m: m.HeteroGAT(*of_types(TABLES), 8, heads=2),
    ),
    Row(
        "snap-stanford/relbench",
        "examples/tgn_attention_recommendation.py",
        "GraphAttentionEmbedding",
        args=(x(6), of_nodes("last_update"), EDGES, of_edges("t"), of_edges("msg", (5,))),
        make=lambda m: m.GraphAttentionEmbedding(6, 8, 5, m.TimeEncoder(3)),
    ),
    # Traffic, and what is forecast on a graph of sensors
    Row(TEMPORAL, _recurrent("temporalgcn"), "TGCN", _RECURRENT),
    Row(TEMPORAL, _recurrent("temporalgcn"), "TGCN", _RECURRENT, (*_WEIGHTED, _STATE), "state", given=_HELD),
    Row(TEMPORAL, _recurrent("gconv_gru"), "GConvGRU", _CHEB, _WEIGHTED, refused=LAMBDA),
    Row(
        TEMPORAL,
        _recurrent("gconv_gru"),
        "GConvGRU",
        _CHEB,
        (*_WEIGHTED, _STATE, 2.0),
        "state",
        given=_HELD,
    ),
    Row(
        TEMPORAL,
        _recurrent("gconv_lstm"),
        "GConvLSTM",
        _CHEB,
        (*_WEIGHTED, _STATE, _CELL, 2.0),
        given=_HELD_CELL,
    ),
    Row(
        TEMPORAL,
        _recurrent("gc_lstm"),
        "GCLSTM",
        _CHEB,
        (*_WEIGHTED, _STATE, _CELL, 2.0),
        given=_HELD_CELL,
    ),
    Row(
        TEMPORAL,
        _recurrent("lrgcn"),
        "LRGCN",
        {**_RECURRENT, "num_relations": 3, "num_bases": 2},
        (x(6), EDGES, TYPE, _STATE, _CELL),
        given=_HELD_CELL,
    ),
    Row(TEMPORAL, _recurrent("evolvegcno"), "EvolveGCNO", {"in_channels": 6}, _WEIGHTED),
    Row(
        TEMPORAL,
        _recurrent("dygrae"),
        "DyGrEncoder",
        {
            "conv_out_channels": 6,
            "conv_num_layers": 2,
            "conv_aggr": "mean",
            "lstm_out_channels": 4,
            "lstm_num_layers": 1,
        },
        _WEIGHTED,
    ),
    Row(
        TEMPORAL,
        _recurrent("attentiontemporalgcn"),
        "A3TGCN",
        {**_RECURRENT, "periods": 3},
        (of_nodes("x", (6, 3)), EDGES, WEIGHT),
    ),
    Row(TEMPORAL, _example("gconvgru"), "RecurrentGCN", {"node_features": 4}, _LONG, "gconvgru"),
    Row(
        TEMPORAL,
        _example("tgcn"),
        "RecurrentGCN",
        {"node_features": 4},
        (*_LONG, of_nodes("prev_hidden_state", (32,))),
        "tgcn",
    ),
    Row(TEMPORAL, _example("a3tgcn"), "RecurrentGCN", {"node_features": 1, "periods": 4}, _LONG, "a3tgcn"),
    Row(
        TEMPORAL,
        _example("gconvlstm"),
        "RecurrentGCN",
        {"node_features": 4},
        (*_LONG, of_nodes("h", (32,)), of_nodes("c", (32,))),
        "gconvlstm",
    ),
    Row(
        TEMPORAL,
        "torch_geometric_temporal/nn/hetero/heterogclstm.py",
        "HeteroGCLSTM",
        args=hetero(*BOTH_WAYS),
        make=lambda m: m.HeteroGCLSTM({"customer": 6, "product": 5}, 8, of_types(BOTH_WAYS)),
        output_type="customer",
    ),
    Row(
        "Jusminno2/gnn_research",
        "using_PEMS/src/model.py",
        "TrafficGNN",
        {"num_features": 6, "hidden_dim": 8, "output_dim": 3},
    ),
    Row(
        "yuasosnin/gnn-traffic",
        "src/model.py",
        "TemporalGNN",
        {"in_features": 2, "hidden_features": 8, "periods": 4},
        (of_nodes("x", (2, 4)), EDGES),
    ),
    # Weather, and simulations on meshes
    Row(
        WEATHER,
        "graph_weather/models/layers/graph_net_block.py",
        "NodeProcessor",
        _MESH,
        (x(8), EDGES, attr(8)),
    ),
    Row(
        WEATHER,
        "graph_weather/models/layers/graph_net_block.py",
        "GraphProcessor",
        {"mp_iterations": 2, "in_dim_node": 8, "in_dim_edge": 8, "hidden_dim_node": 8, "hidden_dim_edge": 8},
        (x(8), EDGES, attr(8)),
    ),
    Row(
        WEATHER,
        "graph_weather/models/layers/processor.py",
        "Processor",
        {
            "input_dim": 8,
            "edge_dim": 8,
            "num_blocks": 2,
            "hidden_dim_processor_node": 8,
            "hidden_dim_processor_edge": 8,
        },
        (x(8), EDGES, attr(8)),
    ),
    Row(
        WEATHER,
        "graph_weather/models/gencast/layers/modules.py",
        "InteractionNetwork",
        {
            "sender_dim": 6,
            "receiver_dim": 6,
            "edge_attr_dim": 4,
            "hidden_dims": [8, 5],
            "use_layer_norm": True,
        },
        ([x(6), x(6)], EDGES, attr()),
    ),
    Row(
        WEATHER,
        "graph_weather/models/gencast/layers/modules.py",
        "InteractionNetwork",
        {
            "sender_dim": 6,
            "receiver_dim": 6,
            "edge_attr_dim": 4,
            "hidden_dims": [8, 5],
            "use_layer_norm": True,
        },
        ([GRID_X, MESH_X], TO_MESH_ENDS, TO_MESH_ATTR),
        "grid to mesh",
    ),
    Row(
        WEATHER,
        "graph_weather/models/gencast/layers/encoder.py",
        "Encoder",
        {"grid_dim": 6, "mesh_dim": 6, "edge_dim": 4, "hidden_dims": [8, 8]},
        (GRID_X, MESH_X, TO_MESH_ATTR, TO_MESH_ENDS),
        given={"output": "output[1]"},
        pick=lambda tensors: tensors[1],
    ),
    Row(
        WEATHER,
        "graph_weather/models/gencast/layers/modules.py",
        "CondTransformerBlock",
        {"input_dim": 6, "output_dim": 4, "num_heads": 2, "conditioning_dim": 3, "edges_dim": 4},
        (x(6), EDGES, attr(), of_nodes("cond_param", (3,))),
    ),
    Row(
        WEATHER,
        "graph_weather/models/gencast/layers/processor.py",
        "Processor",
        {
            "latent_dim": 8,
            "hidden_dims": [8, 8],
            "num_blocks": 2,
            "num_heads": 2,
            "num_frequencies": 4,
            "base_period": 16,
            "noise_emb_dim": 6,
            "edges_dim": 4,
        },
        (x(8), EDGES, of_nodes("noise_levels", (1,)), attr()),
    ),
    Row(
        GRAPHCAST,
        "GraphCast.py",
        "InteractionNetworkLayer",
        {"node_features": 6, "edge_features": 4, "hidden_features": 8},
        _EDGED,
        refused=LAST,
        graph="dense",
    ),
    Row(
        OCELOT,
        "gnn_model/interaction_network.py",
        "InteractionNetwork",
        args=hetero(*TABLES),
        output_type="posts",
        make=lambda m: m.InteractionNetwork(8, *of_types(TABLES)),
    ),
    Row(
        OCELOT,
        "gnn_model/attn_bipartite.py",
        "BipartiteGAT",
        {"send_dim": 6, "rec_dim": 6, "hidden_dim": 6, "heads": 2, "edge_dim": 4},
        (GRID_X, MESH_X, TO_MESH_ATTR, TO_MESH_ENDS),
        refused=r"one number of nodes or edges",
    ),
    Row(
        "Joltsy10/gnn-weather-from-scratch",
        "model/message_passing.py",
        "MessagePassingLayer",
        {"node_dim": 6, "edge_dim": 4, "hidden_dim": 8},
        (x(6), x(6), EDGES, attr()),
    ),
    Row(
        "Joltsy10/gnn-weather-from-scratch",
        "model/gnn.py",
        "GNN",
        {"node_dim": 6, "edge_dim": 4},
        _EDGED,
        names={"load_config": lambda: {"model": {"hidden_dim": 8, "num_layers": 2}}},
    ),
    Row(
        "echowve/meshGraphNets_pytorch",
        "model/model.py",
        "EncoderProcesserDecoder",
        {"message_passing_num": 2, "node_input_size": 6, "edge_input_size": 4, "hidden_size": 8},
        (record(x(6), EDGES, attr()),),
    ),
    Row(
        "gautica/meshgraphnet_pytorch",
        "meshgraphnet/model/networks.py",
        "EncodeProcessDecode",
        {
            "input_dim_node": 6,
            "input_dim_edge": 4,
            "hidden_dim": 8,
            "output_dim": 3,
            "num_layers": 2,
            "message_passing_steps": 2,
        },
        (EDGES, x(6), attr()),
        refused=LAST,
        graph="dense",
    ),
    # Molecules
    Row(OGB, "examples/nodeproppred/arxiv/gnn.py", "GCN", _DEEP),
    Row(OGB, "examples/nodeproppred/arxiv/gnn.py", "SAGE", _DEEP),
    Row(OGB, "examples/nodeproppred/products/cluster_gcn.py", "SAGE", _DEEP),
    Row(OGB, "examples/nodeproppred/products/graph_saint.py", "SAGE", _DEEP, given={"edge_weight": False}),
    Row(OGB, "examples/nodeproppred/proteins/gnn.py", "GCN", _DEEP, _WEIGHTED[:2]),
    Row(
        OGB,
        "examples/nodeproppred/mag/cluster_gcn.py",
        "RGCNConv",
        {"in_channels": 6, "out_channels": 5, "num_node_types": 3, "num_edge_types": 3},
        (x(6), EDGES, TYPE, of_nodes("node_type", (), torch.int64)),
    ),
    Row(
        OGB,
        "examples/graphproppred/mol/conv.py",
        "GINConv",
        {"emb_dim": 8},
        (x(8), EDGES, of_edges("edge_attr", (2,), torch.int64)),
        constants=_OGB,
    ),
    Row(
        OGB,
        "examples/graphproppred/mol/conv.py",
        "GCNConv",
        {"emb_dim": 8},
        (x(8), EDGES, of_edges("edge_attr", (2,), torch.int64)),
        constants=_OGB,
    ),
    Row(
        OGB,
        "examples/graphproppred/mol/conv.py",
        "GNN_node",
        {"num_layer": 2, "emb_dim": 8},
        (record(*_ATOMS, _BATCH),),
        constants=_OGB,
    ),
    Row(
        OGB,
        "examples/graphproppred/mol/conv.py",
        "GNN_node",
        {"num_layer": 2, "emb_dim": 8, "JK": "sum", "residual": True, "gnn_type": "gcn"},
        (record(*_ATOMS, _BATCH),),
        "gcn, sums",
        constants=_OGB,
    ),
    Row(
        OGB,
        "examples/graphproppred/mol/gnn.py",
        "GNN",
        {"num_tasks": 2, "num_layer": 2, "emb_dim": 8, "virtual_node": False},
        (record(*_ATOMS, _BATCH),),
        constants=_OGB,
        refused=POOLED,
    ),
    Row(CRYSTALS, "src/models/cgcnn.py", "CGCNNLayer", {"node_fea_dim": 6, "edge_fea_dim": 4}, _EDGED),
    Row(CRYSTALS, "src/models/mpnn.py", "MPNNLayer", {"node_dim": 6, "edge_dim": 4, "hidden_dim": 8}, _EDGED),
    Row(
        "rshirzadkhani/gnn-molecule",
        "model.py",
        "GNN",
        {"input_dim": 6, "embedding_size": 8, "output_dim": 2},
        (*_EDGED, _BATCH),
        refused=ORDER,
    ),
    Row(
        SCREENS,
        "models/graph_convolutional_network.py",
        "GraphConvBlock",
        {"input_dim": 6, "hidden_dim": 8},
        (x(6), EDGES, None),
    ),
    Row(
        SCREENS,
        "models/graph_convolutional_network.py",
        "GraphConvBlock",
        {"input_dim": 6, "hidden_dim": 8, "graph_norm": True},
        (x(6), EDGES, None),
        "graph norm",
        changes=(NORMS,),
    ),
    Row(
        SCREENS,
        "models/graph_transformer_network.py",
        "GraphTransformerBlock",
        {"input_dim": 6, "hidden_dim": 4, "heads": 2, "edge_dim": 4},
        (x(6), EDGES, None, attr()),
    ),
    Row(
        SCREENS,
        "models/graph_convolutional_network.py",
        "GraphConvolutionalNetwork",
        {"input_dim": 6, "hidden_dims": [8, 8]},
        (x(6), EDGES, _BATCH),
        refused=POOLED,
    ),
    Row(
        SCREENS,
        "models/graph_sage_network.py",
        "GraphSAGEBlock",
        {"input_dim": 6, "hidden_dim": 8},
        (x(6), EDGES, None),
    ),
    Row(
        SCREENS,
        "models/graph_attention_network.py",
        "GraphAttentionBlock",
        {"input_dim": 6, "hidden_dim": 4, "heads": 2, "edge_dim": 4},
        (x(6), EDGES, None, attr()),
    ),
    Row(
        QM,
        "qm_property_predictor/models/mpnn.py",
        "MPNN",
        make=lambda m: m.MPNN(SimpleNamespace(num_node_features=6, num_edge_features=4)),
        args=(record(*_EDGED, _BATCH),),
        refused=POOLED,
    ),
    Row(QM, "qm_property_predictor/models/mm_utils.py", "DAGNN", {"K": 2, "emb_dim": 6}),
    Row(
        ALGEBRA,
        "models/EGNN.py",
        "E_GCL",
        {"input_nf": 6, "output_nf": 6, "hidden_nf": 8, "edges_in_d": 4, "attention": True},
        (x(6), EDGES, of_nodes("coord", (3,)), attr()),
    ),
    Row(
        ALGEBRA,
        "models/EGNN.py",
        "EGNN",
        {"in_node_nf": 6, "hidden_nf": 8, "out_node_nf": 3, "in_edge_nf": 4, "n_layers": 2},
        (x(6), of_nodes("pos", (3,)), EDGES, attr()),
    ),
    Row("XiaoxinHe/TAPE", "core/GNNs/GCN/model.py", "GCN", {**_DEEP, "use_pred": False}),
    Row("XiaoxinHe/TAPE", "core/GNNs/SAGE/model.py", "SAGE", {**_DEEP, "use_pred": False}),
)
