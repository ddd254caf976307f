"""The tape on which an importer writes the steps of a model while it walks through a module."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from livegnn.errors import ModelError
from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Attribute, Step, check_step
from livegnn.types import EdgeType, FloatArray, NodeType

X, EDGE_ATTR, EDGE_WEIGHT = "x", "edge_attr", "edge_weight"
"""The model's inputs, under the names that a module's ``forward`` gives them."""


class Rows:
    """A value of the model as the module sees it: a tensor with one row per node.

    What returns its own argument returns the same `Rows`; what changes it in place changes its name. So
    everyone who holds the tensor sees the change, as in torch.
    """

    def __init__(self, name: str) -> None:
        self.name = name


class EdgeRows(Rows):
    """A tensor with one row per edge. Row-wise steps take it as they take rows of nodes."""

    def __init__(self, name: str, edge_type: EdgeType) -> None:
        super().__init__(name)
        self.edge_type = edge_type


class Edges:
    """The graph's ``edge_index``."""


@dataclass(frozen=True)
class EdgeWeights:
    """The weights of the graph's edges: a tensor without channels."""

    edge_type: EdgeType

    def column(self) -> EdgeRows:
        """The weights as rows of one channel."""
        return EdgeRows(EDGE_WEIGHT, self.edge_type)


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
    widths: dict[str, int] = field(default_factory=dict)
    """Of the inputs, where they are known."""
    functions: dict[str, Function] = field(default_factory=dict)
    """Of the user's, or proposed, that steps call."""

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
        edge_type = _edge_type_of(op, inputs, attrs or {})
        output = self._unique(f"{self.place}.{name}" if name else self.place)
        tensors = {role: self._keep(weight) for role, weight in (weights or {}).items() if weight is not None}
        self.steps.append(Step(op, tuple(rows.name for rows in inputs), output, tensors, attrs or {}))
        return Rows(output) if edge_type is None else EdgeRows(output, edge_type)

    def propagate(self, h: Rows, operators: Propagate, *further: Rows) -> Rows:
        """Adds a propagate step. further: what the operators ask for beside the first value."""
        return self.write("propagate", h, *further, name="propagate", attrs=operators.to_attrs())

    def source(self, h: Rows, edge_type: EdgeType, name: str = "source") -> Rows:
        """For every edge the row of the node that it comes from."""
        return self.write("source", h, name=name, attrs={"edge_type": edge_type})

    def target(self, h: Rows, edge_type: EdgeType, name: str = "target") -> Rows:
        """For every edge the row of the node that it leads to."""
        return self.write("target", h, name=name, attrs={"edge_type": edge_type})

    def named(self, name: str, like: Rows) -> Rows:
        """The value of that name, which steps have been added for, with rows of nodes like another's."""
        made = copy.copy(like)
        made.name = name
        return made

    def width(self, rows: Rows) -> int | None:
        """How many channels a value has; None if that depends on an input whose width is not known."""
        if rows.name == EDGE_WEIGHT:
            return 1
        widths: dict[str, int | None] = {**dict.fromkeys((X, EDGE_ATTR)), **self.widths, EDGE_WEIGHT: 1}
        for step in self.steps:
            widths[step.output] = self._step_width(step, [widths.get(name) for name in step.inputs])
        return widths.get(rows.name)

    def finish(self, output: Rows, in_channels: int | None, edge_channels: int | None = None) -> Model:
        """The model of all that `output` depends on.

        in_channels, edge_channels: the widths of ``x`` and of ``edge_attr``, if they are known.
        """
        live = {output.name}
        for step in reversed(self.steps):
            if step.output in live:
                live.update(step.inputs)
        steps = [step for step in self.steps if step.output in live]
        read = {name for step in steps for name in step.inputs}
        known = {X: in_channels, EDGE_ATTR: edge_channels}
        known |= {name: width for name, width in self.widths.items() if not known[name]}
        widths = {X: known[X] or self._input_width(X, steps, "in_channels")}
        if EDGE_ATTR in read:
            widths[EDGE_ATTR] = known[EDGE_ATTR] or self._input_width(EDGE_ATTR, steps, "edge_channels")
        edge_inputs = {
            name: EdgeInput(self.edge_type, width) for name, width in widths.items() if name == EDGE_ATTR
        }
        if EDGE_WEIGHT in read:
            widths[EDGE_WEIGHT] = 1
            edge_inputs[EDGE_WEIGHT] = EdgeInput(self.edge_type, 1, "weight")
        tensors = self._tensors(steps, widths)
        layers = dict.fromkeys([X, *(name for name in self.consumed[1:] if name in live)])
        layers.pop(output.name, None)
        return Model(
            {X: Input(self.node_type, widths[X])},
            tuple(steps),
            tensors,
            output.name,
            (*layers, output.name),
            edge_inputs,
            {name: self.functions[name] for step in steps if step.op == "call" for name in [step.output]},
        )

    def _unique(self, name: str) -> str:
        taken = {X, EDGE_ATTR, EDGE_WEIGHT, *(step.output for step in self.steps)}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)

    def _keep(self, weight: Weight) -> str:
        name, kept = weight.name, 0
        while name in self.weights and not torch.equal(self.weights[name], weight.tensor):
            kept += 1
            name = f"{weight.name}_{kept}"
        self.weights[name] = weight.tensor
        return name

    def _step_width(self, step: Step, inputs: list[int | None]) -> int | None:
        shapes = {role: tuple(self.weights[name].shape) for role, name in step.tensors.items()}
        if step.op == "linear":
            return int(self.weights[step.tensors["weight"]].shape[0])
        if None not in inputs:
            known = [width for width in inputs if width is not None]
            shapes = {role: shape or (known[0],) for role, shape in shapes.items()}
            return check_step(step, known, shapes)
        if step.op in ("concat", "sum_heads"):
            return None
        if step.op == "sum_channels":
            return int(step.number("heads"))
        return next((shape[-1] for shape in shapes.values() if shape), None)

    def _input_width(self, name: str, steps: list[Step], parameter: str) -> int:
        """The width of an input, from the first weights that meet it or something as wide as it."""
        as_wide = {name}
        for step in steps:
            inputs = step.inputs[:1] if step.op in ("propagate", "scale_heads") else step.inputs
            if as_wide.isdisjoint(inputs) or step.op in ("concat", "sum_channels", "sum_heads"):
                continue
            for tensor in map(self.weights.__getitem__, step.tensors.values()):
                if tensor.ndim > 0:
                    return int(tensor.shape[-1])
            as_wide.add(step.output)
        raise ModelError(f"no layer of the module tells how wide {name} is: say so with {parameter}=...")

    def _tensors(self, steps: list[Step], inputs: Mapping[str, int]) -> dict[str, FloatArray]:
        """The weights as arrays; a single number that is added to rows becomes one per channel."""
        widths = dict(inputs)
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


def _edge_type_of(op: str, inputs: tuple[Rows, ...], attrs: Mapping[str, Attribute]) -> EdgeType | None:
    """The type of the edges whose rows a step writes, or None if it writes rows of nodes."""
    if op == "propagate":
        return None
    if op in ("source", "target"):
        edge_type = attrs["edge_type"]
        assert isinstance(edge_type, tuple)
        source, relation, target = edge_type
        return source, relation, target
    found = {rows.edge_type if isinstance(rows, EdgeRows) else None for rows in inputs}
    if len(found) > 1:
        raise ModelError(
            "must combine rows of nodes with rows of nodes, or rows of edges with rows of edges of the same "
            "type, got both"
        )
    return found.pop()
