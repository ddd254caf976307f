"""Selects the fields of PyG's `Data` and `HeteroData` that a graph takes.

A field that a prediction may depend on is taken or refused, never dropped silently. Labels, masks, the fields
that loaders add to their batches, text and single numbers are left out.
"""

import copy
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from livegnn.errors import InputError
from livegnn.wording import kind_of, quoted

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

_OF_NODES = frozenset({"x", "num_nodes"})
_OF_EDGES = frozenset({"edge_index", "edge_weight", "edge_attr", "time", "edge_time"})
# Labels and splits, and the fields that PyG's loaders and RandomLinkSplit add.
_USUAL = re.compile(
    r"((train|valid|val|test|stopping)_)?(y|mask|idx|label)|\w+_mask"
    r"|((pos|neg)_)?edge_label(_index|_time)?|n_id|e_id|input_id|batch_size|seed_time|num_sampled_(nodes|edges)"
    r"|(src|dst_pos|dst_neg)_index|num_classes"
)
_PLAIN = (str, bytes, int, float, complex, type(None))

_HOW_TO_GO_ON = {
    "edge_type": (
        "a graph has its relations as edge types: data.to_heterogeneous(edge_type=data.edge_type) makes them"
    ),
    "node_type": (
        "a graph keeps types apart, as data.to_heterogeneous(node_type=data.node_type, "
        "edge_type=data.edge_type) does"
    ),
    "adj_t": (
        "edges are taken from edge_index, as the data had it before ToSparseTensor, which keeps it with "
        "remove_edge_index=False"
    ),
    "pos": (
        "a model that reads positions gets them with the features: data.x = torch.cat([data.x, data.pos], 1)"
    ),
    "time": (
        "nodes have no times of their own; times of the edges are taken from edge_time, one for each edge"
    ),
}


def taken_fields(data: "Data | HeteroData", leave_out: Collection[str] = ()) -> "Data | HeteroData":
    """Returns a copy of `data` with only the fields that a graph takes, times as `time`. It shares tensors.

    leave_out: names of fields that are left out though a prediction may depend on them. Raises `InputError`
    for a field that is neither taken, left out nor usual, and for a name in `leave_out` that no field has.
    """
    if not (hasattr(data, "node_types") or hasattr(data, "edge_index")):
        raise InputError(
            f"expected PyG's Data or HeteroData, got {kind_of(data)}: "
            "of arrays, Graph.from_edges makes a graph"
        )
    if isinstance(leave_out, (str, bytes)) or not all(isinstance(name, str) for name in leave_out):
        raise InputError(f"leave_out must be a list of names of fields, got {quoted(leave_out)}")
    taken = copy.copy(data)
    stores = list(_stores(taken))
    unknown = sorted({*leave_out}.difference(*(set(store.keys()) for _, store, _ in stores)))
    if unknown:
        raise InputError(f"leave_out must name fields of the data, got {unknown[0]!r}")
    for place, store, fields in stores:
        for name in list(store.keys()):
            if name in leave_out:
                del store[name]
            elif name not in fields and not _is_usual(name, store[name]):
                raise _not_taken(name, place)
        if "edge_time" in store or ("time" in store and "edge_index" in fields):
            _take_times(store, place, homogeneous="x" in fields)
    return taken


def _stores(data: "Data | HeteroData") -> "Iterator[tuple[object, Data, frozenset[str]]]":
    """The parts of the data, their types for messages, and the names of the fields that are taken of each."""
    if not hasattr(data, "node_types"):
        yield None, data, _OF_NODES | _OF_EDGES
        return
    for name in data.node_types:
        yield name, data[name], _OF_NODES
    for edge_type in data.edge_types:
        yield edge_type, data[edge_type], _OF_EDGES
    yield None, data._global_store, frozenset()


def _is_usual(name: str, value: object) -> bool:
    plain = isinstance(value, _PLAIN) or (
        isinstance(value, dict) and all(isinstance(key, str) for key in value)
    )
    texts = isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    return plain or texts or _USUAL.fullmatch(name) is not None


def _take_times(store: "Data", place: object, *, homogeneous: bool) -> None:
    if "time" in store and "edge_time" in store:
        raise InputError(f"{_at('time', place)} and edge_time must not both be there: leave one of them out")
    if "edge_time" in store:
        store["time"] = store["edge_time"]
        del store["edge_time"]
    elif homogeneous and (len(store["time"]) != store.num_edges or store.num_edges == store.num_nodes):
        # PyG, too, takes it for one of nodes, unless their number says otherwise.
        raise _not_taken("time", place)


def _not_taken(name: str, place: object) -> InputError:
    how = _HOW_TO_GO_ON.get(name, "features are taken from x and edge_attr: join it with one of them")
    return InputError(
        f"{_at(name, place)} is not taken from the data, and a prediction may depend on it: {how}. If none "
        f"does, pass leave_out=[{name!r}] to Graph.from_pyg, or delete it from the data"
    )


def _at(name: str, place: object) -> str:
    return repr(name) if place is None else f"{name!r} of {place!r}"
