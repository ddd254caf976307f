"""Further modules that `practitioners` looks at: of papers, of benchmarks, and of what others built on them.

As `practitioners_modules`: names, commits and arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg

from imported_modules import EDGES, WEIGHT
from practitioners_modules import (
    LAMBDA,
    OGB,
    POOLED,
    SHOP_LINKS,
    SHOP_PAIRS,
    SHOPS,
    TEMPORAL,
    TYPE,
    Row,
    attr,
    of_types,
    record,
)
from pyg_examples import hetero, of_edges, of_nodes, x

GPR, BERN, DAGNN = "jianhao2016/GPRGNN", "ivam-he/BernNet", "mengliu1998/DeeperGNN"
TUNED, DIFFORMER, GPS = "LUOyk1999/tunedGNN", "qitianwu/DIFFormer", "rampasek/GraphGPS"
DIRECTED, ATTENTIVE, DEEP = (
    "emalgorithm/directed-graph-neural-network",
    "tech-srl/how_attentive_are_gats",
    "lightaime/deep_gcns_torch",
)
OUTLIERS, ROBUST, FRAUD = "pygod-team/pygod", "DSE-MSU/DeepRobust", "Sam-7878/dlg_gnn"
RECBOLE, MMGCN, SKETCHES = "RUCAIBox/RecBole-GNN", "weiyinwei/MMGCN", "melifluos/subgraph-sketching"
GRACE, BGRL, QA, HGT = "CRIPAC-DIG/GRACE", "nerdslab/bgrl", "michiyasunaga/qagnn", "acbull/pyHGT"
PARTICLES, POINTS = "geoelements/gns", "lucidrains/egnn-pytorch"

COMMITS = {
    "CRIPAC-DIG/GRACE": "b3b5ac3fcbaabbb50e8bd69a075b46cd82a50378",
    "DSE-MSU/DeepRobust": "92ad433645fef68c8e3d74458451842323809bf6",
    "LUOyk1999/tunedGNN": "23f9604e8b13a9a6d3faa2f691cd844006979153",
    "RUCAIBox/RecBole-GNN": "632ef888589944c190ad8f449b49ca559618d4df",
    "Sam-7878/dlg_gnn": "05bd9d92642ba213905b8e0a0e714fb21661bff4",
    "acbull/pyHGT": "85eaccd482bc1d1af56c2de297b6e3a88b96d5cd",
    "emalgorithm/directed-graph-neural-network": "7ba9255c53ff7bc6adc9ae24e5fc2648f29167c8",
    "geoelements/gns": "3b8fb5cc143690f061a721b63bde3e49eb8f8520",
    "ivam-he/BernNet": "79ef2bab5930477a12795f9c8530eb685e7c9262",
    "jianhao2016/GPRGNN": "4e0a7ee5435058b70eaec3c23c55fb96dc37f2d5",
    "lightaime/deep_gcns_torch": "4f6681eee2290e217bda941b5536452a7c09decb",
    "lucidrains/egnn-pytorch": "d3ba97d5b2540085cf8e02c838ebf5e42071697f",
    "melifluos/subgraph-sketching": "3562d94a07d1166faa0949030824bf75ad9bb2c4",
    "mengliu1998/DeeperGNN": "c1dceb009d10155ed4090f8a6d1a7042cefd9afe",
    "michiyasunaga/qagnn": "53eb88998e3365b19239a77ba4038042ca0a449a",
    "nerdslab/bgrl": "60f9f19ad0598f9163ad70ebbde3e7297760901e",
    "pygod-team/pygod": "c84dccafa9bf587cd03cfd3e89b9be7a8f3337e8",
    "qitianwu/DIFFormer": "89af3b234b19893b2723624fc597f70c8e21b48c",
    "rampasek/GraphGPS": "28015707cbab7f8ad72bed0ee872d068ea59c94b",
    "tech-srl/how_attentive_are_gats": "6f6d29089603c2f51651bd083dcd44f206b1100e",
    "weiyinwei/MMGCN": "a643673ecdf822e99f9833d1e9b0de960b7c2087",
}

DENSE = r"every node meets every node|dense"
"""It has a number for each pair of nodes."""
TESTED = r"depends on data"
"""Whether there are such edges decides what it does."""

_DATA = SimpleNamespace(num_features=6, num_node_features=6, num_classes=3)
_SETTINGS = SimpleNamespace(
    hidden=8,
    K=3,
    alpha=0.1,
    Init="PPR",
    Gamma=None,
    ppnp="GPR_prop",
    dprate=0.5,
    dropout=0.5,
    heads=2,
    output_heads=1,
)
_GRAPH = (record(x(6), EDGES),)
_WHOLE = (record(x(8), EDGES, attr(8)),)
_WIDTHS = {"in_channels": 6, "hidden_channels": 8, "out_channels": 3}
_NAMED = {"nfeat": 6, "nhid": 8, "nclass": 3, "device": "cpu"}
_FLAT = {
    "nnode_in": 8,
    "nnode_out": 8,
    "nedge_in": 8,
    "nedge_out": 8,
    "nmlp_layers": 1,
    "mlp_hidden_dim": 8,
}
_DEEP = {"in_channels": 6, "out_channels": 8}
_VERTEX = "gcn_lib/sparse/torch_vertex.py"
_GNNS = "node classification/gnns.py"


def _of_data(file: str, name: str, repository: str, note: str = "", refused: str = "", **more: object) -> Row:
    """A model of a data set and of settings."""
    settings = SimpleNamespace(**{**vars(_SETTINGS), **more})
    return Row(
        repository,
        file,
        name,
        args=_GRAPH,
        note=note,
        refused=refused,
        make=lambda m: getattr(m, name)(_DATA, settings),
    )


ROWS: Sequence[Row] = (
    # Node classification, with neighbours that are alike and with those that are not
    Row(GPR, "src/GNN_models.py", "GPR_prop", {"K": 3, "alpha": 0.1, "Init": "PPR"}),
    Row(
        GPR,
        "src/GNN_models.py",
        "GPR_prop",
        {"K": 2, "alpha": 0.5, "Init": "NPPR"},
        (x(6), EDGES, WEIGHT),
        "weights",
    ),
    _of_data("src/GNN_models.py", "GPRGNN", GPR),
    _of_data("src/GNN_models.py", "GPRGNN", GPR, "PPNP", ppnp="PPNP", dprate=0.0),
    _of_data("src/GNN_models.py", "GCN_Net", GPR),
    _of_data("src/GNN_models.py", "ChebNet", GPR, refused=LAMBDA),
    _of_data("src/GNN_models.py", "GAT_Net", GPR),
    _of_data("src/GNN_models.py", "APPNP_Net", GPR),
    _of_data("src/GNN_models.py", "GCN_JKNet", GPR),
    Row(BERN, "NodeClassification/Bernpro.py", "Bern_prop", {"K": 2}, names={"comb": comb}),
    Row(
        BERN,
        "NodeClassification/models.py",
        "BernNet",
        args=_GRAPH,
        make=lambda m: m.BernNet(_DATA, SimpleNamespace(**{**vars(_SETTINGS), "K": 2})),
        names={"comb": comb},
    ),
    Row(DAGNN, "DeeperGNN/dagnn.py", "Prop", {"num_classes": 6, "K": 3}),
    Row(
        DAGNN,
        "DeeperGNN/dagnn.py",
        "Net",
        args=_GRAPH,
        make=lambda m: m.Net(_DATA),
        names={"args": SimpleNamespace(hidden=8, K=3, dropout=0.5)},
    ),
    Row(TUNED, "medium_graph/model.py", "MPNNs", {**_WIDTHS, "res": True, "ln": True, "jk": True}),
    Row(TUNED, "medium_graph/model.py", "MPNNs", {**_WIDTHS, "gnn": "sage", "bn": True}, note="sage"),
    Row(TUNED, "medium_graph/model.py", "MPNNs", {**_WIDTHS, "gnn": "gat", "pre_linear": True}, note="gat"),
    Row(TUNED, "large_graph/lg_model.py", "MPNNs", _WIDTHS),
    Row(
        TUNED,
        "large_graph/lg_model.py",
        "MPNNs",
        {**_WIDTHS, "local_attn": True, "pre_ln": True},
        note="attention",
    ),
    Row(
        TUNED,
        "large_graph/lg_model.py",
        "MPNNs",
        {**_WIDTHS, "sage": True, "jk": True, "bn": False},
        note="sage",
    ),
    Row(
        TUNED,
        "large_graph/product.py",
        "GNN",
        {**_WIDTHS, "num_layers": 2, "dropout": 0.5, "ln": True, "gnn": "sage", "jk": True, "res": True},
    ),
    Row(TUNED, "medium_graph/GTs_baselines/sgformer.py", "GCN", _WIDTHS),
    Row(
        TUNED,
        "medium_graph/GTs_baselines/sgformer.py",
        "SGFormer",
        make=lambda m: m.SGFormer(**_WIDTHS, gnn=m.GCN(6, 8, 8)),
        refused=POOLED,
    ),
    Row(TUNED, "medium_graph/GTs_baselines/polynormer.py", "Polynormer", _WIDTHS),
    Row(DIFFORMER, _GNNS, "SGC", {"in_channels": 6, "out_channels": 3, "hops": 2}),
    Row(DIFFORMER, _GNNS, "GCN", _WIDTHS),
    Row(DIFFORMER, _GNNS, "GAT", _WIDTHS),
    Row(DIFFORMER, _GNNS, "GCNJK", {**_WIDTHS, "jk_type": "cat"}),
    Row(DIFFORMER, _GNNS, "GATJK", _WIDTHS),
    Row(DIFFORMER, _GNNS, "APPNP_Net", {**_WIDTHS, "K": 3}),
    Row(DIFFORMER, _GNNS, "GPRGNN", {**_WIDTHS, "K": 3}),
    Row(DIRECTED, "src/model.py", "DirSageConv", {"input_dim": 6, "output_dim": 8, "alpha": 0.3}),
    Row(DIRECTED, "src/model.py", "DirGATConv", {"input_dim": 6, "output_dim": 8, "heads": 2, "alpha": 0.3}),
    Row(
        DIRECTED,
        "src/model.py",
        "GNN",
        {
            "num_features": 6,
            "num_classes": 3,
            "hidden_dim": 8,
            "conv_type": "dir-sage",
            "jumping_knowledge": "max",
            "normalize": True,
            "learn_alpha": True,
        },
    ),
    Row(
        DIRECTED,
        "src/model.py",
        "GNN",
        {
            "num_features": 6,
            "num_classes": 3,
            "hidden_dim": 8,
            "conv_type": "gcn",
            "jumping_knowledge": "cat",
        },
        note="gcn",
    ),
    Row(ATTENTIVE, "gatv2_conv_PyG.py", "GATv2Conv", {"in_channels": 6, "out_channels": 4, "heads": 2}),
    Row(DEEP, _VERTEX, "MRConv", _DEEP),
    Row(DEEP, _VERTEX, "EdgConv", _DEEP),
    Row(DEEP, _VERTEX, "GATConv", {**_DEEP, "heads": 2}),
    Row(DEEP, _VERTEX, "GraphConv", {**_DEEP, "conv": "gin"}, note="gin"),
    Row(DEEP, _VERTEX, "GraphConv", {**_DEEP, "conv": "gcn", "norm": "batch"}, note="gcn"),
    Row(
        DEEP,
        _VERTEX,
        "ResGraphBlock",
        {"channels": 6, "conv": "mr", "norm": "batch"},
        given={"output": "output[0]"},
    ),
    Row(DEEP, _VERTEX, "DenseGraphBlock", {**_DEEP, "conv": "edge"}, given={"output": "output[0]"}),
    Row(DEEP, _VERTEX, "GENConv", {"in_dim": 6, "emb_dim": 8}),
    Row(DEEP, _VERTEX, "GENConv", {"in_dim": 6, "emb_dim": 8, "aggr": "power", "p": 2.0}, note="power"),
    Row(
        GPS,
        "graphgps/layer/gatedgcn_layer.py",
        "GatedGCNLayer",
        {"in_dim": 8, "out_dim": 8, "dropout": 0.1, "residual": True},
        _WHOLE,
        pick=lambda tensors: tensors[0],
    ),
    Row(
        GPS,
        "graphgps/layer/gine_conv_layer.py",
        "GINEConvLayer",
        {"dim_in": 8, "dim_out": 8, "dropout": 0.1, "residual": True},
        _WHOLE,
    ),
    Row(GPS, "graphgps/encoder/signnet_pos_encoder.py", "GIN", {**_WIDTHS, "n_layers": 2}),
    Row(
        OGB,
        "examples/graphproppred/ppa/conv.py",
        "GINConv",
        {"emb_dim": 8},
        (x(8), EDGES, attr(7)),
    ),
    Row(
        OGB,
        "examples/graphproppred/ppa/conv.py",
        "GCNConv",
        {"emb_dim": 8},
        (x(8), EDGES, attr(7)),
    ),
    Row(
        OGB,
        "examples/linkproppred/citation2/gnn.py",
        "GCN",
        {**_WIDTHS, "num_layers": 2, "dropout": 0.5},
        note="citations",
    ),
    Row(
        OGB,
        "examples/linkproppred/ddi/gnn.py",
        "SAGE",
        {**_WIDTHS, "num_layers": 2, "dropout": 0.5},
        note="drugs",
    ),
    # Anomalies, fraud and attacks
    Row(OUTLIERS, "pygod/nn/conv.py", "NeighDiff", args=(x(6), EDGES)),
    Row(OUTLIERS, "pygod/nn/conv.py", "GNAConv", {"in_channels": 6, "out_channels": 8}),
    Row(
        OUTLIERS,
        "pygod/nn/encoder.py",
        "GNA",
        {
            "in_channels": 6,
            "hidden_channels": 8,
            "num_layers": 3,
            "out_channels": 4,
            "dropout": 0.1,
            "act": F.relu,
        },
    ),
    Row(
        OUTLIERS,
        "pygod/nn/dominant.py",
        "DOMINANTBase",
        {"in_dim": 6, "hid_dim": 8},
        given={"output": "output[0]"},
    ),
    Row(OUTLIERS, "pygod/nn/decoder.py", "DotProductDecoder", {"in_dim": 6, "hid_dim": 8}, refused=DENSE),
    Row(OUTLIERS, "pygod/nn/gae.py", "GAEBase", {"in_dim": 6, "hid_dim": 8}),
    Row(OUTLIERS, "pygod/nn/ocgnn.py", "OCGNNBase", {"in_dim": 6, "hid_dim": 8}),
    Row(
        OUTLIERS,
        "pygod/nn/done.py",
        "DONEBase",
        {"x_dim": 6, "s_dim": 5, "hid_dim": 8},
        (x(6), of_nodes("s", (5,)), EDGES),
        given={"output": "output[4]"},
        pick=lambda tensors: tensors[4],
    ),
    Row(
        OUTLIERS,
        "pygod/nn/guide.py",
        "GUIDEBase",
        {"dim_a": 6, "dim_s": 5, "hid_a": 8, "hid_s": 4},
        (x(6), of_nodes("s", (5,)), EDGES),
    ),
    Row(OUTLIERS, "pygod/nn/cola.py", "CoLABase", {"in_dim": 6, "hid_dim": 8}, given={"output": "output[0]"}),
    Row(
        OUTLIERS,
        "pygod/nn/anomalydae.py",
        "AnomalyDAEBase",
        {"in_dim": 6, "num_nodes": 9, "emb_dim": 8, "hid_dim": 4},
        (x(6), EDGES, 9),
        refused=r"anomalydae\.py:99: mat1 and mat2 shapes cannot be multiplied",  # one of x.T, for 9 nodes
    ),
    Row(ROBUST, "deeprobust/graph/defense_pyg/gcn.py", "GCN", _NAMED),
    Row(ROBUST, "deeprobust/graph/defense_pyg/gat.py", "GAT", {**_NAMED, "heads": 2}),
    Row(ROBUST, "deeprobust/graph/defense_pyg/appnp.py", "APPNP", {**_NAMED, "K": 3}),
    Row(ROBUST, "deeprobust/graph/defense_pyg/gpr.py", "GPRGNN", {**_NAMED, "K": 3}),
    Row(ROBUST, "deeprobust/graph/defense_pyg/sage.py", "SAGE", {**_NAMED, "with_bn": True}),
    Row(ROBUST, "deeprobust/graph/targeted_attack/ugba.py", "GCN_Encoder", _NAMED),
    Row(
        FRAUD,
        "src/gog_fraud/models/level1/model.py",
        "Level1GNNEncoder",
        {"in_dim": 6, "hidden_dim": 8, "num_layers": 2, "dropout": 0.1},
        roots=("src",),
    ),
    Row(
        FRAUD,
        "src/gog_fraud/models/level2/model.py",
        "Level2GATEncoder",
        {"in_dim": 6, "hidden_dim": 8, "num_layers": 2, "num_heads": 2, "dropout": 0.1},
        roots=("src",),
    ),
    # Recommendation, and links
    Row(RECBOLE, "recbole_gnn/model/layers.py", "LightGCNConv", {"dim": 6}, (x(6), EDGES, WEIGHT)),
    Row(
        RECBOLE,
        "recbole_gnn/model/layers.py",
        "BiGNNConv",
        {"in_channels": 6, "out_channels": 8},
        (x(6), EDGES, WEIGHT),
    ),
    Row(RECBOLE, "recbole_gnn/model/layers.py", "SRGNNConv", {"dim": 6}),
    Row(RECBOLE, "recbole_gnn/model/layers.py", "SRGNNCell", {"dim": 6}),
    Row(
        RECBOLE,
        "recbole_gnn/model/sequential_recommender/gcegnn.py",
        "LocalAggregator",
        {"dim": 6, "alpha": 0.2},
        (x(6), EDGES, of_edges("edge_attr", (), torch.int64)),
    ),
    Row(MMGCN, "BaseModel.py", "BaseModel", {"in_channels": 6, "out_channels": 8}),
    Row(SKETCHES, "src/models/gnn.py", "GCN", {**_WIDTHS, "num_layers": 3, "dropout": 0.5}),
    Row(
        SKETCHES,
        "src/models/gnn.py",
        "SAGE",
        {**_WIDTHS, "num_layers": 2, "dropout": 0.5, "residual": False},
    ),
    Row(
        SHOPS,
        "model/model.py",
        "Model",
        args=(*hetero(*SHOP_LINKS), SHOP_PAIRS),
        scores="output",
        make=lambda m: m.Model(8, 8, 2, of_types(SHOP_LINKS)),
    ),
    # Learning without labels, and knowledge
    Row(GRACE, "model.py", "Encoder", {"in_channels": 6, "out_channels": 4, "activation": F.relu}),
    Row(
        GRACE,
        "model.py",
        "Model",
        note="PReLU",
        make=lambda m: m.Model(m.Encoder(6, 4, nn.PReLU(), base_model=pyg.GCNConv, k=3), 4, 8),
    ),
    Row(BGRL, "bgrl/models.py", "GCN", {"layer_sizes": [6, 8, 5], "batchnorm": True}, _GRAPH),
    Row(
        BGRL,
        "bgrl/models.py",
        "GCN",
        {"layer_sizes": [6, 8, 5], "layernorm": True},
        _GRAPH,
        "norm of the graph",
        refused=POOLED,
    ),
    Row(
        BGRL,
        "bgrl/models.py",
        "GraphSAGE_GCN",
        {"input_size": 6, "hidden_size": 8, "embedding_size": 5},
        _GRAPH,
        refused=POOLED,
    ),
    Row(
        QA,
        "modeling/modeling_qagnn.py",
        "GATConvE",
        make=lambda m: m.GATConvE(
            None, 8, 4, 3, nn.Sequential(nn.Linear(3 + 1 + 2 * 4, 8), nn.ReLU(), nn.Linear(8, 8))
        ),
        args=(
            x(8),
            EDGES,
            TYPE,
            of_nodes("node_type", (), torch.int64),
            of_nodes("node_feature_extra", (8,)),
        ),
        names={"torch": torch, "nn": nn, "F": F},
    ),
    Row(
        HGT,
        "pyHGT/conv.py",
        "HGTConv",
        {"in_dim": 8, "out_dim": 8, "num_types": 2, "num_relations": 2, "n_heads": 2, "use_RTE": False},
        (x(8), of_nodes("node_type", (), torch.int64), EDGES, TYPE, of_edges("edge_time", (), torch.int64)),
        refused=TESTED,
    ),
    # Simulations, points and sensors
    Row(PARTICLES, "gns/graph_network.py", "InteractionNetwork", _FLAT, (x(8), EDGES, attr(8))),
    Row(
        PARTICLES,
        "gns/graph_network.py",
        "Processor",
        {**_FLAT, "nmessage_passing_steps": 2},
        (x(8), EDGES, attr(8)),
    ),
    Row(
        PARTICLES,
        "gns/graph_network.py",
        "EncodeProcessDecode",
        {
            "nnode_in_features": 6,
            "nnode_out_features": 2,
            "nedge_in_features": 4,
            "latent_dim": 8,
            "nmessage_passing_steps": 2,
            "nmlp_layers": 1,
            "mlp_hidden_dim": 8,
        },
        (x(6), EDGES, attr()),
    ),
    Row(
        POINTS,
        "egnn_pytorch/egnn_pytorch_geometric.py",
        "EGNN_Sparse",
        {"feats_dim": 5, "pos_dim": 3, "edge_attr_dim": 4, "m_dim": 8},
        (x(8), EDGES, attr()),
        names={"SiLU": nn.SiLU},
    ),
    Row(
        POINTS,
        "egnn_pytorch/egnn_pytorch_geometric.py",
        "EGNN_Sparse",
        {"feats_dim": 5, "m_dim": 8, "soft_edge": 1, "norm_coors": True, "aggr": "mean"},
        (x(8), EDGES),
        note="norms",
        names={"SiLU": nn.SiLU},
    ),
    Row(
        TEMPORAL,
        "torch_geometric_temporal/nn/attention/dnntsp.py",
        "WeightedGCNBlock",
        {"in_features": 6, "hidden_sizes": [8], "out_features": 5},
        (x(6), EDGES, WEIGHT),
    ),
)
"""The modules; `practitioners` has them after its own."""
