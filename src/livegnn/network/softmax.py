"""Moves the exponentials of a softmax over in-edges from rows of nodes to rows of edges.

A softmax divides exponentials by their sum. To compute it, the engine subtracts a reference logit of each
target from the exponent, since `exp` of a logit of 100 is infinite in float32; it therefore needs the logits
on the edges. A coefficient that depends on only one end of its edge is often written as the exponential of
rows of nodes, gathered to the edges. This module gathers the rows first, and takes the exponential after
that.
"""

from collections.abc import Sequence
from dataclasses import replace

from livegnn.network.propagation import Propagate
from livegnn.network.steps import Step


def exponentiate_on_edges(steps: Sequence[Step], kept: Sequence[str]) -> tuple[Step, ...]:
    """The steps, with the exponentials of every softmax on the edges. They compute the same values.

    kept: values whose steps must stay even if no step reads them. Other steps without readers are removed.
    """
    makers = {step.output: step for step in steps}
    gathered: dict[str, tuple[Step, ...]] = {}
    for step in steps:
        for name in _divided_coefficients(step):
            gather = makers.get(name)
            if gather is None or gather.op not in ("source", "target"):
                continue
            exponential = makers.get(gather.inputs[0])
            if exponential is None or exponential.op != "exp":
                continue
            free = f"{name}/logits"
            while free in makers:
                free += "'"
            logits = replace(gather, inputs=exponential.inputs, output=free)
            gathered[name] = logits, replace(exponential, inputs=(logits.output,), output=name)
    if not gathered:
        return tuple(steps)
    moved = [made for step in steps for made in gathered.get(step.output, (step,))]
    left = {makers[name].inputs[0] for name in gathered} - {name for step in moved for name in step.inputs}
    return tuple(step for step in moved if step.output not in left - set(kept))


def _divided_coefficients(step: Step) -> tuple[str, ...]:
    """The coefficients of messages that are divided by their sum."""
    if step.op != "propagate":
        return ()
    operators = Propagate.from_step(step)
    if not operators.coefficients or operators.neighbor_context != "sum" or operators.combine != "divide":
        return ()
    return step.inputs[1 : 2 * len(operators.edge_types) : 2]
