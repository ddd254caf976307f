"""The tape on which an importer writes the steps of a model while it walks through a module."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

from livegnn.errors import ModelError
from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.operators import Attribute
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Step, check_step
from livegnn.types import EdgeType, FloatArray, NodeType

X, EDGE_ATTR, EDGE_WEIGHT = "x", "edge_attr", "edge_weight"
"""The model's inputs, under the names that a module's ``forward`` gives them."""

Place: TypeAlias = NodeType | EdgeType
"""Whose rows a value holds: those of the nodes of a type, or of the edges of a type."""


class Rows:
    """A value of the model as the module sees it: a tensor with one row per node, or edge, of a type.

    What returns its own argument returns the same `Rows`; what changes it in place changes its name. So
    everyone who holds the tensor sees the change, as in torch.
    """

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place


class EdgeRows(Rows):
    """A tensor with one row per edge. Row-wise steps take it as they take rows of nodes."""

    def __init__(self, name: str, edge_type: EdgeType) -> None:
        super().__init__(name, edge_type)
        self.edge_type = edge_type


@dataclass(frozen=True)
class RelationRows:
    """A tensor with one row per edge of several types, one type after the other."""

    parts: tuple[Rows, ...]


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
    """The weights of the edges of these types: a tensor without channels. names: of the inputs."""

    edge_types: tuple[EdgeType, ...]
    names: tuple[str, ...] = (EDGE_WEIGHT,)

    def columns(self) -> tuple[EdgeRows, ...]:
        """The weights as rows of one channel, for each type."""
        return tuple(map(EdgeRows, self.names, self.edge_types))

    def column(self) -> EdgeRows:
        """The weights as rows of one channel. Raises `ModelError` if there are several types."""
        if len(self.edge_types) > 1:
            raise ModelError(f"must be given the weights of one edge type, got {len(self.edge_types)}")
        return self.columns()[0]


@dataclass(frozen=True)
class RelationNumbers:
    """The module's ``edge_type``: for each edge the position of its type among these."""

    edge_types: tuple[EdgeType, ...]


@dataclass(frozen=True)
class Source:
    """Where an input of the model comes from. column: the name that `Model.from_pyg` gives such inputs."""

    place: Place
    column: str


def input_name(column: str, place: Place) -> str:
    """How the model calls a column of one type, where there are several types."""
    return f"{column}:{place}"


def sources_of(values: Iterable[object]) -> dict[str, Source]:
    """The inputs that a module's arguments stand for, by name; dicts of arguments too."""
    found: dict[str, Source] = {}
    for value in values:
        if isinstance(value, Mapping):
            found |= sources_of(value.values())
        elif isinstance(value, RelationRows):
            found |= sources_of(value.parts)
        elif isinstance(value, EdgeWeights):
            found |= {part.name: Source(part.place, EDGE_WEIGHT) for part in value.columns()}
        elif isinstance(value, Rows):
            found[value.name] = Source(value.place, EDGE_ATTR if isinstance(value, EdgeRows) else X)
    return found


@dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the module, and where it is."""

    name: str
    tensor: torch.Tensor


@dataclass
class Tape:
    """Steps and weights so far.

    inputs: name -> where it comes from. weight_assumed: the module takes edge weights, but nobody said
    whether it was trained with them. call: imports a submodule on some rows. place: the layer or operation
    that is being imported.
    """

    inputs: Mapping[str, Source]
    weight_assumed: bool
    call: Callable[[torch.nn.Module, str, Rows], Rows]
    place: str = ""
    steps: list[Step] = field(default_factory=list)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    consumed: list[str] = field(default_factory=list)
    """The values that convolutions read, in their order."""
    widths: dict[str, int] = field(default_factory=dict)
    """Of the inputs, where somebody told them, or a layer was tried with them."""
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
        place = _place_of(op, [rows.place for rows in inputs], attrs or {})
        output = self._unique(f"{self.place}.{name}" if name else self.place)
        tensors = {role: self._keep(weight) for role, weight in (weights or {}).items() if weight is not None}
        self.steps.append(Step(op, tuple(rows.name for rows in inputs), output, tensors, attrs or {}))
        return Rows(output, place) if isinstance(place, str) else EdgeRows(output, place)

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
        widths: dict[str, int | None] = dict.fromkeys(self.inputs) | self.widths
        widths |= {name: 1 for name, source in self.inputs.items() if source.column == EDGE_WEIGHT}
        for step in self.steps:
            widths[step.output] = self._step_width(step, [widths.get(name) for name in step.inputs])
        return widths.get(rows.name)

    def is_weight(self, rows: Rows) -> bool:
        """Whether a value is the edges' weight, as the graph has it."""
        return rows.name in self.inputs and self.inputs[rows.name].column == EDGE_WEIGHT

    def unknown_inputs(self, rows: Rows) -> list[str]:
        """The inputs of unknown width that a value is made of, row by row or along edges."""
        read = {rows.name}
        for step in reversed(self.steps):
            if step.output in read:
                read.update(step.inputs)
        return [
            name
            for name, source in self.inputs.items()
            if name in read and name not in self.widths and source.column != EDGE_WEIGHT
        ]

    def input_widths(self) -> dict[str, int]:
        """How wide the inputs are, where a layer or the caller tells."""
        found = {name: self._input_width(name) for name in self.inputs}
        return {name: width for name, width in found.items() if width is not None} | self.widths

    def finish(self, output: Rows) -> Model:
        """The model of all that `output` depends on.

        Its layers are those of the nodes whose rows the output holds.
        """
        live = {output.name}
        for step in reversed(self.steps):
            if step.output in live:
                live.update(step.inputs)
        steps = [step for step in self.steps if step.output in live]
        of_nodes = [name for name, source in self.inputs.items() if source.column == X]
        first = min(
            [name for name in of_nodes if name in live] or of_nodes,
            key=lambda name: self.inputs[name].place != output.place,
        )
        widths = self._widths([name for name in self.inputs if name in live or name == first])
        tensors = self._tensors(steps, widths)
        places = {name: source.place for name, source in self.inputs.items()}
        for step in steps:
            places[step.output] = _place_of(step.op, [places[name] for name in step.inputs], step.attrs)
        read = [name for name in dict.fromkeys(self.consumed) if places.get(name) == output.place]
        layers = dict.fromkeys([first, *(name for name in read[1:] if name in live)])
        layers.pop(output.name, None)
        inputs: dict[str, Input] = {}
        edge_inputs: dict[str, EdgeInput] = {}
        for name, width in widths.items():
            source = self.inputs[name]
            if isinstance(source.place, str):
                inputs[name] = Input(source.place, width)
            else:
                column: Literal["features", "weight"] = (
                    "weight" if source.column == EDGE_WEIGHT else "features"
                )
                edge_inputs[name] = EdgeInput(source.place, width, column)
        functions = {step.output: self.functions[step.output] for step in steps if step.op == "call"}
        return Model(
            inputs, tuple(steps), tensors, output.name, (*layers, output.name), edge_inputs, functions
        )

    def _widths(self, names: Sequence[str]) -> dict[str, int]:
        """The widths of these inputs. Raises `ModelError` if one is not known."""
        known, widths = self.input_widths(), {}
        for name in names:
            if name not in known:
                place, column = self.inputs[name].place, self.inputs[name].column
                several = sum(source.column == column for source in self.inputs.values()) > 1
                of = f" of {place!r} nodes" if isinstance(place, str) else f" of {place} edges"
                parameter = "in_channels" if column == X else "edge_channels"
                raise ModelError(
                    f"no layer of the module tells how wide {column}{of if several else ''} is: say so with "
                    f"{parameter}=..."
                )
            widths[name] = known[name]
        return widths

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

    def _input_width(self, name: str) -> int | None:
        """The width of an input, from the first weights that meet it or something as wide as it."""
        if self.inputs[name].column == EDGE_WEIGHT:
            return 1
        as_wide = {name}
        for step in self.steps:
            inputs = step.inputs[:1] if step.op in ("propagate", "scale_heads") else step.inputs
            if as_wide.isdisjoint(inputs) or step.op in ("concat", "sum_channels", "sum_heads"):
                continue
            for tensor in map(self.weights.__getitem__, step.tensors.values()):
                if tensor.ndim > 0:
                    return int(tensor.shape[-1])
            as_wide.add(step.output)
        return None

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


def _place_of(op: str, inputs: Sequence[Place], attrs: Mapping[str, Attribute]) -> Place:
    """Whose rows a step writes that reads such inputs. Raises `ModelError` if they do not go together."""
    if op in ("propagate", "source", "target"):
        edge_type = attrs["edge_type"]
        assert isinstance(edge_type, tuple)
        source, relation, target = edge_type[:3]
        return target if op == "propagate" else (source, relation, target)
    found = list(dict.fromkeys(inputs))
    if len(found) == 1:
        return found[0]
    if all(isinstance(place, str) for place in found):
        raise ModelError(f"must combine rows of one node type, got {' and '.join(map(repr, found))}")
    raise ModelError(
        "must combine rows of nodes with rows of nodes, or rows of edges with rows of edges of the same "
        f"type, got both {' and '.join(map(repr, found))}"
    )
