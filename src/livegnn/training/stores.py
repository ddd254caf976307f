"""PyG's feature store and graph store, backed by the live graph.

PyG's index of a node is its internal number (`Graph.to_numbers`), which equals its id if ids are integers.
The indices may have gaps.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, EdgeAttr, FeatureStore, GraphStore, HeteroData, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.data.storage import EdgeStorage, NodeStorage

import livegnn._core as _core
from livegnn.arguments import as_array
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.sampling.request import check_graph, refuse_divided
from livegnn.training.attributes import kept
from livegnn.training.columns import NodeColumns
from livegnn.training.indices import all_numbers, count_if_dense, numbers_at, unknown_number
from livegnn.training.options import OneProcess
from livegnn.types import NodeType
from livegnn.wording import quoted

_UNSET = TensorAttr().index
# Names that no tensor may have: PyG's loaders, this package or PyG's notion of a node or an edge use them.
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


class _TensorAttr(TensorAttr):
    """PyG's, which compares an index with the mark for none, and fails if the index is an array."""

    def is_set(self, key: str) -> bool:
        return getattr(self, key) is not _UNSET


class LiveFeatureStore(OneProcess, FeatureStore):
    """The features of the nodes of a live graph, as `x`, and tensors that the user puts, such as labels.

    `x` is float32 [nodes, channels]. It is read on request; for nodes that a `LiveSampler` has just drawn, a
    batch gets it as it was when they were drawn, and tensors that were put too. Features change only through
    events, not through this store.

    `put_tensor(y, group_name=node_type, attr_name="y", index=...)` stores a row for each node at `index` and
    replaces existing rows; without `index`, there must be a row for each node, in the order of
    `graph.ids(node_type)`, and they replace the whole tensor. Every batch includes these tensors. Nodes
    without a row, such as nodes added later, get NaN, -1 or False, depending on the dtype. A row is removed
    with its node. Names that batches use themselves are refused.

    index: numbers of nodes (`graph.to_numbers`; integer ids are their own numbers), as a tensor or an array;
    text ids as an array; a mask or a slice of all nodes in the order of `graph.ids`; None: all of them.

    Thread safety: any thread may call at any time. A thread that puts a tensor waits while a batch of events
    is applied.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises `InputError` if `graph` is not a `Graph`."""
        check_graph(graph)
        super().__init__(_TensorAttr)
        self.graph = graph
        self._columns = NodeColumns(graph)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        widths = self.graph.schema.node_types
        names = [(group, "x") for group, width in widths.items() if width > 0]
        return [_TensorAttr(group, name) for group, name in [*names, *self._columns.names()]]

    def _multi_get_tensor(self, attrs: list[TensorAttr]) -> list[Tensor | None]:
        """None for a tensor that another thread has removed since `get_all_tensor_attrs` listed it."""
        return [self._find(attr) for attr in attrs]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        tensor = self._find(attr)
        if tensor is None:
            group = self._group(attr)
            names = sorted({a.attr_name for a in self.get_all_tensor_attrs() if a.group_name == group})
            raise InputError(
                f"node type {group!r} has the tensors {names}, got {attr.attr_name!r}: put it first"
            )
        return tensor

    def _find(self, attr: TensorAttr) -> Tensor | None:
        group = self._group(attr)
        drawn = kept(attr.index) if isinstance(attr.index, Tensor) else None
        if attr.attr_name == "x" and self.graph.schema.node_types[group] > 0:
            if drawn is not None and group in drawn.x:
                return drawn.x[group]
            numbers = numbers_at(self.graph, group, attr.index)
            rows = self.graph.native.features_of(self.graph.node_type_index(group), numbers)
            if isinstance(rows, int):
                raise UnknownNodeError(unknown_number(self.graph, int(numbers[rows]), group))
            return torch.from_numpy(rows)
        name = group, attr.attr_name
        read = {} if drawn is None else drawn.put.get(self._columns, {})
        if name in read:
            return read[name]
        return self._columns.at(name, numbers_at(self.graph, group, attr.index))

    def _put_tensor(
        self, tensor: "Tensor | np.ndarray[tuple[int, ...], np.dtype[np.generic]]", attr: TensorAttr
    ) -> bool:
        group = self._group(attr)
        if attr.attr_name == "x":
            raise InputError("features of nodes change by events: graph.apply(Events().set_features(ids, x))")
        _check_tensor_name(attr.attr_name)
        rows = _as_rows(tensor, attr.attr_name)
        if not (rows.dtype.is_floating_point or rows.dtype.is_signed or rows.dtype is torch.bool):
            raise InputError(f"a tensor of nodes must be of a float, signed or bool dtype, got {rows.dtype}")
        if not rows.ndim:
            raise InputError(f"{attr.attr_name!r} must have a row for each node, got a single number")
        _core.holding(self.graph.writer, self._put_rows, group, rows.detach(), attr)
        return True

    def _put_rows(self, group: NodeType, rows: Tensor, attr: TensorAttr) -> None:
        numbers = numbers_at(self.graph, group, attr.index)
        if numbers.shape != rows.shape[:1]:
            rule = "there must be a row for each" if attr.index is None else "index must name each"
            raise InputError(
                f"{rule} of {len(numbers)} nodes, got {len(rows)} rows: name those that you have, with "
                "index=torch.from_numpy(graph.to_numbers(ids))"
                if attr.index is None
                else f"{rule} of {len(rows)} rows, got {len(numbers)} nodes"
            )
        if len(np.unique(numbers)) != len(numbers):
            raise InputError("index must name each node once")
        self._columns.put((group, attr.attr_name), numbers, rows, whole=attr.index is None)

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        if attr.attr_name == "x":
            raise InputError("features of nodes go with their nodes: graph.apply(Events().remove_nodes(ids))")
        return _core.holding(self.graph.writer, self._columns.remove, (self._group(attr), attr.attr_name))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        """The shape; None unless ids are 0, 1, 2, ..., because PyG takes the size as the range of indices."""
        group = self._group(attr)
        count = count_if_dense(all_numbers(self.graph, group))
        if count is None:
            return None
        if attr.attr_name == "x":
            return count, self.graph.schema.node_types[group]
        shape = self._columns.shape((group, attr.attr_name))
        return None if shape is None else (count, *shape)

    def _group(self, attr: TensorAttr) -> NodeType:
        """The node type of `attr`; None means the only node type. Raises `UnknownTypeError`."""
        group = attr.group_name if isinstance(attr.group_name, str) else None
        return list(self.graph.schema.node_types)[self.graph.node_type_index(group)]


class _Size(Sequence[int]):
    """The numbers of sources and targets that edges may have. Each is counted on request: PyG takes it for
    the range of the indices, and reads it where it draws seeds or copies edges."""

    def __init__(self, graph: Graph, ends: tuple[NodeType, NodeType]) -> None:
        self._graph, self._ends = graph, ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, end: Any) -> Any:
        """Raises `InputError` where ids have gaps."""
        name = self._ends[end]
        count = count_if_dense(all_numbers(self._graph, name))
        if count is None:
            raise InputError(
                f"PyG cannot infer the number of nodes of {name!r}: it takes positions for indices, and the "
                "ids have gaps. Name the seeds, as NodeLoader and LinkLoader of livegnn.training do, and "
                "draw with a LiveSampler instead of PyG's own sampler"
            )
        return count


class LiveGraphStore(OneProcess, GraphStore):
    """The current edges of a live graph in COO, an undirected edge in both directions. Edges change only
    through events, not through this store.

    Where ids are 0, 1, 2, ... in each type, PyG's own samplers may copy the edges (`csc`, `csr`); else they
    are refused, because they take positions for indices.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises `InputError` if `graph` is not a `Graph`."""
        check_graph(graph)
        super().__init__()
        self.graph = graph

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        return [
            EdgeAttr(edge_type, EdgeLayout.COO, size=_Size(self.graph, (edge_type[0], edge_type[2])))
            for edge_type in self.graph.schema.edge_types
        ]

    def _edges_to_layout(self, *args: object, **kwargs: object) -> object:
        # Sizes and edges of one moment: a node that is added in between would be out of range.
        return _core.holding(
            self.graph.writer, lambda: super(LiveGraphStore, self)._edges_to_layout(*args, **kwargs)
        )

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.COO:
            return None
        refuse_divided(self.graph, "which edges there are", "name links: edge_label_index=...")
        row, col = self.graph.native.edge_numbers(self.graph.edge_type_index(edge_attr.edge_type))
        return torch.from_numpy(row), torch.from_numpy(col)

    def _put_edge_index(self, edge_index: tuple[Tensor, Tensor], edge_attr: EdgeAttr) -> bool:
        raise InputError("edges are added by events: graph.apply(Events().add_edges(src, dst))")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise InputError("edges go by events: graph.apply(Events().remove_edges(src, dst))")


def _as_rows(given: object, name: str) -> Tensor:
    """A tensor of nodes as it is put. Raises `InputError` for anything but a dense tensor of numbers."""
    if isinstance(given, Tensor):
        if given.layout is not torch.strided:
            raise InputError(f"{name} must be a dense tensor, got {given.layout}: pass tensor.to_dense()")
        return given
    array = as_array(given, name)
    try:
        return torch.as_tensor(array)
    except TypeError:
        raise InputError(f"{name} must be a tensor or an array of numbers, got {array.dtype}") from None


def _check_tensor_name(name: object) -> None:
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
