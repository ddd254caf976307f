"""How one convolution moves rows along the edges: NeutronRT's operators (section IV.A, equations 5 to 9).

For a target node v and its in-edges (u, v) of one edge type::

    message_uv = [weight_uv] * [d_u^-1/2] * h_u                              message_local
    context_v  = 1, or the number of in-edges, or the sum of their weights   neighbor_context
    a_v        = combine(context_v, aggregate of all message_uv)             combine, aggregate

``transform`` (f_nn) and ``update`` are ordinary node-wise steps before and after.
None of these messages reads the target's row, and every combination multiplies by a coefficient that is at
least 0, so the conditions of theorem 1 (section IV.C) hold for all of them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from livegnn.errors import ModelError
from livegnn.model.steps import Attribute, Step, describe
from livegnn.types import EdgeType

MessageFactor: TypeAlias = Literal["weight", "source_rsqrt"]
NeighborContext: TypeAlias = Literal["none", "count", "sum"]
Combine: TypeAlias = Literal["identity", "divide", "rsqrt"]
CombineInverse: TypeAlias = Literal["identity", "multiply", "sqrt"]
Aggregate: TypeAlias = Literal["sum", "min", "max"]

_INVERSES: Mapping[str, CombineInverse] = {"identity": "identity", "divide": "multiply", "rsqrt": "sqrt"}
_ATTRS = ("edge_type", "message_local", "neighbor_context", "combine", "aggregate", "self_loops")


@dataclass(frozen=True)
class Propagate:
    """The operators of one propagate step.

    edge_type: (source type, relation, target type); the step reads rows of source nodes and writes rows of
      target nodes.
    message_local: factors of a message: ``"weight"`` multiplies by the edge's weight, ``"source_rsqrt"`` by
      d_u^-1/2, where d_u is the context of the source u by these same operators.
    neighbor_context: ``"count"`` of the in-edges, ``"sum"`` of their weights (1 each in an unweighted graph),
      or ``"none"``.
    combine: of the aggregate and the context c: ``"identity"``, ``"divide"`` by c, ``"rsqrt"``: multiply by
      c^-1/2. Where c is not positive, the coefficient (and d_u^-1/2) is 0.
    aggregate: ``"sum"``, ``"min"`` or ``"max"`` of the messages, channel by channel; 0 if there are none.
    self_loops: None, or the weight of the self-loop that every node gets that has none of its own. It is an
      edge like any other: it counts in the context and carries a message.

    Raises `ModelError` if an operator is unknown or the operators do not fit together.
    """

    edge_type: EdgeType
    message_local: tuple[MessageFactor, ...] = ()
    neighbor_context: NeighborContext = "none"
    combine: Combine = "identity"
    aggregate: Aggregate = "sum"
    self_loops: float | None = None

    def __post_init__(self) -> None:
        self.validate()

    @classmethod
    def from_step(cls, step: Step) -> "Propagate":
        """The operators in the settings of a propagate step. Raises `ModelError` if they are not valid."""
        try:
            return cls._from_attrs(step.attrs)
        except ModelError as error:
            raise ModelError(f"{describe(step)}: {error}") from None

    @classmethod
    def _from_attrs(cls, attrs: Mapping[str, Attribute]) -> "Propagate":
        if set(attrs) != set(_ATTRS):
            got = ", ".join(sorted(attrs)) or "none"
            raise ModelError(f"must have exactly the attributes {', '.join(_ATTRS)}; got {got}")
        edge_type, factors, loops = attrs["edge_type"], attrs["message_local"], attrs["self_loops"]
        if not isinstance(edge_type, tuple | list) or len(edge_type) != 3:
            raise ModelError(f"edge_type must be (source type, relation, target type), got {edge_type!r}")
        if not isinstance(factors, tuple | list):
            raise ModelError(f"message_local must be a list of factors, got {factors!r}")
        if loops is not None and (isinstance(loops, bool) or not isinstance(loops, int | float)):
            raise ModelError(f"self_loops must be null or a number, got {loops!r}")
        context, combine, aggregate = attrs["neighbor_context"], attrs["combine"], attrs["aggregate"]
        return cls(
            edge_type=(edge_type[0], edge_type[1], edge_type[2]),
            message_local=tuple(_choice("message_local", factor, MessageFactor) for factor in factors),
            neighbor_context=_choice("neighbor_context", context, NeighborContext),
            combine=_choice("combine", combine, Combine),
            aggregate=_choice("aggregate", aggregate, Aggregate),
            self_loops=None if loops is None else float(loops),
        )

    def to_attrs(self) -> dict[str, Attribute]:
        """The settings of the propagate step with these operators."""
        return {
            "edge_type": self.edge_type,
            "message_local": self.message_local,
            "neighbor_context": self.neighbor_context,
            "combine": self.combine,
            "aggregate": self.aggregate,
            "self_loops": self.self_loops,
        }

    @property
    def weighted(self) -> bool:
        """Whether the result depends on the edges' weights."""
        return "weight" in self.message_local or self.neighbor_context == "sum"

    @property
    def combine_inverse(self) -> CombineInverse | None:
        """What undoes `combine` (msg_cbn^-1), or None: a min or a max cannot be taken apart again."""
        return _INVERSES[self.combine] if self.aggregate == "sum" else None

    def validate(self) -> None:
        """Raises `ModelError` if an operator is unknown or the operators do not fit together."""
        if len(self.edge_type) != 3 or not all(isinstance(part, str) and part for part in self.edge_type):
            raise ModelError(
                f"edge_type must be three names (source type, relation, target type), got {self.edge_type!r}"
            )
        for factor in self.message_local:
            _choice("message_local", factor, MessageFactor)
        if len(set(self.message_local)) != len(self.message_local):
            raise ModelError(f"message_local must name a factor once, got {self.message_local!r}")
        _choice("neighbor_context", self.neighbor_context, NeighborContext)
        _choice("combine", self.combine, Combine)
        _choice("aggregate", self.aggregate, Aggregate)
        source, _, target = self.edge_type
        reads_context = self.combine != "identity" or "source_rsqrt" in self.message_local
        if reads_context and self.neighbor_context == "none":
            reader = "source_rsqrt" if self.combine == "identity" else f"combine {self.combine!r}"
            raise ModelError(f"{reader} needs a neighbor_context of 'count' or 'sum', got 'none'")
        if not reads_context and self.neighbor_context != "none":
            raise ModelError(
                f"neighbor_context {self.neighbor_context!r} is read by nothing here: give 'none'"
            )
        if source != target and "source_rsqrt" in self.message_local:
            raise ModelError(
                f"source_rsqrt needs edges between nodes of one type, got {source!r} to {target!r}"
            )
        if self.self_loops is None:
            return
        if source != target:
            raise ModelError(f"self_loops need edges between nodes of one type, got {source!r} to {target!r}")
        if not math.isfinite(self.self_loops):
            raise ModelError(f"self_loops must be null or a finite weight, got {self.self_loops!r}")


def _choice(name: str, value: object, choices: object) -> Any:
    allowed = get_args(choices)
    if value in allowed:
        return value
    raise ModelError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
