"""Raw columns as the inputs of a model, with transforms in front of its readers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from livegnn.errors import ModelError
from livegnn.network.steps import EdgeInput, Input, Step
from livegnn.network.transforms import Transforms
from livegnn.types import MISSING, FloatArray
from livegnn.wording import kind_of


class _Parts(Protocol):
    """The parts of a `Model`; this module does not import it."""

    @property
    def inputs(self) -> Mapping[str, Input]: ...
    @property
    def edge_inputs(self) -> Mapping[str, EdgeInput]: ...
    @property
    def steps(self) -> tuple[Step, ...]: ...
    @property
    def tensors(self) -> Mapping[str, FloatArray]: ...
    @property
    def layers(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> Mapping[str, str]: ...
    @property
    def edge_outputs(self) -> Mapping[str, str]: ...
    @property
    def output(self) -> str: ...
    def width(self, value: str) -> int: ...


@dataclass(frozen=True)
class RawInputs:
    """The parts of a model that differ once its inputs are raw."""

    inputs: Mapping[str, Input]
    edge_inputs: Mapping[str, EdgeInput]
    steps: tuple[Step, ...]
    tensors: Mapping[str, FloatArray]
    layers: tuple[str, ...]
    outputs: Mapping[str, str]
    output: str


def put_in_front(model: _Parts, transforms: Transforms | Mapping[str, Transforms]) -> RawInputs:
    """Puts transforms in front of all readers of inputs.

    transforms: of the only input, or input -> its transforms.
    Raises `ModelError` for an input that the model lacks, or whose width is not that of its transforms.
    """
    given: dict[str, Input | EdgeInput] = {**model.inputs, **model.edge_inputs}
    if isinstance(transforms, Transforms):
        if len(given) != 1:
            raise ModelError(
                f"the model has the inputs {', '.join(given)}: pass a dict from their names to transforms"
            )
        transforms = dict.fromkeys(given, transforms)
    if not isinstance(transforms, Mapping):
        raise ModelError(
            f"transforms must be Transforms, or a dict from inputs to Transforms, got {kind_of(transforms)}"
        )
    names = {*given, *model.tensors, *(step.output for step in model.steps)}
    made: list[Step] = []
    tensors, renamed = dict(model.tensors), dict[str, str]()
    for name, one in transforms.items():
        if name not in given or not isinstance(one, Transforms):
            got = repr(name) if name not in given else f"{kind_of(one)} for {name!r}"
            raise ModelError(f"transforms must be a dict from inputs of {', '.join(given)}, got {got}")
        if one.width != given[name].width:
            raise ModelError(
                f"the model reads {given[name].width} columns ({name!r}), the transforms make {one.width}"
            )
        steps, its_tensors, renamed[name] = one.write(name, _unused(f"{name}/raw", names))
        made += steps
        tensors |= its_tensors
        given[name] = replace(given[name], width=len(one.columns), columns=one.columns)
    steps = [replace(step, inputs=tuple(renamed.get(i, i) for i in step.inputs)) for step in model.steps]
    return RawInputs(
        {name: one for name, one in given.items() if isinstance(one, Input)},
        {name: one for name, one in given.items() if isinstance(one, EdgeInput)},
        (*made, *steps),
        tensors,
        (model.layers[0], *(renamed.get(layer, layer) for layer in model.layers[1:])),
        {name: renamed.get(value, value) for name, value in model.outputs.items()},
        renamed.get(model.output, model.output),
    )


def _unused(prefix: str, names: Collection[str]) -> str:
    number, found = 1, prefix
    while any(name.startswith(f"{found}/") for name in names):
        number += 1
        found = f"{prefix}{number}"
    return found


def needs_every_number(model: _Parts) -> dict[str, tuple[int, ...]]:
    """The channels of each input that the model reads without replacing missing numbers. Where one of them
    is `livegnn.MISSING`, the prediction means nothing."""
    given: dict[str, Input | EdgeInput] = {**model.inputs, **model.edge_inputs}
    carried = {name: [frozenset({(name, c)}) for c in range(one.width)] for name, one in given.items()}
    read: set[tuple[str, int]] = set()
    for step in model.steps:
        inputs = [carried[name] for name in step.inputs]
        carried[step.output] = _carry(step, inputs, model)
        others = step.op == "fill_missing" and step.attrs.get("missing", MISSING) != MISSING
        if others:
            carried[step.output] = inputs[0]
        if others or (step.op not in _CARRIERS and step.op not in _REPLACERS):
            read |= {one for channels in inputs for channel in channels for one in channel}
    for value in (*model.outputs.values(), *model.edge_outputs.values(), *model.layers[1:]):
        read |= {one for channel in carried[value] for one in channel}
    return {name: tuple(sorted(c for value, c in read if value == name)) for name in given}


_Channels: TypeAlias = list[frozenset[tuple[str, int]]]
_CARRIERS = frozenset({"take", "slice", "concat", "standardize", "quantile", "bucketize", "source", "target"})
"""Operators after which a missing number is still `livegnn.MISSING`."""

_REPLACERS = frozenset({"fill_missing", "one_hot", "ordinal", "cyclic"})
"""Operators that put another number in its place."""


def _carry(step: Step, inputs: Sequence[_Channels], model: _Parts) -> _Channels:
    """For each channel of a step's output, the raw channels whose missing numbers it hands on."""
    if step.op == "take":
        return [inputs[0][int(channel)] for channel in model.tensors[step.tensors["channels"]]]
    if step.op == "slice":
        return inputs[0][int(step.number("start")) : int(step.number("stop"))]
    if step.op == "concat":
        return [channel for one in inputs for channel in one]
    return inputs[0] if step.op in _CARRIERS else [frozenset()] * model.width(step.output)
