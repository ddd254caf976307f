"""The tape on which an importer writes the steps of a model while it walks through a module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from livegnn.errors import ModelError
from livegnn.model.model import Input, Model
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Attribute, Step, check_step
from livegnn.types import EdgeType, FloatArray, NodeType


class Rows:
    """A value of the model as the module sees it: a tensor with one row per node.

    What returns its own argument returns the same `Rows`; what changes it in place changes its name. So
    everyone who holds the tensor sees the change, as in torch.
    """

    def __init__(self, name: str) -> None:
        self.name = name


class Edges:
    """The graph's ``edge_index``."""


class EdgeWeights:
    """The weights of the graph's edges."""


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the module, and where it is."""

    name: str
    tensor: torch.Tensor


@dataclass
class Tape:
    """Steps and weights so far.

    node_type, edge_type: names of the graph's. weight_assumed: the module takes edge weights, but nobody said
    whether it was trained with them. call: imports a submodule on some rows. place: the layer or operation
    that is being imported.
    """

    node_type: NodeType
    edge_type: EdgeType
    weight_assumed: bool
    call: Callable[[torch.nn.Module, str, Rows], Rows]
    place: str = ""
    steps: list[Step] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    consumed: list[str] = field(default_factory=list)
    """The values that convolutions read, in their order."""

    def write(
        self,
        op: str,
        *inputs: Rows,
        name: str = "",
        weights: Mapping[str, Weight | None] | None = None,
        attrs: Mapping[str, Attribute] | None = None,
    ) -> Rows:
        """Adds a step and returns what it computes.

        name: tells the steps of one layer apart. weights: role -> weight, or None where there is none.
        """
        output = self._unique(f"{self.place}.{name}" if name else self.place)
        tensors = {role: self._keep(weight) for role, weight in (weights or {}).items() if weight is not None}
        self.steps.append(Step(op, tuple(rows.name for rows in inputs), output, tensors, attrs or {}))
        return Rows(output)

    def propagate(self, h: Rows, operators: Propagate) -> Rows:
        """Adds a propagate step."""
        return self.write("propagate", h, name="propagate", attrs=operators.to_attrs())

    def finish(self, output: Rows, in_channels: int | None) -> Model:
        """The model of all that `output` depends on. in_channels: the width of ``x``, if it is known."""
        live = {output.name}
        for step in reversed(self.steps):
            if step.output in live:
                live.update(step.inputs)
        steps = [step for step in self.steps if step.output in live]
        width = in_channels or self._input_width(steps)
        tensors = self._tensors(steps, width)
        layers = dict.fromkeys(["x", *(name for name in self.consumed[1:] if name in live)])
        layers.pop(output.name, None)
        return Model(
            {"x": Input(self.node_type, width)}, tuple(steps), tensors, output.name, (*layers, output.name)
        )

    def _unique(self, name: str) -> str:
        taken = {"x", *(step.output for step in self.steps)}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)

    def _keep(self, weight: Weight) -> str:
        name, kept = weight.name, 0
        while name in self.weights and not torch.equal(self.weights[name], weight.tensor):
            kept += 1
            name = f"{weight.name}_{kept}"
        self.weights[name] = weight.tensor
        return name

    def _input_width(self, steps: list[Step]) -> int:
        """The width of x, from the first weights that meet it or something as wide as it."""
        as_wide = {"x"}
        for step in steps:
            if as_wide.isdisjoint(step.inputs) or step.op == "concat":
                continue
            for tensor in (self.weights[name] for name in step.tensors.values()):
                if tensor.ndim > 0:
                    return int(tensor.shape[-1])
            as_wide.add(step.output)
        raise ModelError("no layer of the module tells how wide x is: say so with in_channels=...")

    def _tensors(self, steps: list[Step], in_channels: int) -> dict[str, FloatArray]:
        """The weights as arrays; a single number that is added to rows becomes one per channel."""
        widths = {"x": in_channels}
        tensors: dict[str, FloatArray] = {}
        for step in steps:
            shapes: dict[str, tuple[int, ...]] = {}
            for role, name in step.tensors.items():
                weight = self.weights[name].detach().to("cpu", torch.float32)
                if weight.ndim == 0:
                    weight = weight.expand(widths[step.inputs[0]])
                tensors[name] = weight.contiguous().numpy()
                shapes[role] = tuple(weight.shape)
            widths[step.output] = check_step(step, [widths[name] for name in step.inputs], shapes)
        return tensors
