"""The settings of the steps that read edges. ``propagate`` moves rows along the edges with NeutronRT's
operators (section IV.A, equations 5 to 9); ``degree`` computes the degree of each node.

For a target node v and its in-edges (u, v)::

    message_uv = [weight_uv] * [d_u^-1/2] * [c_uv] * value_uv              message_local
    context_v  = 1, the number of in-edges, the sum of weight_uv or c_uv   neighbor_context
    a_v        = combine(context_v, aggregate of all message_uv)           combine, aggregate

``value`` is h_u, or the result of row-wise steps on the rows of both ends and the edge's features. The
coefficient ``c``, one number for each head, is computed likewise. A message that reads h_v makes the model a
constrained one (section IV.C): a target is computed again from all neighbours when its own row changes, and
incrementally when only neighbours change. ``transform`` (f_nn) and ``update`` are ordinary row-wise steps
before and after. `livegnn.model.verify` checks the conditions of theorem 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from livegnn.errors import ModelError
from livegnn.network.operators import Attribute
from livegnn.network.steps import Step, describe
from livegnn.types import EdgeType, NodeType

MessageFactor: TypeAlias = Literal["weight", "source_rsqrt", "coefficient"]
NeighborContext: TypeAlias = Literal["none", "count", "sum"]
Combine: TypeAlias = Literal["identity", "divide", "rsqrt"]
CombineInverse: TypeAlias = Literal["identity", "multiply", "sqrt"]
Aggregate: TypeAlias = Literal["sum", "min", "max"]

_INVERSES: Mapping[str, CombineInverse] = {"identity": "identity", "divide": "multiply", "rsqrt": "sqrt"}
_ATTRS = ("edge_type", "message_local", "neighbor_context", "combine", "aggregate", "self_loops")
_LATER: Mapping[str, Attribute] = dict.fromkeys(("skip_loops", "own_message", "reverse", "only_loops"), False)
"""Defaults of later settings; a file has such a setting only if it differs, since old files lack them."""


@dataclass(frozen=True)
class Propagate:
    """The operators of one propagate step.

    edge_type: (source type, relation, target type), or several of them concatenated, which share one context.
      The step reads, for each edge type, a value (rows of its source nodes or of its edges) and, with the
      factor ``"coefficient"``, the coefficients (rows of its edges); it writes rows of target nodes.
    message_local: factors of a message: ``"weight"`` multiplies by the edge's weight, ``"source_rsqrt"`` by
      d_u^-1/2, where d_u is the context of the source u by these same operators, ``"coefficient"`` multiplies
      each head's channels by that head's coefficient.
    neighbor_context: ``"count"`` of the in-edges, ``"sum"`` of their coefficients, or, without coefficients,
      of their weights (1 each in an unweighted graph), or ``"none"``.
    combine: the function of the aggregate and the context c: ``"identity"``, ``"divide"`` by c, or
      ``"rsqrt"``, which multiplies by c^-1/2. If c is 0, the factor (and d_u^-1/2) is 0; if c is below 0,
      ``"divide"`` gives 0, and a root NaN.
    aggregate: ``"sum"``, ``"min"`` or ``"max"`` of the messages, channel by channel; 0 if there are none.
    self_loops: None, or the weight of a self-loop that is added to every node without one. It is an edge like
      any other: it counts in the context and carries a message.
    skip_loops: edges from a node to itself carry no message and do not count.
    own_message: a node gets a message of its own beside its edges' messages, made from the step's last value
      (and coefficient), which are rows of the target nodes. A softmax over in-edges and a loop, for any
      features of the loop, is skip_loops with an own message (GATConv).
    reverse: messages go along each edge from its target to its source. "Source" above then means the sending
      end, the edge's target, and "target" the receiving end, the edge's source: the step reads rows of the
      edges' targets and writes rows of their sources. Values on edges are unchanged.
    only_loops: only edges from a node to itself carry a message; of parallel loops only the last, with the
      greatest key.

    Raises `ModelError` if an operator is unknown or the operators do not fit together.
    """

    edge_type: EdgeType | tuple[str, ...]
    message_local: tuple[MessageFactor, ...] = ()
    neighbor_context: NeighborContext = "none"
    combine: Combine = "identity"
    aggregate: Aggregate = "sum"
    self_loops: float | None = None
    skip_loops: bool = False
    own_message: bool = False
    reverse: bool = False
    only_loops: bool = False

    def __post_init__(self) -> None:
        parts = self.edge_type
        if not parts or len(parts) % 3 or not all(isinstance(part, str) and part for part in parts):
            raise ModelError(
                f"edge_type must be three names (source type, relation, target type), got {parts!r}"
            )
        if len({edge_type[0 if self.reverse else 2] for edge_type in self.edge_types}) > 1:
            lead = "begin at" if self.reverse else "lead to"
            raise ModelError(f"edges must {lead} nodes of one type, got {self.edge_types}")
        for factor in self.message_local:
            _choice("message_local", factor, MessageFactor)
        if len(set(self.message_local)) != len(self.message_local):
            raise ModelError(f"message_local must name a factor once, got {self.message_local!r}")
        _choice("neighbor_context", self.neighbor_context, NeighborContext)
        _choice("combine", self.combine, Combine)
        _choice("aggregate", self.aggregate, Aggregate)
        self._check_edges_alone()
        reads_context = self.combine != "identity" or "source_rsqrt" in self.message_local
        if reads_context and self.neighbor_context == "none":
            reader = "source_rsqrt" if self.combine == "identity" else f"combine {self.combine!r}"
            raise ModelError(f"{reader} needs a neighbor_context of 'count' or 'sum', got 'none'")
        if not reads_context and self.neighbor_context != "none":
            raise ModelError(
                f"neighbor_context {self.neighbor_context!r} is read by nothing here: give 'none'"
            )
        if "source_rsqrt" in self.message_local:
            _check_one_type("source_rsqrt needs", self.edge_types[:1])
        _check_loops(self.self_loops, self.edge_types, self.skip_loops)
        if self.only_loops:
            self._check_only_loops()

    @classmethod
    def from_step(cls, step: Step) -> "Propagate":
        """The operators in the settings of a propagate step. Raises `ModelError` if they are not valid."""
        try:
            return cls._from_attrs(step.attrs)
        except ModelError as error:
            raise ModelError(f"{describe(step)}: {error}") from None

    @classmethod
    def _from_attrs(cls, attrs: Mapping[str, Attribute]) -> "Propagate":
        attrs = {**_LATER, **attrs}
        if set(attrs) != {*_ATTRS, *_LATER}:
            got = ", ".join(sorted(attrs)) or "none"
            raise ModelError(f"must have the attributes {', '.join((*_ATTRS, *_LATER))}; got {got}")
        edge_type, factors = attrs["edge_type"], attrs["message_local"]
        if not isinstance(edge_type, tuple | list) or not edge_type or len(edge_type) % 3:
            raise ModelError(f"edge_type must be (source type, relation, target type), got {edge_type!r}")
        if not isinstance(factors, tuple | list):
            raise ModelError(f"message_local must be a list of factors, got {factors!r}")
        context, combine, aggregate = attrs["neighbor_context"], attrs["combine"], attrs["aggregate"]
        return cls(
            edge_type=tuple(edge_type),
            message_local=tuple(_choice("message_local", factor, MessageFactor) for factor in factors),
            neighbor_context=_choice("neighbor_context", context, NeighborContext),
            combine=_choice("combine", combine, Combine),
            aggregate=_choice("aggregate", aggregate, Aggregate),
            self_loops=_weight("self_loops", attrs["self_loops"]),
            **{name: _flag(name, attrs[name]) for name in _LATER},
        )

    def to_attrs(self) -> dict[str, Attribute]:
        """The settings of the propagate step with these operators."""
        later = [name for name, default in _LATER.items() if getattr(self, name) != default]
        return {name: getattr(self, name) for name in (*_ATTRS, *later)}

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """Each of the edge types."""
        e = self.edge_type
        return tuple((e[i], e[i + 1], e[i + 2]) for i in range(0, len(e), 3))

    @property
    def target_type(self) -> NodeType:
        """The type of the nodes whose rows the step writes."""
        return self.edge_type[0 if self.reverse else 2]

    def source_type(self, edge_type: EdgeType) -> NodeType:
        """The type of the nodes that send messages along the edges of a type."""
        return edge_type[2 if self.reverse else 0]

    @property
    def coefficients(self) -> bool:
        """Whether coefficients are among the step's inputs."""
        return "coefficient" in self.message_local

    @property
    def weighted(self) -> bool:
        """Whether the result depends on the edges' weights."""
        return "weight" in self.message_local or (self.neighbor_context == "sum" and not self.coefficients)

    @property
    def combine_inverse(self) -> CombineInverse | None:
        """The inverse of `combine` (msg_cbn^-1); None for a min or a max, which has no inverse."""
        return _INVERSES[self.combine] if self.aggregate == "sum" else None

    def _check_only_loops(self) -> None:
        if self.skip_loops or self.self_loops is not None:
            raise ModelError("only_loops excludes skip_loops and self_loops: leave them out")
        _check_one_type("only_loops needs", self.edge_types)
        reads_context = self.neighbor_context != "none" and not self.coefficients
        if reads_context or "source_rsqrt" in self.message_local:
            raise ModelError(
                "only_loops excludes a count of edges and a sum of weights: a node has one such message "
                "or none"
            )

    def _check_edges_alone(self) -> None:
        """Checks settings that need a sum, or a sum over rows of source nodes. Raises `ModelError`."""
        special = [f for f in self.message_local if f != "coefficient"]
        if len(self.edge_types) > 1 or self.own_message or self.coefficients:
            if self.aggregate != "sum":
                raise ModelError(
                    "coefficients, an own message and several edge types need aggregate 'sum', "
                    f"got {self.aggregate!r}"
                )
            if special or self.self_loops is not None:
                raise ModelError(
                    "coefficients, an own message and several edge types go with no other factor and no "
                    f"self_loops, got {special or self.self_loops!r}: make them part of the coefficient"
                )
        if self.coefficients and self.neighbor_context == "count":
            raise ModelError("with coefficients neighbor_context must be 'sum' or 'none', got 'count'")
        if self.own_message and self.neighbor_context == "sum" and not self.coefficients:
            raise ModelError("an own message has no weight: its context must be of coefficients, or a count")
        if self.combine == "rsqrt" and self.coefficients:
            raise ModelError("with coefficients combine must be 'identity' or 'divide', got 'rsqrt'")

    def check_widths(self, widths: Sequence[int]) -> None:
        """Raises `ModelError` if the number or the widths of the inputs do not fit the operators."""
        each = 2 if self.coefficients else 1
        count = each * (len(self.edge_types) + self.own_message)
        if len(widths) != count:
            raise ModelError(f"must have {count} input(s) with these operators, got {len(widths)}")
        values, heads = set(widths[::each]), set(widths[1::each]) if each == 2 else {1}
        if len(values) > 1 or len(heads) > 1 or widths[0] % next(iter(heads)):
            raise ModelError(
                "values must be of one width, and coefficients of one that divides it, "
                f"got {', '.join(map(str, widths))}"
            )


@dataclass(frozen=True)
class Degree:
    """The settings of one ``degree`` step, which reads no value and writes one number for each target node.

    edge_type: (source type, relation, target type). kind: ``"count"`` of a node's in-edges, or the ``"sum"``
      of their weights (1 each in an unweighted graph).
    self_loops: None, or the weight of a self-loop that is added to every node without one; of parallel loops
      only the last counts, as in `Propagate`. skip_loops: loops do not count.
    reverse: counts a node's out-edges instead of its in-edges and writes a number for each source node.

    Raises `ModelError` if the settings do not fit together.
    """

    edge_type: EdgeType
    kind: Literal["count", "sum"] = "count"
    self_loops: float | None = None
    skip_loops: bool = False
    reverse: bool = False

    def __post_init__(self) -> None:
        if len(self.edge_type) != 3 or not all(isinstance(part, str) and part for part in self.edge_type):
            raise ModelError(
                f"edge_type must be three names (source type, relation, target type), got {self.edge_type!r}"
            )
        _choice("kind", self.kind, Literal["count", "sum"])
        _check_loops(self.self_loops, [self.edge_type], self.skip_loops)

    @classmethod
    def from_step(cls, step: Step) -> "Degree":
        """The settings of a degree step. Raises `ModelError` if they are not valid."""
        defaults: dict[str, Attribute] = {"self_loops": None, "skip_loops": False, "reverse": False}
        attrs = {**defaults, **step.attrs}
        if set(attrs) != {"edge_type", "kind", *defaults}:
            got = ", ".join(sorted(step.attrs)) or "none"
            raise ModelError(
                f"{describe(step)}: must have the attributes edge_type and kind, and may have "
                f"{', '.join(defaults)}; got {got}"
            )
        try:
            return cls(
                step.edge_type(),
                _choice("kind", attrs["kind"], Literal["count", "sum"]),
                _weight("self_loops", attrs["self_loops"]),
                _flag("skip_loops", attrs["skip_loops"]),
                _flag("reverse", attrs["reverse"]),
            )
        except ModelError as error:
            raise ModelError(f"{describe(step)}: {error}") from None

    def to_attrs(self) -> dict[str, Attribute]:
        """The settings of the degree step."""
        return {
            "edge_type": self.edge_type,
            "kind": self.kind,
            "self_loops": self.self_loops,
            "skip_loops": self.skip_loops,
            **({"reverse": True} if self.reverse else {}),
        }

    @property
    def node_type(self) -> NodeType:
        """The type of the nodes whose rows the step writes."""
        return self.edge_type[0 if self.reverse else 2]


def _check_one_type(needs: str, edge_types: Sequence[EdgeType]) -> None:
    for source, _, target in edge_types:
        if source != target:
            raise ModelError(f"{needs} edges between nodes of one type, got {source!r} to {target!r}")


def _check_loops(self_loops: float | None, edge_types: Sequence[EdgeType], skip_loops: bool) -> None:
    if self_loops is None:
        return
    if skip_loops:
        raise ModelError("skip_loops and self_loops contradict each other: give one of them")
    _check_one_type("self_loops need", edge_types[:1])
    if not math.isfinite(self_loops):
        raise ModelError(f"self_loops must be null or a finite weight, got {self_loops!r}")


def _weight(name: str, value: Attribute) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ModelError(f"{name} must be null or a number, got {value!r}")
    return None if value is None else float(value)


def _flag(name: str, value: Attribute) -> bool:
    if isinstance(value, bool):
        return value
    raise ModelError(f"{name} must be true or false, got {value!r}")


def _choice(name: str, value: object, choices: object) -> Any:
    allowed = get_args(choices)
    if value in allowed:
        return value
    raise ModelError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
