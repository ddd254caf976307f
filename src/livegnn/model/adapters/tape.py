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

    def __init__(self, name: str, node_type: NodeType) -> None:
        self.name = name
        self.node_type = node_type


@dataclass(frozen=True)
class Edges:
    """An ``edge_index`` of the graph: the edges of one type, or of several, one type after the other."""

    edge_types: tuple[EdgeType, ...]

    @property
    def edge_type(self) -> EdgeType:
        """The only type. Raises `ModelError` if there are several."""
        if len(self.edge_types) > 1:
            raise ModelError(
                f"is given the edges of {len(self.edge_types)} relations without edge_type, so they are one "
                "to it: use a relational convolution, or HeteroConv with a convolution for each"
            )
        return self.edge_types[0]


@dataclass(frozen=True)
class EdgeWeights:
    """The weights of the edges of these types."""

    edge_types: tuple[EdgeType, ...]


@dataclass(frozen=True)
class RelationNumbers:
    """The module's ``edge_type``: for each edge the position of its type among these."""

    edge_types: tuple[EdgeType, ...]


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the module, and where it is."""

    name: str
    tensor: torch.Tensor


@dataclass
class Tape:
    """Steps and weights so far.

    inputs: name of an input -> the type of its nodes. weight_assumed: the module takes edge weights, but
    nobody said whether it was trained with them. call: imports a submodule on some rows. place: the layer or
    operation that is being imported.
    """

    inputs: Mapping[str, NodeType]
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
        node_types = dict.fromkeys(rows.node_type for rows in inputs)
        if len(node_types) > 1:
            raise ModelError(f"must combine rows of one node type, got {' and '.join(map(repr, node_types))}")
        output = self._unique(f"{self.place}.{name}" if name else self.place)
        tensors = {role: self._keep(weight) for role, weight in (weights or {}).items() if weight is not None}
        self.steps.append(Step(op, tuple(rows.name for rows in inputs), output, tensors, attrs or {}))
        return Rows(output, inputs[0].node_type)

    def propagate(self, h: Rows, operators: Propagate) -> Rows:
        """Adds a propagate step."""
        out = self.write("propagate", h, name="propagate", attrs=operators.to_attrs())
        return Rows(out.name, operators.edge_type[2])

    def input_widths(self, in_channels: Mapping[NodeType, int]) -> dict[NodeType, int]:
        """How wide the inputs are, where a layer or `in_channels` tells."""
        found = {node_type: self._input_width(name) for name, node_type in self.inputs.items()}
        return {name: width for name, width in found.items() if width is not None} | dict(in_channels)

    def finish(self, output: Rows, widths: Mapping[NodeType, int]) -> Model:
        """The model of all that `output` depends on. widths: of the inputs.

        Its layers are those of the nodes whose rows the output holds.
        """
        live = {output.name}
        for step in reversed(self.steps):
            if step.output in live:
                live.update(step.inputs)
        steps = [step for step in self.steps if step.output in live]
        inputs = {}
        for name, node_type in self.inputs.items():
            if name in live and node_type not in widths:
                whose = f" of {node_type!r} nodes" if len(self.inputs) > 1 else ""
                raise ModelError(
                    f"no layer of the module tells how wide x{whose} is: say so with in_channels=..."
                )
            if name in live:
                inputs[name] = Input(node_type, widths[node_type])
        tensors = self._tensors(steps, {name: given.width for name, given in inputs.items()})
        node_types = dict(self.inputs)
        for step in steps:
            is_propagate = step.op == "propagate"
            node_types[step.output] = (
                Propagate.from_step(step).edge_type[2] if is_propagate else node_types[step.inputs[0]]
            )
        first = min(inputs, key=lambda name: node_types[name] != output.node_type)
        read = [name for name in dict.fromkeys(self.consumed) if node_types.get(name) == output.node_type]
        layers = dict.fromkeys([first, *(name for name in read[1:] if name in live)])
        layers.pop(output.name, None)
        return Model(inputs, tuple(steps), tensors, output.name, (*layers, output.name))

    def _unique(self, name: str) -> str:
        taken = {*self.inputs, *(step.output for step in self.steps)}
        return next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)

    def _keep(self, weight: Weight) -> str:
        name, kept = weight.name, 0
        while name in self.weights and not torch.equal(self.weights[name], weight.tensor):
            kept += 1
            name = f"{weight.name}_{kept}"
        self.weights[name] = weight.tensor
        return name

    def _input_width(self, name: str) -> int | None:
        """The width of an input, from the first weights that meet it or something as wide as it."""
        as_wide = {name}
        for step in self.steps:
            if as_wide.isdisjoint(step.inputs) or step.op == "concat":
                continue
            for tensor in (self.weights[name] for name in step.tensors.values()):
                if tensor.ndim > 0:
                    return int(tensor.shape[-1])
            as_wide.add(step.output)
        return None

    def _tensors(self, steps: list[Step], widths: dict[str, int]) -> dict[str, FloatArray]:
        """The weights as arrays; a single number that is added to rows becomes one per channel."""
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
