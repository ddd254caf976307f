"""A first deployment, from a model and a sample of each table: `livegnn init`."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import livegnn.checkpoint as checkpoint
from livegnn.atomic_file import replace_file
from livegnn.deployment import Deployment
from livegnn.errors import InputError
from livegnn.graph import EdgeSchema, Graph, Schema
from livegnn.model import EdgeInput, Input, Model, Propagate
from livegnn.network.raw_inputs import needs_every_number
from livegnn.tables import EdgeRows, NodeRows, TableMapping, TableReader, read_file
from livegnn.tables.mapping import KEEP, SKIP
from livegnn.types import EdgeType, NodeType

if TYPE_CHECKING:
    import pyarrow as pa

FILE: Final = "deployment.toml"
_MODEL: Final = "model.lgnn"
_GRAPH: Final = "graph.lgck"
SAMPLE_ROWS: Final = 10_000


class Table(NamedTuple):
    """A table of nodes or of edges. type: of them; None for the only type of the model."""

    file: Path
    type: NodeType | EdgeType | None = None

    @property
    def name(self) -> str:
        return self.file.name.split(".")[0]


class _Guessed(NamedTuple):
    table: Table
    sample: "pa.Table"
    rows: NodeRows | EdgeRows


def write_deployment(
    folder: Path, model_file: Path, nodes: Sequence[Table], edges: Sequence[Table], *, undirected: bool
) -> Deployment:
    """Writes a deployment with a copy of the model, an empty graph and a mapping for each table.

    undirected: whether each edge counts for both of its ends. The first rows of each table are read as
    events, as `livegnn load` does. Raises InputError, with the table and the column, if a table does not fit
    the model; ModelError; FileFormatError; OSError. Then nothing is written.
    """
    if folder.exists():
        raise InputError(f"{folder} must not exist yet, got a folder or a file: name another one")
    names = [table.name for table in (*nodes, *edges)]
    if len(set(names)) < len(names):
        raise InputError(f"the tables must have files of different names, got {', '.join(names)}")
    model = Model.load(model_file)
    guessed = [*_guess_nodes(model, nodes), *_guess_edges(model, edges)]
    schema = _schema(model, guessed, undirected=undirected)
    for one in guessed:
        _read_sample(one, schema)
    try:
        folder.mkdir(parents=True)
        shutil.copyfile(model_file, folder / _MODEL)
        checkpoint.write(folder / _GRAPH, {"graph": Graph(schema).state()}, 0)
        with replace_file(folder / FILE) as file:
            file.write(_text(guessed).encode())
        return Deployment.read(folder / FILE)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _guess_nodes(model: Model, tables: Sequence[Table]) -> list[_Guessed]:
    from livegnn.tables.files import read_sample
    from livegnn.tables.guesses import ReadFeatures, guess_nodes

    widths = _widths(model)
    found = []
    for table in tables:
        type_ = _type(table, list(widths), "node")
        sample = read_sample(table.file, SAMPLE_ROWS)
        read = ReadFeatures(widths[str(type_)], _replaced(model, type_), _names_of_features(model, type_))
        rows = guess_nodes(sample, str(type_), read, str(table.file))
        found.append(_Guessed(table, sample, rows))
    return found


def _guess_edges(model: Model, tables: Sequence[Table]) -> list[_Guessed]:
    from livegnn.tables.files import read_sample
    from livegnn.tables.guesses import ReadFeatures, guess_edges

    found = []
    for table in tables:
        type_ = _type(table, list(model.edge_types), "edge")
        assert isinstance(type_, tuple)
        sample = read_sample(table.file, SAMPLE_ROWS)
        read = ReadFeatures(
            _edge_width(model, type_), _replaced(model, type_), _names_of_features(model, type_)
        )
        rows = guess_edges(sample, type_, read, str(table.file), weighted=_reads_weights(model, type_))
        found.append(_Guessed(table, sample, rows))
    return found


def _type(table: Table, known: Sequence[NodeType | EdgeType], kind: str) -> NodeType | EdgeType:
    """The type of a table: the given one, the only one, or the one that has its name."""
    shown = {one: one if isinstance(one, str) else ",".join(one) for one in known}
    if table.type is not None:
        if table.type in shown:
            return table.type
        given = table.type if isinstance(table.type, str) else ",".join(table.type)
        raise InputError(f"the model must have the {kind} type {given!r}, got {', '.join(shown.values())}")
    if len(known) == 1:
        return known[0]
    alike = [one for one in known if table.name.lower().removesuffix("s") in _names(one)]
    if len(alike) == 1:
        return alike[0]
    raise InputError(
        f"{table.file}: the name of the file must be that of one of the model's {kind} types, which are "
        f"{'; '.join(shown.values())}: write TYPE={table.file}"
    )


def _names(type_: NodeType | EdgeType) -> set[str]:
    names = (type_,) if isinstance(type_, str) else (type_[1], "_".join(type_))
    return {name.lower().removesuffix("s") for name in names}


def _widths(model: Model) -> dict[NodeType, int]:
    """The width of the features of each node type that the model names."""
    widths = {end: 0 for one in model.edge_types for end in (one[0], one[2])}
    return widths | {given.node_type: given.width for given in model.inputs.values()}


def _replaced(model: Model, type_: NodeType | EdgeType) -> set[int]:
    """The positions of the features of a type that the model replaces where they are missing."""
    needed = needs_every_number(model)
    return {at for name, one in _inputs(model, type_) for at in range(one.width) if at not in needed[name]}


def _names_of_features(model: Model, type_: NodeType | EdgeType) -> Sequence[str]:
    """The names of the features of a type, if the model knows them."""
    return next((one.columns for _, one in _inputs(model, type_)), ())


def _inputs(model: Model, type_: NodeType | EdgeType) -> list[tuple[str, Input | EdgeInput]]:
    """The input of the features of a type, if there is one."""
    found: list[tuple[str, Input | EdgeInput]] = [
        (name, one) for name, one in model.inputs.items() if one.node_type == type_
    ]
    found += [
        (name, one)
        for name, one in model.edge_inputs.items()
        if (one.edge_type, one.column) == (type_, "edge_attr")
    ]
    return found[:1]


def _edge_width(model: Model, edge_type: EdgeType) -> int:
    read = (one for one in model.edge_inputs.values() if one.edge_type == edge_type)
    return next((one.width for one in read if one.column == "edge_attr"), 0)


def _reads_weights(model: Model, edge_type: EdgeType) -> bool:
    if any(one.edge_type == edge_type and one.column == "weight" for one in model.edge_inputs.values()):
        return True
    steps = [Propagate.from_step(step) for step in model.steps if step.op == "propagate"]
    return any(step.weighted for step in steps if edge_type in step.edge_types)


def _schema(model: Model, guessed: Sequence[_Guessed], *, undirected: bool) -> Schema:
    """The types that the model reads. Nodes of types without a table of nodes are added by their edges."""
    from livegnn.tables.guesses import are_text, has_parallel_edges

    widths = _widths(model)
    edge_types = {one: EdgeSchema() for one in model.edge_types}
    for one in guessed:
        rows = one.rows
        if isinstance(rows, NodeRows):
            continue
        assert rows.edge_type is not None
        edge_types[rows.edge_type] = EdgeSchema(
            undirected=undirected,
            weighted=rows.weight is not None,
            timed=rows.time is not None,
            duplicates="keep" if rows.key is not None or has_parallel_edges(one.sample, rows) else "replace",
            edge_dim=_edge_width(model, rows.edge_type),
        )
    listed = {one.rows.node_type for one in guessed if isinstance(one.rows, NodeRows)}
    return Schema(
        widths,
        edge_types,
        text_ids=are_text((one.sample, one.rows) for one in guessed),
        auto_add=[name for name in widths if name not in listed],  # type: ignore[arg-type]  # a list is one
    )


def _read_sample(one: _Guessed, schema: Schema) -> None:
    """Reads the first rows as a load does. Raises InputError with the row and the column."""
    from livegnn.tables.files import list_files

    mapping = _mapping(one.rows)
    TableReader(mapping, schema, str(one.table.file))
    next(read_file(list_files([one.table.file])[0], mapping, schema, rows=SAMPLE_ROWS), None)


def _mapping(rows: NodeRows | EdgeRows) -> TableMapping:
    return TableMapping([rows]) if isinstance(rows, NodeRows) else TableMapping(edges=[rows])


def _text(guessed: Sequence[_Guessed]) -> str:
    lines = [
        "# Written by livegnn init: read the mappings at the end, and correct them before the first load.",
        "# All settings: docs/deployment.md; mappings: docs/tables.md.",
        "",
        "[model]",
        f"path = {json.dumps(_MODEL)}",
        "",
        "[graph]                      # without nodes and edges, with the types that the model reads",
        f"path = {json.dumps(_GRAPH)}",
        "",
        "[log]",
        'path = "events.db"',
        "",
        "[checkpoint]",
        'directory = "checkpoints"',
        "",
        "[server]",
        'host = "127.0.0.1"',
        "port = 8080",
    ]
    for one in guessed:
        kind = "nodes" if isinstance(one.rows, NodeRows) else "edges"
        unread = [name for name in one.sample.column_names if name not in _columns(one.rows)]
        lines += ["", f"[[tables.{_key(one.table.name)}.{kind}]]"]
        if unread:
            lines.append(f"# not read: {', '.join(unread)}")
        if any(value not in (SKIP, KEEP) for value in one.rows.nulls.values()):
            lines.append("# nulls: write the values that the training used for missing ones")
        lines += [f"{name} = {_value(value)}" for name, value in _fields(one.rows).items()]
    return "\n".join(lines) + "\n"


def _columns(rows: NodeRows | EdgeRows) -> set[str]:
    return {*rows.keys, *rows.values}


def _fields(rows: NodeRows | EdgeRows) -> dict[str, object]:
    names = (
        ("node_type", "id", "x", "texts", "nulls")
        if isinstance(rows, NodeRows)
        else ("edge_type", "src", "dst", "weight", "time", "time_unit", "key", "edge_attr", "texts", "nulls")
    )
    found = {name: getattr(rows, name) for name in names}
    return {name: value for name, value in found.items() if value}


def _value(value: object) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(name))} = {_value(one)}" for name, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else json.dumps(name, ensure_ascii=False)
