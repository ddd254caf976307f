"""A live graph beside the module that a model was imported from, which says what is right."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import torch
from torch import nn

import livegnn as lg
from expression_interpreter import Rows
from imported_modules import Case, call, called, draw, flat
from livegnn.graph import EdgeSchema, Schema
from livegnn.importers.expressions.expressions import edge_type_of
from livegnn.importers.expressions.properties import is_of_edges
from livegnn.importers.reading.reader import Program
from livegnn.model import Model
from livegnn.network.propagation import Propagate
from livegnn.oracle.exactness import judge

KINDS = ("add_nodes", "set_features", "add_edges", "remove_edges", "remove_nodes")
"""Of events."""


def held(program: Program, graph: Rows) -> dict[str, dict[object, np.ndarray]]:
    """What a graph of the library holds of a graph that a case is called with."""
    given = dict.fromkeys(program.given)
    rows: dict[object, list[np.ndarray]] = {}
    found: dict[str, dict[object, np.ndarray]] = {"edge_index": {}, "weight": {}, "x": {}, "edge_attr": {}}
    for one in given:
        if one.ends:
            found["edge_index"][edge_type_of(one.atom)] = graph.ends[one.atom].numpy()
        elif not one.count:
            values = graph.inputs[one.name].double().numpy()
            if is_of_edges(one.atom) and one.name.startswith("edge_weight"):
                found["weight"][edge_type_of(one.atom)] = values
            else:
                rows.setdefault(one.atom, []).append(values.reshape(len(values), -1))
    for atom, parts in rows.items():
        kind, key = ("edge_attr", edge_type_of(atom)) if is_of_edges(atom) else ("x", atom.name)
        found[kind][key] = np.concatenate(parts, axis=1)
    for atom, number in graph.sizes.items():
        if not is_of_edges(atom):
            found["x"].setdefault(atom.name, np.zeros((number, 0)))
    for key, ends in found["edge_index"].items():
        found["weight"].setdefault(key, np.ones(ends.shape[1]))
    return found


class Mirror:
    """A graph of the library, and the same graph as a case is called with it."""

    def __init__(
        self, case: Case, program: Program, model: Model, fresh: Callable[[], nn.Module], seed: int
    ) -> None:
        self.case, self.program, self.model, self.fresh = case, program, model, fresh
        self.random = np.random.default_rng(seed)
        self.start = draw(self.case, "dense", seed)
        first = held(program, self.start)
        weighted = {e.edge_type for e in self.model.edge_inputs.values() if e.column == "weight"}
        for step in self.model.steps:
            if step.op == "propagate" and "weight" in Propagate.from_step(step).message_local:
                weighted.update(Propagate.from_step(step).edge_types)
        schema = Schema(
            {kind: rows.shape[1] for kind, rows in first["x"].items()},
            {
                kind: EdgeSchema(
                    weighted=kind in weighted,
                    edge_dim=first["edge_attr"].get(kind, np.zeros((0, 0))).shape[1],
                )
                for kind in first["edge_index"]
            },
        )
        self.graph = lg.Graph(schema)
        events = lg.Events()
        for kind, rows in first["x"].items():
            events.add_nodes(np.arange(len(rows)), rows if rows.shape[1] else None, node_type=kind)
        for kind, ends in first["edge_index"].items():
            events.add_edges(*ends, **self.columns(kind, ends.shape[1]), edge_type=kind)
        self.graph.apply(events)

    def columns(self, kind: tuple[str, str, str], number: int) -> dict[str, np.ndarray]:
        """Random weights and features of edges."""
        schema = self.graph.schema.edge_types[kind]
        given: dict[str, np.ndarray] = {}
        if schema.weighted:
            given["weight"] = (self.random.random(number) + 0.1).astype(np.float32)
        if schema.edge_dim:
            given["edge_attr"] = self.rows(kind, number)
        return given

    def rows(self, key: object, number: int) -> np.ndarray:
        """Random features, whole numbers where the module takes whole numbers."""
        parts = []
        for one in dict.fromkeys(self.program.given):
            own = edge_type_of(one.atom) if is_of_edges(one.atom) else one.atom.name
            weight = is_of_edges(one.atom) and one.name.startswith("edge_weight")
            if own != key or one.ends or one.count or weight:
                continue
            shape = (number, int(np.prod(one.channels, dtype=int)))
            whole = not one.dtype.is_floating_point
            parts.append(self.random.integers(3, size=shape) if whole else self.random.normal(size=shape))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def events(self, size: int = 3, kinds: Collection[str] = KINDS) -> lg.Events:
        """Random events of the kinds, up to `size` of each for every type of nodes and edges."""
        events, snapshot = lg.Events(), self.graph.snapshot()
        for kind, width in self.graph.schema.node_types.items():
            ids = snapshot.ids[kind]
            if "add_nodes" in kinds:
                new = np.array([int(max(ids, default=-1)) + 1])
                events.add_nodes(new, self.rows(kind, 1) if width else None, node_type=kind)
            if "set_features" in kinds and width and len(ids):
                some = self.random.choice(ids, min(size, len(ids)), replace=False)
                events.set_features(some, self.rows(kind, len(some)), node_type=kind)
        for kind in self.graph.schema.edge_types:
            source, target = (snapshot.ids[end] for end in (kind[0], kind[2]))
            if "add_edges" in kinds and len(source) and len(target):
                ends = self.random.choice(source, size), self.random.choice(target, size)
                events.add_edges(*ends, **self.columns(kind, size), edge_type=kind)
            there = snapshot.edge_index[kind]
            if "remove_edges" in kinds and there.shape[1]:
                gone = there[:, self.random.integers(there.shape[1], size=size)]
                events.remove_edges(source[gone[0]], target[gone[1]], edge_type=kind)
        kind = str(self.random.choice(list(self.graph.schema.node_types)))
        if "remove_nodes" in kinds and len(snapshot.ids[kind]):
            events.remove_nodes(self.random.choice(snapshot.ids[kind], 1), node_type=kind)
        return events

    def drawn(self) -> Rows:
        """The graph as it is, as the case is called with it."""
        snapshot = self.graph.snapshot()
        sizes, ends, inputs, at = {}, {}, {}, {}
        for atom in self.start.sizes:
            if is_of_edges(atom):
                ends[atom] = torch.from_numpy(snapshot.edge_index[edge_type_of(atom)])
                sizes[atom] = ends[atom].shape[1]
            else:
                sizes[atom] = len(snapshot.ids[atom.name])
        for one in dict.fromkeys(self.program.given):
            if one.ends or one.count:
                continue
            own = is_of_edges(one.atom)
            if own and one.name.startswith("edge_weight"):
                rows = snapshot.weight[edge_type_of(one.atom)]
            else:
                columns = snapshot.edge_attr[edge_type_of(one.atom)] if own else snapshot.x[one.atom.name]
                start, width = at.get(one.atom, 0), int(np.prod(one.channels, dtype=int))
                at[one.atom] = start + width
                rows = columns[:, start : start + width].reshape(len(columns), *one.channels)
            inputs[one.name] = torch.from_numpy(np.array(rows)).to(one.dtype)
        return Rows(sizes, ends, inputs)

    def assert_exact(self, engine: lg.Engine) -> None:
        """The engine's predictions are the module's, as exactly as promised."""
        expected = call(self.fresh(), self.case, self.drawn())
        for name, rows in zip(self.model.outputs, expected, strict=True):
            kind = self.model.node_type(self.model.outputs[name])
            got = engine.predict(self.graph.snapshot().ids[kind], output=name)
            in_float32 = self.module_in_float32(self.fresh().float())
            verdict = judge(got, rows.reshape(len(rows), -1).numpy(), in_float32[name])
            assert verdict.ok, f"{name}: {verdict}"

    def module_in_float32(self, module: torch.nn.Module) -> dict[str, np.ndarray]:
        graph = self.drawn()
        floats = {k: v.float() if v.is_floating_point() else v for k, v in graph.inputs.items()}
        results = flat(called(module, self.case, Rows(graph.sizes, graph.ends, floats)))
        return {n: r.reshape(len(r), -1).numpy() for n, r in zip(self.model.outputs, results, strict=True)}
