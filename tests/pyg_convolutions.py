"""Every convolution of PyG, and how each is made and called; some of them in more than one way."""

from __future__ import annotations

import copy
import inspect

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.nn import conv

from imported_modules import (
    ATTR,
    EDGE,
    EDGES,
    HATES,
    HETERO,
    LIKES,
    NODE,
    TYPE,
    TYPED,
    WEIGHT,
    WITH_ATTR,
    WITH_WEIGHT,
    Case,
    X,
)
from layered_modules import EDGE_WIDTH, METADATA, RELATIONS, WIDTH, network, pna
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given

OUT = 4
FIRST = Given("x_0", NODE, (WIDTH,), torch.float64)
PLACE, NORMAL = (Given(name, NODE, (3,), torch.float64) for name in ("pos", "normal"))
KIND = Given("node_type", NODE, (), torch.int64)
HYPEREDGE = Atom("hyperedge")
CONTAINS = Atom("node-in-hyperedge", NODE, HYPEREDGE)
HYPER = Given("hyperedge_index", CONTAINS, ends=True)


def edge_features(width: int) -> Given:
    return Given("edge_attr", EDGE, (width,), torch.float64)


def built(layer, *args, **kwargs):
    """Makes a layer whenever it is asked to: some refuse because a library is missing."""
    return lambda: layer(*copy.deepcopy(args), **copy.deepcopy(kwargs))


def case(layer, *args, call: tuple[object, ...] = (X, EDGES), named=None, **kwargs) -> Case:
    return Case(built(layer, *args, **kwargs), (), call, named or {})


CONVOLUTIONS: dict[str, Case] = {
    "SimpleConv": case(pyg.SimpleConv, call=WITH_WEIGHT),
    "SimpleConv, mean, combine_root": case(pyg.SimpleConv, aggr="mean", combine_root="cat"),
    "GCNConv": case(pyg.GCNConv, WIDTH, OUT),
    "GCNConv, edge_weight": case(pyg.GCNConv, WIDTH, OUT, call=WITH_WEIGHT),
    "GCNConv, normalize=False": case(pyg.GCNConv, WIDTH, OUT, normalize=False, call=WITH_WEIGHT),
    "ChebConv": case(pyg.ChebConv, WIDTH, OUT, 3),
    "ChebConv, edge_weight": case(pyg.ChebConv, WIDTH, OUT, 3, call=WITH_WEIGHT),
    "ChebConv, lambda_max": case(pyg.ChebConv, WIDTH, OUT, 3, named={"lambda_max": 2.0}),
    "ChebConv, rw": case(pyg.ChebConv, WIDTH, OUT, 3, normalization="rw", named={"lambda_max": 2.0}),
    "SAGEConv": case(pyg.SAGEConv, WIDTH, OUT),
    "SAGEConv, max": case(pyg.SAGEConv, WIDTH, OUT, aggr="max"),
    "SAGEConv, lstm": case(pyg.SAGEConv, WIDTH, OUT, aggr="lstm"),
    "SAGEConv, median": case(pyg.SAGEConv, WIDTH, OUT, aggr="median"),
    "SAGEConv, std": case(pyg.SAGEConv, WIDTH, OUT, aggr="std"),
    "SAGEConv, mul": case(pyg.SAGEConv, WIDTH, OUT, aggr="mul"),
    "SAGEConv, between types": Case(
        built(pyg.HeteroConv, {kind: pyg.SAGEConv((-1, -1), OUT) for kind in METADATA[1]}), (), HETERO
    ),
    "CuGraphSAGEConv": case(pyg.CuGraphSAGEConv, WIDTH, OUT),
    "GraphConv": case(pyg.GraphConv, WIDTH, OUT),
    "GraphConv, edge_weight": case(pyg.GraphConv, WIDTH, OUT, call=WITH_WEIGHT),
    "GraphConv, max, edge_weight": case(pyg.GraphConv, WIDTH, OUT, aggr="max", call=WITH_WEIGHT),
    "GravNetConv": case(pyg.GravNetConv, WIDTH, OUT, 2, 3, 2, call=(X,)),
    "GatedGraphConv": case(pyg.GatedGraphConv, WIDTH, 2),
    "GatedGraphConv, edge_weight": case(pyg.GatedGraphConv, WIDTH, 2, call=WITH_WEIGHT),
    "ResGatedGraphConv": case(pyg.ResGatedGraphConv, WIDTH, OUT),
    "ResGatedGraphConv, edge_dim": case(
        pyg.ResGatedGraphConv, WIDTH, OUT, edge_dim=EDGE_WIDTH, call=WITH_ATTR
    ),
    "GATConv": case(pyg.GATConv, WIDTH, OUT, heads=2),
    "GATConv, edge_dim": case(pyg.GATConv, WIDTH, OUT, heads=2, edge_dim=EDGE_WIDTH, call=WITH_ATTR),
    "GATConv, residual": case(pyg.GATConv, WIDTH, OUT, heads=2, concat=False, residual=True),
    "CuGraphGATConv": case(pyg.CuGraphGATConv, WIDTH, OUT),
    "FusedGATConv": case(pyg.FusedGATConv, WIDTH, OUT, add_self_loops=False),
    "GATv2Conv": case(pyg.GATv2Conv, WIDTH, OUT, heads=2),
    "GATv2Conv, edge_dim": case(pyg.GATv2Conv, WIDTH, OUT, heads=2, edge_dim=EDGE_WIDTH, call=WITH_ATTR),
    "GATv2Conv, share_weights": case(pyg.GATv2Conv, WIDTH, OUT, share_weights=True, residual=True),
    "TransformerConv": case(pyg.TransformerConv, WIDTH, OUT, heads=2),
    "TransformerConv, edge_dim, beta": case(
        pyg.TransformerConv, WIDTH, OUT, heads=2, beta=True, edge_dim=EDGE_WIDTH, call=WITH_ATTR
    ),
    "AGNNConv": case(pyg.AGNNConv),
    "TAGConv": case(pyg.TAGConv, WIDTH, OUT),
    "TAGConv, edge_weight": case(pyg.TAGConv, WIDTH, OUT, call=WITH_WEIGHT),
    "GINConv": case(pyg.GINConv, network(WIDTH, OUT), train_eps=True),
    "GINEConv": case(pyg.GINEConv, network(WIDTH, OUT), edge_dim=EDGE_WIDTH, call=WITH_ATTR),
    "ARMAConv": case(pyg.ARMAConv, WIDTH, OUT, num_stacks=2, num_layers=2),
    "ARMAConv, edge_weight": case(pyg.ARMAConv, WIDTH, OUT, 2, 2, True, call=WITH_WEIGHT),
    "SGConv": case(pyg.SGConv, WIDTH, OUT, K=2),
    "SGConv, edge_weight": case(pyg.SGConv, WIDTH, OUT, K=2, call=WITH_WEIGHT),
    "SSGConv": case(pyg.SSGConv, WIDTH, OUT, alpha=0.1, K=2),
    "SSGConv, edge_weight": case(pyg.SSGConv, WIDTH, OUT, alpha=0.1, K=2, call=WITH_WEIGHT),
    "APPNP": case(pyg.APPNP, 3, 0.1),
    "APPNP, edge_weight": case(pyg.APPNP, 3, 0.1, call=WITH_WEIGHT),
    "MFConv": case(pyg.MFConv, WIDTH, OUT, max_degree=3),
    "RGCNConv": case(pyg.RGCNConv, WIDTH, OUT, RELATIONS, call=TYPED),
    "RGCNConv, num_bases": case(pyg.RGCNConv, WIDTH, OUT, RELATIONS, num_bases=2, call=TYPED),
    "RGCNConv, num_blocks": case(pyg.RGCNConv, WIDTH, OUT, RELATIONS, num_blocks=2, call=TYPED),
    "RGCNConv, max": case(pyg.RGCNConv, WIDTH, OUT, RELATIONS, aggr="max", call=TYPED),
    "FastRGCNConv": case(pyg.FastRGCNConv, WIDTH, OUT, RELATIONS, call=TYPED),
    "FastRGCNConv, num_blocks": case(pyg.FastRGCNConv, WIDTH, OUT, RELATIONS, num_blocks=2, call=TYPED),
    "CuGraphRGCNConv": case(pyg.CuGraphRGCNConv, WIDTH, OUT, RELATIONS, call=TYPED),
    "RGATConv": case(pyg.RGATConv, WIDTH, OUT, RELATIONS, call=TYPED),
    "RGATConv, within-relation, multiplicative": case(
        pyg.RGATConv,
        WIDTH,
        OUT,
        RELATIONS,
        heads=2,
        attention_mechanism="within-relation",
        attention_mode="multiplicative-self-attention",
        dim=2,
        call=TYPED,
    ),
    "RGATConv, edge_dim, f-scaled": case(
        pyg.RGATConv, WIDTH, OUT, RELATIONS, mod="f-scaled", edge_dim=EDGE_WIDTH, call=(*TYPED, ATTR)
    ),
    "RGATConv, num_bases, additive": case(
        pyg.RGATConv, WIDTH, OUT, RELATIONS, num_bases=2, mod="additive", call=TYPED
    ),
    "SignedConv": case(pyg.SignedConv, WIDTH, OUT, first_aggr=True, call=(X, LIKES, HATES)),
    "SignedConv, later": Case(
        built(pyg.SignedConv, WIDTH // 2, OUT, first_aggr=False), (), (X, LIKES, HATES)
    ),
    "DNAConv": case(pyg.DNAConv, 8, heads=2, groups=2, call=(Given("x", NODE, (3, 8), torch.float64), EDGES)),
    "PointNetConv": case(
        pyg.PointNetConv, network(WIDTH + 3, OUT), nn.Linear(OUT, OUT), call=(X, PLACE, EDGES)
    ),
    "GMMConv": case(pyg.GMMConv, WIDTH, OUT, EDGE_WIDTH, kernel_size=2, call=WITH_ATTR),
    "GMMConv, separate_gaussians": case(
        pyg.GMMConv, WIDTH, OUT, EDGE_WIDTH, kernel_size=2, separate_gaussians=True, call=WITH_ATTR
    ),
    "SplineConv": case(pyg.SplineConv, WIDTH, OUT, EDGE_WIDTH, kernel_size=2, call=WITH_ATTR),
    "NNConv": case(pyg.NNConv, WIDTH, OUT, nn.Linear(EDGE_WIDTH, WIDTH * OUT), call=WITH_ATTR),
    "NNConv, max": case(
        pyg.NNConv, WIDTH, OUT, nn.Linear(EDGE_WIDTH, WIDTH * OUT), aggr="max", call=WITH_ATTR
    ),
    "CGConv": case(pyg.CGConv, WIDTH, EDGE_WIDTH, call=WITH_ATTR),
    "CGConv, batch_norm, no features": case(pyg.CGConv, WIDTH, batch_norm=True),
    "EdgeConv": case(pyg.EdgeConv, network(2 * WIDTH, OUT)),
    "EdgeConv, mean": case(pyg.EdgeConv, network(2 * WIDTH, OUT), aggr="mean"),
    "DynamicEdgeConv": case(pyg.DynamicEdgeConv, network(2 * WIDTH, OUT), 2, call=(X,)),
    "XConv": case(pyg.XConv, WIDTH, OUT, dim=3, kernel_size=2, call=(X, PLACE)),
    "PPFConv": case(
        pyg.PPFConv, network(WIDTH + 4, OUT), nn.Linear(OUT, OUT), call=(X, PLACE, NORMAL, EDGES)
    ),
    "FeaStConv": case(pyg.FeaStConv, WIDTH, OUT, heads=2),
    "PointTransformerConv": case(pyg.PointTransformerConv, WIDTH, OUT, call=(X, PLACE, EDGES)),
    "HypergraphConv": case(
        pyg.HypergraphConv,
        WIDTH,
        OUT,
        call=(X, HYPER),
        named={"num_edges": Given("m", HYPEREDGE, count=True), "hyperedge_weight": None},
    ),
    "HypergraphConv, attention": case(
        pyg.HypergraphConv,
        WIDTH,
        OUT,
        use_attention=True,
        call=(X, HYPER),
        named={
            "hyperedge_attr": Given("hyperedge_attr", HYPEREDGE, (WIDTH,), torch.float64),
            "num_edges": Given("m", HYPEREDGE, count=True),
        },
    ),
    "LEConv": case(pyg.LEConv, WIDTH, OUT),
    "LEConv, edge_weight": case(pyg.LEConv, WIDTH, OUT, call=WITH_WEIGHT),
    "PNAConv": Case(pna, ()),
    "PNAConv, edge_dim, towers": Case(
        lambda: pna(edge_dim=EDGE_WIDTH, towers=2, pre_layers=2, post_layers=2), (), WITH_ATTR
    ),
    "PNAConv, linear scalers": Case(
        lambda: pna(scalers=["linear", "inverse_linear"], aggregators=["sum", "var"]), ()
    ),
    "ClusterGCNConv": case(pyg.ClusterGCNConv, WIDTH, OUT, diag_lambda=1),
    "GENConv": case(pyg.GENConv, WIDTH, OUT),
    "GENConv, edge_dim, learn_t": case(
        pyg.GENConv, WIDTH, OUT, learn_t=True, edge_dim=EDGE_WIDTH, norm="layer", call=WITH_ATTR
    ),
    "GENConv, powermean": case(pyg.GENConv, WIDTH, OUT, aggr="powermean", learn_p=True),
    "GCN2Conv": case(pyg.GCN2Conv, WIDTH, 0.1, 0.5, 2, call=(X, FIRST, EDGES)),
    "GCN2Conv, edge_weight": case(
        pyg.GCN2Conv, WIDTH, 0.1, 0.5, 2, shared_weights=False, call=(X, FIRST, EDGES, WEIGHT)
    ),
    "PANConv": case(pyg.PANConv, WIDTH, OUT, 2),
    "WLConv": case(pyg.WLConv, call=(Given("x", NODE, (), torch.int64), EDGES)),
    "WLConvContinuous": case(pyg.WLConvContinuous),
    "WLConvContinuous, edge_weight": case(pyg.WLConvContinuous, call=WITH_WEIGHT),
    "FiLMConv": case(pyg.FiLMConv, WIDTH, OUT),
    "FiLMConv, num_relations": case(pyg.FiLMConv, WIDTH, OUT, RELATIONS, call=TYPED),
    "FiLMConv, nn": case(pyg.FiLMConv, WIDTH, OUT, nn=nn.Linear(WIDTH, 2 * OUT), act=None),
    "SuperGATConv": case(pyg.SuperGATConv, WIDTH, OUT, heads=2),
    "SuperGATConv, SD": case(pyg.SuperGATConv, WIDTH, OUT, heads=2, attention_type="SD"),
    "FAConv": case(pyg.FAConv, WIDTH, call=(X, FIRST, EDGES)),
    "FAConv, edge_weight, normalize=False": case(
        pyg.FAConv, WIDTH, normalize=False, add_self_loops=False, call=(X, FIRST, EDGES, WEIGHT)
    ),
    "EGConv": case(pyg.EGConv, WIDTH, 8, ["sum", "mean", "max"], num_heads=4),
    "EGConv, symnorm, std": case(pyg.EGConv, WIDTH, 8, ["symnorm", "std", "min", "var"], num_heads=4),
    "PDNConv": case(pyg.PDNConv, WIDTH, OUT, EDGE_WIDTH, 6, call=WITH_ATTR),
    "PDNConv, normalize=False": case(pyg.PDNConv, WIDTH, OUT, EDGE_WIDTH, 6, normalize=False, call=WITH_ATTR),
    "GeneralConv": case(pyg.GeneralConv, WIDTH, OUT),
    "GeneralConv, edges, attention": case(
        pyg.GeneralConv,
        WIDTH,
        OUT,
        in_edge_channels=EDGE_WIDTH,
        heads=2,
        attention=True,
        l2_normalize=True,
        call=WITH_ATTR,
    ),
    "GeneralConv, dot_product": case(
        pyg.GeneralConv, WIDTH, OUT, heads=2, attention=True, attention_type="dot_product", skip_linear=True
    ),
    "GeneralConv, directed_msg=False": case(pyg.GeneralConv, WIDTH, OUT, directed_msg=False, aggr="mean"),
    "HGTConv": Case(built(pyg.HGTConv, WIDTH, 8, METADATA, heads=2), (), HETERO),
    "HEATConv": case(
        pyg.HEATConv,
        WIDTH,
        OUT,
        RELATIONS,
        RELATIONS,
        2,
        EDGE_WIDTH,
        2,
        heads=2,
        call=(X, EDGES, KIND, TYPE, ATTR),
    ),
    "HeteroConv": Case(
        built(pyg.HeteroConv, {kind: pyg.GraphConv((WIDTH, WIDTH), OUT) for kind in METADATA[1]}), (), HETERO
    ),
    "HeteroConv, GATv2, cat": Case(
        built(
            pyg.HeteroConv,
            {kind: pyg.GATv2Conv((WIDTH, WIDTH), OUT, add_self_loops=False) for kind in METADATA[1]},
            aggr="max",
        ),
        (),
        HETERO,
    ),
    "HANConv": Case(built(pyg.HANConv, WIDTH, 8, METADATA, heads=2), (), HETERO),
    "LGConv": case(pyg.LGConv),
    "LGConv, edge_weight": case(pyg.LGConv, call=WITH_WEIGHT),
    "PointGNNConv": case(
        pyg.PointGNNConv,
        network(WIDTH, 3),
        network(WIDTH + 3, OUT),
        network(OUT, WIDTH),
        call=(X, PLACE, EDGES),
    ),
    "GPSConv": case(pyg.GPSConv, WIDTH, pyg.GCNConv(WIDTH, WIDTH), heads=2),
    "AntiSymmetricConv": case(pyg.AntiSymmetricConv, WIDTH, num_iters=2),
    "AntiSymmetricConv, GAT": case(pyg.AntiSymmetricConv, WIDTH, pyg.GATConv(WIDTH, WIDTH)),
    "DirGNNConv": case(pyg.DirGNNConv, pyg.GCNConv(WIDTH, OUT)),
    "DirGNNConv, GAT": case(pyg.DirGNNConv, pyg.GATConv(WIDTH, OUT)),
    "MixHopConv": case(pyg.MixHopConv, WIDTH, OUT),
    "MixHopConv, edge_weight": case(pyg.MixHopConv, WIDTH, OUT, call=WITH_WEIGHT),
    "MeshCNNConv": case(lambda *args: pyg.MeshCNNConv(*args), WIDTH, OUT),  # PyG 2.6 has none
}


def class_of(name: str) -> str:
    """The convolution of a row."""
    return name.partition(",")[0]


def public_convolutions() -> list[str]:
    """PyG's, without the class that they are all made from."""
    found = [name for name in conv.__all__ if inspect.isclass(getattr(conv, name))]
    return [name for name in found if name != "MessagePassing"]


def unknown_convolutions() -> list[str]:
    """Those without a row."""
    return sorted(set(public_convolutions()) - {class_of(name) for name in CONVOLUTIONS})
