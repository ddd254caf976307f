"""Groups of nodes: the arguments of a module that number them, and the node types and edges of a graph.

A group is a node, and a member is joined to it by an edge. So a row for each group is a sum, a mean or an
extremum along edges, which the engine keeps as any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given
from livegnn.network.call_settings import Members
from livegnn.types import EdgeType, NodeType

if TYPE_CHECKING:
    from livegnn.schema import Schema

IN = "in"
"""The relation of the edges from members to groups, if only the type of the groups is given."""


@dataclass(frozen=True)
class Groups:
    """Groups of the nodes of a call.

    columns: argument -> the group of each node, as whole numbers. whole: the edges to the one group of all
    nodes, an atom for each node type. nodes: the node types of groups that the module is not called with.
    """

    columns: Mapping[str, Given] = field(default_factory=dict)
    whole: tuple[Atom, ...] = ()
    nodes: Mapping[NodeType, Atom] = field(default_factory=dict)

    def check_used(self, given: Sequence[Given], method: str) -> None:
        """Raises `ModelError` if the method is not called with one of the columns. given: of the call."""
        used = {one.name for one in given if one.group is not None}
        for name in self.columns:
            if name not in used:
                raise ModelError(
                    f"groups must have names of arguments of {method}, got {name!r}: name the argument that "
                    "numbers the group of each node, or None if all nodes are one group"
                )


def find_groups(
    given: Mapping[str | None, Members] | None,
    nodes: Mapping[NodeType, Atom],
    edges: Mapping[EdgeType, Atom],
) -> Groups:
    """Finds the groups that `groups` of `Model.from_pyg` declares.

    nodes, edges: the types of the module's call. Raises `ModelError` for members that the module is not
    called with, and for edges that carry its messages.
    """
    made: dict[NodeType, Atom] = {}
    columns: dict[str, Given] = {}
    whole: list[Atom] = []
    for name, members in (given or {}).items():
        for one in _listed(members):
            kind = _edge_type(name, one, nodes)
            _check(name, kind, nodes, edges)
            group = nodes.get(kind[2]) or made.setdefault(kind[2], Atom(kind[2]))
            joining = Atom("-".join(kind), nodes[kind[0]], group)
            if name is None:
                whole.append(joining)
            else:
                columns[name] = Given(name, nodes[kind[0]], (), torch.int64, group=joining)
    types = {one.target for one in whole}
    if len(types) > 1:
        raise ModelError(
            "groups[None] must have edge types that lead to one node type, got "
            f"{', '.join(map(repr, sorted(map(str, types))))}: all nodes are one group"
        )
    return Groups(columns, tuple(whole), made)


def without_groups(
    given: Mapping[str | None, Members] | None, schema: "Schema"
) -> tuple[list[NodeType], list[EdgeType]]:
    """The types of nodes and edges of a graph with which a module is called: without the edges to groups, and
    without groups that have no features and no other edges."""
    named = [one for members in (given or {}).values() for one in _listed(members)]
    to_groups = [kind for kind in schema.edge_types if kind in named or (kind[1] == IN and kind[2] in named)]
    edges = [kind for kind in schema.edge_types if kind not in to_groups]
    ends = {end for kind in edges for end in (kind[0], kind[2])}
    only = {kind[2] for kind in to_groups} - ends
    return [one for one, width in schema.node_types.items() if width or one not in only], edges


def _listed(members: Members) -> Sequence[object]:
    return members if isinstance(members, list) else [members]


def _edge_type(name: str | None, members: object, nodes: Mapping[NodeType, Atom]) -> EdgeType:
    if not isinstance(members, str):
        assert isinstance(members, tuple)
        return members
    if len(nodes) > 1:
        raise ModelError(
            f"groups[{name!r}] must be an edge type where nodes are of several types, got {members!r}: say "
            f"whose groups they are, as in groups={{{name!r}: ({next(iter(nodes))!r}, {IN!r}, {members!r})}}"
        )
    return next(iter(nodes)), IN, members


def _check(
    name: str | None, kind: EdgeType, nodes: Mapping[NodeType, Atom], edges: Mapping[EdgeType, Atom]
) -> None:
    if kind[0] not in nodes:
        raise ModelError(
            f"groups[{name!r}] must join nodes that the module is called with to their groups, got {kind}: "
            f"the first type is that of the members, one of {', '.join(map(repr, nodes))}"
        )
    if kind[0] == kind[2]:
        raise ModelError(
            f"groups[{name!r}] must lead to groups of another node type than their members, got {kind}"
        )
    if kind in edges:
        raise ModelError(
            f"groups[{name!r}] must be edges that carry no messages of the module, got {kind}: join members "
            "and groups by an edge type of their own"
        )
