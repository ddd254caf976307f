"""A simple, slow interpreter of expressions, on a graph and in float64.

A tensor has an axis of rows in front; an expression that is the same for all has one row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from livegnn.importers.expressions.evaluation import Tensor, operate
from livegnn.importers.expressions.expressions import Atom, Expression, walk


@dataclass
class Rows:
    """A graph, as expressions read it.

    sizes: atom -> number of rows. ends: atom of edges -> [2, edges]. inputs: name -> its rows.
    """

    sizes: Mapping[Atom, int]
    ends: Mapping[Atom, Tensor]
    inputs: Mapping[str, Tensor]
    computed: dict[Expression, Tensor] = field(default_factory=dict)


def compute(outputs: Sequence[Expression], graph: Rows) -> list[Tensor]:
    """The rows of expressions on a graph; an expression that is the same for all has one row."""
    values = graph.computed
    for one in walk(outputs):
        if one not in values:
            values[one] = _compute(one, [values[arg] for arg in one.args], graph)
    return [values[one] for one in outputs]


def _compute(one: Expression, args: list[Tensor], graph: Rows) -> Tensor:
    if one.value is not None:
        return one.value[None]
    if one.op == "input":
        value = graph.inputs[str(one.attrs[0])]
        return value.double() if value.is_floating_point() else value
    if one.op == "end":
        assert one.atom is not None
        return graph.ends[one.atom][int(str(one.attrs[0]))]
    if one.op == "rows":
        assert one.atom is not None
        return torch.arange(graph.sizes[one.atom])
    if one.op == "gather":
        return args[0][args[1]]
    if one.op == "scatter":
        return _scatter(one, args, graph)
    return operate(one.op, one.attrs, args)


def _scatter(one: Expression, args: list[Tensor], graph: Rows) -> Tensor:
    targets = 1 if one.atom is None else graph.sizes[one.atom]
    reduce = str(one.attrs[0])
    messages, index = [], []
    for i, (message, to, _) in enumerate(one.pieces):
        assert to.atom is not None
        rows = graph.sizes[to.atom]
        kept = args[3 * i + 2].expand(rows)
        messages.append(args[3 * i].expand(rows, *message.shape)[kept])
        index.append(args[3 * i + 1][kept] * (one.atom is not None))
    message, to_row = torch.cat(messages), torch.cat(index)
    if reduce == "last":
        result = args[-1].expand(targets, *one.shape).clone()
        for row, place in enumerate(to_row.tolist()):
            result[place] = message[row]
        return result
    result = message.new_zeros(targets, *one.shape)
    where = to_row.reshape(-1, *(1,) * len(one.shape)).expand_as(message)
    return result.scatter_reduce(0, where, message, reduce, include_self=reduce == "sum")
