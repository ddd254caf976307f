"""Sums, means and extrema of groups of nodes, as reductions along the edges from members to their groups.

A module numbers the group of each node (``batch``) and reduces rows of nodes by these numbers, or it reduces
the rows of all nodes. The graph has an edge from each member to its group instead. So a message of a node
becomes one of such an edge: it reads the node's rows at the source, and the rows of the group at the target.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch

from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, walk
from livegnn.importers.expressions.properties import inside, is_of_edges

_KEPT = ("sum", "amax", "amin")
"""The reductions that are kept along edges."""


class Grouping:
    """Expressions with groups in place of numbers of groups.

    whole: the edges from nodes to the one group of all nodes. rows: expression -> the same with the same
    rows. of_all: expression with one row for all nodes -> the same as the row of that group; not in it if
    that has no such edges, or if it reads edges.
    """

    def __init__(self, make: Expressions, outputs: Iterable[Expression], whole: Sequence[Atom]) -> None:
        self.make = make
        self.whole: Mapping[Atom | None, Atom] = {one.source: one for one in whole}
        self.rows: dict[Expression, Expression] = {}
        self.of_all: dict[Expression, Expression] = {}
        for one in walk(outputs):
            make.origin = make.origins.get(one, make.origin)
            self.rows[one] = self._row(one)
            if one.atom is None and one.value is None:
                row = self._row_of_all(one)
                if row is not None:
                    self.of_all[one] = row

    def _row(self, one: Expression) -> Expression:
        make = self.make
        if one.op == "scatter":
            pieces = [
                self._along(message, index.attrs[0], mask)
                if index.op == "group"
                else (self.rows[message], self.rows[index], self.rows[mask])
                for message, index, mask in one.pieces
            ]
            base = self.rows[one.args[-1]] if len(one.args) % 3 else None
            return make.scatter(str(one.attrs[0]), pieces, one.atom, base)
        if one.op == "gather" and one.args[1].op == "group":
            # The row of a node's group: the sum over the one edge to it.
            joining = _atom(one.args[1].attrs[0])
            message = make.gather(self.rows[one.args[0]], make.end(joining, 1))
            every = make.constant(torch.tensor(True))
            return make.scatter("sum", [(message, make.end(joining, 0), every)], one.atom)
        return make.with_args(one, [self.rows[arg] for arg in one.args])

    def _row_of_all(self, one: Expression) -> Expression | None:
        """An expression with one row for all, as a row of the group of all nodes; None if it is none."""
        make = self.make
        if one.op == "scatter":
            joining = [self.whole.get(index.atom) for _, index, _ in one.pieces]
            if one.attrs[0] not in _KEPT or any(index.op != "rows" for _, index, _ in one.pieces):
                return None
            pieces = [
                self._along(message, edges, mask)
                for edges, (message, _, mask) in zip(joining, one.pieces, strict=True)
                if edges is not None
            ]
            return make.scatter(str(one.attrs[0]), pieces, pieces[0][1].refers) if all(joining) else None
        args = [arg if arg.value is not None else self.of_all.get(arg) for arg in one.args]
        found = [arg for arg in args if arg is not None]
        if len(found) < len(args):
            return None
        if one.op == "div" and _is_count(inside(one.args[1])):  # so that the mean of no nodes is 0
            found[1] = make.elementwise("clamp", found[1], attrs=(1.0, None))
        return make.with_args(one, found)

    def _along(
        self, message: Expression, joining: object, mask: Expression
    ) -> tuple[Expression, Expression, Expression]:
        """A piece of a scatter of nodes to their groups, along the edges to these."""
        edges = _atom(joining)
        return self._lift(message, edges), self.make.end(edges, 1), self._lift(mask, edges)

    def _lift(self, row: Expression, joining: Atom) -> Expression:
        """A row of nodes as one of the edges to their groups; rows of the group are read at the target."""
        make, group = self.make, self.make.end(joining, 1)
        lifted: dict[Expression, Expression] = {}
        deep: set[Expression] = set()

        def reads_group(one: Expression) -> bool:
            return one.op == "gather" and one.args[1].op == "group" and one.args[1].attrs[0] is joining

        def is_inner(one: Expression) -> bool:
            return one.atom is not None and one.value is None and one.op not in ("gather", "scatter")

        for one in walk([row], into=is_inner):
            if one.value is not None:
                lifted[one] = one
            elif one.atom is None:
                deep.add(one)
                of_all = self.of_all.get(one)
                same = of_all is not None and of_all.atom is joining.target
                lifted[one] = make.gather(of_all, group) if of_all is not None and same else self.rows[one]
            elif reads_group(one):
                deep.add(one)
                lifted[one] = make.gather(self.rows[one.args[0]], group)
            elif is_inner(one) and any(arg in deep for arg in one.args):
                deep.add(one)
                lifted[one] = make.with_args(one, [lifted[arg] for arg in one.args])
            else:
                lifted[one] = make.gather(self.rows[one], make.end(joining, 0))
        return lifted[row]


def _atom(joining: object) -> Atom:
    assert isinstance(joining, Atom)
    return joining


def _is_count(one: Expression) -> bool:
    """Whether it is the number of all nodes."""
    of_nodes = one.op == "scatter" and one.atom is None and one.attrs == ("sum",)
    return of_nodes and all(row.is_number(1) and not is_of_edges(index.atom) for row, index, _ in one.pieces)
