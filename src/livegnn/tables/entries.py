"""The entries of a mapping that fits a schema: their types and widths. Nothing here needs pyarrow."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from livegnn.errors import InputError, UnknownTypeError
from livegnn.schema import Schema
from livegnn.tables.mapping import EdgeRows, NodeRows, TableMapping
from livegnn.types import EdgeType, NodeType
from livegnn.wording import quoted

_ROLES: Final = {"src": "id", "dst": "id", "id": "id", "weight": "number", "time": "time", "key": "key"}


class Entry(NamedTuple):
    """One entry of a mapping, with its type in the schema. place: for errors."""

    rows: NodeRows | EdgeRows
    type: NodeType | EdgeType
    width: int
    place: str

    def roles(self) -> Iterator[tuple[str, str]]:
        """Each column that it reads, and what for."""
        for field, role in _ROLES.items():
            if (name := getattr(self.rows, field, None)) is not None:
                yield name, role
        for name in self.rows.features:
            yield name, self.role_of(name)

    def role_of(self, feature: str) -> str:
        """Whether a column of the features has texts, numbers or, as where one has another width than 1,
        lists."""
        if feature in self.rows.codes:
            return "text"
        return "lists" if len(self.rows.features) == 1 and self.width != 1 else "features"


def check_mappings(tables: Mapping[str, TableMapping], schema: Schema) -> None:
    """Raises InputError, or UnknownTypeError, if a mapping of the sections [tables.NAME] does not fit the
    schema."""
    for name, mapping in tables.items():
        fit_entries(mapping, schema, f"[tables.{name}]")


def fit_entries(mapping: TableMapping, schema: Schema, name: str) -> tuple[list[Entry], list[Entry]]:
    """The entries for nodes and for edges. name: of the table, for errors.

    Raises InputError, or UnknownTypeError, if one does not fit the schema.
    """
    nodes = [_fit_nodes(one, schema, f"{name}, nodes[{at}]: ") for at, one in enumerate(mapping.nodes)]
    edges = [_fit_edges(one, schema, f"{name}, edges[{at}]: ") for at, one in enumerate(mapping.edges)]
    return nodes, edges


def _fit_nodes(rows: NodeRows, schema: Schema, place: str) -> Entry:
    try:
        type_ = list(schema.node_types)[schema.node_type_index(rows.node_type)]
    except UnknownTypeError as error:
        raise UnknownTypeError(f"{place}{error}") from error
    if rows.time is not None and type_ not in schema.timed_features:
        raise InputError(
            f"{place}features of node type {type_!r} have no time, got the column {rows.time!r}: leave it "
            f"out, or give the schema timed_features={[*schema.timed_features, type_]!r}"
        )
    # A mapping may give as many columns as the type had before the schema grew.
    count = len(rows.features)
    width = count if count in schema.widths_of(type_) else schema.node_types[type_]
    _check_width(place, "x", rows.features, width, f"node type {type_!r}")
    return Entry(rows, type_, width, place)


def _fit_edges(rows: EdgeRows, schema: Schema, place: str) -> Entry:
    try:
        type_ = list(schema.edge_types)[schema.edge_type_index(rows.edge_type)]
    except UnknownTypeError as error:
        raise UnknownTypeError(f"{place}{error}") from error
    edges = schema.edge_types[type_]
    for given, has, column, setting in (
        (rows.weight, edges.weighted, "weight", "weighted=True"),
        (rows.time, edges.timed, "time", "timed=True"),
        (rows.key, edges.duplicates == "keep", "key", "duplicates='keep'"),
    ):
        if given is not None and not has:
            raise InputError(
                f"{place}edges of type {type_!r} have no {column}, got the column {given!r}: leave it "
                f"out, or give the type EdgeSchema({setting})"
            )
    _check_width(place, "edge_attr", rows.features, edges.edge_dim, f"edge type {type_!r}")
    return Entry(rows, type_, edges.edge_dim, place)


def _check_width(place: str, field: str, columns: Sequence[str], width: int, of: str) -> None:
    """Raises InputError if the columns of features are not as many as the schema says."""
    if columns and (not width or (len(columns) > 1 and len(columns) != width)):
        what = "leave it out" if not width else "name one for each feature, or one column of lists"
        raise InputError(
            f"{place}{field} must have {width} columns for {of}, got {len(columns)}: "
            f"{quoted(list(columns))}: {what}"
        )
