"""What a module is called with: found from its signature, and from PyG data where it is given."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from livegnn.errors import ModelError
from livegnn.model.importer.export import Given
from livegnn.model.importer.expressions import Atom
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

_NAMES = {
    **dict.fromkeys(("x", "h", "feat", "feats", "features", "inputs", "z"), "x"),
    **dict.fromkeys(("edge_index", "adj", "adj_t", "edges"), "edge_index"),
    **dict.fromkeys(("edge_weight", "edge_weights", "weight"), "edge_weight"),
    **dict.fromkeys(("edge_attr", "edge_attrs", "edge_features", "edge_feat"), "edge_attr"),
    **{"edge_type": "edge_type", "num_nodes": "num_nodes"},
}
_ORDER = ("x", "edge_index")


@dataclass(frozen=True)
class Found:
    """A method's arguments, by name, and parameters of the module that have a row for each node."""

    arguments: Mapping[str, object]
    parameters: tuple[Given, ...]


def find_arguments(
    module: nn.Module, data: "Data | HeteroData | None", method: str, inputs: Mapping[str, object] | None
) -> Found:
    """What each argument of a method stands for.

    Raises `ModelError` with the name of an argument of which it cannot be told, and of an input that there is
    no argument for.
    """
    finding = _Finding(module, data)
    given = dict(inputs or {})
    parameters = tuple(
        Given(name, finding.node, tuple(tensor.shape[1:]), tensor.dtype, parameter=True)
        for name, tensor in module.named_parameters()
        if given.pop(name, None) == "node" or finding.is_embedding(name)
    )
    taken: set[str] = set()
    arguments: dict[str, object] = {}
    signature = inspect.signature(getattr(module, method))
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in given:
            arguments[name] = finding.rows(given.pop(name), name)
            continue
        meaning = _NAMES.get(name.removesuffix("_dict"))
        if meaning is None and not finding.has(name) and place < len(_ORDER) and _ORDER[place] not in taken:
            meaning = _ORDER[place] if parameter.default is parameter.empty else None
        found = finding.find(
            meaning or name.removesuffix("_dict"), required=parameter.default is parameter.empty
        )
        if found is not None:
            arguments[name] = found
            taken.add(meaning or name)
        elif parameter.default is parameter.empty:
            raise ModelError(
                f"{type(module).__name__}.{method} takes {name!r}, and nothing tells what that is: give it "
                f"as inputs={{{name!r}: ...}}, the name of an attribute of data, ('node', channels), "
                "('edge', channels), or the value itself"
            )
    if given:
        raise ModelError(
            f"inputs has {sorted(given)[0]!r}, which {method} does not take: it takes "
            f"{', '.join(signature.parameters)}"
        )
    return Found(arguments, parameters)


class _Finding:
    """What data and module tell of rows."""

    def __init__(self, module: nn.Module, data: "Data | HeteroData | None") -> None:
        self.module, self.data = module, data
        floats = [one.dtype for one in module.parameters() if one.is_floating_point()]
        self.dtype = floats[0] if floats else torch.float32
        self.hetero = hasattr(data, "metadata") and hasattr(data, "node_types")
        self.node = Atom(DEFAULT_NODE_TYPE)
        self.edge = Atom("-".join(DEFAULT_EDGE_TYPE), self.node, self.node)
        if self.hetero:
            assert data is not None
            self.nodes = {name: Atom(name) for name in data.node_types}
            self.edges = {
                kind: Atom("-".join(kind), self.nodes[kind[0]], self.nodes[kind[2]])
                for kind in data.edge_types
            }

    def is_embedding(self, name: str) -> bool:
        """Whether a parameter is an embedding of the nodes of the data."""
        owner, _, _ = name.rpartition(".")
        part = self.module.get_submodule(owner)
        nodes = getattr(self.data, "num_nodes", None) if not self.hetero else None
        return isinstance(part, nn.Embedding) and nodes is not None and part.num_embeddings == nodes

    def has(self, name: str) -> bool:
        return self.data is not None and name in self.data

    def rows(self, given: object, name: str) -> object:
        """What inputs says of an argument."""
        if isinstance(given, str):
            found = self.find(given, required=True)
            if found is None:
                raise ModelError(f"inputs says that {name!r} is {given!r}, which the data does not have")
            return found
        if isinstance(given, tuple) and len(given) > 1 and given[0] in ("node", "edge"):
            channels = tuple(int(size) for size in given[1:] if size)
            return Given(name, self.node if given[0] == "node" else self.edge, channels, self.dtype)
        return given

    def find(self, name: str, *, required: bool) -> object | None:
        """The rows of this name; None if there are none, or if they are not needed."""
        if self.hetero:
            return self._find_dict(name)
        if name == "edge_index":
            return Given(name, self.edge, ends=True)
        if name == "num_nodes":
            return Given(name, self.node, count=True)
        if self.data is not None:
            tensor = getattr(self.data, name, None)
            if not isinstance(tensor, torch.Tensor) or not tensor.dim():
                return None
            atom = self._atom_of(name, tensor)
            dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
            return atom and Given(name, atom, tuple(tensor.shape[1:]), dtype)
        return self._guess(name) if required or name == "edge_weight" else None

    def _atom_of(self, name: str, tensor: torch.Tensor) -> Atom | None:
        assert self.data is not None
        nodes, edges = self.data.num_nodes, self.data.num_edges
        of_edges = name.startswith("edge") if nodes == edges else len(tensor) == edges
        return self.edge if of_edges else self.node if len(tensor) == nodes else None

    def _find_dict(self, name: str) -> dict[object, Given] | None:
        assert self.data is not None
        found: dict[object, Given] = {}
        for key, atom in (*self.nodes.items(), *self.edges.items()):
            store = self.data[key]
            if name == "edge_index" and name in store:
                found[key] = Given(f"{name}:{atom}", atom, ends=True)
            elif name in store and isinstance(store[name], torch.Tensor):
                tensor = store[name]
                dtype = self.dtype if tensor.is_floating_point() else tensor.dtype
                found[key] = Given(f"{name}:{atom}", atom, tuple(tensor.shape[1:]), dtype)
        return found or None

    def _guess(self, name: str) -> Given | None:
        """Without data: by the widths that layers were made for."""
        if name == "edge_type":
            return Given(name, self.edge, (), torch.int64)
        if name == "edge_weight":
            return Given(name, self.edge, (), self.dtype)
        attributes = ("in_channels", "in_features") if name == "x" else ("edge_dim",)
        width = next((width for width in _widths(self.module, attributes)), None)
        if width is None or name not in ("x", "edge_attr"):
            return None
        return replace(Given(name, self.node if name == "x" else self.edge, (width,)), dtype=self.dtype)


def _widths(module: nn.Module, attributes: tuple[str, ...]) -> Iterator[int]:
    for part in module.modules():
        for attribute in attributes:
            width = getattr(part, attribute, None)
            width = width[0] if isinstance(width, tuple) and width else width
            if isinstance(width, int) and width > 0:
                yield width
