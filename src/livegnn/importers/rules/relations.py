"""Splits edges with numbered relations into edges of several types.

PyG's relational layers take one ``edge_index`` and an ``edge_type`` with the number of each edge's relation;
the graph has an edge type for each relation. Every expression on such edges is written once for each
relation, with its number in place of ``edge_type``, so that masks and looked-up weights become constants.
"""

from collections.abc import Sequence

import torch

from livegnn.importers.arguments.names import RELATION, RELATION_OF_PAIRS
from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, edge_type_of, walk
from livegnn.importers.program.export import Given


def split_relations(
    make: Expressions, outputs: Sequence[Expression], given: Given, relations: Sequence[Atom]
) -> list[list[Expression]]:
    """The expressions, with edges of these relations instead of those whose ends are `given`.

    There is one for each relation, if an output has rows of these edges, otherwise one.
    """
    edges = given.atom
    number = RELATION_OF_PAIRS if edges.pairs else RELATION
    new: dict[Expression, list[Expression]] = {}
    for one in walk(outputs):
        args = [new[arg] for arg in one.args]
        make.origin = make.origins.get(one, make.origin)
        if one.atom is edges:
            new[one] = [_of_relation(make, one, args, i, atom, number) for i, atom in enumerate(relations)]
        elif one.op == "scatter":
            new[one] = [_scatter(make, one, args, edges, len(relations))]
        else:
            new[one] = [make.with_args(one, [each[0] for each in args])]
    return [new[one] for one in outputs]


def _of_relation(
    make: Expressions, one: Expression, args: Sequence[Sequence[Expression]], i: int, atom: Atom, number: str
) -> Expression:
    if one.op == "input":
        name = str(one.attrs[0])
        if name == number:
            return make.constant(torch.tensor(i if one.kind == "int" else float(i)).expand(one.shape))
        return make.input(f"{name}:{edge_type_of(atom)}", atom, one.shape, one.kind)
    if one.op == "end":
        return make.end(atom, int(str(one.attrs[0])))
    if one.op == "rows":
        return make.rows(atom)
    return make.with_args(one, [each[i % len(each)] for each in args])


def _scatter(
    make: Expressions, one: Expression, args: Sequence[Sequence[Expression]], edges: Atom, relations: int
) -> Expression:
    """The scatter with one piece for each relation in place of each piece on the edges."""
    pieces = []
    for place, (_, index, _) in enumerate(one.pieces):
        for i in range(relations if index.atom is edges else 1):
            message, to, mask = (each[i % len(each)] for each in args[3 * place : 3 * place + 3])
            pieces.append((message, to, mask))
    base = args[-1][0] if len(args) % 3 else None
    return make.scatter(str(one.attrs[0]), pieces, one.atom, base)
