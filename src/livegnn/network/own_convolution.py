"""A convolution that the user defines: NeutronRT's six operators (section IV.A) as functions of NumPy arrays.

For a target node v and its in-edges (u, v)::

    mlc_uv = message_local(h_u, h_v, weight_uv, edge_attr_uv)
    c_v    = neighbor_context of all mlc_uv
    a_v    = combine(c_v, aggregate of all mlc_uv * transform(h_u))
    h'_v   = update(h_v, a_v)

`livegnn.network.assembly` makes its steps.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np
import numpy.typing as npt

from livegnn.errors import ModelError
from livegnn.network.propagation import Aggregate
from livegnn.network.steps import Function
from livegnn.types import Array, FloatArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64

MessageArray: TypeAlias = Literal["source", "target", "weight", "edge_attr"]
Context: TypeAlias = Literal["none", "count", "sum"]
CONTEXTS: tuple[Context, ...] = get_args(Context)
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
_KNOWN_AGGREGATES: tuple[tuple[object, Aggregate], ...] = (
    *((known, "sum") for known in (np.add, np.sum)),
    *((known, "min") for known in (np.minimum, np.min, np.amin)),
    *((known, "max") for known in (np.maximum, np.max, np.amax)),
)


@dataclass(frozen=True, eq=False)
class Convolution:
    """One layer, given by its operators. Every function takes float32 arrays and returns a float32 array with
    as many rows; it must not mix rows. An operator that is left out is the identity.

    message_local: a function of any of ``source`` and ``target`` (h_u and h_v, [edges, channels]), ``weight``
      ([edges, 1]) and ``edge_attr`` ([edges, features]); the names of its parameters select them. Returns
      [edges, 1], [edges, heads] or as many channels as the transform has. If left out, it is 1. Without
      ``target``, a change of a node's own row does not change its in-messages, which makes a layer fast.
    neighbor_context: ``"none"``, ``"count"`` of the in-edges, ``"sum"`` of mlc_uv, or a function
      [messages, channels] -> [channels] that is equal to one of them.
    combine: (context, aggregate) -> combined; both as wide as the aggregate, the context repeated for the
      channels of a head. Called where the context is above 0; elsewhere the result is 0.
    combine_inverse: (context, combined) -> aggregate. Used only by verification.
    aggregate: ``"sum"``, ``"min"``, ``"max"``, or a function [messages, channels] -> [channels] that is equal
      to one of them.
    transform: h_u -> [nodes, channels] (f_nn), or ``"one"``: the message is mlc_uv itself.
    update: (h_v, a_v) -> the layer's output.
    self_loops: adds one self-loop to every node; existing edges from a node to itself are skipped.
    reference: (h, edge_index, weight, edge_attr) -> output: the layer's original formulation, which
      verification compares with the operators on small graphs.
    """

    message_local: Function | None = None
    neighbor_context: Context | Function = "none"
    combine: Function | None = None
    combine_inverse: Function | None = None
    aggregate: Aggregate | Function = "sum"
    transform: Function | Literal["one"] | None = None
    update: Function | None = None
    self_loops: bool = False
    reference: Function | None = None
    name: str = "convolution"

    def __post_init__(self) -> None:
        operators: tuple[tuple[object, Sequence[str], str], ...] = (
            (self.neighbor_context, CONTEXTS, "neighbor_context"),
            (self.aggregate, AGGREGATES, "aggregate"),
        )
        for given, names, what in operators:
            if not callable(given) and given not in names:
                raise ModelError(
                    f"{self.name}: {what} must be one of {', '.join(map(repr, names))} or a function, "
                    f"got {given!r}"
                )
        if not isinstance(self.self_loops, bool):
            raise ModelError(f"{self.name}: self_loops must be True or False, got {self.self_loops!r}")
        reads = self.message_reads
        if self.message_local is not None and not reads:
            raise ModelError(f"{self.name}: message_local must take an array, leave it out if it is 1")
        if self.transform == "one" and self.message_local is None:
            raise ModelError(f"{self.name}: a transform of 'one' needs a message_local")
        if (self.neighbor_context == "none") != (self.combine is None):
            raise ModelError(
                f"{self.name}: combine must be given if there is a neighbor_context, and left out if there "
                f"is none; got neighbor_context {self.neighbor_context!r}, combine {self.combine!r}"
            )
        if self.combine is None and self.combine_inverse is not None:
            raise ModelError(f"{self.name}: combine_inverse needs a combine to undo")
        edge_columns = {"weight", "edge_attr"} & set(reads)
        if self.self_loops and edge_columns:
            raise ModelError(
                f"{self.name}: a self-loop has no {' and no '.join(sorted(edge_columns))}, which "
                "message_local reads: leave self_loops out and add the loops to the graph"
            )

    @property
    def message_reads(self) -> tuple[MessageArray, ...]:
        """The arrays that message_local takes. Raises `ModelError` if it has another parameter."""
        if self.message_local is None:
            return ()
        try:
            parameters = inspect.signature(self.message_local).parameters
        except ValueError:
            raise ModelError(
                f"{self.name}: message_local must name its parameters: wrap {self.message_local!r} in a "
                "lambda that does"
            ) from None
        names = [
            name
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty or name in get_args(MessageArray)
        ]
        unknown = [name for name in names if name not in get_args(MessageArray)]
        if unknown:
            raise ModelError(
                f"{self.name}: the parameters of message_local must be any of "
                f"{', '.join(get_args(MessageArray))}, got {unknown[0]!r}"
            )
        return tuple(name for name in get_args(MessageArray) if name in names)

    def aggregate_name(self) -> Aggregate | None:
        """The name of the aggregate: sum, min or max; None if it is another function."""
        return cast("Aggregate | None", _recognise(self.aggregate, AGGREGATES))

    def context_name(self) -> Context | None:
        """The name of the context: none, count or sum; None if it is another function."""
        return cast("Context | None", _recognise(self.neighbor_context, CONTEXTS))

    def message(self, arrays: Mapping[str, Array]) -> Array:
        """The rows mlc_uv of edges; arrays: by name."""
        assert self.message_local is not None
        return _rows(self, "message_local", self.message_local(**{n: arrays[n] for n in self.message_reads}))

    def widths(self, in_channels: int, edge_dim: int = 0) -> "Widths":
        """The widths of all values, found by calling the functions once on two rows.

        Raises `ModelError` if a function fails, or its output does not fit the next function.
        """
        name = self.name
        if in_channels < 1:
            raise ModelError(f"{name}: in_channels must be at least 1, got {in_channels}")
        if "edge_attr" in self.message_reads and edge_dim < 1:
            raise ModelError(f"{name}: message_local reads edge_attr: give edge_dim, got {edge_dim}")
        h = np.linspace(0.1, 0.9, 2 * in_channels, dtype=np.float32).reshape(2, in_channels)
        arrays = {
            "source": h,
            "target": h,
            "weight": np.ones((2, 1), np.float32),
            "edge_attr": np.full((2, edge_dim), 0.5, np.float32),
        }
        what = "message_local"
        try:
            local = 1
            if self.message_local is not None:
                local = _rows(self, what, self.message(arrays), 2).shape[1]
            what, message = "transform", in_channels
            if self.transform == "one":
                message = local
            elif self.transform is not None:
                message = _rows(self, what, self.transform(h), 2).shape[1]
            if message % local:
                raise ModelError(
                    f"{name}: message_local must return 1 channel, one for each head, or the {message} that "
                    f"the transform has; got {local}"
                )
            rows = np.full((2, message), 0.5, np.float32)
            combined: Array = rows
            what = "combine"
            if self.combine is not None:
                combined = _rows(self, what, self.combine(np.ones_like(rows), rows), 2)
            what = "update"
            output = combined if self.update is None else self.update(h, combined)
            return Widths(local, message, _rows(self, what, output, 2).shape[1], edge_dim)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                f"{name}: {what} failed on two rows ({in_channels} channels of features, {edge_dim} of the "
                f"edges): {type(error).__name__}: {error}"
            ) from error

    def compute(
        self,
        h: "Float32[FloatArray, 'nodes channels']",
        edge_index: "Int64[IntArray, '2 edges']",
        weight: "Float32[FloatArray, 'edges'] | None" = None,
        edge_attr: "Float32[FloatArray, 'edges edge_channels'] | None" = None,
    ) -> "Float32[FloatArray, 'nodes out_channels']":
        """Computes the layer on a whole graph, by the four lines at the top of this module.

        h: [nodes, channels]. edge_index: [2, edges], sources and targets. weight: [edges], by default 1.
        """
        source, target = edge_index
        weight = np.ones(len(source), np.float32) if weight is None else weight
        edge_attr = np.zeros((len(source), 0), np.float32) if edge_attr is None else edge_attr
        if self.self_loops:
            kept = source != target
            nodes = np.arange(len(h))
            source, target = np.concatenate([source[kept], nodes]), np.concatenate([target[kept], nodes])
        rows = {"source": h[source], "target": h[target], "weight": weight[:, None], "edge_attr": edge_attr}
        local = np.ones((len(source), 1), np.float32)
        if self.message_local is not None and len(source):
            local = np.asarray(self.message(rows), np.float32)
        messages: Array = local
        if self.transform != "one":
            transformed = h if self.transform is None else self.transform(h)
            messages = transformed[source] * repeat_heads(local, transformed.shape[1])
        width = messages.shape[1]
        aggregate, context = np.zeros((len(h), width)), np.zeros((len(h), local.shape[1]))
        how: object = self.aggregate_name() or self.aggregate
        what: object = self.context_name() or self.neighbor_context
        for node in np.unique(target):
            mine = target == node
            aggregate[node] = apply_to_messages(how, messages[mine])
            if what != "none":
                context[node] = apply_to_messages(what, local[mine])
        combined = aggregate.astype(np.float32)
        if self.combine is not None:
            combined = Combine(self.combine)(context.astype(np.float32), combined)
        output = combined if self.update is None else self.update(h, combined)
        return np.asarray(output, np.float32)


@dataclass(frozen=True)
class Widths:
    """Channels of mlc, of a message (mlc * transform), and of the output. features: of the edges."""

    local: int
    message: int
    output: int
    features: int


def apply_to_messages(function: object, messages: Array) -> Array:
    """Applies a context or an aggregate to messages: [messages, channels] -> [channels]."""
    if isinstance(function, str):
        if function == "count":
            return np.full(messages.shape[1], float(len(messages)))
        ufuncs: Mapping[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
        reduced: Array = ufuncs[function].reduce(messages, axis=0)
        return reduced
    if isinstance(function, np.ufunc):
        return np.asarray(function.reduce(messages, axis=0))
    if not callable(function):
        raise ModelError(f"an aggregate or a context must be a function, got {function!r}")
    by_axis = getattr(function, "__module__", None) == "numpy"
    result = np.asarray(function(messages, axis=0) if by_axis else function(messages))
    try:
        return np.broadcast_to(result, messages.shape[1:])
    except ValueError:
        raise ModelError(
            f"a function of messages {list(messages.shape)} must return [{messages.shape[1]}], "
            f"got {list(result.shape)}"
        ) from None


def repeat_heads(rows: Array, width: int) -> Array:
    """Repeats each head's number for each of its channels."""
    return np.repeat(rows, width // rows.shape[1], axis=1)


def is_known(given: object) -> bool:
    """Whether an operator is given by its name or as a known NumPy function."""
    return isinstance(given, str) or any(given is known for known, _ in _KNOWN_AGGREGATES)


def _recognise(given: object, names: Sequence[str]) -> str | None:
    """The name of an operator that is given as a function, found by its results on a few arrays."""
    if isinstance(given, str):
        return given
    by_name = next((name for known, name in _KNOWN_AGGREGATES if given is known), None)
    if by_name is not None:
        return by_name if by_name in names else None
    random = np.random.default_rng(1)
    trials = [random.standard_normal((count, 3)).astype(np.float32) for count in (1, 2, 3, 5, 5)]
    likely = [name for name in names if name != "none"]
    return next((name for name in likely if all(_same_on(given, name, one) for one in trials)), None)


def _same_on(given: object, name: str, messages: Array) -> bool:
    try:
        with np.errstate(all="ignore"):
            return bool(
                np.allclose(apply_to_messages(given, messages), apply_to_messages(name, messages), atol=1e-5)
            )
    except Exception:
        return False


def _rows(convolution: Convolution, what: str, rows: object, count: int | None = None) -> Array:
    array = np.asarray(rows)
    if array.ndim != 2 or (count is not None and len(array) != count):
        asked = "[rows, channels]" if count is None else f"[{count}, channels]"
        raise ModelError(f"{convolution.name}: {what} must return {asked}, got {list(array.shape)}")
    return array


class Combine:
    """Applies ``combine`` where the context is above 0, and gives 0 elsewhere. It repeats the context to the
    width of the aggregate."""

    def __init__(self, combine: Function) -> None:
        self.combine = combine
        self.__wrapped__ = combine

    def __call__(self, context: FloatArray, aggregate: FloatArray) -> FloatArray:
        context = np.repeat(context, aggregate.shape[1] // context.shape[1], axis=1)
        positive: npt.NDArray[np.bool_] = np.greater(context, 0)
        combined = np.asarray(self.combine(np.where(positive, context, np.float32(1)), aggregate))
        if bool(np.all(positive)):
            return combined
        if combined.shape != positive.shape:  # combine mixes channels: all contexts of a node must be above 0
            positive = np.all(positive, axis=1, keepdims=True)
        return np.where(positive, combined, np.float32(0))
