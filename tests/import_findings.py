"""What is found of one module: whether it is exported, read and imported, and how exact that is."""

from __future__ import annotations

import copy
import inspect
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data, HeteroData

import imported_modules
from imported_modules import GRAPHS, Case, answer, call, compute, double
from livegnn import Engine, Model
from livegnn.errors import ModelError
from livegnn.model import reference
from livegnn.model.exactness import Verification, judge
from livegnn.model.importer import interpreter
from livegnn.model.importer.arguments import find_arguments
from livegnn.model.importer.classes import classify, words
from livegnn.model.importer.export import Given, export_module, leaves
from livegnn.model.importer.normal_form import normalize
from livegnn.model.importer.reader import Program, read
from typed_mirror import TypedMirror, edge_type

UPKEEP = ("recomputed", "constrained", "incremental")
"""What a change may cost, the most first."""


@dataclass
class Found:
    """What was found of a row. Differences are parts of each channel's scale."""

    group: str
    name: str
    exports: bool = False
    reads: bool = False
    normal: bool = False
    words: list[str] = field(default_factory=list)
    upkeep: str = ""
    arguments: str = ""
    read_difference: float | None = None
    normal_difference: float | None = None
    imports: bool = False
    engine: tuple[float, float] | None = None
    oracle: tuple[float, float] | None = None
    exact: bool | None = None
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        status = self.upkeep if self.normal else "exported" if self.exports else "not exported"
        figures = f" {self.engine[0]:.0e} {self.engine[1]:.0e}" if self.engine else ""
        inexact = " INEXACT" if self.exact is False else ""
        words = f" ({'; '.join(self.words)})" if self.words else ""
        remarks = " ".join(dict.fromkeys((self.reason, self.arguments)))
        return f"{self.name}: {status}{words}{figures}{inexact} {remarks}".rstrip()


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


def difference(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference as a part of its channel's scale; infinite where either is no number."""
    expected = expected.double().reshape(len(expected), -1)
    got = got.double().reshape(expected.shape)
    if not expected.numel():
        return 0.0
    if not torch.equal(got.isfinite(), expected.isfinite()):
        return float("inf")
    known = expected.isfinite()
    scale = torch.where(known, expected.abs(), 0.0).amax(0).clamp(min=1e-30)
    return float(torch.where(known, (got - expected).abs() / scale, 0.0).max())


# -- reading


def study(found: Found, case: Case) -> None:
    """Exports, reads and classes a module, and holds what was read against it."""

    def timed(name: str, started: float) -> float:
        found.seconds[name] = round(time.perf_counter() - started, 3)
        return time.perf_counter()

    now = time.perf_counter()
    try:
        module = make(case)
        if given_of(case):
            with double():
                call(copy.deepcopy(module), case, draw(case, "random", 0))
    except Exception as error:
        found.reason = f"PyG itself: {type(error).__name__}: {first_line(error)}"
        return
    now = timed("make", now)
    tell(found, module, case, data_of(case, draw(case, "random", 0)))
    if not given_of(case):
        found.reason = found.arguments
        return
    with double():
        exported = export_module(
            module, case.args, case.kwargs, method=case.method, parameters=case.parameters
        )
        found.exports = True
        now = timed("export", now)
        program = read(exported)
        found.reads = True
        now = timed("read", now)
        normal = normalize(program.make, program.rows)
        found.normal = True
        now = timed("normalize", now)
        found.read_difference = compare(program, program.rows, case, module)
        now = timed("compare read", now)
        propagations = classify(program.make, normal)
        found.words = words(propagations)
        keeps = {one.upkeep for one in propagations if not one.support}
        found.upkeep = next(
            (k for k in ("recomputed", "constrained", "incremental") if k in keeps), "row-wise"
        )
        now = timed("classify", now)
        found.normal_difference = compare(program, normal, case, module)
        now = timed("compare normal", now)
    for what, value in (("as read", found.read_difference), ("in normal form", found.normal_difference)):
        if not value < 1e-9:
            found.reason = f"DIFFERS {what} by {value:.1e}"
    try:
        serve(found, case, module)
    except ModelError as error:
        found.reason = found.reason or f"not imported: {first_line(error)}"
    timed("serve", now)


# -- importing


def data_of(case: Case, graph: interpreter.Rows) -> Data | HeteroData:
    """A graph as PyG holds it, with all rows that a case is called with."""
    given = {one.name: one for one in given_of(case) if not one.count}
    plain = set(graph.sizes) <= {imported_modules.NODE, imported_modules.EDGE}
    data: Any = Data(num_nodes=graph.sizes.get(imported_modules.NODE, 0)) if plain else HeteroData()
    for atom, size in graph.sizes.items() if not plain else ():
        if atom.source is None:
            data[atom.name].num_nodes = size
    for name, one in given.items():
        tensor = graph.ends[one.atom] if one.ends else graph.inputs[name]
        if plain:
            data[attribute(one)] = tensor
        else:
            data[one.atom.name if one.atom.source is None else edge_type(one.atom)][attribute(one)] = tensor
    return data


def attribute(one: Given) -> str:
    """What rows are called in PyG's data."""
    return "edge_index" if one.ends else one.name.partition(":")[0].replace(".", "_")


def inputs_of(module: nn.Module, case: Case) -> dict[str, object]:
    """What a user must say of arguments whose names do not tell."""
    inputs: dict[str, object] = {one.name: "node" for one in case.parameters}
    if isinstance(module, pyg.Sequential | pyg.HeteroConv):
        return inputs
    parameters = inspect.signature(getattr(module, case.method)).parameters.values()
    names = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    for name, one in (*zip(names, case.args, strict=False), *case.kwargs.items()):
        if not isinstance(one, Given):
            if not isinstance(one, Mapping):
                inputs[name] = one
            continue
        wanted = "num_nodes" if one.count else attribute(one)
        if name.removesuffix("_dict") != wanted and wanted not in ("x", "edge_index"):
            inputs[name] = wanted
    return inputs


def tell(found: Found, module: nn.Module, case: Case, data: Data | HeteroData) -> None:
    """Whether the importer finds out what the module is called with."""
    try:
        told = find_arguments(module, data, case.method, inputs_of(module, case))
    except Exception as error:
        found.arguments = f"{type(error).__name__}: {first_line(error)}"
        return
    names = {one.name.split(":")[0] for one in leaves([dict(told.arguments), list(told.positional)])}
    wanted = {attribute(one) for one in given_of(case) if not one.parameter and not one.count}
    if not wanted <= names:
        found.arguments = f"finds {', '.join(sorted(names))}, not {', '.join(sorted(wanted - names))}"


def import_model(module: nn.Module, case: Case, data: Data | HeteroData) -> Model:
    """A module as a model, whatever way there is to import it."""
    if "data" in inspect.signature(Model.from_pyg).parameters:
        return Model.from_pyg(module, data, method=case.method, inputs=inputs_of(module, case))
    if case.method != "forward" or case.parameters:
        raise ModelError(f"today's importer knows no method {case.method!r} and no rows of parameters")
    if isinstance(data, HeteroData):
        if not all("x" in data[name] for name in data.node_types):
            raise ModelError("today's importer reads x of every node type")
        widths = {name: data[name].x.shape[1] for name in data.node_types}
        return Model.from_pyg(
            module, metadata=data.metadata(), in_channels=widths, output_type=data.node_types[0]
        )
    if "x" not in data:
        raise ModelError("today's importer reads x")
    width = data.edge_attr.shape[1] if "edge_attr" in data else 0
    return Model.from_pyg(
        module, edge_weight="edge_weight" in data, edge_channels=width, in_channels=data.x.shape[1]
    )


def serve(found: Found, case: Case, module: nn.Module) -> None:
    """Imports a module, and holds model and engine against it while a graph changes."""
    mirror = TypedMirror(given_of(case), seed=len(found.name))
    graph = mirror.make_graph()
    graph.apply(mirror.fill(nodes=12, edges=40))
    model = import_model(copy.deepcopy(module).float(), case, data_of(case, mirror.rows()))
    found.imports = True
    engine = Engine(graph, model, threads=1, non_finite="allow")
    before = hold(mirror, case, module, engine, model)
    for events in mirror.batches(20):
        engine.apply(events)
    after = hold(mirror, case, module, engine, model)
    found.engine, found.oracle = (
        (one.of_scale, other.of_scale) for one, other in zip(before, after, strict=True)
    )
    found.exact = before[0].ok and after[0].ok


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
            said = answer(copy.deepcopy(module).to(dtype), case, rows)
        said = said[node_type] if isinstance(said, Mapping) else next(imported_modules.flat(said))
        return said.reshape(len(ids), -1).numpy()

    expected = say(torch.float64)
    snapshot = engine.graph.snapshot()
    place = {node: i for i, node in enumerate(snapshot.ids[node_type].tolist())}
    oracle = reference.compute(model, snapshot)[model.output][[place[node] for node in ids.tolist()]]
    got = judge(engine.predict(ids), expected, lambda: say(torch.float32))
    return got, judge(oracle, expected)


# -- reading once more


def compare(program: Program, expressions: list, case: Case, module: nn.Module) -> float:
    """The largest difference over all kinds of graphs."""
    worst = 0.0
    for i, kind in enumerate(GRAPHS):
        graph = draw(case, kind, i)
        expected = call(copy.deepcopy(module), case, graph)
        got = compute(program, expressions, graph)
        if len(got) != len(expected):
            return float("inf")
        for one, other in zip(got, expected, strict=True):
            worst = max(worst, difference(one, other))
    return worst


def first_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text if len(text) < 500 else text[:500] + "..."


def judge_row(found: Found, case: Case) -> Found:
    """What is found of a module; whatever it raises is the reason why it is not imported."""
    try:
        study(found, case)
    except ModelError as error:
        found.reason = first_line(error)
        cause = error.__cause__
        if cause is not None and not isinstance(cause, ModelError):
            frame = traceback.extract_tb(cause.__traceback__)[-1]
            found.reason += f" [{Path(frame.filename).name}:{frame.lineno}]"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        found.reason = f"BUG {type(error).__name__}: {first_line(error)} [{where}]"
    return found
