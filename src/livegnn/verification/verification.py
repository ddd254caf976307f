"""Checks whether incremental computation of a model equals computation from scratch.

`verify` checks the conditions of theorem 1 (`livegnn.verification.conditions`) for every propagate step, and
tests what a solver cannot prove: that functions of the user do not mix rows, and that a convolution's
operators compute its original formulation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.model import Model
from livegnn.network.own_convolution import Convolution
from livegnn.network.propagation import Degree, Propagate
from livegnn.types import Array
from livegnn.verification.claims import has_solver
from livegnn.verification.conditions import (
    Condition,
    OfContext,
    Operators,
    as_condition,
    check,
    check_degree,
    read_algebra,
)
from livegnn.verification.trials import compare_with_reference, try_rows
from livegnn.wording import kind_of

REFERENCE = "the operators equal the reference"


@dataclass(frozen=True)
class VerificationReport:
    """The result of `verify`. constrained: steps whose messages read their target; they are computed again
    from all neighbours when the target's own row changes (section IV.C). This is not an error.
    """

    conditions: tuple[Condition, ...]
    constrained: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every condition holds, by proof or by test."""
        return not self.failures

    @property
    def failures(self) -> tuple[Condition, ...]:
        """The conditions that are refuted, or could not be checked."""
        return tuple(one for one in self.conditions if one.status in ("refuted", "unknown"))

    def raise_for_failure(self) -> None:
        """Raises `ModelError` with the conditions that failed and their counterexamples."""
        if not self.ok:
            raise ModelError(
                "the model cannot be kept exact incrementally:\n"
                + "\n".join(f"  {_name(one)} of {one.step!r}: {_outcome(one)}" for one in self.failures)
            )

    def __str__(self) -> str:
        lines = []
        for step in dict.fromkeys(one.step for one in self.conditions):
            lines.append(step + (" (reads its target)" if step in self.constrained else ""))
            lines += [f"  {_name(one):<42} {_outcome(one)}" for one in self.conditions if one.step == step]
        seconds = sum(one.seconds for one in self.conditions)
        lines.append(f"{'ok' if self.ok else 'not ok'}: {len(self.conditions)} conditions, {seconds:.2f} s")
        if not has_solver():
            lines.append("nothing is proved without z3-solver: pip install 'livegnn[verify]'")
        return "\n".join(lines)


def verify(
    subject: Model | Convolution, *, in_channels: int | None = None, edge_dim: int = 0, seed: int = 0
) -> VerificationReport:
    """Checks the conditions of theorem 1 for every propagate step of a model, or for a convolution; for a
    degree step, the condition of contexts.

    in_channels, edge_dim: channels of a convolution's node rows and edge features; a model has its own. seed:
    of the random numbers for tests.

    The operators of `Propagate` are proved with Z3 (``pip install 'livegnn[verify]'``; without it, tested).
    A convolution's functions are proved for two channels if they can be computed with symbols, and tested
    with their own width. Raises `ModelError` if a convolution's functions do not fit together, or if
    `subject` is neither a model nor a convolution.
    """
    if not isinstance(subject, Model | Convolution):
        raise ModelError(
            f"verify takes a livegnn.model.Model or Convolution, got {kind_of(subject)}: import a module "
            "with Model.from_pyg, and hold an engine's predictions against the oracle with engine.verify()"
        )
    if isinstance(subject, Convolution):
        if in_channels is None:
            raise ModelError(f"{subject.name}: give in_channels, the channels of the rows that it reads")
        return _verify_convolution(subject, in_channels, edge_dim, seed)
    return _verify_model(subject, seed)


def _verify_model(model: Model, seed: int) -> VerificationReport:
    conditions: list[Condition] = []
    known: dict[tuple[object, ...], list[Condition]] = {}
    exponentials = {step.output for step in model.steps if step.op == "exp"}
    constrained = _reads_target(model)
    for step in model.steps:
        if step.op == "propagate":
            given = Propagate.from_step(step)
            softmax = given.coefficients and exponentials.issuperset(step.inputs[1::2])
            softmax = softmax and given.neighbor_context == "sum"
            key = (given.neighbor_context, given.combine, given.aggregate, softmax)
            if key in known:  # checked before, for the same operators
                conditions += [replace(one, step=step.output, seconds=0.0) for one in known[key]]
            else:
                known[key] = check(step.output, read_algebra(given, softmax), seed)
                conditions += known[key]
        elif step.op == "degree":
            conditions += check_degree(step.output, Degree.from_step(step).kind, seed)
        elif step.op == "call":
            function = model.functions[step.text("function")]
            widths = {f"input {i + 1}": model.width(name) for i, name in enumerate(step.inputs)}

            def call(arrays: Mapping[str, Array], function: Callable[..., Array] = function) -> Array:
                return function(*arrays.values())

            weights = [
                f"input {i + 1}"
                for i, name in enumerate(step.inputs)
                if name in model.edge_inputs and model.edge_inputs[name].column == "weight"
            ]
            answer = try_rows(call, widths, int(step.number("width")), seed, weights)
            conditions.append(as_condition(step.output, None, "the function is row-wise", answer))
    return VerificationReport(tuple(conditions), constrained)


def _reads_target(model: Model) -> tuple[str, ...]:
    """The propagate steps whose messages depend on rows of the receiving nodes."""
    # End of the edges -> the values on edges that depend on its rows.
    tainted: dict[str, set[str]] = {"source": set(), "target": set()}
    steps = []
    for step in model.steps:
        if step.op == "propagate":
            given = Propagate.from_step(step)
            edges = len(given.edge_types) * (2 if given.coefficients else 1)
            if tainted["source" if given.reverse else "target"].intersection(step.inputs[:edges]):
                steps.append(step.output)
            continue
        for end, names in tainted.items():
            if step.op == end or names.intersection(step.inputs):
                names.add(step.output)
    return tuple(steps)


def _verify_convolution(
    convolution: Convolution, in_channels: int, edge_dim: int, seed: int
) -> VerificationReport:
    name = convolution.name
    widths = convolution.widths(in_channels, edge_dim)
    undo = _identity if convolution.combine is None else convolution.combine_inverse
    operators = Operators(
        convolution.context_name() or convolution.neighbor_context,
        convolution.aggregate_name() or convolution.aggregate,
        _as_operator(convolution.combine or _identity),
        None if undo is None else _as_operator(undo),
        widths.message,
        widths.local if convolution.context_name() == "sum" else 1,
        given_context=convolution.neighbor_context,
        given_aggregate=convolution.aggregate,
    )
    arrays = {"source": in_channels, "target": in_channels, "weight": 1, "edge_attr": edge_dim}
    rows: list[tuple[str, Callable[[Mapping[str, Array]], Array], Mapping[str, int], int]] = []
    reads: Mapping[str, int]
    if convolution.message_local is not None:
        reads = {array: arrays[array] for array in convolution.message_reads}
        rows.append(("message_local", convolution.message, reads, widths.local))
    if callable(convolution.transform):
        transform = convolution.transform
        rows.append(("transform", lambda given: transform(given["h"]), {"h": in_channels}, widths.message))
    combined = widths.message
    if convolution.combine is not None:
        combine = convolution.combine
        both = {"context": widths.message, "aggregate": widths.message}
        ones = np.ones((1, widths.message), np.float32)
        combined = combine(ones, ones).shape[1]
        rows.append(("combine", lambda given: combine(given["context"], given["aggregate"]), both, combined))
    if convolution.update is not None:
        update = convolution.update
        reads = {"h": in_channels, "a": combined}
        rows.append(("update", lambda given: update(given["h"], given["a"]), reads, widths.output))
    conditions = [
        as_condition(
            name, None, f"{what} is row-wise", try_rows(function, reads, width, seed, ("weight", "context"))
        )
        for what, function, reads, width in rows
    ]
    conditions = check(name, operators, seed) + conditions
    if convolution.reference is not None:
        answer = compare_with_reference(convolution, in_channels, edge_dim, seed)
        conditions.append(as_condition(name, None, REFERENCE, answer))
    constrained = (name,) if "target" in convolution.message_reads else ()
    return VerificationReport(tuple(conditions), constrained)


def _identity(z: Array, m: Array) -> Array:
    return m


def _as_operator(function: Callable[..., Array]) -> OfContext:
    return lambda z, m: np.asarray(function(z, m))


def _name(one: Condition) -> str:
    return f"{'  ' if one.number is None else f'{one.number} '}{one.condition}"


def _outcome(one: Condition) -> str:
    return one.status + (f": {one.counterexample}" if one.counterexample else "")
