"""PyG's feature store and graph store, backed by the live graph.

PyG's index of a node is its internal number (`Graph.to_numbers`), which equals its id if ids are integers.
The indices may have gaps.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from livegnn import _core
from livegnn.arguments import as_array
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.sampling.request import check_graph
from livegnn.training.attributes import kept
from livegnn.types import IntArray, NodeType

Index: TypeAlias = "Tensor | np.ndarray[tuple[int], np.dtype[np.int64]] | slice | int | None"

NO_NODE = 0xFFFFFFFF


class _Column(NamedTuple):
    """A tensor that the user put: `rows[i]` is the row of node `numbers[i]`; `numbers` is ascending."""

    numbers: Tensor
    rows: Tensor

    def at(self, numbers: Tensor) -> Tensor:
        """The rows of nodes; NaN, -1 or False for nodes without a row."""
        out = self.rows.new_full((len(numbers), *self.rows.shape[1:]), _missing(self.rows))
        if len(self.numbers):
            place = torch.searchsorted(self.numbers, numbers).clamp_(max=len(self.numbers) - 1)
            found = self.numbers[place] == numbers
            out[found] = self.rows[place[found]]
        return out

    def updated(self, numbers: Tensor, rows: Tensor) -> "_Column":
        stays = torch.isin(self.numbers, numbers, invert=True)
        merged = torch.cat([self.numbers[stays], numbers])
        order = merged.argsort()
        return _Column(merged[order], torch.cat([self.rows[stays], rows])[order])


def _missing(rows: Tensor) -> float | int | bool:
    if rows.dtype.is_floating_point:
        return float("nan")
    return False if rows.dtype is torch.bool else -1


class LiveFeatureStore(FeatureStore):
    """The features of the nodes of a live graph, as `x`, and tensors that the user puts, such as labels.

    `x` is float32 [nodes, channels]. It is read on request; for nodes that a `LiveSampler` drew, it is as it
    was when they were drawn. Features change only through events, not through this store.

    `put_tensor(y, group_name=node_type, attr_name="y", index=ids)` stores a row for each of `ids` and
    replaces existing rows; without `index`, the rows belong to 0, 1, 2, ... and replace the whole tensor.
    Every batch includes these tensors. Nodes without a row, such as nodes added later, get NaN, -1 or False,
    depending on the dtype. Rows stay when their node is removed.

    Thread safety: reading is safe at any time; only one thread at a time may put or remove tensors.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises `InputError` if `graph` is not a `Graph`."""
        check_graph(graph)
        super().__init__()
        self.graph = graph
        self._columns: dict[tuple[NodeType, str], _Column] = {}
        # Rows are keyed by internal numbers. A pin makes a text id that is added again get its old number.
        self._pins: dict[tuple[NodeType, str], list[_core.TextPin]] = {}

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        widths = self.graph.schema.node_types
        names = [(group, "x") for group, width in widths.items() if width > 0]
        return [TensorAttr(group, name) for group, name in [*names, *self._columns]]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        group = self._group(attr)
        if isinstance(attr.index, Tensor) and attr.attr_name == "x":
            drawn = kept(attr.index)
            if drawn is not None and group in drawn.x:
                return drawn.x[group]
        if attr.attr_name == "x" and self.graph.schema.node_types[group] > 0:
            numbers = self._numbers(group, attr.index)
            rows = self.graph.native.features_of(self.graph.node_type_index(group), numbers)
            if isinstance(rows, int):
                raise UnknownNodeError(self.graph.unknown_node(numbers[rows], group))
            return torch.from_numpy(rows)
        column = self._columns.get((group, attr.attr_name))
        if column is None:
            known = sorted({a.attr_name for a in self.get_all_tensor_attrs() if a.group_name == group})
            raise InputError(
                f"node type {group!r} has the tensors {known}, got {attr.attr_name!r}: put it first"
            )
        return column.at(torch.from_numpy(self._numbers(group, attr.index)))

    def _put_tensor(
        self, tensor: "Tensor | np.ndarray[tuple[int, ...], np.dtype[np.generic]]", attr: TensorAttr
    ) -> bool:
        group = self._group(attr)
        if attr.attr_name == "x":
            raise InputError("features of nodes change by events: graph.apply(Events().set_features(ids, x))")
        rows = tensor if isinstance(tensor, Tensor) else torch.as_tensor(as_array(tensor, attr.attr_name))
        if not (rows.dtype.is_floating_point or rows.dtype.is_signed or rows.dtype is torch.bool):
            raise InputError(f"a tensor of nodes must be of a float, signed or bool dtype, got {rows.dtype}")
        if attr.index is not None and not isinstance(attr.index, (Tensor, np.ndarray)):
            raise InputError(f"index must be the ids of the rows, or None, got {attr.index!r}")
        whole = attr.index is None
        numbers = torch.arange(len(rows)) if whole else torch.as_tensor(attr.index).to(torch.int64)
        if numbers.shape != rows.shape[:1]:
            raise InputError(
                f"index must name each of {len(rows)} rows, got the shape {tuple(numbers.shape)}"
            )
        if len(numbers.unique()) != len(numbers) or bool((numbers < 0).any()):
            raise InputError("index must name each node once, by a number of at least 0")
        before = self._columns.get((group, attr.attr_name))
        if before is None or whole:
            before = _Column(numbers[:0], rows[:0])
        if before.rows.dtype != rows.dtype or before.rows.shape[1:] != rows.shape[1:]:
            raise InputError(
                f"{attr.attr_name!r} has rows of {before.rows.dtype} {tuple(before.rows.shape[1:])}, "
                f"got {rows.dtype} {tuple(rows.shape[1:])}: remove it first"
            )
        pin = self.graph.pin()
        pin.close()
        pins = [] if whole else self._pins.get((group, attr.attr_name), [])
        self._pins[group, attr.attr_name] = [*pins, pin]
        self._columns[group, attr.attr_name] = before.updated(numbers, rows)
        return True

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        if attr.attr_name == "x":
            raise InputError("features of nodes go with their nodes: graph.apply(Events().remove_nodes(ids))")
        self._pins.pop((self._group(attr), attr.attr_name), None)
        return self._columns.pop((self._group(attr), attr.attr_name), None) is not None

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        """The shape; None unless ids are 0, 1, 2, ..., because PyG takes the size as the range of indices."""
        group = self._group(attr)
        numbers = self._numbers(group, None)
        if len(numbers) and numbers[-1] != len(numbers) - 1:
            return None
        if attr.attr_name == "x":
            return len(numbers), self.graph.schema.node_types[group]
        column = self._columns.get((group, attr.attr_name))
        return None if column is None else (len(numbers), *column.rows.shape[1:])

    def _group(self, attr: TensorAttr) -> NodeType:
        """The node type of `attr`; None means the only node type. Raises `UnknownTypeError`."""
        group = attr.group_name if isinstance(attr.group_name, str) else None
        return list(self.graph.schema.node_types)[self.graph.node_type_index(group)]

    def _numbers(self, group: NodeType, index: Index) -> IntArray:
        """Internal numbers of the nodes at `index`; None and slices refer to all nodes in ascending order."""
        if isinstance(index, (Tensor, np.ndarray)):
            return np.ascontiguousarray(torch.as_tensor(index).cpu().numpy(), dtype=np.int64)
        if isinstance(index, int):
            return np.array([index])
        every = np.sort(self.graph.native.numbers(self.graph.node_type_index(group)))
        return every if index is None else np.ascontiguousarray(every[index])


class LiveGraphStore(GraphStore):
    """The current edges of a live graph in COO, an undirected edge in both directions. Edges change only
    through events, not through this store."""

    def __init__(self, graph: Graph) -> None:
        """Raises `InputError` if `graph` is not a `Graph`."""
        check_graph(graph)
        super().__init__()
        self.graph = graph

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        # No size: PyG would take it as the range of indices and draw seeds from it.
        return [EdgeAttr(edge_type, EdgeLayout.COO) for edge_type in self.graph.schema.edge_types]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.COO:
            return None
        row, col = self.graph.native.edge_numbers(self.graph.edge_type_index(edge_attr.edge_type))
        return torch.from_numpy(row), torch.from_numpy(col)

    def _put_edge_index(self, edge_index: tuple[Tensor, Tensor], edge_attr: EdgeAttr) -> bool:
        raise InputError("edges come by events: graph.apply(Events().add_edges(src, dst))")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise InputError("edges go by events: graph.apply(Events().remove_edges(src, dst))")
