"""Tensors that a convolution of the user's own is run on, to see what it computes.

A `Traced` tensor holds the numbers of a small graph and, beside them, a symbol: what the numbers stand for in
the model. Every function of torch that is applied to one comes to the trace, which computes the numbers and
writes the steps. So code that asks for shapes, or whether something is a tensor, runs as it always does.

The first dimension is that of the rows; all further ones, row-major, are the channels of the value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

import torch

from livegnn.errors import ModelError
from livegnn.model.adapters.tape import Rows, Tape, Weight
from livegnn.model.operators import Attribute
from livegnn.types import EdgeType

End: TypeAlias = Literal["source", "target"]

ADVICE = (
    "write the layer as a livegnn.model.Convolution, or give Model.from_pyg a proposer that does "
    "(docs/models.md)"
)


@dataclass(frozen=True)
class Domain:
    """Edges, and perhaps loops of the layer's own.

    skip_loops: without the graph's loops. own: with a loop at every node.
    """

    edge_type: EdgeType
    skip_loops: bool = False
    own: bool = False


@dataclass(frozen=True)
class EdgeIndex:
    """An ``edge_index``."""

    domain: Domain


@dataclass(frozen=True)
class EndIndex:
    """One row of an ``edge_index``."""

    domain: Domain
    end: End


@dataclass(frozen=True)
class NodeValue:
    """A row for every node."""

    rows: Rows


@dataclass(frozen=True)
class EdgeValue:
    """A row for every edge. own: for the domain's own loops, one a node. scale: a number for every node, by
    which the rows of its in-edges are yet to be multiplied.
    """

    domain: Domain
    edges: Rows
    own: Rows | None
    scale: Rows | None = None


@dataclass(frozen=True)
class Softmax:
    """The softmax of logits over the in-edges of each target, one for each head; times a value, if any."""

    logits: EdgeValue
    value: EdgeValue | None = None

    @property
    def domain(self) -> Domain:
        return self.logits.domain


@dataclass(frozen=True)
class GcnNorm:
    """What PyG's ``gcn_norm`` gives every edge; times a value of its source, if any."""

    domain: Domain
    weighted: bool
    self_loops: float | None
    value: EdgeValue | None = None


@dataclass(frozen=True)
class Degree:
    """The number of in-edges of every node, to some power; where there are none it is 0, or 1 with floor."""

    domain: Domain
    power: float = 1.0
    floor: bool = False


@dataclass(frozen=True)
class Undefined:
    """Where a power of a degree is infinite."""


@dataclass(frozen=True)
class Loops:
    """Which edges lead from a node to itself (equal), or do not."""

    domain: Domain
    equal: bool


Symbol: TypeAlias = (
    EdgeIndex | EndIndex | NodeValue | EdgeValue | Softmax | GcnNorm | Degree | Undefined | Loops
)


class Calls(Protocol):
    """Where the functions go that are applied to traced tensors."""

    def call(self, function: object, args: tuple[object, ...], kwargs: Mapping[str, object]) -> object: ...


class Traced(torch.Tensor):  # type: ignore[misc]
    """A tensor and what it stands for. plain: the same numbers, as an ordinary tensor."""

    symbol: Symbol
    plain: torch.Tensor
    calls: Calls

    @staticmethod
    def make(plain: torch.Tensor, symbol: Symbol, calls: Calls) -> "Traced":
        made: Traced = torch.Tensor._make_subclass(Traced, plain)
        made.symbol, made.plain, made.calls = symbol, plain, calls
        return made

    @classmethod
    def __torch_function__(
        cls,
        function: object,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        calls = next(value.calls for value in traced_in((args, kwargs or {})))
        with torch._C.DisableTorchFunctionSubclass():
            return calls.call(function, args, kwargs or {})

    def __deepcopy__(self, memo: object) -> "Traced":
        return Traced.make(self.plain.clone(), self.symbol, self.calls)


def traced_in(value: object) -> list[Traced]:
    """The traced tensors in nested tuples, lists and dicts."""
    if isinstance(value, Traced):
        return [value]
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [found for part in value for found in traced_in(part)]
    return []


def plain(value: object) -> object:
    """The same with ordinary tensors."""
    if isinstance(value, Traced):
        return value.plain
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return value


@dataclass
class Writer:
    """Writes the steps of values of nodes and of edges onto a tape; the same step only once.

    parameters: id of a tensor of the layer -> its name. some: rows of nodes, of a known width.
    """

    tape: Tape
    edge_type: EdgeType
    parameters: Mapping[int, str]
    some: Rows
    some_width: int

    def __post_init__(self) -> None:
        self._gathered: dict[str, tuple[End, Rows]] = {}
        self._written: dict[object, Rows] = {}

    def write(
        self,
        op: str,
        *values: NodeValue | EdgeValue,
        weights: Mapping[str, torch.Tensor] | None = None,
        attrs: Mapping[str, Attribute] | None = None,
    ) -> NodeValue | EdgeValue:
        """A row-wise step on rows of nodes, or on rows of edges and of their domain's own loops."""
        if all(isinstance(value, NodeValue) for value in values):
            rows = [value.rows for value in values if isinstance(value, NodeValue)]
            return NodeValue(self._step(op, rows, weights or {}, attrs or {}))
        edges = [self.multiplied_out(value) for value in values if isinstance(value, EdgeValue)]
        if len(edges) < len(values) or len({value.domain for value in edges}) > 1:
            raise ModelError(
                "must combine rows of nodes with rows of nodes, or rows of the same edges, got both or others"
            )
        own_rows = [value.own for value in edges if value.own is not None]
        own = self._step(op, own_rows, weights or {}, attrs or {}) if edges[0].domain.own else None
        return EdgeValue(
            edges[0].domain,
            self._on_edges(op, [value.edges for value in edges], weights or {}, attrs or {}),
            own,
        )

    def gather(self, value: NodeValue, domain: Domain, end: End) -> EdgeValue:
        """The row of one end, for every edge; a loop has its node at both ends."""
        source, _, target = domain.edge_type
        place = source if end == "source" else target
        if value.rows.place != place or (domain.own and source != target):
            raise ModelError(
                f"must read {place!r} rows for the {end}s of {domain.edge_type}, got those of "
                f"{value.rows.place!r} nodes{', with loops between them' if domain.own else ''}"
            )
        return EdgeValue(domain, self._gather(value.rows, end), value.rows if domain.own else None)

    def gathered(self, value: EdgeValue, end: End) -> Rows | None:
        """The rows of nodes that a value of edges has from this end, own loops included; else None."""
        found = self._gathered.get(value.edges.name)
        if found is None or found[0] != end:
            return None
        return found[1] if value.own is None or value.own.name == found[1].name else None

    def multiplied_out(self, value: EdgeValue) -> EdgeValue:
        """The value with its scale in it."""
        if value.scale is None:
            return value
        scale = self.gather(NodeValue(value.scale), value.domain, "target")
        made = self.write("scale_heads", replace(value, scale=None), scale)
        assert isinstance(made, EdgeValue)
        return made

    def constant(self, row: torch.Tensor) -> NodeValue:
        """The same row for every node."""
        weights = {"weight": torch.zeros(len(row), self.some_width), "bias": row}
        made = self.write("linear", NodeValue(self.some), weights=weights)
        assert isinstance(made, NodeValue)
        return made

    def propagate(self, inputs: Sequence[Rows], attrs: Mapping[str, Attribute]) -> NodeValue:
        return NodeValue(self._step("propagate", inputs, {}, attrs))

    def _on_edges(
        self,
        op: str,
        rows: Sequence[Rows],
        weights: Mapping[str, torch.Tensor],
        attrs: Mapping[str, Attribute],
    ) -> Rows:
        """What needs one end alone is computed once a node."""
        found = [self._gathered.get(value.name) for value in rows]
        ends = {end[0] for end in found if end is not None}
        if None in found or len(ends) > 1:
            return self._step(op, rows, weights, attrs)
        on_nodes = self._step(op, [end[1] for end in found if end is not None], weights, attrs)
        return self._gather(on_nodes, ends.pop())

    def _gather(self, rows: Rows, end: End) -> Rows:
        made = self._step(end, [rows], {}, {"edge_type": self.edge_type})
        self._gathered[made.name] = end, rows
        return made

    def _step(
        self,
        op: str,
        rows: Sequence[Rows],
        weights: Mapping[str, torch.Tensor],
        attrs: Mapping[str, Attribute],
    ) -> Rows:
        contents = tuple((role, tuple(w.shape), w.numpy().tobytes()) for role, w in weights.items())
        key = op, tuple(value.name for value in rows), contents, tuple(attrs.items())
        if key not in self._written:
            named = {role: Weight(self._name(tensor), tensor) for role, tensor in weights.items()}
            self._written[key] = self.tape.write(op, *rows, name=op, weights=named, attrs=attrs)
        return self._written[key]

    def _name(self, tensor: torch.Tensor) -> str:
        return self.parameters.get(id(tensor), f"{self.tape.place}.constant")
