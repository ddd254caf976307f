"""From a model's steps to operations on rows, with the linear layers where rows are narrow.

A propagate step takes several operations apart: what depends on a node's in-edges but on no features (its context) becomes a
value of its own, so that normalisation is a node-wise operation and what is summed along edges is a plain row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from livegnn.errors import ModelError
from livegnn.model import Model, Step
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType, NodeType


@dataclass(frozen=True)
class Context:
    """What a node knows of its in-edges without any features. `kind` is ``"count"``, ``"sum"`` or ``"loop"``."""

    edge_type: EdgeType
    kind: str
    fill: float

    @property
    def name(self) -> str:
        return f"context:{'-'.join(self.edge_type)}:{self.kind}:{self.fill}"


@dataclass(frozen=True)
class Operation:
    """One operation on rows, or (``"sum"``, ``"max"``) along edges.

    op: a node-wise operator of the model, ``"divide_context"``, ``"rsqrt_context"``, ``"add_loop"``, ``"sum"`` or
    ``"max"``. inputs: names of values; contexts are named by `Context.name`. step: where tensors and settings come from.
    """

    op: str
    inputs: tuple[str, ...]
    output: str
    width: int
    node_type: NodeType
    step: Step | None = None
    edge_type: EdgeType | None = None
    weighted: bool = False
    factor: float = 1.0

    @property
    def along_edges(self) -> bool:
        return self.op in ("sum", "max")


def lower(model: Model) -> tuple[list[Operation], dict[str, Context]]:
    """The operations of a model in topological order, and its contexts by name.

    Raises `ModelError` for operators that cannot be kept incrementally.
    """
    operations: list[Operation] = []
    contexts: dict[str, Context] = {}
    widths = {name: given.width for name, given in model.inputs.items()}
    node_types = {name: given.node_type for name, given in model.inputs.items()}
    for step in narrow(model):
        if step.op == "propagate":
            width = widths[step.inputs[0]]
            lowered = _lower_propagate(step, Propagate.from_step(step), width, contexts)
        else:
            width = _width(model, step, [widths[name] for name in step.inputs])
            lowered = [Operation(step.op, step.inputs, step.output, width, node_types[step.inputs[0]], step)]
        operations += lowered
        for operation in lowered:
            widths[operation.output], node_types[operation.output] = operation.width, operation.node_type
    return operations, contexts


def _lower_propagate(
    step: Step, operators: Propagate, width: int, contexts: dict[str, Context]
) -> list[Operation]:
    source_type, _, target_type = operators.edge_type
    weighted = "weight" in operators.message_local
    loops = operators.self_loops

    def context(kind: str, fill: float) -> str:
        made = Context(operators.edge_type, kind, fill)
        contexts[made.name] = made
        return made.name

    def name(part: str) -> str:
        return f"{step.output}/{part}"

    if loops is not None and operators.aggregate != "sum":
        raise ModelError(
            f"step 'propagate' that writes {step.output!r}: self_loops are kept incrementally for aggregate 'sum' "
            f"alone, got {operators.aggregate!r}: add the loops to the graph instead"
        )
    around = context(operators.neighbor_context, loops or 0.0) if operators.neighbor_context != "none" else ""
    lowered: list[Operation] = []
    current = step.inputs[0]

    def add(op: str, inputs: tuple[str, ...], part: str, node_type: NodeType, factor: float = 1.0) -> str:
        lowered.append(Operation(op, inputs, name(part), width, node_type, factor=factor))
        return name(part)

    if "source_rsqrt" in operators.message_local:
        current = add("rsqrt_context", (current, around), "message", source_type)
    if operators.aggregate == "min":  # min(x) = -max(-x), and a sign is exact
        current = add("scale", (current,), "negated", source_type, -1.0)
    lowered.append(
        Operation(
            "sum" if operators.aggregate == "sum" else "max",
            (current,),
            name("aggregate"),
            width,
            target_type,
            edge_type=operators.edge_type,
            weighted=weighted,
        )
    )
    result = name("aggregate")
    if operators.aggregate == "min":
        result = add("scale", (result,), "minimum", target_type, -1.0)
    if loops is not None:
        loop = context("loop", loops if weighted else 1.0)
        result = add("add_loop", (result, loop, current), "looped", target_type)
    if operators.combine != "identity":
        op = "divide_context" if operators.combine == "divide" else "rsqrt_context"
        result = add(op, (result, around), "combined", target_type)
    lowered[-1] = replace(lowered[-1], output=step.output)
    return lowered


def narrow(model: Model) -> Sequence[Step]:
    """The steps with every linear layer on the side of its propagation where rows are narrower.

    A sum over in-edges, however scaled, commutes with a linear layer (its bias does not). Each edge that a batch reaches
    costs one row of what is propagated, so the narrower one is the faster one.
    """
    steps = list(model.steps)
    widths = {name: model.width(name) for name in [*model.inputs, *(step.output for step in steps)]}
    kept = {model.output, *model.layers}
    for i, second in enumerate(steps):
        readers: dict[str, int] = {}
        for step in steps:
            for name in step.inputs:
                readers[name] = readers.get(name, 0) + 1
        j = next((j for j in range(i) if steps[j].output == second.inputs[0]), None)
        if j is None or readers[second.inputs[0]] > 1 or second.inputs[0] in kept:
            continue
        first = steps[j]
        before, after = widths[first.inputs[0]], widths[second.output]
        if second.op == "linear" and _is_sum(first) and after < before:
            # linear(propagate(h)) = propagate(linear(h)) + bias
            inner = f"{second.output}/projected"
            widths[inner] = after
            weight = {"weight": second.tensors["weight"]}
            bias = second.tensors.get("bias")
            summed = second.output if bias is None else f"{second.output}/unbiased"
            widths[summed] = after
            steps[j] = Step("linear", first.inputs, inner, weight)
            steps[i] = Step("propagate", (inner,), summed, first.tensors, first.attrs)
            if bias is not None:
                steps.insert(i + 1, Step("scale_shift", (summed,), second.output, {"shift": bias}))
                return narrow(replace(model, steps=tuple(steps)))
        elif first.op == "linear" and "bias" not in first.tensors and _is_sum(second) and before < after:
            inner = f"{second.output}/gathered"
            widths[inner] = before
            steps[j] = Step("propagate", first.inputs, inner, second.tensors, second.attrs)
            steps[i] = Step("linear", (inner,), second.output, first.tensors)
    return steps


def _is_sum(step: Step) -> bool:
    return step.op == "propagate" and step.attrs["aggregate"] == "sum"


def _width(model: Model, step: Step, widths: Sequence[int]) -> int:
    if step.op == "linear":
        return int(model.tensors[step.tensors["weight"]].shape[0])
    return sum(widths) if step.op == "concat" else widths[0]


def by_output(operations: Sequence[Operation]) -> Mapping[str, Operation]:
    return {operation.output: operation for operation in operations}
