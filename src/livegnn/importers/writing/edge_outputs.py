"""Outputs with a row for each edge: the rows that they read at both ends, and their expressions.

A message is in normal form: an operation that reads one end alone is computed on nodes. An edge output stays
as it was read: it gathers the rows that the module itself gathers, and all after that is computed for the
edge. So the rows at the ends are the module's embeddings, with their widths, and not parts of its decoder.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from livegnn.importers.expressions.expressions import Expression, Expressions, walk

_EMBEDDING = "embedding"
_SUFFIXES: Mapping[frozenset[object], str] = {
    frozenset({0, 1}): "",
    frozenset({0}): ":source",
    frozenset({1}): ":target",
}


def rows_at_ends(outputs: Iterable[Expression], taken: Collection[str] = ()) -> dict[str, Expression]:
    """The rows of nodes that edge outputs gather, by their names as outputs of a model.

    A row that is read at both ends is ``"embedding"``, one that is read at one end ``"embedding:source"`` or
    ``"embedding:target"``. If several rows have one name, the one that was made last keeps it, and the others
    have a number behind it. taken: names that are not free.
    """
    ends: dict[Expression, set[object]] = {}
    for one in _on_edges(outputs):
        if one.op == "gather":
            row, index = one.args
            ends.setdefault(row, set()).add(index.attrs[0] if index.op == "end" else None)
    found: dict[str, Expression] = {}
    suffixes = {row: _SUFFIXES.get(frozenset(read), "") for row, read in ends.items()}
    for row in sorted(ends, key=lambda one: (suffixes[one], -one.number)):
        name, number = f"{_EMBEDDING}{suffixes[row]}", 1
        while name in found or name in taken:
            number += 1
            name = f"{_EMBEDDING}{suffixes[row]}/{number}"
        found[name] = row
    return found


def with_rows(
    make: Expressions, outputs: Iterable[Expression], new: Mapping[Expression, Expression]
) -> list[Expression]:
    """Edge outputs that gather other rows. new: row of nodes -> the row in its place."""
    outputs = list(outputs)
    made: dict[Expression, Expression] = {}
    for one in _on_edges(outputs):
        make.origin = make.origins.get(one, make.origin)
        if one.op == "gather":
            made[one] = make.gather(new[one.args[0]], one.args[1])
        else:
            made[one] = make.with_args(one, [made[arg] for arg in one.args])
    return [made[one] for one in outputs]


def _on_edges(outputs: Iterable[Expression]) -> Iterator[Expression]:
    """Every expression of the outputs on edges, once, each after its inputs; gathers without theirs."""
    return walk(outputs, into=lambda one: one.op != "gather")
