"""The last step of an import: module (or program) and model must agree on small random graphs.

This finds errors that reading cannot see, such as a module that does something else on a graph of another
size. The oracle computes in float64; if the difference to the module is too large, the oracle in float32
shows how much of it is rounding. A module may round more than its model, which has other formulas: the last
word has the module in float64, where it can be called so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import prod
from typing import TypeAlias

import numpy as np
import torch

from livegnn.errors import ModelError
from livegnn.importers.arguments.names import RELATION, RELATION_OF_PAIRS
from livegnn.importers.assembly import Assembled, Result
from livegnn.importers.expressions.expressions import Atom, edge_type_of
from livegnn.importers.expressions.properties import is_of_edges
from livegnn.importers.program.export import Given
from livegnn.oracle import reference
from livegnn.oracle.edge_reference import compute_edge_output
from livegnn.types import DoubleArray, EdgeType, FloatArray, IntArray
from livegnn.wording import format_count

Call: TypeAlias = Callable[[Sequence[torch.Tensor]], Mapping[str, torch.Tensor]]
"""Calls a module, or a program, with a tensor for each of its inputs: its results by name."""

TOLERANCE = 1e-3
"""The allowed difference between model and module, as a fraction of the largest value."""
SIZES = ((12, 26), (2, 1), (3, 0), (1, 1), (1, 0))
"""Numbers of nodes and edges of each type. Reading assumes at least two of each, so fewer are tested too."""
ONE_TARGET = (9, 14)
"""The same, where rows of edges are compared too, and all edges lead to one node."""


def check_import(
    assembled: Assembled,
    call: Call,
    given: Sequence[Given],
    name: str,
    *,
    relations: Sequence[EdgeType] | None,
    whole: Sequence[Atom] = (),
    widely: Call | None = None,
) -> None:
    """Raises `ModelError` if a model and its module differ on a small graph.

    The first graph has loops, parallel edges and isolated nodes, the others are tiny. If the module returns
    rows of edges, all edges of one more lead to one node, and the order of edges is the module's.
    given: the inputs of the module. name: its name, for errors. relations: the edge types that `RELATION`
    numbers. whole: the edges to the one group of all nodes. widely: calls the module in float64; it may fail.
    """
    random = np.random.default_rng(0)
    of_edges = any(is_of_edges(one.atom) for one in assembled.results)
    for nodes, edges in (*SIZES, ONE_TARGET) if of_edges else SIZES:
        drawing = _Drawing(random, nodes, edges, relations)
        try:
            tensors, results = _call(call, given, drawing)
        except Exception as error:
            if nodes < SIZES[0][0]:
                continue  # the module has no result to compare with
            isolated = f"a graph of {nodes} nodes, the last of which have no edges"
            raise ModelError(f"{name} fails on {isolated}: {error}") from error
        what = f"{name} on a graph of {format_count(nodes, 'node')}, {format_count(edges, 'edge')}"
        graph = _SmallGraph(drawing, given, tensors, assembled, whole)
        wide = cache(partial(_widely, widely, tensors))
        for one in assembled.results:
            if one.name not in results:
                raise ModelError(f"{what} returns other results than on larger ones: return the same on each")
            rows = edges if is_of_edges(one.atom) else nodes
            rows = 1 if any(one.atom is joining.target for joining in whole) else rows
            beside = f"{what}, result {one.name!r}," if len(assembled.results) > 1 else what
            _compare(one, graph, _rows_of(results[one.name], one.row_axis, rows), beside, wide)


def _widely(call: Call | None, tensors: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """The results of a module in float64; none if it needs float32."""
    try:
        wide = [one.double() if one.is_floating_point() else one for one in tensors]
        return call(wide) if call is not None else {}
    except Exception:
        return {}


def _rows_of(result: torch.Tensor, axis: int, rows: int) -> DoubleArray:
    """A result as [rows, channels]. One row may have lost the axis of rows, as by a final squeeze."""
    result = result.detach()
    lost = rows == 1 and (result.dim() <= axis or len(result.movedim(axis, 0)) != 1)
    moved = result[None] if lost else result.movedim(axis, 0)
    flat: DoubleArray = moved.reshape(len(moved), prod(moved.shape[1:])).double().numpy()
    return flat


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
    result: Result,
    graph: "_SmallGraph",
    expected: DoubleArray,
    what: str,
    widely: Callable[[], Mapping[str, torch.Tensor]],
) -> None:
    got = graph.compute(result, np.float64)
    if got.shape != expected.shape:
        lacks = len(expected) < len(got) and not is_of_edges(result.atom)
        why = (
            ": it has no rows for the last nodes, which have no edges; give PyG's functions the number of "
            "nodes, as in num_nodes=x.size(0)"
        )
        shapes = f"rows of shape {expected.shape}, the imported model {got.shape}"
        raise ModelError(f"{what} returns {shapes}{why if lacks else ''}")
    if _differ(got, expected, 0.0) is None:
        return
    rough = graph.compute(result, np.float32).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        rounding = np.nan_to_num(np.abs(rough - got), nan=np.inf).max(initial=0)
    place = _differ(got, expected, 10 * float(rounding))
    if place is None:
        return
    wide = widely().get(result.name)
    exact = None if wide is None else _rows_of(wide, result.row_axis, len(got))
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
        if one.name in (RELATION, RELATION_OF_PAIRS) and self.relations is not None:
            return torch.from_numpy(self.random.integers(0, len(self.relations), rows))
        if one.group is not None:
            return torch.from_numpy(self._groups())
        if not one.dtype.is_floating_point:
            return torch.zeros(rows, *one.channels, dtype=one.dtype)
        weight = _is_weight(one)
        drawn = (
            self.random.random(rows) + 0.5 if weight else self.random.standard_normal((rows, *one.channels))
        )
        return torch.from_numpy(drawn.astype(np.float32)).to(one.dtype)

    def _groups(self) -> IntArray:
        """The groups of the nodes. There are as many as nodes; some are empty, the last has a member."""
        numbers = self.random.integers(0, max(1, self.nodes // 4), self.nodes)
        numbers[-1:] = self.nodes - 1
        return numbers

    def _ends(self, same_type: bool) -> IntArray:
        """Random ends with parallel edges, loops, and nodes without edges."""
        if self.edges < 2:
            return np.array([[0], [self.nodes - 1]])[:, : self.edges]
        if (self.nodes, self.edges) == ONE_TARGET:
            return np.stack([self.random.integers(0, self.nodes, self.edges), np.full(self.edges, 3)])
        reached = self.nodes * 3 // 4
        ends = self.random.integers(0, reached, (2, self.edges))
        ends[:, 1] = ends[:, 0]
        if same_type:
            ends[1, 2:4] = ends[0, 2:4]
            ends[:, 4] = ends[:, 3]
        return ends


@dataclass
class _SmallGraph:
    """A small graph as the model has it. tensors: those that the module is called with. whole: the edges to
    the one group of all nodes."""

    drawing: _Drawing
    given: Sequence[Given]
    tensors: Sequence[torch.Tensor]
    assembled: Assembled
    whole: Sequence[Atom]

    def __post_init__(self) -> None:
        self.arrays = {one.name: tensor for one, tensor in zip(self.given, self.tensors, strict=True)}
        self.values: dict[object, dict[str, DoubleArray]] = {}

    @cached_property
    def probe(self) -> reference.GraphArrays:
        """The graph, by the names of the model's inputs."""
        probe = reference.GraphArrays({}, {}, {}, {})
        for one in self.given:
            if not one.ends and not is_of_edges(one.atom):
                probe.x[one.atom.name] = self._features(one.atom, self.drawing.nodes)
            elif one.ends and not one.atom.pairs:
                self._put_edges(probe, one, self.drawing.relations or ())
        for one in self.given:
            if one.group is not None:
                self._put_groups(probe, one.group, self.arrays[one.name].numpy(), self.drawing.nodes)
        for joining in self.whole:
            self._put_groups(probe, joining, np.zeros(self.drawing.nodes, np.int64), 1)
        return probe

    def _put_groups(self, probe: reference.GraphArrays, joining: Atom, groups: IntArray, number: int) -> None:
        """Puts an edge from each node to its group. number: of groups."""
        assert joining.source is not None
        assert joining.target is not None
        edge_type, members = edge_type_of(joining), np.arange(len(groups))
        probe.x.setdefault(joining.source.name, self._features(joining.source, len(groups)))
        probe.x.setdefault(joining.target.name, np.zeros((number, 0), np.float32))
        probe.edge_index[edge_type] = np.stack([members, groups])
        probe.weight[edge_type] = np.ones(len(groups), np.float32)
        probe.edge_attr[edge_type] = np.zeros((len(groups), 0), np.float32)

    def compute(self, result: Result, dtype: type[np.float32] | type[np.float64]) -> DoubleArray:
        """The rows of a result by the model."""
        model, probe = self.assembled.model, self.probe
        if dtype not in self.values:
            self.values[dtype] = reference.compute(model, probe, dtype=dtype)
        values = self.values[dtype]
        if not is_of_edges(result.atom):
            return values[model.outputs[result.outputs[0]]]
        edge_types = [model.edge_scores[name].edge_type for name in result.outputs]
        if result.atom.pairs:
            ends = next(one for one in self.given if one.ends and one.atom is result.atom)
            probe = reference.GraphArrays({}, {}, {}, {})
            self._put_edges(probe, ends, edge_types if self.drawing.relations else ())
        parts = [
            compute_edge_output(
                model,
                name,
                values,
                probe.edge_index[kind],
                edge_attr=probe.edge_attr[kind],
                weight=probe.weight[kind],
            )
            for name, kind in zip(result.outputs, edge_types, strict=True)
        ]
        if len(parts) == 1:
            return parts[0]
        rows = np.concatenate(parts)
        numbers = self.arrays[RELATION_OF_PAIRS if result.atom.pairs else RELATION].numpy()
        return rows[np.argsort(np.argsort(numbers, kind="stable"))]  # in the module's order of edges

    def _put_edges(self, probe: reference.GraphArrays, one: Given, relations: Sequence[EdgeType]) -> None:
        """relations: the edge types of the edges, or the pairs, by number; none if they have no numbers."""
        ends, edges = self.arrays[one.name].numpy(), self.drawing.edges
        _, colon, kind = one.name.partition(":")
        weight = None if one.atom.pairs else self.arrays.get(f"edge_weight{colon}{kind}")
        weights = np.ones(edges, np.float32) if weight is None else weight.float().numpy()
        numbers = self.arrays.get(RELATION_OF_PAIRS if one.atom.pairs else RELATION)
        for i, edge_type in enumerate(relations or [edge_type_of(one.atom)]):
            some = np.full(edges, True)
            if relations and numbers is not None:
                some = numbers.numpy() == i
            probe.edge_index[edge_type], probe.weight[edge_type] = ends[:, some], weights[some]
            atom = replace(one.atom, name="-".join(edge_type))
            probe.edge_attr[edge_type] = self._features(atom, edges)[some]

    def _features(self, atom: Atom, rows: int) -> FloatArray:
        """The inputs of an atom, concatenated. An input of a relation has the relation in its name, its
        tensor does not."""
        arrays, columns = self.arrays, self.assembled.columns
        if atom not in columns:  # edges have the columns of pairs, though no message reads them
            pairs = columns.get(replace(atom, pairs=True)) if is_of_edges(atom) else None
            return np.zeros((rows, 0 if pairs is None else pairs.width), np.float32)
        named = [
            arrays[name] if name in arrays else arrays[name.partition(":")[0]]
            for name in columns[atom].places
        ]
        flat = [one.float().reshape(rows, prod(one.shape[1:])).numpy() for one in named]
        return np.concatenate(flat, axis=1)


def _is_weight(one: Given) -> bool:
    return is_of_edges(one.atom) and one.name.partition(":")[0] == "edge_weight"
