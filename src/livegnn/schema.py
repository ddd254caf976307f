"""The node and edge types of a graph, and the columns that they have."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
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
class Growth:
    """New columns and types of a schema; nothing is changed or removed. See `Schema.grown`.

    columns: by node type, new columns at the end of its features: names, which only this record and its
    readers know, and for each the value in rows that have none. node_types: new ones, with the width of their
    features, which have no times. edge_types: new ones, between old or new node types. auto_add: as in
    `Schema`, of new node types.
    """

    columns: Mapping[NodeType, Mapping[str, float]] = field(default_factory=dict)
    node_types: Mapping[NodeType, int] = field(default_factory=dict)
    edge_types: Mapping[EdgeType, EdgeSchema] = field(default_factory=dict)
    auto_add: Mapping[NodeType, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("columns", "node_types", "edge_types"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name} of a growth must be a dict by types, got {getattr(self, name)!r}")
        columns = {node_type: _to_columns(node_type, given) for node_type, given in self.columns.items()}
        object.__setattr__(self, "columns", columns)
        widths = {
            name: check_int(width, f"the width of node type {name!r}", 0)
            for name, width in self.node_types.items()
        }
        object.__setattr__(self, "node_types", widths)
        object.__setattr__(self, "auto_add", _to_defaults(self.auto_add, widths))
        edge_types = {_to_edge_type(name, edges): edges for name, edges in self.edge_types.items()}
        object.__setattr__(self, "edge_types", edge_types)
        if not (columns or widths or edge_types):
            raise InputError("a growth must have columns, node_types or edge_types, got none")

    def to_json(self) -> JSON:
        ends = {end: 0 for source, _, target in self.edge_types for end in (source, target)}
        of_edges = Schema(ends or {"": 0}, self.edge_types).to_json()
        assert isinstance(of_edges, dict)
        columns: dict[str, JSON] = {
            name: [[column, value] for column, value in given.items()] for name, given in self.columns.items()
        }
        added: dict[str, JSON] = {name: list(features) for name, features in self.auto_add.items()}
        return {
            "columns": columns,
            "node_types": dict(self.node_types),
            "edge_types": of_edges["edge_types"],
            "auto_add": added,
        }

    @classmethod
    def from_json(cls, data: JSON) -> "Growth":
        """The inverse of `to_json`. Raises `FileFormatError` if `data` is not what `to_json` makes."""
        try:
            assert isinstance(data, dict)
            columns, node_types = data["columns"], data["node_types"]
            assert isinstance(columns, dict)
            assert isinstance(node_types, dict)
            named: dict[str, dict[str, float]] = {}
            for node_type, given in columns.items():
                assert isinstance(given, list)
                named[node_type] = dict(cast("list[tuple[str, float]]", given))
                assert len(named[node_type]) == len(given)
            edges = data["edge_types"]
            assert isinstance(edges, list)
            ends = {str(end): 0 for edge in edges for end in cast("dict[str, list[str]]", edge)["edge_type"]}
            of_edges = Schema.from_json(
                {"node_types": {"": 0, **ends}, "edge_types": edges, "text_ids": False}
            )
            return cls(
                named,
                cast("Mapping[str, int]", node_types),
                of_edges.edge_types,
                cast("Mapping[str, tuple[float, ...]]", data["auto_add"]),
            )
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(
                f"the growth of a schema must be what Growth.to_json makes, got {data!r}"
            ) from error


@dataclass(frozen=True)
class Schema:
    """Node types with the width of their features, and edge types.

    text_ids: ids of all node types are text rather than integers. auto_add: node types that need not be
    announced, with the features of a new node, or None for zeros: an edge, or features, that name an unknown
    node of such a type add it. A list of types stands for zeros. timed_features: the node types whose
    features have a float64 time each, as timed edges have; features that are older than those of the node
    change nothing. growths: those that made this schema of the one that the graph began with, `origin`; see
    `grown`.
    """

    node_types: Mapping[NodeType, int] = field(default_factory=lambda: {DEFAULT_NODE_TYPE: 0})
    edge_types: Mapping[EdgeType, EdgeSchema] = field(
        default_factory=lambda: {DEFAULT_EDGE_TYPE: EdgeSchema()}
    )
    text_ids: bool = False
    auto_add: Mapping[NodeType, tuple[float, ...]] = field(default_factory=dict)
    timed_features: Collection[NodeType] = ()
    growths: tuple[Growth, ...] = ()
    _widths: dict[NodeType, tuple[int, ...]] = field(init=False, repr=False, compare=False)
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
        object.__setattr__(self, "_widths", _widths_of(widths, self.growths))
        object.__setattr__(self, "_node_indices", {name: i for i, name in enumerate(widths)})
        object.__setattr__(self, "_edge_indices", {name: i for i, name in enumerate(edge_types)})

    def node_type_index(self, node_type: NodeType | EdgeType | None) -> int:
        """The position of a type in `node_types`; None means the only type, of a schema that has grown the
        only one of its `origin`. Raises `UnknownTypeError`."""
        index = self._node_indices.get(node_type) if isinstance(node_type, str) else None
        if index is not None:
            return index
        if node_type is None and len(self._node_indices) - sum(len(g.node_types) for g in self.growths) == 1:
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
        if edge_type is None and len(self._edge_indices) - sum(len(g.edge_types) for g in self.growths) == 1:
            return 0
        raise unknown_type(self._edge_indices, edge_type, "edge")

    # -- growing

    def grown(self, growth: Growth) -> "Schema":
        """The schema with the types of a growth after the old ones, and its columns after the old ones.

        Raises `InputError` if the growth names a type that is there, columns of one that is not, or a column
        that an earlier growth has added to the type, and `UnknownTypeError` for ends that no type has.
        """
        if not isinstance(growth, Growth):
            raise InputError(f"expected a Growth, got {growth!r}")
        for name in growth.columns:
            if name not in self.node_types:
                raise unknown_type(self.node_types, name, "node")
            for again in (c for one in self.growths for c in one.columns.get(name, ())):
                if again in growth.columns[name]:
                    raise InputError(f"the column {again!r} of node type {name!r} was added before")
        given: tuple[NodeType | EdgeType, ...] = (*growth.node_types, *growth.edge_types)
        for one in given:
            if one in self.node_types or one in self.edge_types:
                raise InputError(f"a growth must add types that the schema lacks, got {one!r}, which it has")
            # The default names stand for the only types of the schema that a graph began with.
            if one in (DEFAULT_NODE_TYPE, DEFAULT_EDGE_TYPE):
                raise InputError(f"a new type must have a name of its own, got the default name {one!r}")
        widths = {n: width + len(growth.columns.get(n, ())) for n, width in self.node_types.items()}
        added = {n: (*row, *growth.columns.get(n, {}).values()) for n, row in self.auto_add.items()}
        return Schema(
            {**widths, **growth.node_types},
            {**self.edge_types, **growth.edge_types},
            self.text_ids,
            {**added, **growth.auto_add},
            self.timed_features,
            (*self.growths, growth),
        )

    @property
    def origin(self) -> "Schema":
        """The schema before all growths."""
        if not self.growths:
            return self
        edge_types = {edge_type for growth in self.growths for edge_type in growth.edge_types}
        node_types = {node_type for growth in self.growths for node_type in growth.node_types}
        widths = {name: self.widths_of(name)[0] for name in self.node_types if name not in node_types}
        return Schema(
            widths,
            {name: edges for name, edges in self.edge_types.items() if name not in edge_types},
            self.text_ids,
            {name: row[: widths[name]] for name, row in self.auto_add.items() if name in widths},
            self.timed_features,
        )

    def widths_of(self, node_type: NodeType) -> tuple[int, ...]:
        """The widths that the features of a type have had, the present one last: a model may read as many
        columns, and rows may bring as many."""
        return self._widths.get(node_type) or (self.node_types[node_type],)

    def fills_of(self, node_type: NodeType, width: int) -> tuple[float, ...]:
        """The values of the columns that a row of `width` numbers lacks, one of `widths_of`."""
        values = [value for g in self.growths for value in g.columns.get(node_type, {}).values()]
        lacking = self.node_types[node_type] - width
        return tuple(values[len(values) - lacking :]) if lacking else ()

    @cached_property
    def grown_rows(self) -> Mapping[NodeType, tuple[float, ...]]:
        """By node type, the features of a node that is added without any: zeros, and the values of columns
        that were added; only types for which not all are zeros."""
        rows = {
            name: (*[0.0] * widths[0], *self.fills_of(name, widths[0]))
            for name, widths in self._widths.items()
        }
        return {name: row for name, row in rows.items() if any(row)}

    # -- as JSON

    def to_json(self) -> JSON:
        added: dict[str, JSON] = {name: list(features) for name, features in self.auto_add.items()}
        return {
            **({"growths": [growth.to_json() for growth in self.growths]} if self.growths else {}),
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
            growths = data.get("growths", [])
            assert isinstance(growths, list)
            return cls(
                widths,
                types,
                bool(text_ids),
                cast("Mapping[str, tuple[float, ...]]", auto_add),
                cast("list[str]", timed_features),
                tuple(map(Growth.from_json, growths)),
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
            raise InputError(f"timed_features must list types with features, got {name!r}, whose width is 0")
    return tuple(name for name in widths if name in timed)


def _to_columns(node_type: NodeType, given: object) -> dict[str, float]:
    """New columns and their values. Raises `InputError` if one has no name, or no finite value of float32."""
    if not isinstance(given, Mapping) or not given:
        raise InputError(
            f"columns of a growth must have names and values for node type {node_type!r}, such as "
            f"{{'age': 0.0}}, got {given!r}"
        )
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"a new column of node type {node_type!r} must have a name, got {name!r}")
        if type(value) not in (int, float) or not abs(value) < FLOAT32_END:
            raise InputError(
                f"the column {name!r} of node type {node_type!r} must have a finite value for rows that have "
                f"none, got {value!r}"
            )
    return {name: max(-_LARGEST, min(float(value), _LARGEST)) for name, value in given.items()}


def _widths_of(widths: Mapping[NodeType, int], growths: object) -> dict[NodeType, tuple[int, ...]]:
    """The widths of grown types, one after the other. Raises `InputError` if a growth does not fit them."""
    if not isinstance(growths, tuple) or not all(isinstance(one, Growth) for one in growths):
        raise InputError(f"growths must be a tuple of Growth, got {growths!r}")
    had = {name: [width] for name, width in widths.items()}
    for growth in reversed(growths):
        for name, columns in growth.columns.items():
            if name not in had or had[name][0] < len(columns):
                raise InputError(f"growths must fit the schema, got columns {list(columns)} of {name!r}")
            had[name].insert(0, had[name][0] - len(columns))
    return {name: tuple(seen) for name, seen in had.items() if len(seen) > 1}


def _integer(value: JSON) -> int:
    assert isinstance(value, int)
    return value
