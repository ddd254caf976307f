"""Joins several aggregates of one propagation into one step, as in PNA: sums of messages, and extrema.

Two propagate steps along the same edges, with the same operators and with messages computed from the same
values on those edges, change together. One step with concatenated messages computes these values once for
each edge. A minimum is the negated maximum of negated messages. Messages that are rows of nodes are not
joined: they are computed already, and wider rows would only make the gather slower.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from livegnn.network.steps import Step

_EXTREMA = ("max", "min")


def join_aggregates(
    steps: Sequence[Step], edge_inputs: Collection[str], width: Callable[[str], int]
) -> list[Step]:
    """Steps that write the same values, with fewer propagate steps where some can be joined.

    edge_inputs: the inputs that are rows of edges. width: returns the number of channels of a value.
    """
    groups: dict[object, list[Step]] = {}
    leaves = _leaves(steps, edge_inputs)
    for step in steps:
        if step.op == "propagate" and len(step.inputs) == 1 and step.inputs[0] in leaves:
            attrs = {name: repr(setting) for name, setting in step.attrs.items()}
            attrs["aggregate"] = "extremum" if step.attrs["aggregate"] in _EXTREMA else "sum"
            groups.setdefault((tuple(sorted(attrs.items())), leaves[step.inputs[0]]), []).append(step)
    made = {step.output: step for step in steps}
    for group in groups.values():
        if len(group) > 1:
            made.update({step.output: step for step in _join(group, width, set(made))})
    if len(made) == len(steps):
        return list(steps)
    reads = {name: [one for one in step.inputs if one in made] for name, step in made.items()}
    return [made[name] for name in TopologicalSorter(reads).static_order()]


def _leaves(steps: Sequence[Step], edge_inputs: Collection[str]) -> Mapping[str, frozenset[str]]:
    """The inputs and the gathered rows from which each value on edges is computed."""
    found = {name: frozenset({name}) for name in edge_inputs}
    for step in steps:
        if step.op in ("source", "target"):
            found[step.output] = frozenset({step.output})
        elif step.op != "propagate":
            read = [found[name] for name in step.inputs if name in found]
            if read:
                found[step.output] = frozenset().union(*read)
    return found


def _join(group: Sequence[Step], width: Callable[[str], int], taken: set[str]) -> Iterator[Step]:
    def name(given: str) -> str:
        number = 1
        while (full := f"{given}/{number}") in taken:
            number += 1
        taken.add(full)
        return full

    joined, extrema = [], group[0].attrs["aggregate"] in _EXTREMA
    for step in group:
        value = step.inputs[0]
        if step.attrs["aggregate"] == "min":
            value = name("negative")
            yield Step("neg", step.inputs, value)
        joined.append(value)
    side_by_side, together = name("side_by_side"), name(group[0].output)
    aggregate = "max" if extrema else group[0].attrs["aggregate"]
    yield Step("concat", tuple(joined), side_by_side)
    yield Step("propagate", (side_by_side,), together, {}, {**group[0].attrs, "aggregate": aggregate})
    start = 0
    for step in group:
        stop = start + width(step.inputs[0])
        part = step.output if step.attrs["aggregate"] != "min" else name("part")
        yield Step("slice", (together,), part, {}, {"start": start, "stop": stop})
        if part != step.output:
            yield Step("neg", (part,), step.output)
        start = stop
