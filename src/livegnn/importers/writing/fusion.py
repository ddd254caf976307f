"""Fuses several steps into one: biases, weights of norms, and degrees around a propagation.

Each pass preserves the results except for rounding. It removes only values that a single step reads.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from livegnn.errors import ModelError
from livegnn.network.propagation import Propagate
from livegnn.network.steps import Step, needed_steps
from livegnn.types import FloatArray


def fuse(steps: Sequence[Step], tensors: Mapping[str, FloatArray], kept: Collection[str]) -> list[Step]:
    """Fewer steps that write the same `kept` values, without the steps that these do not need."""
    left = needed_steps(steps, kept)
    for rule in (_scale_and_shift, _affine, _rsqrt, _divide):
        fusion = _Fusion(left, tensors, kept)
        left = needed_steps([fusion.apply(step, rule) for step in left], kept)
    return left


@dataclass
class _Fusion:
    """The state of one pass. makers: the step that writes each value now."""

    steps: Sequence[Step]
    tensors: Mapping[str, FloatArray]
    kept: Collection[str]

    def __post_init__(self) -> None:
        self.makers = {step.output: step for step in self.steps}
        self.readers: dict[str, int] = dict.fromkeys(self.kept, 1)
        for step in self.steps:
            for name in step.inputs:
                self.readers[name] = self.readers.get(name, 0) + 1

    def apply(self, step: Step, rule: "Callable[[_Fusion, Step], Step | None]") -> Step:
        fused = rule(self, step) or step
        self.makers[step.output] = fused
        return fused

    def alone(self, name: str) -> Step | None:
        """The step that writes a value, if exactly one step reads the value and it is not kept."""
        return self.makers.get(name) if self.readers.get(name, 0) == 1 and name not in self.kept else None


def _scale_and_shift(fusion: _Fusion, step: Step) -> Step | None:
    """``x * scale`` and ``+ shift`` in one step."""
    if step.op != "scale_shift" or set(step.tensors) != {"shift"}:
        return None
    before = fusion.alone(step.inputs[0])
    if before is None or before.op != "scale_shift" or set(before.tensors) != {"scale"}:
        return None
    return replace(step, inputs=before.inputs, tensors={**before.tensors, **step.tensors})


def _affine(fusion: _Fusion, step: Step) -> Step | None:
    """Joins a shift with a linear layer, as its bias, or a scale and a shift with a layer norm."""
    before = fusion.alone(step.inputs[0]) if step.op == "scale_shift" else None
    if before is None or "bias" in before.tensors:
        return None
    if before.op == "linear" and set(step.tensors) == {"shift"}:
        heads, matrix = int(before.attrs.get("heads") or 1), fusion.tensors[before.tensors["weight"]]  # type: ignore[arg-type]
        if heads > 1 and matrix.ndim == 2:
            return None
        tensors = {**before.tensors, "bias": step.tensors["shift"]}
    elif before.op == "layer_norm" and "weight" not in before.tensors and "heads" not in before.attrs:
        names = {"scale": "weight", "shift": "bias"}
        tensors = {names[role]: name for role, name in step.tensors.items()}
    else:
        return None
    return replace(before, output=step.output, tensors=tensors)


def _rsqrt(fusion: _Fusion, step: Step) -> Step | None:
    """``d_v^-1/2 * sum(d_u^-1/2 * x)`` as a message's factor and a combine (GCN)."""
    operators, before = _around(fusion, step, "rsqrt_degree")
    if operators is None or before is None or operators.skip_loops:
        return None
    inner = fusion.makers.get(before.inputs[0])
    if inner is None or inner.op != "rsqrt_degree" or inner.inputs[1] != step.inputs[1]:
        return None
    return _combined(
        step,
        inner.inputs[:1],
        operators,
        message_local=(*operators.message_local, "source_rsqrt"),
        neighbor_context=_context(fusion, step),
        combine="rsqrt",
    )


def _divide(fusion: _Fusion, step: Step) -> Step | None:
    """``sum / degree`` as a combine (the mean)."""
    operators, before = _around(fusion, step, "divide_degree")
    if operators is None or before is None:
        return None
    context = _context(fusion, step)
    return _combined(step, before.inputs, operators, neighbor_context=context, combine="divide")


def _around(fusion: _Fusion, step: Step, op: str) -> tuple[Propagate | None, Step | None]:
    """The plain propagation whose result `step` normalises by a degree of the same edges; or None, None."""
    before = fusion.alone(step.inputs[0]) if step.op == op else None
    degree = fusion.makers.get(step.inputs[1]) if before is not None else None
    if before is None or degree is None or before.op != "propagate" or degree.op != "degree":
        return None, None
    operators = Propagate.from_step(before)
    plain = (
        (operators.aggregate == "sum" or op == "rsqrt_degree")
        and operators.combine == "identity"
        and not operators.own_message
    )
    attrs = operators.to_attrs()
    same = all(degree.attrs.get(name) == attrs.get(name) for name in ("self_loops", "reverse"))
    same = same and bool(degree.attrs["skip_loops"]) == operators.skip_loops
    same = same and operators.edge_types == (degree.edge_type(),) and not attrs.get("only_loops", False)
    if not plain or not same or operators.coefficients:
        return None, None
    return operators, before


def _context(fusion: _Fusion, step: Step) -> str:
    return str(fusion.makers[step.inputs[1]].attrs["kind"])


def _combined(step: Step, inputs: Sequence[str], operators: Propagate, **settings: object) -> Step | None:
    try:
        together = replace(operators, **settings)  # type: ignore[arg-type]
    except ModelError:
        return None  # some operators cannot be combined
    return Step("propagate", tuple(inputs), step.output, {}, together.to_attrs())
