"""From a model's steps to operations on rows, with every linear layer on the cheaper side of its propagation.

A propagate step takes several operations apart: what depends on a node's in-edges but on no features (its
context) becomes a value of its own, so that normalisation is a node-wise operation and what is summed along
edges is a plain row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from livegnn.errors import ModelError
from livegnn.model import Model, Step
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType, NodeType


@dataclass(frozen=True)
class Context:
    """What a node knows of its in-edges without any features: ``"count"``, ``"sum"`` or ``"loop"``."""

    edge_type: EdgeType
    kind: str
    fill: float

    @property
    def name(self) -> str:
        return f"context:{self.edge_type}:{self.kind}:{self.fill}"


@dataclass(frozen=True)
class Operation:
    """One operation on rows, or (``"sum"``, ``"max"``) along edges.

    op: a node-wise operator of the model, ``"divide_context"``, ``"rsqrt_context"``, ``"add_loop"``,
    ``"sum"`` or ``"max"``. inputs: names of values; contexts are named by `Context.name`. step: where tensors
    and settings come from.
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
    for step in reorder(model):
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
            f"step 'propagate' that writes {step.output!r}: self_loops are kept incrementally for "
            f"aggregate 'sum' alone, got {operators.aggregate!r}: add the loops to the graph instead"
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


def reorder(model: Model) -> Sequence[Step]:
    """The steps with every linear layer on the side of its propagation where a batch costs less.

    A sum over in-edges, however scaled, commutes with a linear layer (its bias does not).
    """
    steps = [*_used(model)]
    widths = {name: model.width(name) for name in [*model.inputs, *(step.output for step in steps)]}
    kept = {model.output, *model.layers}
    i = 0
    while i < len(steps):
        second = steps[i]
        j = next((j for j in range(i) if steps[j].output == second.inputs[0]), None)
        readers = sum(step.inputs.count(second.inputs[0]) for step in steps)
        i += 1
        if j is None or readers > 1 or second.inputs[0] in kept:
            continue
        first = steps[j]
        inner, outer = widths[first.inputs[0]], widths[second.output]
        if second.op == "linear" and _is_sum(first) and projects_first(inner, outer):
            # linear(propagate(h)) = propagate(linear(h)) + bias
            projected, bias = f"{second.output}/projected", second.tensors.get("bias")
            summed = second.output if bias is None else f"{second.output}/unbiased"
            widths |= {projected: outer, summed: outer}
            steps[j] = Step("linear", first.inputs, projected, {"weight": second.tensors["weight"]})
            steps[i - 1] = Step("propagate", (projected,), summed, first.tensors, first.attrs)
            if bias is not None:
                steps.insert(i, Step("scale_shift", (summed,), second.output, {"shift": bias}))
                i += 1
        elif (
            first.op == "linear"
            and "bias" not in first.tensors
            and _is_sum(second)
            and not projects_first(inner, outer)
        ):
            gathered = f"{second.output}/gathered"
            widths[gathered] = inner
            steps[j] = Step("propagate", first.inputs, gathered, second.tensors, second.attrs)
            steps[i - 1] = Step("linear", (gathered,), second.output, first.tensors)
    return _move_biases(steps, kept)


def _move_biases(steps: list[Step], kept: set[str]) -> list[Step]:
    """A bias that stayed behind a propagation and meets a linear layer in a sum becomes that layer's own.

    ``(a + b) + linear(x)`` is ``a + linear(x, bias=b)``, and the latter is not computed for every node
    reached.
    """
    steps = list(steps)
    makers = {step.output: i for i, step in enumerate(steps)}
    readers: dict[str, int] = {}
    for step in steps:
        for name in step.inputs:
            readers[name] = readers.get(name, 0) + 1
    for i, step in enumerate(steps):
        if step.op != "add" or step.inputs[0] == step.inputs[1]:
            continue
        for shifted, other in (step.inputs, step.inputs[::-1]):
            shift, linear = makers.get(shifted), makers.get(other)
            if shift is None or linear is None or {shifted, other} & kept:
                continue
            if (
                steps[shift].op == "scale_shift"
                and "scale" not in steps[shift].tensors
                and steps[linear].op == "linear"
                and "bias" not in steps[linear].tensors
                and readers[shifted] == readers[other] == 1
            ):
                bias = steps[shift].tensors["shift"]
                steps[linear] = replace(steps[linear], tensors={**steps[linear].tensors, "bias": bias})
                steps[i] = replace(step, inputs=(steps[shift].inputs[0], other))
                steps[shift] = replace(steps[shift], op="moved")
                break
    return [step for step in steps if step.op != "moved"]


# As measured on one core: a product, and the addition of a row that lies anywhere in memory.
_NANOSECONDS_PER_FLOP = 0.01
_NANOSECONDS_PER_FLOAT = 0.28


def projects_first(inner: int, outer: int) -> bool:
    """Whether a row of `inner` channels should be made `outer` wide before it is propagated rather than
    after.

    Before, the product is taken for each source that changed, and each edge that a batch reaches adds a row
    of `outer` channels; after, it is taken for each target that is reached, which is nearly one an edge, and
    the rows added are `inner` wide. Sources are few beside targets, so they are left out of the sum.
    """
    after = 2 * inner * outer * _NANOSECONDS_PER_FLOP + inner * _NANOSECONDS_PER_FLOAT
    return outer * _NANOSECONDS_PER_FLOAT <= after


def _used(model: Model) -> list[Step]:
    """The steps that the output or a layer needs."""
    needed = {model.output, *model.layers}
    used = []
    for step in reversed(model.steps):
        if step.output in needed:
            needed.update(step.inputs)
            used.append(step)
    return used[::-1]


def _is_sum(step: Step) -> bool:
    return step.op == "propagate" and step.attrs["aggregate"] == "sum"


def _width(model: Model, step: Step, widths: Sequence[int]) -> int:
    if step.op == "linear":
        return int(model.tensors[step.tensors["weight"]].shape[0])
    return sum(widths) if step.op == "concat" else widths[0]


def by_output(operations: Sequence[Operation]) -> Mapping[str, Operation]:
    return {operation.output: operation for operation in operations}
