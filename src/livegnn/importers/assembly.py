"""Makes a `Model` from the program that was read from a module: applies all rules and writes the steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import prod

from livegnn.errors import ModelError
from livegnn.importers.arguments.names import RELATION, RELATION_OF_PAIRS
from livegnn.importers.expressions.expressions import Atom, Expression, edge_type_of
from livegnn.importers.expressions.properties import is_of_edges
from livegnn.importers.program.export import Given
from livegnn.importers.reading.reader import Program
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.relations import split_relations
from livegnn.importers.rules.self_loops import find_self_loops
from livegnn.importers.rules.softmaxes import find_softmaxes
from livegnn.importers.writing.edge_outputs import rows_at_ends, with_rows
from livegnn.importers.writing.edge_steps import Columns, StepWriter
from livegnn.importers.writing.fusion import fuse
from livegnn.importers.writing.joining import join_aggregates
from livegnn.network.model import Model
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import Input, Step, needed_steps
from livegnn.types import EdgeType, NodeType


@dataclass(frozen=True)
class Result:
    """A result of a module that a model gives. name: of the result. row_axis: the axis of its rows. atom: the
    nodes or edges that have a row. outputs: the model's output, or edge outputs, one for each relation.
    """

    name: str
    row_axis: int
    atom: Atom
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Assembled:
    """A model, and how it maps to the module. columns: the place of each input among the features of its
    nodes or edges. results: those to be compared, the prediction and all rows of edges.
    """

    model: Model
    columns: Mapping[Atom, Columns]
    results: tuple[Result, ...]


def assemble(
    program: Program,
    *,
    relations: Sequence[EdgeType] | None = None,
    output: str | Sequence[str] | None = None,
    output_type: NodeType | None = None,
) -> Assembled:
    """The model of a program. relations: the edge types for the numbers in ``edge_type``.

    output: the prediction among several results; by default the first. output_type: the type of its rows.
    Results with rows of edges beside rows of nodes are left out if no model has them, unless `output` names
    them.
    """
    rows, scores = _choose(program, output, output_type)
    try:
        return _assemble(program, rows, scores, relations)
    except ModelError:
        if not rows or not scores or output is not None:
            raise
    return _assemble(program, rows, {}, relations)


def _assemble(
    program: Program,
    rows: Mapping[str, Expression],
    scores: Mapping[str, Expression],
    relations: Sequence[EdgeType] | None,
) -> Assembled:
    make, given, inner = program.make, list(program.given), list(program.read)
    scored = {name: [one] for name, one in scores.items()}
    if relations is not None:
        rows, scored, inner = _split(program, rows, scores, relations)
        given = _split_inputs(given, relations)
    columns = _columns(given)
    named = _name_scores(program, scored)
    ends = rows_at_ends(named.values(), {*rows, *named})
    normal = normalize(make, [*ends.values(), *rows.values(), *inner])
    normal = find_softmaxes(make, find_self_loops(make, normal))
    new = dict(zip(ends.values(), normal, strict=False))
    rows = dict(zip(rows, normal[len(ends) :], strict=False))
    writer = StepWriter(make, columns)
    written = _write(writer, rows, {name: new[one] for name, one in ends.items()})
    on_edges = with_rows(make, named.values(), new)
    writer.write(on_edges)
    edge_outputs = {name: writer.output(one, name) for name, one in zip(named, on_edges, strict=True)}
    if not written:
        raise ModelError(
            f"{program.module_name} returns rows of edges that read no rows of nodes, so that they need no "
            "graph: return rows that are computed of its ends too, as of x[edge_index[0]]"
        )
    read = [writer.written(one) for one in normal[len(ends) + len(rows) :]]
    model = partial(
        _model,
        writer,
        outputs=written,
        edge_outputs=edge_outputs,
        layers=[one for one in read if one],
    )
    names = [*written.values(), *edge_outputs.values()]
    left = needed_steps(writer.steps.steps, names)
    if not any(name in writer.inputs or name in writer.edge_inputs for one in left for name in one.inputs):
        raise ModelError(
            f"{program.module_name} returns what no feature of a node or an edge is read for, such as a "
            "degree: a model must read one, which may be a column of ones that the nodes have as x"
        )
    as_written = cache(lambda: model(left))
    joined = join_aggregates(left, writer.edge_inputs, lambda value: as_written().width(value))
    left = fuse(joined, writer.steps.tensors, names)
    return Assembled(model(left), columns, _results(program, rows, scored, list(named)))


def _split(
    program: Program,
    rows: Mapping[str, Expression],
    scores: Mapping[str, Expression],
    relations: Sequence[EdgeType],
) -> tuple[dict[str, Expression], dict[str, list[Expression]], list[Expression]]:
    """Rows of nodes, rows of edges for each relation, and the rows that convolutions read."""
    outputs = [[one] for one in (*rows.values(), *scores.values(), *program.read)]
    for given, atoms in _numbered(program.given, relations):
        each = split_relations(program.make, [one for row in outputs for one in row], given, atoms)
        outputs = [[one for _ in row for one in each.pop(0)] for row in outputs]
    nodes, of_edges = outputs[: len(rows)], outputs[len(rows) :]
    return (
        {name: one for name, (one,) in zip(rows, nodes, strict=True)},
        dict(zip(scores, of_edges, strict=False)),
        [one for (one,) in of_edges[len(scores) :]],
    )


def _numbered(
    given: Sequence[Given], relations: Sequence[EdgeType]
) -> Iterator[tuple[Given, Sequence[Atom]]]:
    """The ends of edges with relations, and of pairs, with the atoms in their place.

    Pairs whose relations have no number are of the first.
    """
    edges = next(one.atom for one in given if one.name == RELATION)
    atoms = [Atom("-".join(kind), edges.source, edges.target) for kind in relations]
    several = any(one.name == RELATION_OF_PAIRS for one in given)
    for one in given:
        if one.ends and replace(one.atom, pairs=False) == edges:
            of_pairs = [replace(atom, pairs=True) for atom in atoms[: len(atoms) if several else 1]]
            yield one, of_pairs if one.atom.pairs else atoms


def _split_inputs(given: Sequence[Given], relations: Sequence[EdgeType]) -> list[Given]:
    """The inputs, with those of edges and of pairs once for each relation."""
    found = list(given)
    for ends, atoms in _numbered(given, relations):
        found = [one for one in found if one.atom != ends.atom] + [
            replace(one, name=f"{one.name}:{edge_type_of(atom)}", atom=atom)
            for one in found
            if one.atom == ends.atom and one.name not in (RELATION, RELATION_OF_PAIRS)
            for atom in atoms
        ]
    return found


def _name_scores(program: Program, scored: Mapping[str, Sequence[Expression]]) -> dict[str, Expression]:
    """Rows of edges by the names of edge outputs, with the relation behind them if there are several."""
    named = {}
    for name, each in scored.items():
        for one in each:
            if one.atom is None:
                raise ModelError(
                    f"{program.module_name} returns the same row for each edge: return rows that are "
                    "computed of its ends"
                )
            named[name if len(each) == 1 else f"{name}:{edge_type_of(one.atom)}"] = one
    return named


def _write(
    writer: StepWriter, rows: Mapping[str, Expression], ends: Mapping[str, Expression]
) -> dict[str, str]:
    """Writes rows of nodes; returns the names of their values. ends: rows that are outputs because edge
    outputs read them; if a result has the same rows, they are that output."""
    writer.write([*rows.values(), *(one for one in ends.values() if one.atom is not None)])
    written: dict[str, str] = {}
    for name, one in rows.items():
        value = writer.output(one, "output")
        if value in written.values():
            value = writer.steps.write("scale", (value,), "output", value=1.0)
        written[name] = value
    for name, one in ends.items():
        if one.atom is not None:
            value = writer.output(one, name)
            if value not in written.values():
                written[name] = value
    return written


def _results(
    program: Program,
    rows: Mapping[str, Expression],
    scored: Mapping[str, Sequence[Expression]],
    names: Sequence[str],
) -> tuple[Result, ...]:
    """The first result with rows of nodes and all with rows of edges. names: of the edge outputs."""
    found, left = [], iter(names)
    for name in [*list(rows)[:1], *scored]:
        value = program.outputs[name]
        atom = value.pieces[0].atom
        assert atom is not None
        outputs = (name,) if name in rows else tuple(next(left) for _ in scored[name])
        found.append(Result(name, value.row_axis or 0, atom, outputs))
    return tuple(found)


def _choose(
    program: Program, output: str | Sequence[str] | None, output_type: NodeType | None
) -> tuple[dict[str, Expression], dict[str, Expression]]:
    """The rows of nodes of each result, the prediction first, and the rows of edges.

    They are limited to `output` or, of nodes, to `output_type`, if given.
    """
    wanted = None if output is None else [output] if isinstance(output, str) else list(output)
    returns = f"{program.module_name} returns"
    found = {name: value for name, value in program.outputs.items() if len(value.pieces) == 1}
    for name in wanted or ():
        if name not in found:
            raise ModelError(f"output must be one of {', '.join(map(repr, found))}, got {name!r}")
    if not found:
        raise ModelError(f"{returns} the rows of several tensors behind each other: return them apart")
    kept = {name: found[name].pieces[0] for name in wanted or found}
    kept = {name: one for name, one in kept.items() if one.atom and one.row.kind != "id"}
    scores = {name: piece.row for name, piece in kept.items() if is_of_edges(piece.atom)}
    kept = {name: piece for name, piece in kept.items() if name not in scores}
    if not kept and not scores:
        raise ModelError(
            f"{returns} no rows of nodes or edges, or the ends of edges alone: a prediction has a row of "
            "numbers for each node or each edge"
        )
    types = list(dict.fromkeys(str(piece.atom) for piece in kept.values()))
    if output_type is not None and kept:
        kept = {name: piece for name, piece in kept.items() if str(piece.atom) == output_type}
        if not kept:
            raise ModelError(
                f"output_type must be one of the node types that {program.module_name} returns rows of, "
                f"{', '.join(map(repr, types))}; got {output_type!r}"
            )
    elif len(types) > 1 and wanted is None:
        raise ModelError(
            f"{returns} rows of {', '.join(map(repr, types))}: say with output_type=... whose rows are the "
            "prediction, or with output=[...] which results there are to be, the prediction first"
        )
    return {name: piece.row for name, piece in kept.items()}, scores


def _columns(given: Sequence[Given]) -> dict[Atom, Columns]:
    """The place of each input among the features of its nodes or edges, in the order of the arguments."""
    places: dict[Atom, dict[str, tuple[int, int]]] = {}
    for one in given:
        weight = is_of_edges(one.atom) and one.name.partition(":")[0] == "edge_weight" and not one.channels
        if one.ends or one.count or one.group or weight:
            continue
        held = places.setdefault(one.atom, {})
        start = max((stop for _, stop in held.values()), default=0)
        held.setdefault(one.name, (start, start + prod(one.channels)))
    widths = {atom: max(stop for _, stop in held.values()) for atom, held in places.items()}
    for atom, width in widths.items():
        own = widths.get(replace(atom, pairs=False), width)
        if own != width:
            raise ModelError(
                f"features of {atom} are those of such edges, which have {own} columns, got {width}: give "
                "both the same columns"
            )
    return {atom: Columns(held, widths[atom]) for atom, held in places.items()}


def _model(
    writer: StepWriter,
    steps: Sequence[Step],
    *,
    outputs: Mapping[str, str],
    edge_outputs: Mapping[str, str],
    layers: Sequence[str],
) -> Model:
    read = {name for step in steps for name in step.inputs}
    tensors = {name: writer.steps.tensors[name] for step in steps for name in step.tensors.values()}
    first = next(iter(outputs.values()))
    inputs = {name: given for name, given in writer.inputs.items() if name in read}
    inputs = inputs or _unread(writer.columns)
    return Model(
        inputs=inputs,
        steps=tuple(steps),
        tensors=tensors,
        output=first,
        outputs=dict(outputs),
        layers=tuple(
            find_layers(steps, {name: one.node_type for name, one in inputs.items()}, first, layers)
        ),
        edge_inputs={name: given for name, given in writer.edge_inputs.items() if name in read},
        edge_outputs=dict(edge_outputs),
    )


def _unread(columns: Mapping[Atom, Columns]) -> dict[str, Input]:
    """The features of nodes of a model that reads edges alone: those that its module is called with."""
    for atom, one in columns.items():
        if not is_of_edges(atom) and one.width:
            return {next(iter(one.places)): Input(atom.name, one.width)}
    raise ModelError(
        "it reads features of edges alone, and a model has rows of its nodes: take x as an argument too; it "
        "may be a column of ones that nothing reads"
    )


_INSIDE = frozenset({"linear", "scale", "rsqrt_degree", "source", "target", "slice", "repeat", "exp"})
"""Operators with which convolutions begin: their input is the input of the convolution."""


def find_layers(
    steps: Sequence[Step], inputs: Mapping[str, NodeType], output: str, read: Sequence[str]
) -> list[str]:
    """Returns the input, the value that each depth of propagation reads from the previous one, the output.

    inputs: name -> node type. read: the values that convolutions are called with, if known. At a depth with
    several values, one with rows of the predicted node type is preferred.
    """
    makers = {step.output: step for step in steps}
    depths = dict.fromkeys(inputs, 0)
    types: dict[str, NodeType | None] = dict(inputs)
    found: list[tuple[int, str]] = []
    for step in needed_steps(steps, [output]):
        types[step.output] = _node_type(step, types)
        if not any(name in depths for name in step.inputs):
            continue  # it reads only edges, such as a degree
        below = max(depths.get(name, 0) for name in step.inputs)
        depths[step.output] = below + (step.op == "propagate")
        if step.op == "propagate" and below:
            name = next(name for name in step.inputs if depths.get(name, 0) == below)
            while name in makers and (types[name] is None or makers[name].op in _INSIDE):
                name = next((one for one in makers[name].inputs if depths.get(one, 0) == below), "")
            if name in depths:
                found.append((below, name))
    known = [(depths[name], name) for name in read if depths.get(name) and name != output]
    layers: dict[int, str] = {}
    for depth, name in sorted(known or found, key=lambda one: types[one[1]] != types[output]):
        layers.setdefault(depth, name)
    between = [layers[depth] for depth in sorted(layers)]
    first = sorted(inputs, key=lambda name: inputs[name] != types[output])
    return list(dict.fromkeys([first[0] if first else output, *between, output]))


def _node_type(step: Step, types: Mapping[str, NodeType | None]) -> NodeType | None:
    """The type of the nodes whose rows a step writes; None for rows of edges."""
    if step.op == "propagate":
        return Propagate.from_step(step).target_type
    if step.op == "degree":
        return Degree.from_step(step).node_type
    return None if step.op in ("source", "target") else types.get(step.inputs[0])
