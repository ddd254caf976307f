"""The names of arguments, and their meanings."""

NAMES = {
    **dict.fromkeys(("x", "h", "feat", "feats", "features", "inputs", "z"), "x"),
    **dict.fromkeys(("edge_index", "adj", "adj_t", "edges"), "edge_index"),
    **dict.fromkeys(("edge_weight", "edge_weights", "weight", "weights", "ew"), "edge_weight"),
    **dict.fromkeys(
        ("edge_attr", "edge_attrs", "edge_features", "edge_feature", "edge_feats", "edge_feat"), "edge_attr"
    ),
    **dict.fromkeys(("efeats", "efeat", "e_feat"), "edge_attr"),
    **dict.fromkeys(
        ("edge_label_index", "target_edge_index", "link_index", "pair_index"), "edge_label_index"
    ),
    **dict.fromkeys(("pairs", "node_pairs", "edge_pairs"), "edge_label_index"),
    "edge_label_attr": "edge_label_attr",
    "edge_type": "edge_type",
    "num_nodes": "num_nodes",
}
"""Name of an argument -> its meaning."""
PAIRS, OF_PAIRS = "edge_label_index", "edge_label"
"""The meaning of an argument that names pairs of nodes; how the names of all columns of pairs begin."""
VALUE = "value"
"""Begins a pair in `inputs` whose second part is the argument itself."""
RELATION, RELATION_OF_PAIRS = "edge_type", "edge_label_type"
"""The inputs that number the relations of edges, and of pairs."""


def meaning_of(name: str) -> str | None:
    """The meaning of an argument by its name, alone or by types."""
    return NAMES.get(name.removesuffix("_dict"))
