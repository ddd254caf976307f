"""A live graph of several types as plain dictionaries, of whatever rows a module is called with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
import torch

import expression_interpreter as interpreter
from layered_modules import RELATIONS
from livegnn import Events, Graph
from livegnn.graph import EdgeSchema, Schema
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given
from livegnn.types import EdgeType

Row = dict[str, np.ndarray]
"""What a node or an edge carries: name -> its channels, numbers of float32."""

KINDS = ("add edges", "remove edges", "re-add edges", "set features", "add nodes", "remove nodes")


class TypedMirror:
    """Nodes by type and id, edges by type and ends, with what they carry.

    A type's features are its rows, one after the other; rows that are called edge_weight are weights.
    """

    def __init__(self, given: Sequence[Given], seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.columns: dict[Atom, dict[str, Given]] = {}
        for one in given:
            for atom in (one.atom.source, one.atom.target, one.atom):
                if atom is not None:
                    self.columns.setdefault(atom, {})
            if not one.ends and not one.count:
                self.columns[one.atom][one.name] = one
        self.node_atoms = [atom for atom in self.columns if atom.source is None]
        self.edge_atoms = [atom for atom in self.columns if atom.source is not None]
        self.nodes: dict[Atom, dict[int, Row]] = {atom: {} for atom in self.node_atoms}
        self.edges: dict[Atom, dict[tuple[int, int], Row]] = {atom: {} for atom in self.edge_atoms}
        self.next_id = dict.fromkeys(self.node_atoms, 0)

    # -- the graph

    def make_graph(self) -> Graph:
        """The same, live; still empty."""
        return Graph(
            Schema(
                {atom.name: self.width(atom) for atom in self.node_atoms},
                {
                    edge_type(atom): EdgeSchema(
                        weighted=self.weight(atom) is not None, edge_dim=self.width(atom)
                    )
                    for atom in self.edge_atoms
                },
            )
        )

    def weight(self, atom: Atom) -> str | None:
        """The rows that are the weights of these edges."""
        return next((name for name in self.columns[atom] if name.startswith("edge_weight")), None)

    def featured(self, atom: Atom) -> list[Given]:
        return [one for name, one in self.columns[atom].items() if name != self.weight(atom)]

    def width(self, atom: Atom) -> int:
        """How many channels the features of a type have."""
        return sum(prod(one.channels) for one in self.featured(atom))

    def packed(self, atom: Atom, row: Row) -> np.ndarray:
        """A node's or an edge's features."""
        parts = [row[one.name].reshape(-1) for one in self.featured(atom)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def rows(self) -> interpreter.Rows:
        """All of it, as a module is called; nodes in the order of their ids."""
        place = {atom: {node: i for i, node in enumerate(nodes)} for atom, nodes in self.nodes.items()}
        ends, inputs, sizes = {}, {}, {atom: len(nodes) for atom, nodes in self.nodes.items()}
        for atom, edges in self.edges.items():
            sizes[atom] = len(edges)
            pairs = [(place[atom.source][u], place[atom.target][v]) for u, v in edges]
            ends[atom] = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()
        for atom, columns in self.columns.items():
            carried = self.nodes[atom] if atom.source is None else self.edges[atom]
            for name, one in columns.items():
                values = np.array([row[name] for row in carried.values()], np.float64)
                rows = torch.from_numpy(values.reshape(len(carried), *one.channels))
                inputs[name] = rows.to(one.dtype)
        return interpreter.Rows(sizes, ends, inputs)

    def ids(self, atom: Atom) -> np.ndarray:
        return np.array(list(self.nodes[atom]), np.int64)

    # -- what happens to it

    def fill(self, nodes: int, edges: int) -> Events:
        """A first graph."""
        events = Events()
        for atom in self.node_atoms:
            self.add_nodes(events, atom, nodes)
        for atom in self.edge_atoms:
            for _ in range(edges):
                self.add_edge(events, atom, self.draw_pair(atom))
        return events

    def batches(self, count: int) -> Iterator[Events]:
        """Batches of a few events; each kind of event and each type has its turn."""
        for number in range(count):
            events = Events()
            for turn in range(3):
                self.act(events, KINDS[(number + turn) % len(KINDS)])
            yield events

    def act(self, events: Events, kind: str) -> None:
        node_atom = self.node_atoms[int(self.random.integers(len(self.node_atoms)))]
        if kind == "add nodes":
            self.add_nodes(events, node_atom, 1)
        elif kind == "set features" and self.columns[node_atom]:
            node = self.random.choice(list(self.nodes[node_atom]))
            self.set_features(events, node_atom, int(node))
        elif kind == "remove nodes" and len(self.nodes[node_atom]) > 6:
            self.remove_node(events, node_atom, int(self.random.choice(list(self.nodes[node_atom]))))
        if not self.edge_atoms:
            return
        atom = self.edge_atoms[int(self.random.integers(len(self.edge_atoms)))]
        known = list(self.edges[atom])
        chosen = known[int(self.random.integers(len(known)))] if known else self.draw_pair(atom)
        if kind in ("add edges", "add nodes"):
            for _ in range(2):
                self.add_edge(events, atom, self.draw_pair(atom))
        elif kind == "remove edges" and known:
            events.remove_edges([chosen[0]], [chosen[1]], edge_type=edge_type(atom))
            del self.edges[atom][chosen]
        elif kind == "re-add edges":
            self.add_edge(events, atom, chosen)

    def draw_pair(self, atom: Atom) -> tuple[int, int]:
        """A node may be its own neighbour."""
        sources, targets = (list(self.nodes[end]) for end in (atom.source, atom.target))
        return int(self.random.choice(sources)), int(self.random.choice(targets))

    def draw(self, atom: Atom) -> Row:
        row = {}
        for name, one in self.columns[atom].items():
            if name == self.weight(atom):
                value = self.random.uniform(0.1, 1.1, one.channels)
            elif one.dtype.is_floating_point:
                value = self.random.normal(size=one.channels)
            else:
                value = self.random.integers(2 if one.dtype is torch.bool else RELATIONS, size=one.channels)
            row[name] = np.asarray(value, np.float32)
        return row

    def add_nodes(self, events: Events, atom: Atom, count: int) -> None:
        for _ in range(count):
            node, row = self.next_id[atom], self.draw(atom)
            self.next_id[atom] += 1
            self.nodes[atom][node] = row
            features = self.packed(atom, row)[None] if self.width(atom) else None
            events.add_nodes([node], features, node_type=atom.name)

    def set_features(self, events: Events, atom: Atom, node: int) -> None:
        self.nodes[atom][node] = row = self.draw(atom)
        events.set_features([node], self.packed(atom, row)[None], node_type=atom.name)

    def remove_node(self, events: Events, atom: Atom, node: int) -> None:
        events.remove_nodes([node], node_type=atom.name)
        del self.nodes[atom][node]
        for edges_atom, edges in self.edges.items():
            for u, v in list(edges):
                if (edges_atom.source == atom and u == node) or (edges_atom.target == atom and v == node):
                    del edges[u, v]

    def add_edge(self, events: Events, atom: Atom, pair: tuple[int, int]) -> None:
        row, weight = self.draw(atom), self.weight(atom)
        self.edges[atom].pop(pair, None)
        self.edges[atom][pair] = row
        columns: Mapping[str, object] = {
            **({"weight": [float(row[weight])]} if weight else {}),
            **({"edge_attr": self.packed(atom, row)[None]} if self.width(atom) else {}),
        }
        events.add_edges([pair[0]], [pair[1]], edge_type=edge_type(atom), **columns)


def edge_type(atom: Atom) -> EdgeType:
    """The edge type that an atom stands for."""
    assert atom.source is not None
    assert atom.target is not None
    relation = atom.name.removeprefix(f"{atom.source.name}-").removesuffix(f"-{atom.target.name}")
    return atom.source.name, relation, atom.target.name
