"""The models of PyG's examples, out of a folder with its repository: how each is made and called.

An example trains on a data set when it is executed, so a file is only read: of what it says at its top,
imports, classes and constants are executed, with stand-ins for its data sets, and its model is made with
the arguments that it uses.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import models
from torch_geometric.nn.models.tgn import TimeEncoder

from imported_modules import EDGE, EDGES, NODE, WEIGHT, Case
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given

NODES = 30
"""How many nodes a module is made for that has a row for each."""


class Example(ModuleType):
    """What a file says at its top."""

    tree: ast.Module
    file: str

    def made(self, name: str = "model"):
        """What the file itself makes under this name."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            ):
                execute(node, self)
                return getattr(self, name)
        raise KeyError(name)


def execute(node: ast.stmt, example: Example) -> None:
    exec(compile(ast.Module([node], []), example.file, "exec"), vars(example))


class Absent:
    """A library that is not here: whatever is asked of it may be called, and does nothing."""

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()

    def __call__(self, *args, **kwargs):
        return Absent()


def open_example(path: Path, given: Mapping[str, object]) -> Example:
    """Executes a file's imports, classes and constants. given: names that it finds, instead of its own."""
    example = Example("example")
    text = path.read_text(encoding="utf-8")
    example.tree, example.file = ast.parse(text), path.name
    linecache.cache[path.name] = (len(text), None, text.splitlines(keepends=True), path.name)
    vars(example).update({"device": "cpu", **given})
    for name in ("example", path.stem):  # where PyG looks for what a class is written with
        if isinstance(sys.modules.get(name, example), Example):
            sys.modules[name] = example
    for node in example.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom():
                bound = [alias.asname or alias.name.partition(".")[0] for alias in node.names]
                if set(bound) <= set(given):
                    continue
                try:
                    execute(node, example)
                except ImportError:
                    vars(example).update({name: Absent() for name in bound if name not in given})
            case ast.ClassDef():
                try:
                    execute(node, example)
                except TypeError:  # of a library that is not here
                    continue
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in given:
                try:
                    setattr(example, name, ast.literal_eval(value))
                except ValueError:
                    continue
    return example


@dataclass(frozen=True)
class Row:
    """How the model of a file is made and called. given: stand-ins for what it finds."""

    make: Callable[[Example], nn.Module] = Example.made
    args: tuple[object, ...] = (Given("x", NODE, (8,), torch.float64), EDGES)
    given: Mapping[str, object] = field(default_factory=dict)
    method: str = "forward"
    parameters: tuple[Given, ...] = ()


def dataset(features: int, classes: int, **more: object) -> dict[str, object]:
    """A stand-in for a data set, and for its parts."""
    one = SimpleNamespace(num_features=features, num_node_features=features, num_classes=classes, **more)
    return dict.fromkeys(("dataset", "train_dataset", "train_data"), one)


def x(width: int) -> Given:
    return Given("x", NODE, (width,), torch.float64)


def of_nodes(name: str, channels: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Given:
    return Given(name, NODE, channels, dtype)


def of_edges(name: str, channels: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Given:
    return Given(name, EDGE, channels, dtype)


def row_each(name: str, width: int) -> tuple[Given, ...]:
    """A parameter that has a row for each node."""
    return (Given(name, NODE, (width,), torch.float64, parameter=True),)


def hetero(widths: Mapping[str, int], edges: list[tuple[str, str, str]]) -> tuple[object, ...]:
    """x_dict and edge_index_dict."""
    nodes = {name: Atom(name) for name in widths}
    atoms = {kind: Atom("-".join(kind), nodes[kind[0]], nodes[kind[2]]) for kind in edges}
    return (
        {n: Given(f"x:{n}", nodes[n], (width,), torch.float64) for n, width in widths.items()},
        {kind: Given(f"edge_index:{atom}", atom, ends=True) for kind, atom in atoms.items()},
    )


def hetero_data(widths: Mapping[str, int], edges: list[tuple[str, str, str]]) -> HeteroData:
    """Data of which a file asks the types."""
    data = HeteroData()
    for name, width in widths.items():
        data[name].x = torch.zeros(5, width)
    for kind in edges:
        data[kind].edge_index = torch.tensor([[0, 1], [1, 2]])
    return data


CORA, PPI, REDDIT, FLICKR = dataset(1433, 7), dataset(50, 121), dataset(602, 41), dataset(500, 7)
ARXIV, PRODUCTS = dataset(128, 40), dataset(100, 47)
CLOSED = Data(x=torch.zeros(4, 1433), edge_index=torch.tensor([[0, 1], [1, 2]]), edge_attr=torch.zeros(2, 1))
"""A graph that a module finds as a global."""
WITHIN = {**CORA, "data": CLOSED}

MOVIELENS = (
    {"user": 610, "movie": 404},
    [("user", "rates", "movie"), ("movie", "rev_rates", "user")],
)
DBLP = (
    {"author": 334, "paper": 4231, "term": 50, "conference": 1},
    [
        ("author", "to", "paper"),
        ("paper", "to", "author"),
        ("paper", "to", "term"),
        ("paper", "to", "conference"),
        ("term", "to", "paper"),
        ("conference", "to", "paper"),
    ],
)
METAPATHS = ({"movie": 3066}, [("movie", "metapath_0", "movie"), ("movie", "metapath_1", "movie")])
MAG = (
    {"paper": 128, "author": 128, "institution": 128, "field_of_study": 128},
    [
        ("author", "affiliated_with", "institution"),
        ("author", "writes", "paper"),
        ("paper", "cites", "paper"),
        ("paper", "has_topic", "field_of_study"),
        ("institution", "rev_affiliated_with", "author"),
        ("paper", "rev_writes", "author"),
        ("field_of_study", "rev_has_topic", "paper"),
    ],
)
MAG240M = (
    {"paper": 768, "author": 768, "institution": 768},
    [
        ("author", "writes", "paper"),
        ("paper", "rev_writes", "author"),
        ("author", "affiliated_with", "institution"),
        ("institution", "rev_affiliated_with", "author"),
        ("paper", "cites", "paper"),
    ],
)
RECOMMENDED = (
    {"movie": 404, "user": 64},
    [("movie", "metapath_0", "movie"), ("movie", "rev_rates", "user")],
)
TAOBAO = ({"item": 64, "user": 64}, [("item", "to", "item"), ("item", "rev_to", "user")])
TABLES = (
    {"drivers": 64, "results": 64},
    [("results", "f2p_driverId", "drivers"), ("drivers", "rev_f2p_driverId", "results")],
)


def meta(kinds) -> dict[str, object]:
    return {"data": hetero_data(*kinds)}


def metadata(kinds) -> tuple[list[str], list[tuple[str, str, str]]]:
    return list(kinds[0]), kinds[1]


def one_type(widths: Mapping[str, int], edges: list[tuple[str, str, str]]) -> tuple[object, object]:
    """x and a list of edge_index."""
    x_dict, edge_index_dict = hetero(widths, edges)
    return next(iter(x_dict.values())), list(edge_index_dict.values())


def added(module: nn.Module) -> nn.Module:
    module.set_aggr("add")
    return module


def attending(module: nn.Module) -> nn.Module:
    """Polynormer as it is when it was trained."""
    module._global = True
    return module


def encoder(kinds) -> Row:
    """What `to_hetero` made, without the decoder that scores pairs."""
    return Row(lambda e: e.made().encoder, hetero(*kinds), meta(kinds))


TYPE = of_edges("edge_type", (), torch.int64)
LIKES = Given("likes", Atom("node-likes-node", NODE, NODE), ends=True)
HATES = Given("hates", Atom("node-hates-node", NODE, NODE), ends=True)
LIGHTNING = {
    "pl": SimpleNamespace(LightningModule=nn.Module, LightningDataModule=nn.Module),
    "LightningModule": nn.Module,
    "Accuracy": lambda *args, **kwargs: nn.Identity(),
}

ROWS: dict[str, Row] = {
    "agnn.py": Row(lambda e: e.Net(), (), WITHIN),
    "ar_link_pred.py": Row(lambda e: e.GCNEncoder(1433, 128, 64), (x(1433), EDGES)),
    "argva_node_clustering.py": Row(
        lambda e: models.ARGVA(e.Encoder(1433, 32, 32), e.Discriminator(32, 64, 32)),
        (x(1433), EDGES),
        method="encode",
    ),
    "arma.py": Row(lambda e: e.Net(1433, 16, 7), (x(1433), EDGES)),
    "autoencoder.py": Row(lambda e: models.GAE(e.GCNEncoder(1433, 16)), (x(1433), EDGES), method="encode"),
    "autoencoder.py, linear": Row(
        lambda e: models.GAE(e.LinearEncoder(1433, 16)), (x(1433), EDGES), method="encode"
    ),
    "autoencoder.py, variational": Row(
        lambda e: models.VGAE(e.VariationalGCNEncoder(1433, 16)), (x(1433), EDGES), method="encode"
    ),
    "autoencoder.py, variational linear": Row(
        lambda e: models.VGAE(e.VariationalLinearEncoder(1433, 16)), (x(1433), EDGES), method="encode"
    ),
    "cluster_gcn_ppi.py": Row(args=(x(50), EDGES), given=PPI),
    "cluster_gcn_reddit.py": Row(args=(x(602), EDGES), given=REDDIT),
    "compile/gcn.py": Row(lambda e: e.GCN(1433, 16, 7), (x(1433), EDGES, WEIGHT)),
    "contrib/pgm_explainer_node_classification.py": Row(lambda e: e.Net(), (x(1433), EDGES, WEIGHT), CORA),
    "contrib/rbcd_attack.py, GCN": Row(lambda e: e.GCN(1433, 64, 7), (x(1433), EDGES, WEIGHT)),
    "contrib/rbcd_attack.py, GAT": Row(lambda e: e.GAT(1433, 64, 7), (x(1433), EDGES, WEIGHT)),
    "cora.py": Row(lambda e: e.Net(), (), WITHIN),
    "dir_gnn.py": Row(lambda e: e.DirGNN(2325, 128, 5, 0.5), (x(2325), EDGES), {"Conv": pyg.SAGEConv}),
    "dir_gnn.py, GCN": Row(lambda e: e.DirGNN(2325, 128, 5, 0.5), (x(2325), EDGES), {"Conv": pyg.GCNConv}),
    "distributed/kuzu/papers_100M/train.py": Row(
        lambda e: e.GraphSAGE(128, 128, 172, num_layers=2), (x(128), EDGES)
    ),
    "dna.py": Row(args=(x(1433), EDGES), given=CORA),
    "explain/graphmask_explainer.py, GAT": Row(lambda e: e.GAT(), (x(1433), EDGES), CORA),
    "faust.py": Row(lambda e: e.Net(), (), {"d": SimpleNamespace(num_nodes=6890)}),
    "film.py": Row(args=(x(50), EDGES), given=PPI),
    "gat.py": Row(lambda e: e.GAT(1433, 8, 7, heads=8), (x(1433), EDGES)),
    "gcn.py": Row(lambda e: e.GCN(1433, 16, 7), (x(1433), EDGES), {"args": SimpleNamespace(use_gdc=False)}),
    "gcn.py, use_gdc": Row(
        lambda e: e.GCN(1433, 16, 7),
        (x(1433), EDGES, WEIGHT),
        {"args": SimpleNamespace(use_gdc=True)},
    ),
    "gcn2_cora.py": Row(args=(x(1433), EDGES), given=CORA),
    "gcn2_ppi.py": Row(
        lambda e: e.Net(128, 9, alpha=0.5, theta=1.0, shared_weights=False), (x(50), EDGES), PPI
    ),
    "geniepath.py, GeniePath": Row(lambda e: e.GeniePath(50, 121), (x(50), EDGES)),
    "geniepath.py, GeniePathLazy": Row(lambda e: e.GeniePathLazy(50, 121), (x(50), EDGES)),
    "glnn.py": Row(lambda e: e.made("gnn"), (x(1433), EDGES), CORA),
    "graph_sage_unsup.py": Row(
        lambda e: models.GraphSAGE(1433, hidden_channels=64, num_layers=2), (x(1433), EDGES)
    ),
    "graph_sage_unsup_ppi.py": Row(
        lambda e: models.GraphSAGE(50, hidden_channels=64, num_layers=2, out_channels=64), (x(50), EDGES)
    ),
    "graph_saint.py": Row(args=(x(500), EDGES), given=FLICKR),
    "graph_saint.py, use_normalization": Row(lambda e: added(e.made()), (x(500), EDGES, WEIGHT), FLICKR),
    "graph_unet.py": Row(lambda e: e.Net(), (), WITHIN),
    "graphland.py": Row(lambda e: e.Model(36, 256, 1), (x(36), EDGES)),
    "hetero/bipartite_sage.py, movies": Row(lambda e: e.MovieGNNEncoder(64, 64), (x(404), EDGES)),
    "hetero/bipartite_sage.py, users": Row(lambda e: e.UserGNNEncoder(64, 64), hetero(*RECOMMENDED)),
    "hetero/bipartite_sage_unsup.py, users": Row(lambda e: e.UserGNNEncoder(64, 64), hetero(*TAOBAO)),
    "hetero/dmgi_unsup.py": Row(lambda e: e.DMGI(NODES, 3066, 64, 2), (*one_type(*METAPATHS),)),
    "hetero/han_imdb.py": Row(
        lambda e: e.HAN(in_channels=-1, out_channels=3), hetero(*METAPATHS), meta(METAPATHS)
    ),
    "hetero/hetero_conv_dblp.py": Row(
        lambda e: e.HeteroGNN(e.data.metadata(), 64, 4, num_layers=2), hetero(*DBLP), meta(DBLP)
    ),
    "hetero/hetero_link_pred.py": encoder(MOVIELENS),
    "hetero/hgt_dblp.py": Row(lambda e: e.HGT(64, 4, num_heads=2, num_layers=1), hetero(*DBLP), meta(DBLP)),
    "hetero/recommender_system.py": encoder(MOVIELENS),
    "hetero/temporal_link_pred.py": encoder(MOVIELENS),
    "hetero/to_hetero_mag.py": Row(
        lambda e: pyg.to_hetero(e.made(), e.data.metadata(), aggr="sum"),
        hetero(*MAG),
        {**meta(MAG), **dataset(128, 349)},
    ),
    "hierarchical_sampling.py": Row(args=(x(602), EDGES), given=REDDIT),
    "infomax_inductive.py": Row(
        lambda e: e.Encoder(602, 512),
        (x(602), EDGES, Given("batch_size", NODE, count=True)),
    ),
    "infomax_transductive.py": Row(lambda e: e.Encoder(1433, 512), (x(1433), EDGES)),
    "jit/film.py": Row(lambda e: e.FiLM(50, 320, 121, 4, 0.1), (x(50), EDGES)),
    "label_prop.py": Row(
        args=(of_nodes("y", (), torch.int64), EDGES, of_nodes("mask", (), torch.bool)),
    ),
    "lightgcn.py": Row(
        lambda e: models.LightGCN(NODES, 64, 2),
        (EDGES,),
        method="get_embedding",
        parameters=row_each("embedding.weight", 64),
    ),
    "link_pred.py": Row(args=(x(1433), EDGES), given=CORA, method="encode"),
    "linkx.py": Row(
        lambda e: models.LINKX(NODES, 4814, 32, 2, 1, num_edge_layers=1, num_node_layers=1),
        (x(4814), EDGES),
        parameters=row_each("edge_lin.weight", 32),
    ),
    "mixhop.py": Row(lambda e: e.MixHop(), (x(1433), EDGES), CORA),
    "multi_gpu/distributed_sampling_xpu.py": Row(
        lambda e: e.GAT(100, 128, 47, num_layers=3, heads=4), (x(100), EDGES), PRODUCTS
    ),
    "multi_gpu/mag240m_graphsage.py": Row(
        lambda e: e.HeteroGraphSAGE(-1, 128, 2, 153, 0.5, list(MAG240M[0]), MAG240M[1]),
        hetero(*MAG240M),
    ),
    "multi_gpu/model_parallel.py": Row(lambda e: e.GCN(1433, 7, "cpu", "cpu"), (x(1433), EDGES)),
    "ogbn_proteins_deepgcn.py": Row(
        args=(x(8), EDGES, of_edges("edge_attr", (8,))),
        given={
            "data": SimpleNamespace(x=torch.zeros(2, 8), edge_attr=torch.zeros(2, 8), y=torch.zeros(2, 112))
        },
    ),
    "ogbn_train.py, gat": Row(lambda e: models.GAT(128, 256, 3, 40, heads=1, dropout=0.5), (x(128), EDGES)),
    "ogbn_train.py, sage": Row(lambda e: models.GraphSAGE(128, 256, 3, 40, dropout=0.5), (x(128), EDGES)),
    "ogbn_train.py, sgformer": Row(
        lambda e: models.SGFormer(128, 256, 40, trans_num_heads=1, gnn_num_layers=3),
        (x(128), EDGES, of_nodes("batch", (), torch.int64)),
    ),
    "ogbn_train.py, polynormer": Row(
        lambda e: attending(models.Polynormer(128, 256, 40, local_layers=3)),
        (x(128), EDGES, of_nodes("batch", (), torch.int64)),
    ),
    "ogbn_train.py, polynormer before global attention": Row(
        lambda e: models.Polynormer(128, 256, 40, local_layers=3),
        (x(128), EDGES, of_nodes("batch", (), torch.int64)),
    ),
    "pmlp.py": Row(args=(x(1433), EDGES), given=CORA),
    "ppi.py": Row(lambda e: e.Net(), (x(50), EDGES), PPI),
    "pytorch_lightning/graph_sage.py": Row(
        lambda e: e.Model(602, 41), (x(602), EDGES), {**REDDIT, **LIGHTNING}
    ),
    "pytorch_lightning/relational_gnn.py": Row(
        lambda e: pyg.to_hetero(e.GNN(64, 349, 0.5), metadata(MAG), aggr="sum"), hetero(*MAG), LIGHTNING
    ),
    "rdl.py": Row(lambda e: e.HeteroGraphSAGE(list(TABLES[0]), TABLES[1], 64), hetero(*TABLES)),
    "rect.py": Row(args=(x(200), EDGES, WEIGHT), method="embed"),
    "reddit.py": Row(args=(x(602), EDGES), given=REDDIT),
    "relbench_example.py": Row(
        lambda e: pyg.to_hetero(e.GNN(64), metadata(TABLES), aggr="sum"), hetero(*TABLES)
    ),
    "rev_gnn.py": Row(args=(x(100), EDGES), given=PRODUCTS),
    "rgat.py": Row(lambda e: e.RGAT(16, 16, 4, 90), (x(16), EDGES, TYPE)),
    "rgcn.py": Row(
        lambda e: e.Net(),
        (EDGES, TYPE),
        {
            **dataset(0, 4, num_relations=12),
            "data": SimpleNamespace(num_nodes=NODES),
            "Conv": pyg.FastRGCNConv,
        },
    ),
    "rgcn.py, RGCNConv": Row(
        lambda e: e.Net(),
        (EDGES, TYPE),
        {
            **dataset(0, 4, num_relations=12),
            "data": SimpleNamespace(num_nodes=NODES),
            "Conv": pyg.RGCNConv,
        },
    ),
    "rgcn_link_pred.py": Row(
        lambda e: models.GAE(e.RGCNEncoder(NODES, 500, 6), e.DistMultDecoder(3, 500)),
        (EDGES, TYPE),
        method="encode",
        parameters=row_each("encoder.node_emb", 500),
    ),
    "sgc.py": Row(lambda e: e.Net(), (), WITHIN),
    "signed_gcn.py": Row(args=(x(64), LIKES, HATES)),
    "super_gat.py": Row(lambda e: e.Net(), (x(1433), EDGES), WITHIN),
    "tagcn.py": Row(lambda e: e.Net(), (), WITHIN),
    "tgn.py": Row(
        lambda e: e.GraphAttentionEmbedding(100, 100, 172, TimeEncoder(100)),
        (x(100), of_nodes("last_update"), EDGES, of_edges("t"), of_edges("msg", (172,))),
    ),
    "unimp_arxiv.py": Row(
        args=(x(128), of_nodes("y", (), torch.int64), EDGES, of_nodes("label_mask", (), torch.bool)),
        given=ARXIV,
    ),
}


POOLED = "one prediction for a whole graph"
BY_FEATURES = "edges are made of the nodes' places or features"
PAIRS = "scores pairs of nodes"
SAME = "a model that another row has"
NO_GRAPH = "no messages along edges"
LLM = "a language model beside a graph"
SAMPLED = "runs on the layers of a sample"
SPREAD = "runs a model that another row has on several machines"
EXPLAINS = "explains a model that another row has"

LEFT_OUT: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "attentive_fp.py",
            "colors_topk_pool.py",
            "compile/gin.py",
            "contrib/pgm_explainer_graph_classification.py",
            "cpp/save_model.py",
            "egc.py",
            "explain/mgnan_graph_mutagenicity.py",
            "gpse.py",
            "graph_gps.py",
            "jit/gin.py",
            "mem_pool.py",
            "mnist_graclus.py",
            "mnist_nn_conv.py",
            "mnist_voxel_grid.py",
            "multi_gpu/distributed_batching.py",
            "multi_gpu/pcqm4m_ogb.py",
            "mutag_gin.py",
            "pna.py",
            "proteins_diff_pool.py",
            "proteins_dmon_pool.py",
            "proteins_gmt.py",
            "proteins_mincut_pool.py",
            "proteins_topk_pool.py",
            "pytorch_ignite/gin.py",
            "pytorch_lightning/gin.py",
            "qm9_nn_conv.py",
            "qm9_pretrained_dimenet.py",
            "qm9_pretrained_schnet.py",
            "seal_link_pred.py",
            "shadow.py",
            "triangles_sag_pool.py",
            "upfd.py",
            "wl_kernel.py",
        ),
        POOLED,
    ),
    **dict.fromkeys(
        (
            "dgcnn_classification.py",
            "dgcnn_segmentation.py",
            "point_transformer_classification.py",
            "point_transformer_segmentation.py",
            "pointnet2_classification.py",
            "pointnet2_segmentation.py",
            "randlanet_classification.py",
            "randlanet_segmentation.py",
            "llm/protein_mpnn.py",
        ),
        BY_FEATURES,
    ),
    **dict.fromkeys(
        (
            "correct_and_smooth.py",
            "datapipe.py",
            "equilibrium_median.py",
            "hetero/load_csv.py",
            "hetero/metapath2vec.py",
            "kge_fb15k_237.py",
            "lcm_aggr_2nd_min.py",
            "node2vec.py",
            "ogc.py",
            "sign.py",
        ),
        NO_GRAPH,
    ),
    **dict.fromkeys(("lpformer.py", "renet.py"), PAIRS),
    **dict.fromkeys(
        (
            "jit/gat.py",
            "jit/gcn.py",
            "tensorboard_logging.py",
            "multi_gpu/taobao.py",
        ),
        SAME,
    ),
    **dict.fromkeys(
        (
            "hetero/hierarchical_sage.py",
            "quiver/multi_gpu_quiver.py",
            "quiver/single_gpu_quiver.py",
        ),
        SAMPLED,
    ),
    **dict.fromkeys(
        (
            "distributed/graphlearn_for_pytorch/dist_train_sage_supervised.py",
            "distributed/graphlearn_for_pytorch/launch.py",
            "distributed/graphlearn_for_pytorch/partition_ogbn_dataset.py",
            "distributed/kuzu/papers_100M/prepare_data.py",
            "multi_gpu/distributed_sampling.py",
            "multi_gpu/distributed_sampling_multinode.py",
            "multi_gpu/papers100m_gcn.py",
            "multi_gpu/papers100m_gcn_multinode.py",
        ),
        SPREAD,
    ),
    **dict.fromkeys(
        (
            "contrib/rbcd_attack_poisoning.py",
            "explain/captum_explainer.py",
            "explain/captum_explainer_hetero_link.py",
            "explain/gnn_explainer.py",
            "explain/gnn_explainer_ba_shapes.py",
            "explain/gnn_explainer_link_pred.py",
        ),
        EXPLAINS,
    ),
    **dict.fromkeys(
        (
            "llm/g_retriever.py",
            "llm/git_mol.py",
            "llm/glem.py",
            "llm/molecule_gpt.py",
            "llm/relbench_gretriever.py",
            "llm/txt2kg_rag.py",
            "llm/txt2qa.py",
        ),
        LLM,
    ),
}
"""Files without a row, and why."""


def file_of(name: str) -> str:
    """The file of a row."""
    return name.partition(",")[0]


def cases(folder: Path) -> dict[str, Case]:
    """The rows, of a folder with PyG's repository or with its examples."""
    root = folder / "examples" if (folder / "examples").is_dir() else folder

    def building(name: str, row: Row) -> Callable[[], nn.Module]:
        return lambda: row.make(open_example(root / file_of(name), row.given))

    return {
        name: Case(building(name, row), (), row.args, method=row.method, parameters=row.parameters)
        for name, row in ROWS.items()
    }


def unknown_files(folder: Path) -> list[str]:
    """Files of which this table says nothing."""
    root = folder / "examples" if (folder / "examples").is_dir() else folder
    files = {str(path.relative_to(root)) for path in root.rglob("*.py")}
    return sorted(files - {file_of(name) for name in ROWS} - set(LEFT_OUT))
