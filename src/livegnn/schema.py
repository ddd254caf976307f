"""The node and edge types of a graph, and the columns that they have."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias, cast, get_args

from livegnn.arguments import FLOAT32_END, check_bool, check_int
from livegnn.errors import FileFormatError, InputError, UnknownTypeError
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, JSON, EdgeType, NodeType

Duplicates: TypeAlias = Literal["replace", "add", "keep"]
"""The treatment of an edge that is added again; see `EdgeSchema`."""


_LARGEST = 3.4028234663852886e38  # of float32


@dataclass(frozen=True)
class EdgeSchema:
    """The columns and the behaviour of the edges of one type.

    undirected: an edge is stored once and counts for both of its ends. weighted, timed: edges have a float32
    weight, a float64 time; without them every weight is 1 and no column is stored. duplicates: an edge that
    is added again replaces the old weight and time ("replace"), adds its weight to the old one ("add", for
    payments), or becomes another edge ("keep"); a key then distinguishes edges between the same two nodes.
    edge_dim: the width of the edges' features (`edge_attr`), float32; 0 for none. time_to_live: an age in the
    unit of the times, after which an edge expires (see `Graph.expire`); None: edges never expire.
    in_neighbors: whether a directed type also stores the in-edges of each node; the engine and sampling with
    direction "in" need them, and they double the memory of the edges. capacity, slack: parameters of the
    nodes of a samtree (PlatoD2GL, section IV): their capacity, and how far from the middle a split may be, by
    default an eighth of the capacity.
    """

    undirected: bool = False
    weighted: bool = False
    timed: bool = False
    duplicates: Duplicates = "replace"
    edge_dim: int = 0
    time_to_live: float | None = None
    in_neighbors: bool = True
    capacity: int = 256
    slack: int | None = None

    def __repr__(self) -> str:
        """The settings that differ from their defaults."""
        special = [
            f"{it.name}={getattr(self, it.name)!r}"
            for it in fields(self)
            if getattr(self, it.name) != it.default
        ]
        return f"EdgeSchema({', '.join(special)})"

    def __post_init__(self) -> None:
        for name in ("undirected", "weighted", "timed", "in_neighbors"):
            object.__setattr__(self, name, check_bool(getattr(self, name), name))
        if not isinstance(self.duplicates, str) or self.duplicates not in get_args(Duplicates):
            raise InputError(f"duplicates must be 'replace', 'add' or 'keep', got {self.duplicates!r}")
        if self.duplicates == "add" and not self.weighted:
            raise InputError("duplicates='add' adds weights, so it needs weighted=True")
        edge_dim = check_int(self.edge_dim, "edge_dim, the width of the edges' features,", 0)
        object.__setattr__(self, "edge_dim", edge_dim)
        if self.time_to_live is not None and not (
            type(self.time_to_live) in (int, float) and 0 < self.time_to_live < math.inf
        ):
            raise InputError(
                f"time_to_live must be a finite number above 0, or None, got {self.time_to_live!r}"
            )
        if self.time_to_live is not None and not self.timed:
            raise InputError("time_to_live counts from the times of edges, so it needs timed=True")
        object.__setattr__(self, "capacity", check_int(self.capacity, "capacity", 4, 1024))
        if self.slack is not None:
            quarter = self.capacity // 4
            slack = check_int(
                self.slack, f"slack, at most a quarter of the capacity {self.capacity},", 0, quarter
            )
            object.__setattr__(self, "slack", slack)


@dataclass(frozen=True)
class Schema:
    """Node types with the width of their features, and edge types.

    text_ids: ids of all node types are text rather than integers. auto_add: node types that need not be
    announced, with the features of a new node, or None for zeros: an edge, or features, that name an unknown
    node of such a type add it. A list of types stands for zeros. timed_features: the node types whose
    features have a float64 time each, as timed edges have; features that are older than those of the node
    change nothing.
    """

    node_types: Mapping[NodeType, int] = field(default_factory=lambda: {DEFAULT_NODE_TYPE: 0})
    edge_types: Mapping[EdgeType, EdgeSchema] = field(
        default_factory=lambda: {DEFAULT_EDGE_TYPE: EdgeSchema()}
    )
    text_ids: bool = False
    auto_add: Mapping[NodeType, tuple[float, ...]] = field(default_factory=dict)
    timed_features: Collection[NodeType] = ()
    _node_indices: dict[NodeType, int] = field(init=False, repr=False, compare=False)
    _edge_indices: dict[EdgeType, int] = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        text = ", text_ids=True" if self.text_ids else ""
        text += f", auto_add={self.auto_add!r}" if self.auto_add else ""
        text += f", timed_features={self.timed_features!r}" if self.timed_features else ""
        if len(self.node_types) + len(self.edge_types) <= 2:
            return f"Schema({self.node_types!r}, {self.edge_types!r}{text})"
        nodes = "".join(f"\n    {name!r}: {width!r}," for name, width in self.node_types.items())
        edges = "".join(f"\n    {name!r}: {carried!r}," for name, carried in self.edge_types.items())
        return f"Schema(\n  {{{nodes}\n  }},\n  {{{edges}\n  }}{text},\n)"

    def __post_init__(self) -> None:
        for given, what, of in (
            (self.node_types, "node_types", "node types to the width of their features"),
            (self.edge_types, "edge_types", "edge types to an EdgeSchema each"),
        ):
            if not isinstance(given, Mapping):
                raise InputError(f"{what} must be a dict from {of}, got {given!r}")
        object.__setattr__(self, "text_ids", check_bool(self.text_ids, "text_ids"))
        if not self.node_types:
            raise InputError("a schema must have at least one node type, got none")
        widths = {
            name: check_int(width, f"the width of node type {name!r}", 0)
            for name, width in self.node_types.items()
        }
        object.__setattr__(self, "node_types", widths)
        object.__setattr__(self, "auto_add", _to_defaults(self.auto_add, widths))
        object.__setattr__(self, "timed_features", _to_timed(self.timed_features, widths))
        edge_types = {_to_edge_type(name, edges): edges for name, edges in self.edge_types.items()}
        object.__setattr__(self, "edge_types", edge_types)
        for edge_type, edges in self.edge_types.items():
            source, _, target = edge_type
            for end in (source, target):
                if end not in self.node_types:
                    raise UnknownTypeError(
                        f"edge type {edge_type!r} names node type {end!r}; "
                        f"the schema has {', '.join(map(repr, self.node_types))}"
                    )
            if edges.undirected and source != target:
                raise InputError(
                    f"edge type {edge_type!r} cannot be undirected: its ends are of different types"
                )
        object.__setattr__(self, "_node_indices", {name: i for i, name in enumerate(widths)})
        object.__setattr__(self, "_edge_indices", {name: i for i, name in enumerate(edge_types)})

    def node_type_index(self, node_type: NodeType | EdgeType | None) -> int:
        """The position of a type in `node_types`; None means the only type. Raises `UnknownTypeError`."""
        index = self._node_indices.get(node_type) if isinstance(node_type, str) else None
        if index is not None:
            return index
        if node_type is None and len(self._node_indices) == 1:
            return 0
        raise unknown_type(self._node_indices, node_type, "node")

    def edge_type_index(self, edge_type: EdgeType | NodeType | None) -> int:
        """The position of a type in `edge_types`; None means the only type. Raises `UnknownTypeError`."""
        try:
            index = self._edge_indices.get(edge_type) if isinstance(edge_type, tuple) else None
        except TypeError:  # a tuple that cannot be hashed
            index = None
        if index is not None:
            return index
        if edge_type is None and len(self._edge_indices) == 1:
            return 0
        raise unknown_type(self._edge_indices, edge_type, "edge")

    def to_json(self) -> JSON:
        added: dict[str, JSON] = {name: list(features) for name, features in self.auto_add.items()}
        return {
            **({"auto_add": added} if added else {}),
            **({"timed_features": list(self.timed_features)} if self.timed_features else {}),
            "node_types": dict(self.node_types),
            "edge_types": [
                {
                    "edge_type": list(edge_type),
                    "undirected": e.undirected,
                    "weighted": e.weighted,
                    "timed": e.timed,
                    "duplicates": e.duplicates,
                    "edge_dim": e.edge_dim,
                    "time_to_live": e.time_to_live,
                    "in_neighbors": e.in_neighbors,
                    "capacity": e.capacity,
                    "slack": e.slack,
                }
                for edge_type, e in self.edge_types.items()
            ],
            "text_ids": self.text_ids,
        }

    @classmethod
    def from_json(cls, data: JSON) -> "Schema":
        """The inverse of `to_json`. Raises `FileFormatError` if `data` is not what `to_json` makes."""
        try:
            assert isinstance(data, dict)
            node_types, edge_types, text_ids = data["node_types"], data["edge_types"], data["text_ids"]
            assert isinstance(node_types, dict)
            assert isinstance(edge_types, list)
            types: dict[EdgeType, EdgeSchema] = {}
            for entry in edge_types:
                assert isinstance(entry, dict)
                names = entry["edge_type"]
                assert isinstance(names, list)
                source, relation, target = names
                # States of older versions may lack these fields; `edge_dim` was once called `features`.
                edge_dim = entry.get("edge_dim", entry.get("features", 0))
                time_to_live = entry.get("time_to_live")
                assert isinstance(edge_dim, int)
                assert time_to_live is None or isinstance(time_to_live, (int, float))
                types[str(source), str(relation), str(target)] = EdgeSchema(
                    undirected=bool(entry["undirected"]),
                    weighted=bool(entry["weighted"]),
                    timed=bool(entry["timed"]),
                    duplicates=cast("Duplicates", str(entry["duplicates"])),
                    edge_dim=edge_dim,
                    time_to_live=time_to_live,
                    in_neighbors=bool(entry.get("in_neighbors", True)),
                    capacity=_integer(entry.get("capacity", 256)),
                    slack=None if entry.get("slack") is None else _integer(entry.get("slack")),
                )
            widths = {name: width for name, width in node_types.items() if isinstance(width, int)}
            assert len(widths) == len(node_types)
            auto_add = data.get("auto_add", {})  # states of older versions lack it
            assert isinstance(auto_add, dict)
            timed_features = data.get("timed_features", [])  # as do these
            assert isinstance(timed_features, list)
            return cls(
                widths,
                types,
                bool(text_ids),
                cast("Mapping[str, tuple[float, ...]]", auto_add),
                cast("list[str]", timed_features),
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(
                f"a graph's schema must be what Schema.to_json makes, got {data!r}"
            ) from error


def unknown_type(known: Iterable[NodeType] | Iterable[EdgeType], got: object, what: str) -> UnknownTypeError:
    """The error for a type that is none of the `known` ones, or was left out where there are several.

    what: "node" or "edge".
    """
    listed = list(known)
    said = repr(got)
    if said in map(repr, (None, DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE)):  # events without a type carry those
        said = "none"
        if listed:
            said += f": a graph of several types needs it, as in {what}_type={listed[0]!r}"
    return UnknownTypeError(
        f"{what} type must be one of {', '.join(map(repr, listed)) or 'none'}, got {said}"
    )


def _to_edge_type(name: object, edges: object) -> EdgeType:
    """The name of an edge type as a tuple; raises `InputError` if it, or its `EdgeSchema`, is invalid."""
    if not isinstance(name, (tuple, list)) or len(name) != 3 or not all(isinstance(n, str) for n in name):
        raise InputError(f"an edge type must be (source type, relation, target type), got {name!r}")
    if not isinstance(edges, EdgeSchema):
        raise InputError(f"edge type {name!r} must have an EdgeSchema, got {edges!r}")
    source, relation, target = name
    return source, relation, target


def _to_defaults(auto_add: object, widths: Mapping[NodeType, int]) -> dict[NodeType, tuple[float, ...]]:
    """The features of new nodes by type; raises `InputError` for unknown types and other widths."""
    if isinstance(auto_add, (list, tuple)):
        auto_add = dict.fromkeys(map(str, auto_add))
    if not isinstance(auto_add, Mapping):
        raise InputError(f"auto_add must be a dict from node types to features, or a list, got {auto_add!r}")
    defaults = {}
    for name, features in auto_add.items():
        if name not in widths:
            raise UnknownTypeError(
                f"auto_add names node type {name!r}; the schema has {', '.join(map(repr, widths))}"
            )
        row = [0.0] * widths[name] if features is None else features
        if (
            not isinstance(row, (list, tuple))
            or len(row) != widths[name]
            or not all(type(one) in (int, float) and abs(one) < FLOAT32_END for one in row)
        ):
            raise InputError(
                f"auto_add must have {widths[name]} finite numbers for node type {name!r}, got {features!r}"
            )
        defaults[name] = tuple(max(-_LARGEST, min(float(one), _LARGEST)) for one in row)
    return defaults


def _to_timed(timed: object, widths: Mapping[NodeType, int]) -> tuple[NodeType, ...]:
    """The node types whose features have times, in the order of `widths`; raises `InputError` for unknown
    types and types without features."""
    if not isinstance(timed, Collection) or isinstance(timed, (str, Mapping)):
        raise InputError(f"timed_features must be a list of node types, got {timed!r}")
    for name in timed:
        if name not in widths:
            raise UnknownTypeError(
                f"timed_features names node type {name!r}; the schema has {', '.join(map(repr, widths))}"
            )
        if not widths[name]:
            raise InputError(
                f"timed_features must list node types with features, got {name!r}, whose width is 0"
            )
    return tuple(name for name in widths if name in timed)


def _integer(value: JSON) -> int:
    assert isinstance(value, int)
    return value
