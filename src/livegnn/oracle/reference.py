"""The oracle: a simple, slow computation of a model on a whole graph, in float64.

In float32 it gives PyG's result: every operation rounds, the factors and the divisor of a message are
combined to one number before the message is multiplied, and a sum adds one term after the other, in the order
of the edges. This shows how much of a difference the model itself causes; see `livegnn.oracle.exactness`. One
case differs: if a partial sum overflows float32 and the whole sum does not, PyG gives infinity or the number,
depending on the order of edges or the library for products. The order is not part of the model, so the oracle
gives the number.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from livegnn.errors import ModelError
from livegnn.network.model import Model
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import EdgeInput, Input
from livegnn.oracle import row_reference
from livegnn.oracle.row_reference import Inputs, Tensors, divide, inverse_root, widely
from livegnn.types import DoubleArray, EdgeType, FloatArray, IntArray, NodeType

SourceRows = Float[np.ndarray, "sources channels"]
TargetRows = Float[np.ndarray, "targets channels"]
PerEdge = Float[np.ndarray, "edges"]
Nodes = Int[np.ndarray, "edges"]


@runtime_checkable
class Arrays(Protocol):
    """A graph as arrays (`livegnn.graph.snapshot.Snapshot` is one)."""

    @property
    def x(self) -> Mapping[NodeType, FloatArray]: ...
    @property
    def edge_index(self) -> Mapping[EdgeType, IntArray]: ...
    @property
    def weight(self) -> Mapping[EdgeType, FloatArray]: ...
    @property
    def edge_attr(self) -> Mapping[EdgeType, FloatArray]: ...


@dataclass(frozen=True)
class GraphArrays:
    """A graph that was made for the oracle alone."""

    x: dict[NodeType, FloatArray]
    edge_index: dict[EdgeType, IntArray]
    weight: dict[EdgeType, FloatArray]
    edge_attr: dict[EdgeType, FloatArray]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # NaN and infinity are valid results
def compute(
    model: Model,
    snapshot: Arrays,
    given: Tensors | None = None,
    dtype: type[np.float32] | type[np.float64] = np.float64,
) -> dict[str, DoubleArray]:
    """Every value of a model on a graph.

    given: values that are known already. If it is given, even empty, only the values that the output needs
    are computed. dtype: the precision of the computation. Where float32 overflows, values are infinite or
    NaN.

    Returns name of a value -> `dtype` [nodes or edges, channels], inputs included; row i is node or edge i of
    the snapshot.
    Raises `ModelError` if the graph lacks a node type or an edge type of the model, or its features have
    another width.
    """
    values: dict[str, DoubleArray] = {name: np.asarray(rows, dtype) for name, rows in (given or {}).items()}
    needless = set() if given is None else _needless(model, given)
    for name, rows in model.inputs.items():
        if name not in needless:
            values[name] = np.asarray(_read_nodes(rows, snapshot), dtype)
    for name, column in model.edge_inputs.items():
        if name not in needless:
            values[name] = np.asarray(_read_edges(column, snapshot), dtype)
    logits_of = {step.output: step.inputs[0] for step in model.steps if step.op == "exp"}
    for step in model.steps:
        if step.output in needless:
            continue
        inputs = [values[name] for name in step.inputs]
        if step.op == "propagate":
            on_edges = [model.edge_type(name) is not None for name in step.inputs]
            logits = [values.get(logits_of[name]) if name in logits_of else None for name in step.inputs]
            values[step.output] = _propagate(Propagate.from_step(step), inputs, logits, on_edges, snapshot)
        elif step.op == "degree":
            values[step.output] = degree(Degree.from_step(step), snapshot, dtype)
        elif step.op in ("source", "target"):
            ends = _edge_index(step.edge_type(), snapshot)[0 if step.op == "source" else 1]
            values[step.output] = inputs[0][ends]
        elif step.op == "call":
            function = model.functions[step.text("function")]
            result = function(*(value.astype(np.float32) for value in inputs))
            values[step.output] = np.asarray(result, dtype=dtype)
        else:
            tensors: dict[str, DoubleArray] = {
                role: np.asarray(model.tensors[name], dtype) for role, name in step.tensors.items()
            }
            values[step.output] = row_reference.apply(step, inputs, tensors)
    return values


def _needless(model: Model, given: Tensors) -> set[str]:
    """The values that need not be computed: the given ones, and those that the output does not need then."""
    needed = {model.output} - set(given)
    for step in reversed(model.steps):
        if step.output in needed:
            needed |= set(step.inputs) - set(given)
    return {*model.inputs, *model.edge_inputs, *(step.output for step in model.steps)} - needed


def _read_nodes(given: Input, snapshot: Arrays) -> FloatArray:
    if given.node_type not in snapshot.x:
        raise ModelError(
            f"the model reads {given.node_type!r} nodes, the graph has {', '.join(snapshot.x) or 'none'}"
        )
    x = snapshot.x[given.node_type]
    if x.ndim != 2 or x.shape[1] != given.width:
        raise ModelError(f"{given.node_type!r} features must be [nodes, {given.width}], got {list(x.shape)}")
    return x


def _read_edges(column: EdgeInput, snapshot: Arrays) -> FloatArray:
    edges = _edge_index(column.edge_type, snapshot).shape[1]
    if column.column == "weight":
        return snapshot.weight[column.edge_type][:, None]
    features = snapshot.edge_attr.get(column.edge_type)
    if features is None or features.shape != (edges, column.width):
        got = "none" if features is None else str(list(features.shape))
        raise ModelError(f"{column.edge_type} edges must have [{edges}, {column.width}] features, got {got}")
    return features


def _edge_index(edge_type: EdgeType, snapshot: Arrays) -> IntArray:
    if edge_type not in snapshot.edge_index:
        raise ModelError(
            f"the model propagates along {edge_type}, the graph has {list(snapshot.edge_index) or 'none'}"
        )
    return snapshot.edge_index[edge_type]


def _ends(edge_type: EdgeType, reverse: bool, snapshot: Arrays) -> tuple[IntArray, IntArray]:
    """The sending and the receiving node of each edge."""
    source, target = _edge_index(edge_type, snapshot)
    return (target, source) if reverse else (source, target)


def degree(
    given: Degree, snapshot: Arrays, dtype: type[np.float32] | type[np.float64] = np.float64
) -> DoubleArray:
    """The result of one degree step on a graph: `dtype` [nodes, 1]. The context of a propagation with the
    same settings has the same bits."""
    num_nodes = _count_nodes(given.node_type, snapshot)
    source, target = _ends(given.edge_type, given.reverse, snapshot)
    weight: DoubleArray = snapshot.weight[given.edge_type].astype(dtype)
    if given.skip_loops:
        kept = ~_are_loops(given.edge_type, source, target)
        source, target, weight = source[kept], target[kept], weight[kept]
    if given.self_loops is not None:
        source, target, weight = _add_self_loops(source, target, weight, num_nodes, given.self_loops)
    return _sum_by_target(
        (weight if given.kind == "sum" else np.ones_like(weight))[:, None], target, num_nodes
    )


def _count_nodes(name: NodeType, snapshot: Arrays) -> int:
    if name not in snapshot.x:
        raise ModelError(f"the model writes {name!r} nodes, the graph has {', '.join(snapshot.x) or 'none'}")
    return len(snapshot.x[name])


def _propagate(
    ops: Propagate,
    inputs: Inputs,
    logits: Sequence[DoubleArray | None],
    on_edges: Sequence[bool],
    snapshot: Arrays,
) -> TargetRows:
    num_nodes = _count_nodes(ops.target_type, snapshot)
    if ops.coefficients or ops.own_message or len(ops.edge_types) > 1:
        return _propagate_messages(ops, inputs, logits, on_edges, snapshot, num_nodes)
    edge_type = ops.edge_types[0]
    source, target = _ends(edge_type, ops.reverse, snapshot)
    h = inputs[0]
    weight: DoubleArray = snapshot.weight[edge_type].astype(h.dtype)
    message_of = np.arange(len(source)) if on_edges[0] else source
    if ops.skip_loops or ops.only_loops:
        kept = _carry_messages(ops, edge_type, source, target)
        source, target, weight, message_of = source[kept], target[kept], weight[kept], message_of[kept]
    if ops.self_loops is not None:
        source, target, weight = _add_self_loops(source, target, weight, num_nodes, ops.self_loops)
        message_of = source

    context: DoubleArray = np.zeros(num_nodes, h.dtype)
    if ops.neighbor_context == "count":
        np.add.at(context, target, np.ones_like(weight))
    elif ops.neighbor_context == "sum":
        np.add.at(context, target, weight)

    factor = np.ones_like(weight)
    if "source_rsqrt" in ops.message_local:
        factor = inverse_root(context)[source]
    if "weight" in ops.message_local:
        factor = factor * weight
    if ops.combine == "rsqrt":
        factor = factor * inverse_root(context)[target]
    aggregate: DoubleArray = _aggregate(ops.aggregate, h, message_of, target, factor, num_nodes)
    return divide(aggregate, context[:, None]) if ops.combine == "divide" else aggregate


def _propagate_messages(
    ops: Propagate,
    inputs: Inputs,
    logits: Sequence[DoubleArray | None],
    on_edges: Sequence[bool],
    snapshot: Arrays,
    num_nodes: int,
) -> TargetRows:
    """Sums with coefficients, own messages or several edge types, over all messages of a target together.

    A softmax (exponentials, divided by their sum) first subtracts each target's largest logit.
    """
    each = 2 if ops.coefficients else 1
    softmax = each == 2 and ops.combine == "divide" and all(given is not None for given in logits[1::2])
    taken = [logits[i] if softmax and i % 2 else inputs[i] for i in range(len(inputs))]
    inputs = [value for value in taken if value is not None]
    values, coefficients, targets = [], [], []
    for i, edge_type in enumerate(ops.edge_types):
        source, target = _ends(edge_type, ops.reverse, snapshot)
        kept = _carry_messages(ops, edge_type, source, target)
        value = inputs[each * i]
        values.append((value if on_edges[each * i] else value[source])[kept])
        targets.append(target[kept])
        if ops.coefficients:
            coefficients.append(inputs[each * i + 1][kept])
    if ops.own_message:
        values.append(inputs[each * len(ops.edge_types)])
        targets.append(np.arange(num_nodes))
        if ops.coefficients:
            coefficients.append(inputs[-1])
    value, target = np.concatenate(values), np.concatenate(targets)
    factor = np.concatenate(coefficients) if ops.coefficients else np.ones((len(value), 1), value.dtype)
    heads = factor.shape[1]
    if softmax:
        largest: DoubleArray = np.full((num_nodes, heads), -np.inf, value.dtype)
        np.maximum.at(largest, target, factor)
        factor = np.exp(factor - largest[target])
    context = _sum_by_target(factor, target, num_nodes)
    if softmax:
        factor = factor / context[target]  # before the message is multiplied, as in PyG
    elif ops.combine == "rsqrt":
        factor = factor * inverse_root(context)[target]
    each_channel = np.repeat(factor, value.shape[1] // heads, axis=1)
    aggregate = _sum_by_target(value * each_channel, target, num_nodes)
    if softmax or ops.combine != "divide":
        return aggregate
    return divide(aggregate, np.repeat(context, value.shape[1] // heads, axis=1))


def _sum_by_target(messages: DoubleArray, target: Nodes, num_nodes: int) -> DoubleArray:
    """The sum of the messages of each target, added one after the other."""
    return widely(functools.partial(_add_up, target, num_nodes), messages)


# Not inside of its caller: tests check the types of each function here, and would prepare the checks of an
# inner function in each call.
def _add_up(target: Nodes, num_nodes: int, messages: DoubleArray) -> DoubleArray:
    total: DoubleArray = np.zeros((num_nodes, messages.shape[1]), messages.dtype)
    np.add.at(total, target, messages)
    return total


def _are_loops(edge_type: EdgeType, source: Nodes, target: Nodes) -> Bool[np.ndarray, "edges"]:
    """A mask of edges from a node to itself; edges between different types are never loops."""
    loops: npt.NDArray[np.bool_] = (source == target) & (edge_type[0] == edge_type[2])
    return loops


def _carry_messages(
    ops: Propagate, edge_type: EdgeType, source: Nodes, target: Nodes
) -> Bool[np.ndarray, "edges"]:
    loops = _are_loops(edge_type, source, target)
    if not ops.only_loops:
        return ~loops if ops.skip_loops else np.full(len(source), True)
    kept = np.full(len(source), False)
    kept[_last_loops(source, target)[1]] = True
    return kept


def _last_loops(source: Nodes, target: Nodes) -> tuple[IntArray, IntArray]:
    """The nodes that have loops, and the last loop of each; parallel edges are in the order of their keys."""
    loops = np.flatnonzero(source == target)[::-1]
    named, first = np.unique(source[loops], return_index=True)
    return named, loops[first]


def _add_self_loops(
    source: Nodes, target: Nodes, weight: PerEdge, num_nodes: int, fill: float
) -> tuple[IntArray, IntArray, DoubleArray]:
    """PyG's ``add_remaining_self_loops``: nodes that have a self-loop keep it, with its weight; of parallel
    loops only the last is kept.
    """
    named, last = _last_loops(source, target)
    lacks = np.full(num_nodes, True)
    lacks[named] = False
    lacking = np.flatnonzero(lacks)
    kept = source != target
    kept[last] = True
    return (
        np.concatenate([source[kept], lacking]),
        np.concatenate([target[kept], lacking]),
        np.concatenate([weight[kept], np.full(len(lacking), fill, weight.dtype)]),
    )


def _aggregate(
    kind: str, h: SourceRows, source: Nodes, target: Nodes, factor: PerEdge, num_nodes: int
) -> TargetRows:
    """The sum, min or max of ``factor * h[source]`` by target; 0 for a target without messages.

    One channel at a time: a matrix of all messages would not fit in memory on a large graph.
    """
    result = np.zeros((num_nodes, h.shape[1]), h.dtype)
    reached = np.bincount(target, minlength=num_nodes) > 0
    for channel in range(h.shape[1]):
        messages = factor * h[source, channel]
        if kind == "sum":
            result[:, channel] = _sum_by_target(messages[:, None], target, num_nodes)[:, 0]
        else:
            extremum, none = (np.maximum, -np.inf) if kind == "max" else (np.minimum, np.inf)
            extremes = np.full(num_nodes, none, h.dtype)
            extremum.at(extremes, target, messages)
            result[reached, channel] = extremes[reached]
    return result
