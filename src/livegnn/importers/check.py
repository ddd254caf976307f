"""The last step of an import: module (or program) and model must agree on small random graphs.

This finds errors that reading cannot see, such as a module that does something else on a graph of another
size. The oracle computes in float64; if the difference to the module is too large, the oracle in float32
shows how much of it is rounding. A module may round more than its model, which has other formulas: the last
word has the module in float64, where it can be called so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np
import torch

from livegnn.errors import ModelError
from livegnn.importers.arguments.arguments import RELATION
from livegnn.importers.expressions.expressions import Atom, edge_type_of
from livegnn.importers.expressions.properties import is_of_edges
from livegnn.importers.program.export import Given
from livegnn.importers.writing.edge_steps import Columns
from livegnn.network.model import Model
from livegnn.oracle import reference
from livegnn.types import DoubleArray, EdgeType, FloatArray, IntArray
from livegnn.wording import format_count

Call: TypeAlias = Callable[[Sequence[torch.Tensor]], Mapping[str, torch.Tensor]]
"""Calls a module, or a program, with a tensor for each of its inputs: its results by name."""

TOLERANCE = 1e-3
"""The allowed difference between model and module, as a fraction of the largest value."""
SIZES = ((12, 26), (2, 1), (3, 0), (1, 1), (1, 0))
"""Numbers of nodes and edges of each type. Reading assumes at least two of each, so fewer are tested too."""


def check_import(
    model: Model,
    call: Call,
    given: Sequence[Given],
    name: str,
    *,
    columns: Mapping[Atom, Columns],
    relations: Sequence[EdgeType] | None,
    output: tuple[str, int],
    widely: Call | None = None,
) -> None:
    """Raises `ModelError` if a model and its module differ on a small graph.

    The first graph has loops, parallel edges and isolated nodes; the others are tiny.
    given: its inputs. name: its name, for errors. columns: the place of each input among the features.
    relations: the edge types that `RELATION` numbers. output: the name of the module's result, and the axis
    of its rows. widely: calls the module in float64; it may fail.
    """

    def rows_of(results: Mapping[str, torch.Tensor], nodes: int) -> DoubleArray:
        rows = _rows_of(results[output[0]].detach(), output[1], nodes)
        flat: DoubleArray = rows.reshape(len(rows), -1).double().numpy()
        return flat

    def rows_widely(tensors: Sequence[torch.Tensor], nodes: int) -> DoubleArray | None:
        if widely is None:
            return None
        try:
            wide = [one.double() if one.is_floating_point() else one for one in tensors]
            return rows_of(widely(wide), nodes)
        except Exception:
            return None  # it needs float32

    random = np.random.default_rng(0)
    for nodes, edges in SIZES:
        drawing = _Drawing(random, nodes, edges, relations)
        try:
            tensors, results = _call(call, given, drawing)
        except Exception as error:
            if nodes < SIZES[0][0]:
                continue  # the module has no result to compare with
            isolated = f"a graph of {nodes} nodes, the last of which have no edges"
            raise ModelError(f"{name} fails on {isolated}: {error}") from error
        probe = drawing.probe(given, tensors, columns)
        what = f"{name} on a graph of {format_count(nodes, 'node')}, {format_count(edges, 'edge')}"
        if output[0] not in results:
            raise ModelError(f"{what} returns other results than on larger ones: return the same on each")
        _compare(model, probe, rows_of(results, nodes), what, partial(rows_widely, tensors, nodes))


def _rows_of(result: torch.Tensor, axis: int, nodes: int) -> torch.Tensor:
    """A result with the axis of its rows first. One row may have lost that axis, as by a final squeeze."""
    lost = nodes == 1 and (result.dim() <= axis or len(result.movedim(axis, 0)) != 1)
    return result.reshape(1, -1) if lost else result.movedim(axis, 0)


def _call(
    call: Call, given: Sequence[Given], drawing: "_Drawing"
) -> tuple[list[torch.Tensor], Mapping[str, torch.Tensor]]:
    """Random tensors, and the module's results for them.

    If the module fails, it is called with 0 and 1, since it may use features as categories.
    """
    tensors = [drawing.draw(one) for one in given]
    try:
        return tensors, call(tensors)
    except Exception as error:
        tensors = [(one > 0).to(one.dtype) if one.is_floating_point() else one for one in tensors]
        try:
            return tensors, call(tensors)
        except Exception:
            raise error from None


def _compare(
    model: Model,
    probe: reference.GraphArrays,
    expected: DoubleArray,
    what: str,
    widely: Callable[[], DoubleArray | None],
) -> None:
    got = reference.compute(model, probe)[model.output]
    if got.shape != expected.shape:
        raise ModelError(f"{what} returns rows of shape {expected.shape}, the imported model {got.shape}")
    if _differ(got, expected, 0.0) is None:
        return
    rough = reference.compute(model, probe, dtype=np.float32)[model.output].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        rounding = np.nan_to_num(np.abs(rough - got), nan=np.inf).max(initial=0)
    place = _differ(got, expected, 10 * float(rounding))
    if place is None:
        return
    exact = widely()
    if exact is not None and exact.shape == got.shape and _differ(got, exact, 0.0) is None:
        return
    row, channel = place
    raise ModelError(
        f"{what} says {expected[row, channel]:.6g} where the imported model says {got[row, channel]:.6g} "
        f"(row {row}, channel {channel}): its computation depends on something that reading cannot see, such "
        "as the size of the graph, the order of edges, the last node that has one, or a test of types; build "
        "that part of the model from steps, or write the layer as a livegnn.model.Convolution"
    )


def _differ(got: DoubleArray, expected: DoubleArray, rounding: float) -> tuple[int, int] | None:
    """The place where two arrays differ most; None if rounding explains the difference."""
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=1e-6)
    with np.errstate(invalid="ignore"):
        difference = np.where(finite, np.abs(got - expected), np.where(np.isfinite(got), np.inf, 0.0))
    difference = np.nan_to_num(difference, nan=np.inf)
    if not difference.size or difference.max() <= TOLERANCE * scale + rounding:
        return None
    row, channel = np.unravel_index(int(difference.argmax()), difference.shape)
    return int(row), int(channel)


@dataclass
class _Drawing:
    """Random tensors of a small graph."""

    random: np.random.Generator
    nodes: int
    edges: int
    relations: Sequence[EdgeType] | None

    def draw(self, one: Given) -> torch.Tensor:
        rows = self.edges if is_of_edges(one.atom) else self.nodes
        if one.ends:
            assert one.atom.source is not None
            return torch.from_numpy(self._ends(one.atom.source is one.atom.target))
        if one.name == RELATION and self.relations is not None:
            return torch.from_numpy(self.random.integers(0, len(self.relations), rows))
        if not one.dtype.is_floating_point:
            return torch.zeros(rows, *one.channels, dtype=one.dtype)
        weight = _is_weight(one)
        drawn = (
            self.random.random(rows) + 0.5 if weight else self.random.standard_normal((rows, *one.channels))
        )
        return torch.from_numpy(drawn.astype(np.float32)).to(one.dtype)

    def _ends(self, same_type: bool) -> IntArray:
        """Random ends with parallel edges, loops, and nodes without edges."""
        if self.edges < 2:
            return np.array([[0], [self.nodes - 1]])[:, : self.edges]
        reached = self.nodes * 3 // 4
        ends = self.random.integers(0, reached, (2, self.edges))
        ends[:, 1] = ends[:, 0]
        if same_type:
            ends[1, 2:4] = ends[0, 2:4]
            ends[:, 4] = ends[:, 3]
        return ends

    def probe(
        self, given: Sequence[Given], tensors: Sequence[torch.Tensor], columns: Mapping[Atom, Columns]
    ) -> reference.GraphArrays:
        """The graph with these tensors, by the names of the model's inputs."""
        probe = reference.GraphArrays({}, {}, {}, {})
        arrays = {one.name: tensor for one, tensor in zip(given, tensors, strict=True)}
        for one, tensor in zip(given, tensors, strict=True):
            if not one.ends and not is_of_edges(one.atom):
                probe.x[one.atom.name] = _features(columns, one.atom, arrays, self.nodes)
            elif one.ends:
                self._put_edges(probe, one, tensor.numpy(), arrays, columns)
        return probe

    def _put_edges(
        self,
        probe: reference.GraphArrays,
        one: Given,
        ends: IntArray,
        arrays: Mapping[str, torch.Tensor],
        columns: Mapping[Atom, Columns],
    ) -> None:
        _, colon, kind = one.name.partition(":")
        weight = arrays.get(f"edge_weight{colon}{kind}")
        weights = np.ones(self.edges, np.float32) if weight is None else weight.float().numpy()
        if self.relations is None:
            edge_type = edge_type_of(one.atom)
            probe.edge_index[edge_type], probe.weight[edge_type] = ends, weights
            probe.edge_attr[edge_type] = _features(columns, one.atom, arrays, self.edges)
            return
        numbers = arrays[RELATION].numpy()
        by_name = {str(atom): atom for atom in columns}
        for i, edge_type in enumerate(self.relations):
            some = numbers == i
            probe.edge_index[edge_type], probe.weight[edge_type] = ends[:, some], weights[some]
            atom = by_name.get("-".join(edge_type))
            probe.edge_attr[edge_type] = _features(columns, atom, arrays, self.edges)[some]


def _features(
    columns: Mapping[Atom, Columns], atom: Atom | None, arrays: Mapping[str, torch.Tensor], rows: int
) -> FloatArray:
    """The inputs of an atom, concatenated. An input of a relation has the relation in its name, its tensor
    does not."""
    if atom is None or atom not in columns:
        return np.zeros((rows, 0), np.float32)
    named = [
        arrays[name] if name in arrays else arrays[name.partition(":")[0]] for name in columns[atom].places
    ]
    return np.concatenate([one.float().reshape(rows, prod(one.shape[1:])).numpy() for one in named], axis=1)


def _is_weight(one: Given) -> bool:
    return is_of_edges(one.atom) and one.name.partition(":")[0] == "edge_weight"
