"""From what was read of a module to a `Model`: the whole way through the rules, the steps and the checks."""

from collections.abc import Mapping, Sequence
from math import prod

from livegnn.errors import ModelError
from livegnn.model.importer.export import Given
from livegnn.model.importer.expressions import Atom, Expression
from livegnn.model.importer.facts import is_of_edges
from livegnn.model.importer.fusion import as_float32, fuse, needed
from livegnn.model.importer.lowering import Columns, Lowering
from livegnn.model.importer.normal_form import normalize
from livegnn.model.importer.own_loops import find_own_loops
from livegnn.model.importer.reader import Program
from livegnn.model.importer.relations import split_relations
from livegnn.model.importer.softmaxes import find_softmaxes
from livegnn.model.model import Model
from livegnn.model.steps import Step
from livegnn.types import EdgeType, NodeType

RELATION = "edge_type"
"""The input that numbers the relations of edges."""


def assemble(
    program: Program,
    *,
    relations: Sequence[EdgeType] | None = None,
    output: str | None = None,
    output_type: NodeType | None = None,
) -> Model:
    """The model of a program. relations: the edge types that the numbers in ``edge_type`` stand for.

    output: which of several results is the prediction; by default the first. output_type: whose rows it has.
    """
    make, given = program.make, list(program.given)
    rows = _choose(program, output, output_type)
    outputs = list(rows.values())
    if relations is not None:
        edges = next(one.atom for one in given if one.name == RELATION)
        atoms = [Atom("-".join(kind), edges.source, edges.target) for kind in relations]
        outputs = split_relations(make, outputs, edges, RELATION, atoms)
        given = [one for one in given if one.atom is not edges] + [
            Given(f"{one.name}:{atom}", atom, one.channels, one.dtype, ends=one.ends, count=one.count)
            for one in given
            if one.atom is edges and one.name != RELATION
            for atom in atoms
        ]
    outputs = find_softmaxes(make, find_own_loops(make, normalize(make, outputs)))
    lowering = Lowering(make, _columns(given))
    names = lowering.write(outputs)
    steps = lowering.steps
    for i, (name, one) in enumerate(zip(names, outputs, strict=True)):
        if name in lowering.inputs or name in lowering.edge_inputs or name in names[:i]:
            names[i] = steps.write("scale", (name,), "output", value=1.0)
        if one.atom is None or is_of_edges(one.atom):
            raise ModelError(
                f"{program.module_name} returns rows of edges, or none; a prediction has one for each node: "
                'import the method that makes the embeddings of nodes, such as method="encode"'
            )
    left = fuse(steps.steps, steps.tensors, names)
    return _model(lowering, left, dict(zip(rows, names, strict=True)))


def _choose(program: Program, output: str | None, output_type: NodeType | None) -> dict[str, Expression]:
    """The rows of each result, the prediction first; with `output` or `output_type` of that alone."""
    found = {name: value for name, value in program.outputs.items() if len(value.pieces) == 1}
    if output is not None and output not in found:
        raise ModelError(f"output must be one of {', '.join(map(repr, found))}, got {output!r}")
    if not found:
        raise ModelError(f"{program.module_name} returns rows of several types in one tensor")
    kept = {name: value.pieces[0] for name, value in found.items() if output in (None, name)}
    if output_type is not None:
        types = [str(piece.atom) for piece in kept.values()]
        kept = {name: piece for name, piece in kept.items() if str(piece.atom) == output_type}
        if not kept:
            raise ModelError(
                f"output_type must be one of the node types that the module returns rows of, "
                f"{', '.join(map(repr, dict.fromkeys(types)))}; got {output_type!r}"
            )
    return {name: piece.row for name, piece in kept.items()}


def _columns(given: Sequence[Given]) -> dict[Atom, Columns]:
    """Where each input lies among the features of its nodes or edges: in the order of the arguments."""
    places: dict[Atom, dict[str, tuple[int, int]]] = {}
    for one in given:
        if one.ends or one.count or (is_of_edges(one.atom) and one.name.partition(":")[0] == "edge_weight"):
            continue
        held = places.setdefault(one.atom, {})
        start = max((stop for _, stop in held.values()), default=0)
        held.setdefault(one.name, (start, start + prod(one.channels)))
    return {atom: Columns(held, max(stop for _, stop in held.values())) for atom, held in places.items()}


def _model(lowering: Lowering, steps: Sequence[Step], outputs: Mapping[str, str]) -> Model:
    read = {name for step in steps for name in step.inputs}
    tensors = {name: lowering.steps.tensors[name] for step in steps for name in step.tensors.values()}
    first = next(iter(outputs.values()))
    inputs = {name: given for name, given in lowering.inputs.items() if name in read}
    return Model(
        inputs=inputs,
        steps=tuple(steps),
        tensors={name: as_float32(array) for name, array in tensors.items()},
        output=first,
        outputs=dict(outputs),
        layers=tuple(find_layers(steps, list(inputs), first)),
        edge_inputs={name: given for name, given in lowering.edge_inputs.items() if name in read},
    )


_INSIDE = frozenset({"linear", "scale", "rsqrt_degree", "source", "target", "slice", "repeat", "exp"})
"""Operators with which convolutions begin: what they are applied to is what a convolution reads."""


def find_layers(steps: Sequence[Step], inputs: Sequence[str], output: str) -> list[str]:
    """The input, what each depth of propagation reads of the one before, and the output."""
    makers = {step.output: step for step in steps}
    depths: dict[str, int] = {}
    on_edges: set[str] = set()
    layers: dict[int, str] = {}
    for step in needed(steps, [output]):
        below = max((depths.get(name, 0) for name in step.inputs), default=0)
        depths[step.output] = below + (step.op == "propagate")
        if step.op in ("source", "target") or (step.op != "propagate" and on_edges.intersection(step.inputs)):
            on_edges.add(step.output)
        if step.op == "propagate" and below and below not in layers:
            name = next(name for name in step.inputs if depths.get(name, 0) == below)
            while name in on_edges or (name in makers and makers[name].op in _INSIDE):
                inner = (one for one in makers[name].inputs if depths.get(one, 0) == below)
                name = next(inner, "")
            if name in depths:
                layers[below] = name
    between = [layers[depth] for depth in sorted(layers)]
    return list(dict.fromkeys([inputs[0] if inputs else output, *between, output]))
