"""What is found of one module: whether it is exported, read and imported, and how exact that is."""

from __future__ import annotations

import copy
import inspect
import re
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import expression_interpreter as interpreter
import imported_modules
from imported_modules import Case, call, called, double
from livegnn import Engine, Model
from livegnn.errors import ModelError
from livegnn.importers import importing
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given, Record, leaves
from livegnn.importers.reading.reader import Program
from livegnn.importers.rules.normal_form import normalize
from livegnn.importers.rules.propagation_kinds import classify, words
from livegnn.oracle import reference
from livegnn.oracle.exactness import Verification, judge
from livegnn.types import EdgeType, NodeType
from typed_mirror import TypedMirror, edge_type

UPKEEP = ("recomputed", "constrained", "incremental")
"""What a change may cost, the most first."""


@dataclass
class Found:
    """What was found of a row. Differences are parts of each channel's scale: at first, and after events.

    imports: whether it became a model. exact: whether the engine keeps its promise, before and after.
    reason: why it was not imported, or what is wrong.
    """

    group: str
    name: str
    imports: bool = False
    words: list[str] = field(default_factory=list)
    upkeep: str = ""
    engine: tuple[float, float] | None = None
    oracle: tuple[float, float] | None = None
    exact: bool | None = None
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        status = self.upkeep if self.imports else "not imported"
        figures = f" {self.engine[0]:.0e} {self.engine[1]:.0e}" if self.engine else ""
        words = f" ({'; '.join(self.words)})" if self.words else ""
        return f"{self.name}: {status}{words}{figures} {self.reason}".rstrip()


# -- modules


def make(case: Case) -> nn.Module:
    """The module of a case in float64, in evaluation mode; its weights are numbers of float32."""
    with double(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(7)
        module = case.build().double().eval()
        if any(nn.parameter.is_lazy(one) for one in (*module.parameters(), *module.buffers())):
            call(module, case, draw(case, "random", 0))
    random = torch.Generator().manual_seed(8)
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=random, dtype=parameter.dtype)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d) and part.running_mean is not None:
            shape = part.running_mean.shape
            part.running_mean.data = torch.randn(shape, generator=random, dtype=torch.float64)
            part.running_var.data = torch.rand(shape, generator=random, dtype=torch.float64) + 0.5
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.float().double()
    return module


def given_of(case: Case) -> list[Given]:
    return [*leaves(list(case.args)), *leaves(dict(case.kwargs)), *case.parameters]


def draw(case: Case, kind: str, seed: int) -> interpreter.Rows:
    """A graph that a case can be called with, its inputs of the type that they are given with."""
    graph = imported_modules.draw(case, kind, seed)
    for one in given_of(case):
        if one.name in graph.inputs:
            graph.inputs[one.name] = graph.inputs[one.name].to(one.dtype)
    return graph


# -- reading


def study(found: Found, case: Case) -> None:
    """Imports a module, and holds model and engine against it while a graph changes."""
    now = time.perf_counter()

    def timed(name: str) -> None:
        nonlocal now
        found.seconds[name] = round(time.perf_counter() - now, 2)
        now = time.perf_counter()

    try:
        module = make(case)
        graph = draw(case, "random", 0)
        if given_of(case):
            with double():
                call(copy.deepcopy(module), case, graph)
        else:  # the module has a graph of its own
            call(copy.deepcopy(module).float(), case, graph)
    except Exception as error:
        found.reason = f"PyG itself: {type(error).__name__}: {first_line(error)}"
        return
    timed("make")
    model, program = import_model(copy.deepcopy(module).float(), case, data_of(case, graph))
    found.imports = True
    timed("import")
    propagations = classify(program.make, normalize(program.make, program.rows))
    found.words = words(propagations)
    keeps = {one.upkeep for one in propagations if not one.support}
    found.upkeep = next((one for one in UPKEEP if one in keeps), "row-wise")
    timed("classify")
    given = in_order(case, program)
    if not given:
        return
    mirror = TypedMirror(given, seed=len(found.name))
    live = mirror.make_graph()
    live.apply(mirror.fill(nodes=12, edges=40))
    engine = Engine(live, model, threads=1, non_finite="allow")
    before = hold(mirror, case, module, engine, model)
    for events in mirror.batches(20):
        engine.apply(events)
    after = hold(mirror, case, module, engine, model)
    found.engine, found.oracle = (
        (one.of_scale, other.of_scale) for one, other in zip(before, after, strict=True)
    )
    found.exact = before[0].ok and after[0].ok
    oracle = before[1].ok and after[1].ok
    if not (found.exact and oracle):
        found.reason = f"DIFFERS{'' if found.exact else ' in the engine'}{'' if oracle else ' in the oracle'}"
    timed("serve")


# -- importing


def data_of(case: Case, graph: interpreter.Rows) -> Data | HeteroData:
    """A graph as PyG holds it, with all rows that a case is called with."""
    given = {one.name: one for one in given_of(case) if not one.count and not one.parameter}
    plain = is_plain(case)
    data: Any = Data(num_nodes=graph.sizes.get(imported_modules.NODE, 0)) if plain else HeteroData()
    for atom, size in graph.sizes.items() if not plain else ():
        if atom.source is None:
            data[atom.name].num_nodes = size
    for name, one in given.items():
        tensor = graph.ends[one.atom] if one.ends else graph.inputs[name]
        if plain:
            data[attribute(one)] = tensor
        else:
            data[kind_of(one.atom)][attribute(one)] = tensor
    return data


def is_plain(case: Case) -> bool:
    """Whether the graph has one type of nodes, and one of edges."""
    atoms = {one.atom for one in given_of(case) if not one.atom.pairs}
    return atoms <= {imported_modules.NODE, imported_modules.EDGE}


def kind_of(atom: Atom) -> NodeType | EdgeType:
    return atom.name if atom.source is None else edge_type(atom)


def attribute(one: Given) -> str:
    """What rows are called in PyG's data."""
    ends = "edge_label_index" if one.atom.pairs else "edge_index"
    return ends if one.ends else one.name.partition(":")[0].replace(".", "_")


def inputs_of(module: nn.Module, case: Case) -> dict[str, object]:
    """What a user must say of arguments whose names do not tell."""
    inputs: dict[str, object] = {one.name: "node" for one in case.parameters}
    if isinstance(module, pyg.Sequential | pyg.HeteroConv):
        return inputs
    plain = is_plain(case)

    def told(one: object) -> object:
        if isinstance(one, list):
            return [told(part) for part in one]
        if isinstance(one, Mapping):
            return attribute(leaves(dict(one))[0])
        if not isinstance(one, Given):
            return one
        name = "num_nodes" if one.count else attribute(one)
        if plain:
            return name
        return kind_of(one.atom) if one.ends else (kind_of(one.atom), name)

    parameters = inspect.signature(getattr(module, case.method)).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    for place, (name, one) in enumerate(arguments_of(module, case).items()):
        if isinstance(one, Mapping | Record):
            continue
        known = isinstance(one, Given) and plain
        if not known or told(one) not in (name, *("x", "edge_index")[place : place + 1]):
            inputs[name] = told(one)
    rest = [one.name for one in parameters if one.kind is one.VAR_POSITIONAL]
    if rest and len(case.args) > len(names):
        inputs[rest[0]] = [told(one) for one in case.args[len(names) :]]
    return inputs


def arguments_of(module: nn.Module, case: Case) -> dict[str, object]:
    """What a case calls a module with, by the names of the method's arguments."""
    parameters = inspect.signature(getattr(module, case.method)).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return {**dict(zip(names, case.args, strict=False)), **case.kwargs}


def import_model(module: nn.Module, case: Case, data: Data | HeteroData) -> tuple[Model, Program]:
    """A module as a model, and what was read of it on the way."""
    settings = {"method": case.method, "inputs": inputs_of(module, case)}
    try:
        return record_import(module, data, **settings)
    except ModelError as error:
        if "output_type=" not in str(error):
            raise
        several = re.findall(r"'(\w+)'", str(error))  # it returns rows of several types
        return record_import(module, data, output_type=several[0], **settings)


def record_import(module: nn.Module, *args: Any, **settings: Any) -> tuple[Model, Program]:
    """`Model.from_pyg`, and what was read on the way."""
    programs: list[Program] = []
    assemble = importing.assemble

    def kept(program: Program, **settings: Any) -> Model:
        programs.append(program)
        return assemble(program, **settings)

    with patch.object(importing, "assemble", kept):
        model = Model.from_pyg(module, *args, **settings)
    return model, programs[0]


def in_order(case: Case, program: Program) -> list[Given]:
    """The rows that a case is called with, in the order in which the model's graph holds them."""

    def key(one: Given) -> tuple[str, str]:
        return str(one.atom), "" if one.count else attribute(one)

    given = {key(one): one for one in given_of(case)}
    found = dict.fromkeys(key(one) for one in program.given)
    lacking = [one for one in given if one not in found and one[1]]
    if lacking:
        raise AssertionError(f"the importer does not call it with {lacking}")
    ordered = [given[one] for one in found if one in given]
    return [*ordered, *(one for one in given.values() if one.count)]


def hold(
    mirror: TypedMirror, case: Case, module: nn.Module, engine: Engine, model: Model
) -> tuple[Verification, Verification]:
    """The engine's predictions and the oracle's, beside what the module says in float64."""
    node_type = model.node_type(model.output)
    atom = next(atom for atom in mirror.node_atoms if atom.name == node_type)
    ids = mirror.ids(atom)

    def say(dtype: torch.dtype) -> np.ndarray:
        rows = mirror.rows()
        rows.inputs.update({n: v.to(dtype) for n, v in rows.inputs.items() if v.is_floating_point()})
        with double() if dtype is torch.float64 else nullcontext():
            said = called(copy.deepcopy(module).to(dtype), case, rows)
        said = said[node_type] if isinstance(said, Mapping) else next(imported_modules.flat(said))
        return said.reshape(len(ids), -1).numpy()

    expected = say(torch.float64)
    snapshot = engine.graph.snapshot()
    place = {node: i for i, node in enumerate(snapshot.ids[node_type].tolist())}
    oracle = reference.compute(model, snapshot)[model.output][[place[node] for node in ids.tolist()]]
    got = judge(engine.predict(ids), expected, lambda: say(torch.float32))
    return got, judge(oracle, expected)


def first_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 400 else text[:400] + "..."


def judge_row(found: Found, case: Case) -> Found:
    """What is found of a module; whatever it raises is the reason why it is not imported."""
    try:
        study(found, case)
    except ModelError as error:
        found.reason = first_line(error)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        found.reason = f"BUG {type(error).__name__}: {first_line(error)} [{where}]"
    return found
