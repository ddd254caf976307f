"""Lowers a model's steps to operations on rows, with every linear layer on the cheaper side of its
propagation.

A propagate step is split into several operations: its context, which depends on a node's in-edges but not on
features, becomes a value of its own, so that normalisation is a node-wise operation and plain rows are summed
along edges. If a message is more than its source's row, the row-wise steps on edges that compute it become
its program (`livegnn.compiler.messages`), and sums are divided by sums of coefficients afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from livegnn.compiler.layout import is_whole
from livegnn.compiler.messages import Operation, gather_late, read_messages
from livegnn.errors import ModelError
from livegnn.network import Model, Step
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import check_step, needed_steps
from livegnn.types import EdgeType, NodeType


@dataclass(frozen=True)
class Context:
    """A property of a node's in-edges that needs no features: ``"count"``, ``"sum"`` or ``"loop"``; in
    reverse, of its out-edges.

    fill: with self-loops, the value that counts for a node without a loop; None: loops are ordinary edges.
    skip_loops: loops do not count. A ``"loop"`` corrects a sum over all in-edges for parallel and missing
    loops, and `weighted` says whether that is a sum of weights; with skip_loops it corrects nothing and only
    says which nodes have no loop.
    """

    edge_type: EdgeType
    kind: str
    fill: float | None
    skip_loops: bool = False
    weighted: bool = True
    reverse: bool = False

    @staticmethod
    def of_edges(given: Degree) -> "Context":
        """The context of a degree; in a count, an added loop counts 1, at any weight."""
        fill = 1.0 if given.kind == "count" and given.self_loops is not None else given.self_loops
        return Context(given.edge_type, given.kind, fill, given.skip_loops, reverse=given.reverse)

    @property
    def node_type(self) -> NodeType:
        return self.edge_type[0 if self.reverse else 2]

    @property
    def name(self) -> str:
        loops = ":others" if self.skip_loops else ""
        alike = "" if self.weighted else ":alike"
        reverse = ":reverse" if self.reverse else ""
        return f"context:{self.edge_type}:{self.kind}:{self.fill}{loops}{alike}{reverse}"


def lower(model: Model, *, sampled: bool = False) -> tuple[list[Operation], dict[str, Context]]:
    """The operations of a model in topological order, and its contexts by name.

    sampled: they will run on samples, not on the changes of a batch.
    Raises `ModelError` for operators that cannot be kept incrementally.
    """
    operations: list[Operation] = []
    contexts: dict[str, Context] = {}
    widths = {name: given.width for name, given in model.inputs.items()}
    node_types = {name: given.node_type for name, given in model.inputs.items()}
    edge_steps: dict[str, Step] = {}
    widths |= {name: given.width for name, given in model.edge_inputs.items()}
    degrees: dict[str, str] = {}  # the output of each degree step -> the context that holds it
    kept = set(model.shown)
    steps = gather_late(model, reorder(model, sampled=sampled))
    scaled = _find_scaled(model, steps, kept)
    for step in steps:
        step = replace(step, inputs=tuple(degrees.get(name, name) for name in step.inputs))
        if step.op == "degree":
            lowered = _lower_degree(step, contexts, degrees, step.output in kept)
        elif step.op == "propagate":
            width = widths[step.inputs[0]]
            operators = Propagate.from_step(step)
            if _is_plain(operators, step, node_types):
                lowered = _lower_propagate(step, operators, width, contexts, step.inputs[0] in scaled)
            else:
                lowered = _lower_messages(model, step, operators, edge_steps, widths, contexts)
        elif step.op in ("source", "target") or step.inputs[0] not in node_types:
            edge_steps[step.output] = step
            widths[step.output] = _width(model, step, [widths[name] for name in step.inputs])
            continue
        else:
            width = _width(model, step, [widths[name] for name in step.inputs])
            factor = _SCALED_DOWN if step.output in scaled else 1.0
            node_type = node_types[step.inputs[0]]
            op, its_step = BY_DEGREE.get(step.op, step.op), None if step.op in BY_DEGREE else step
            lowered = [Operation(op, step.inputs, step.output, width, node_type, its_step, factor=factor)]
        operations += lowered
        for operation in lowered:
            widths[operation.output], node_types[operation.output] = operation.width, operation.node_type
        for name in degrees.values():
            widths[name], node_types[name] = 1, contexts[name].node_type
    return operations, contexts


def _lower_degree(
    step: Step, contexts: dict[str, Context], degrees: dict[str, str], shown: bool
) -> list[Operation]:
    """Lowers a degree to a context, which other steps read instead of the step's value. shown: callers can
    read it too, so it is also copied to a value: a context counts as changed even if only its rounding did.
    """
    given = Degree.from_step(step)
    context = Context.of_edges(given)
    contexts[context.name] = context
    degrees[step.output] = context.name
    return [Operation("scale", (context.name,), step.output, 1, given.node_type)] if shown else []


def _is_plain(operators: Propagate, step: Step, node_types: Mapping[str, NodeType]) -> bool:
    """Whether a message is its source's row, optionally times a number of the edge or the source."""
    all_edges = not operators.skip_loops and not operators.only_loops
    return len(step.inputs) == 1 and step.inputs[0] in node_types and all_edges


def _lower_messages(
    model: Model,
    step: Step,
    operators: Propagate,
    edge_steps: Mapping[str, Step],
    widths: Mapping[str, int],
    contexts: dict[str, Context],
) -> list[Operation]:
    """A sum or extremum of messages for each edge type, then the operations that join and combine them."""
    lowered: list[Operation] = []
    target, width = operators.target_type, widths[step.inputs[0]]
    each = 2 if operators.coefficients else 1
    softmax = operators.combine == "divide" and operators.coefficients
    heads = widths[step.inputs[1]] if operators.coefficients else 1
    own = step.inputs[each * len(operators.edge_types) :]
    logits = {s.output: s.inputs[0] for s in model.steps if s.op == "exp"}
    softmax = softmax and all(name in logits for name in step.inputs[1::2])

    def add(op: str, inputs: tuple[str, ...], part: str, **settings: object) -> str:
        name = f"{step.output}/{part}"
        lowered.append(replace(Operation(op, inputs, name, width, target), **settings))  # type: ignore[arg-type]
        return name

    aggregates: list[str] = []
    for i, edge_type in enumerate(operators.edge_types):
        value, *coefficients = step.inputs[each * i : each * (i + 1)]
        if softmax:
            coefficients = [logits[name] for name in coefficients]
        messages = read_messages(
            edge_steps,
            model.edge_inputs,
            widths,
            value,
            coefficients[0] if coefficients else None,
            softmax=softmax,
            skip_loops=operators.skip_loops and edge_type[0] == edge_type[2],
            only_loops=operators.only_loops,
            reverse=operators.reverse,
            negated=operators.aggregate == "min",
        )
        aggregate = add(
            "messages",
            messages.node_values,
            f"aggregate{i}",
            edge_type=edge_type,
            reverse=operators.reverse,
            weighted="weight" in operators.message_local,
            messages=replace(messages, maximum=operators.aggregate != "sum"),
        )
        aggregates.append(aggregate)
        if operators.coefficients and operators.neighbor_context == "sum":
            around = add(
                "message_context",
                messages.node_values,
                f"context{i}",
                width=2 * heads if softmax else heads,
                edge_type=edge_type,
                reverse=operators.reverse,
            )
            lowered[-2] = replace(lowered[-2], context=around)
            aggregates.append(around)
    if operators.coefficients and operators.combine == "divide":
        if softmax and own:
            own = (own[0], logits[own[1]])
        add(
            "combine",
            (*aggregates, *own),
            "combined",
            heads=heads,
            parts=len(operators.edge_types),
            softmax=softmax,
        )
    else:
        result = aggregates[0]
        if operators.aggregate == "min":
            result = add("scale", (result,), "minimum", factor=-1.0)
        for i, other in enumerate(aggregates[1:]):
            result = add("add", (result, other), f"sum{i}")
        if own:
            mine = add("scale_heads", own, "own") if operators.coefficients else own[0]
            result = add("add", (result, mine), "with_own")
        if operators.combine != "identity":
            if own or len(operators.edge_types) > 1:
                raise ModelError(
                    f"step 'propagate' that writes {step.output!r}: a count over several edge types, or with "
                    "an own message, is not kept incrementally: give coefficients of 1 instead"
                )
            context = Context.of_edges(_context_of(operators))
            contexts[context.name] = context
            op = "divide_context" if operators.combine == "divide" else "rsqrt_context"
            add(op, (result, context.name), "combined")
    lowered[-1] = replace(lowered[-1], output=step.output)
    return lowered


def _lower_propagate(
    step: Step, operators: Propagate, width: int, contexts: dict[str, Context], scaled: bool
) -> list[Operation]:
    """The operations of a plain propagation. scaled: the rows that it sums are scaled down."""
    edge_type, reverse = operators.edge_types[0], operators.reverse
    source_type, target_type = operators.source_type(edge_type), operators.target_type
    weighted = "weight" in operators.message_local
    loops = operators.self_loops

    def keep(made: Context) -> str:
        contexts[made.name] = made
        return made.name

    def loop(fill: float, *, presence: bool = False) -> str:
        return keep(Context(edge_type, "loop", fill, presence, weighted, reverse))

    def name(part: str) -> str:
        return f"{step.output}/{part}"

    around = ""
    if operators.neighbor_context != "none":
        around = keep(Context.of_edges(_context_of(operators)))
    lowered: list[Operation] = []
    current = step.inputs[0]

    def add(op: str, inputs: tuple[str, ...], part: str, node_type: NodeType, factor: float = 1.0) -> str:
        lowered.append(Operation(op, inputs, name(part), width, node_type, factor=factor))
        return name(part)

    if "source_rsqrt" in operators.message_local:
        factor = 1.0 if scaled or operators.combine == "identity" else _SCALED_DOWN
        scaled = operators.combine != "identity"
        current = add("rsqrt_context", (current, around), "message", source_type, factor)
    if operators.aggregate == "min":  # min(x) = -max(-x), and negation is exact
        current = add("scale", (current,), "negated", source_type, -1.0)
    lowered.append(
        Operation(
            "sum" if operators.aggregate == "sum" else "max",
            (current,),
            name("aggregate"),
            width,
            target_type,
            edge_type=edge_type,
            reverse=reverse,
            weighted=weighted,
            self_loops=loops is not None and operators.aggregate == "sum",
            averaged=operators.combine == "divide" and operators.neighbor_context == "count",
        )
    )
    result = name("aggregate")
    if loops is not None:
        fill = loops if weighted else 1.0
        if operators.aggregate == "sum":
            result = add("add_loop", (result, loop(fill), current), "looped", target_type)
        else:
            # One context marks nodes without a loop, since a fill may be 0. The count marks nodes without
            # in-edges: their aggregate is 0, which must not exceed a negative message of the loop.
            everyone = Context.of_edges(Degree(edge_type, reverse=reverse))
            around_loop = (loop(1.0, presence=True), keep(everyone))
            result = add("maximum_loop", (result, *around_loop, current), "looped", target_type, fill)
    if operators.aggregate == "min":
        result = add("scale", (result,), "minimum", target_type, -1.0)
    if operators.combine != "identity":
        op = "divide_context" if operators.combine == "divide" else "rsqrt_context"
        result = add(op, (result, around), "combined", target_type, 1 / _SCALED_DOWN if scaled else 1.0)
    lowered[-1] = replace(lowered[-1], output=step.output)
    return lowered


def _context_of(operators: Propagate) -> Degree:
    """The degree with which the aggregate of one edge type is combined."""
    return Degree(
        operators.edge_types[0],
        "sum" if operators.neighbor_context == "sum" else "count",
        operators.self_loops,
        operators.skip_loops,
        operators.reverse,
    )


BY_DEGREE = {"divide_degree": "divide_context", "rsqrt_degree": "rsqrt_context"}
"""Operators of models that divide by a degree -> operators of the engine that divide by a context."""

_SCALED_DOWN = 2.0**-12
"""The factor of rows before they are summed, if the sums are divided afterwards; the division scales back.

Such a sum may overflow float32 though its quotient does not. The same holds for a row that the engine
multiplies with a matrix before the mean, where PyG does so after it. A power of two causes no rounding and
costs no extra multiplication: it is part of a matrix or a factor before the sum, and of the divisor after it.
"""


def _find_scaled(model: Model, steps: Sequence[Step], kept: set[str]) -> frozenset[str]:
    """Outputs of linear layers without a bias that only one propagation reads, which divides their sum."""
    readers: dict[str, list[Step]] = {}
    for step in steps:
        for name in step.inputs:
            readers.setdefault(name, []).append(step)
    found = set()
    for step in steps:
        if not _is_linear(model, step) or "bias" in step.tensors or step.output in kept:
            continue
        around = readers.get(step.output, [])
        if len(around) != 1 or around[0].op != "propagate":
            continue
        operators = Propagate.from_step(around[0])
        plain = len(around[0].inputs) == 1 and not operators.skip_loops and not operators.only_loops
        if plain and _is_sum(around[0]) and operators.combine != "identity":
            found.add(step.output)
    return frozenset(found)


def reorder(model: Model, *, sampled: bool = False) -> Sequence[Step]:
    """The steps, with every linear layer on the side of its propagation where a batch, or a sample, costs
    less.

    A sum over in-edges, with any scaling, commutes with a linear layer, except for the layer's bias.
    """
    steps = needed_steps(model.steps, model.shown)
    widths = {
        name: model.width(name)
        for name in [*model.inputs, *model.edge_inputs, *(step.output for step in steps)]
    }
    kept = set(model.shown)
    on_edges = {name for name in widths if model.edge_type(name) is not None}
    i = 0
    while i < len(steps):
        second = steps[i]
        if not second.inputs:
            i += 1
            continue
        j = next((j for j in range(i) if steps[j].output == second.inputs[0]), None)
        readers = sum(step.inputs.count(second.inputs[0]) for step in steps)
        i += 1
        if j is None or readers > 1 or second.inputs[0] in kept:
            continue
        first = steps[j]
        if on_edges.intersection(first.inputs) or not {len(first.inputs), len(second.inputs)} <= {1}:
            continue
        inner, outer = widths[first.inputs[0]], widths[second.output]
        projects = projects_sources(inner, outer) if sampled else projects_first(inner, outer)
        if _is_linear(model, second) and _is_sum(first) and projects:
            # linear(propagate(h)) = propagate(linear(h)) + bias
            projected, bias = f"{second.output}/projected", second.tensors.get("bias")
            summed = second.output if bias is None else f"{second.output}/unbiased"
            widths |= {projected: outer, summed: outer}
            steps[j] = Step("linear", first.inputs, projected, {"weight": second.tensors["weight"]})
            steps[i - 1] = Step("propagate", (projected,), summed, first.tensors, first.attrs)
            if bias is not None:
                steps.insert(i, Step("scale_shift", (summed,), second.output, {"shift": bias}))
                i += 1
        elif _is_linear(model, first) and "bias" not in first.tensors and _is_sum(second) and not projects:
            gathered = f"{second.output}/gathered"
            widths[gathered] = inner
            steps[j] = Step("propagate", first.inputs, gathered, second.tensors, second.attrs)
            steps[i - 1] = Step("linear", (gathered,), second.output, first.tensors)
    return _move_biases(model, steps, kept)


def _move_biases(model: Model, steps: list[Step], kept: set[str]) -> list[Step]:
    """Moves a bias that follows a propagation into a linear layer to which its result is added.

    ``(a + b) + linear(x)`` is ``a + linear(x, bias=b)``, which is cheaper: linear(x) is not computed for each
    node that a batch reaches.
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
                and _is_linear(model, steps[linear])
                and "bias" not in steps[linear].tensors
                and readers[shifted] == readers[other] == 1
            ):
                bias = steps[shift].tensors["shift"]
                steps[linear] = replace(steps[linear], tensors={**steps[linear].tensors, "bias": bias})
                steps[i] = replace(step, inputs=(steps[shift].inputs[0], other))
                steps[shift] = replace(steps[shift], op="moved")
                break
    return [step for step in steps if step.op != "moved"]


# Measured on one core: a matrix product, and the addition of a row at a random place in memory.
_NANOSECONDS_PER_FLOP = 0.01
_NANOSECONDS_PER_FLOAT = 0.28


def projects_first(inner: int, outer: int) -> bool:
    """Whether a row of `inner` channels should be multiplied to `outer` channels before the propagation
    rather than after it.

    Before, there is one product for each changed source, and each edge that a batch reaches adds a row of
    `outer` channels. After, there is one product for each reached target, nearly one for each edge, and the
    added rows have `inner` channels. Sources are few compared to targets, so their cost is neglected.
    """
    after = 2 * inner * outer * _NANOSECONDS_PER_FLOP + inner * _NANOSECONDS_PER_FLOAT
    return outer * _NANOSECONDS_PER_FLOAT <= after


# The same where the rows of a sample lie in the cache, and how many sources a target has.
_NANOSECONDS_PER_CACHED_FLOAT = 0.05
_SAMPLED_NEIGHBORS = 10


def projects_sources(inner: int, outer: int) -> bool:
    """The answer of `projects_first` for a pass over a sample, where every source is computed.

    Before the propagation there is a product for each source, after it one for each target.
    """
    product = 2 * inner * outer * _NANOSECONDS_PER_FLOP
    sources = _SAMPLED_NEIGHBORS
    before = sources * (product + outer * _NANOSECONDS_PER_CACHED_FLOAT)
    return before <= product + sources * inner * _NANOSECONDS_PER_CACHED_FLOAT


def _is_linear(model: Model, step: Step) -> bool:
    """Whether a step is a linear layer that can be moved and can share a product with others."""
    return step.op == "linear" and is_whole(model, step)


def _is_sum(step: Step) -> bool:
    return step.op == "propagate" and step.attrs["aggregate"] == "sum"


def _width(model: Model, step: Step, widths: Sequence[int]) -> int:
    shapes = {role: model.tensors[name].shape for role, name in step.tensors.items()}
    return check_step(step, widths, shapes)
