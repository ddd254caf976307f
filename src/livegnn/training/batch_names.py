"""Names that batches of PyG's loaders use themselves, so that no tensor may be put under them."""

from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import EdgeStorage, NodeStorage

from livegnn.errors import InputError
from livegnn.wording import quoted

# What PyG's loaders, this package and PyG's notion of a node or an edge set or read by name.
_OF_BATCHES = frozenset(
    {
        "adj", "adj_t", "batch", "batch_size", "dst_neg_index", "dst_pos_index", "e_id", "face", "index",
        "input_id", "n_id", "num_nodes", "num_sampled_edges", "num_sampled_nodes", "ptr", "seed_time",
        "src_index", "time", "x",
    }
)  # fmt: skip
# Those that `Data` knows as tensors of nodes, and leaves to the user.
_OF_USERS = frozenset({"y", "pos"})
_OF_CLASSES = frozenset(name for cls in (Data, HeteroData, NodeStorage, EdgeStorage) for name in dir(cls))


def check_tensor_name(name: object) -> None:
    """Raises `InputError` for a name under which a tensor of nodes would vanish from a batch, or replace
    something of it."""
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise InputError(
            f"attr_name must be a name such as 'y', of letters, digits and _, that begins with a letter, got "
            f"{quoted(name)}"
        )
    if name not in _OF_USERS and (name in _OF_BATCHES | _OF_CLASSES or "edge" in name):
        raise InputError(
            f"attr_name must not be {name!r}, which batches use themselves, or PyG takes for something of "
            f"edges: put it as 'node_{name.replace('edge', 'link')}', say"
        )
