"""The growth of a schema that the mappings of a deployment need, and changes of mappings that are refused.

A log is bound to the columns of each mapping (`tables/NAME`): the rows of its events were read by them. New
columns may follow the old ones. Everything else would give the numbers in the log another meaning.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.graph import Growth, Schema
from livegnn.runtime import Runtime
from livegnn.tables import EdgeRows, NodeRows, TableMapping, check_mappings
from livegnn.tables.mapping import KEEP
from livegnn.types import JSON, MISSING

if TYPE_CHECKING:
    from livegnn.log.kafka import KafkaLog
    from livegnn.log.sqlite import SqliteLog

_logger = logging.getLogger(__name__)
_OF_NODES = ("node_type", "id")
_OF_EDGES = ("edge_type", "src", "dst", "weight", "time", "time_unit", "key")
_BIND = "or accept the change, with livegnn log bind"


def table_properties(tables: Mapping[str, TableMapping]) -> dict[str, str]:
    """The properties by which a log knows the columns of mappings."""
    return {f"tables/{name}": json.dumps(_columns_of(mapping)) for name, mapping in tables.items()}


def grow_to_tables(
    runtime: Runtime, log: "SqliteLog | KafkaLog", tables: Mapping[str, TableMapping]
) -> Growth | None:
    """Lets the schema of a runtime that has not started grow to its mappings, as an event of the log, and
    binds the log to them; returns the growth.

    Raises InputError, or UnknownTypeError, for a mapping that does not fit, and for one that would change the
    meaning of events in the log; then nothing is appended.
    """
    growth = growth_to(tables, log.bound(), runtime.graph.schema)
    if growth is not None:
        check_mappings(tables, runtime.check_growth(growth))
        _logger.info("the schema grows to the mappings: %s", "; ".join(describe(growth)))
        seq = runtime.append(Events().grow(growth))
        while runtime.seq < seq:
            runtime.step()
        if (refused := runtime.rejection(seq)) is not None:
            raise InputError(refused.message)
    check_mappings(tables, runtime.graph.schema)
    if tables:
        log.bind(table_properties(tables), replace=True)
    return growth


def growth_to(tables: Mapping[str, TableMapping], bound: Mapping[str, str], schema: Schema) -> Growth | None:
    """The columns that mappings have and `schema` lacks; None if there are none.

    bound: the properties of the log. Raises InputError, or UnknownTypeError, as `grow_to_tables`.
    """
    columns: dict[str, dict[str, float]] = {}
    for name, mapping in tables.items():
        known = bound.get(f"tables/{name}")
        before: dict[str, list[dict[str, JSON]]] = {} if known is None else json.loads(known)
        _check_entries(f"[tables.{name}], nodes", mapping.nodes, before.get("nodes", []), _OF_NODES)
        _check_entries(f"[tables.{name}], edges", mapping.edges, before.get("edges", []), _OF_EDGES)
        for at, rows in enumerate(mapping.nodes):
            place = f"[tables.{name}], nodes[{at}]"
            type_ = list(schema.node_types)[schema.node_type_index(rows.node_type)]
            new = rows.features[schema.node_types[type_] :]
            if not new or len(rows.features) == 1:
                continue
            old = before.get("nodes", [])[at : at + 1]
            if not old:
                continue  # the log does not know which columns are new
            _check_names(place, rows.features, old[0]["x"], schema, type_)
            added = {column: _value_of(place, column, rows) for column in new}
            if columns.setdefault(type_, added) != added:
                raise InputError(
                    f"{place}: x must have the same new columns for node type {type_!r} as the other tables, "
                    f"{list(columns[type_])}, got {list(added)}"
                )
    return Growth(columns=columns) if columns else None


def describe(growth: Growth) -> list[str]:
    """The columns of a growth, in words."""
    return [
        f"node type {name!r} gets the column {column!r}, {value:g} where there is none"
        for name, columns in growth.columns.items()
        for column, value in columns.items()
    ]


def _columns_of(mapping: TableMapping) -> dict[str, list[dict[str, JSON]]]:
    def described(rows: NodeRows | EdgeRows, fields: Sequence[str]) -> dict[str, JSON]:
        said: dict[str, JSON] = {}
        for field in fields:
            value = getattr(rows, field)
            said[field] = list(value) if isinstance(value, tuple) else value
        return {**said, "x": list(rows.features)}

    return {
        "nodes": [described(rows, _OF_NODES) for rows in mapping.nodes],
        "edges": [described(rows, _OF_EDGES) for rows in mapping.edges],
    }


def _check_entries(
    place: str,
    entries: Sequence[NodeRows | EdgeRows],
    before: Sequence[Mapping[str, JSON]],
    fields: Sequence[str],
) -> None:
    """Raises InputError if an entry names other columns than before, or the features in another order."""
    for at, (rows, old) in enumerate(zip(entries, before, strict=False)):
        for field in fields:
            value = getattr(rows, field)
            given = list(value) if isinstance(value, tuple) else value
            if given != old[field]:
                raise InputError(
                    f"{place}[{at}]: {field} must be {old[field]!r}, by which rows in the log were read, got "
                    f"{given!r}: write that, {_BIND}"
                )
        features = old["x"]
        assert isinstance(features, list)
        kept = list(rows.features[: len(features)])
        longer = isinstance(rows, EdgeRows) and len(rows.features) > len(features)
        if kept != features or longer:
            name = "edge_attr" if isinstance(rows, EdgeRows) else "x"
            more = "be" if isinstance(rows, EdgeRows) else "begin with"
            raise InputError(
                f"{place}[{at}]: {name} must {more} {features}, by which rows in the log were read, got "
                f"{list(rows.features)}: {_advice(rows)}, {_BIND}"
            )


def _advice(rows: NodeRows | EdgeRows) -> str:
    if isinstance(rows, EdgeRows):
        return "features of edges cannot grow, so write that"
    return "put new columns at the end"


def _check_names(place: str, given: Sequence[str], known: JSON, schema: Schema, node_type: str) -> None:
    """Raises InputError if columns that the schema got, and the mapping did not have, are other ones now."""
    assert isinstance(known, list)
    grown = [name for one in schema.growths for name in one.columns.get(node_type, ())]
    width = schema.node_types[node_type]
    wanted = [*known, *grown[len(grown) - (width - len(known)) :]] if width > len(known) else known
    if list(given[:width]) != wanted:
        raise InputError(
            f"{place}: x must begin with {wanted}, the columns of node type {node_type!r}, got "
            f"{list(given)}: put new columns at the end, {_BIND}"
        )


def _value_of(place: str, column: str, rows: NodeRows) -> float:
    value = rows.nulls.get(column)
    if value == KEEP:
        return MISSING
    if type(value) not in (int, float):
        raise InputError(
            f"{place}: the new column {column!r} must have a value for nodes that have none, got none: write "
            f"nulls = {{ {column} = 0 }}, with the value that the training used"
        )
    return float(value)  # type: ignore[arg-type]  # just checked
