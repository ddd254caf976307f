"""The model: inputs, steps and weights, checked once when it is made."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from livegnn.errors import ModelError
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Step, check_step, describe
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, FloatArray, NodeType

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Input:
    """A value that the model reads from the graph: the features of one node type, `width` channels each."""

    node_type: NodeType
    width: int


@dataclass(frozen=True, eq=False)
class Model:
    """A graph neural network as data.

    inputs: name of a value -> what it holds. steps: in topological order; each writes one new value. tensors:
    name -> float32 array; copied and made read-only. output: the value that is the prediction. layers: the
    values that ``embeddings(layer)`` shows: ``layers[0]`` is an input, ``layers[l]`` the output of the l-th
    convolution block as the next convolution reads it, and ``layers[-1]`` the output.

    Raises `ModelError` if anything does not fit: it names the step, what was expected and what came.
    """

    inputs: Mapping[str, Input]
    steps: tuple[Step, ...]
    tensors: Mapping[str, FloatArray]
    output: str
    layers: tuple[str, ...]
    _values: Mapping[str, Input] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", dict(self.inputs))
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(
            self, "tensors", {name: _freeze(name, array) for name, array in self.tensors.items()}
        )
        object.__setattr__(self, "_values", self._check())

    def width(self, value: str) -> int:
        """How many channels a value has. Raises `ModelError` if the model has no such value."""
        return self._value(value).width

    def node_type(self, value: str) -> NodeType:
        """The type of the nodes whose rows a value holds. Raises `ModelError` if there is no such value."""
        return self._value(value).node_type

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """The edge types that the model propagates along, each once, in the order of its steps."""
        return tuple(
            dict.fromkeys(Propagate.from_step(s).edge_type for s in self.steps if s.op == "propagate")
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the model computes, in hexadecimal: equal for equal models, whatever their file."""
        sha = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode())
        for name in sorted(self.tensors):
            array = self.tensors[name]
            sha.update(json.dumps([name, list(array.shape)]).encode())
            sha.update(array.astype("<f4").tobytes())
        return sha.hexdigest()

    def to_json(self) -> dict[str, object]:
        """Everything but the tensors, as values that JSON can hold."""
        return {
            "inputs": {n: {"node_type": i.node_type, "width": i.width} for n, i in self.inputs.items()},
            "steps": [
                {
                    "op": step.op,
                    "inputs": list(step.inputs),
                    "output": step.output,
                    "tensors": dict(step.tensors),
                    "attrs": {name: list(v) if isinstance(v, tuple) else v for name, v in step.attrs.items()},
                }
                for step in self.steps
            ],
            "output": self.output,
            "layers": list(self.layers),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the model as one file (docs/model-file.md). A file of that name is replaced as a whole."""
        from livegnn.model import file

        file.write(self, path)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Model":
        """Reads a model from a file that `save` wrote. Raises `FileFormatError` if it is none, or damaged."""
        from livegnn.model import file

        return file.read(path)

    @staticmethod
    def from_pyg(
        module: "torch.nn.Module",
        *,
        node_type: NodeType = DEFAULT_NODE_TYPE,
        edge_type: EdgeType = DEFAULT_EDGE_TYPE,
        relations: Sequence[EdgeType] | None = None,
        metadata: tuple[Sequence[NodeType], Sequence[EdgeType]] | None = None,
        output_type: NodeType | None = None,
        edge_weight: bool | Collection[EdgeType] | None = None,
        in_channels: int | Mapping[NodeType, int] | None = None,
    ) -> "Model":
        """Imports a trained PyG module, in evaluation mode; the module is left as it is. Needs torch.

        module: its ``forward`` takes ``x``, ``edge_index`` and perhaps ``edge_weight``, and returns one row
          per node. With `relations` it takes ``edge_type`` as well; with `metadata` it takes ``x_dict``,
          ``edge_index_dict`` and perhaps ``edge_weight_dict`` (or these names without _dict), and returns
          rows of one node type, or a dict from node types to rows.
        node_type, edge_type: the names that the graph gives to its nodes and edges.
        relations: the edge types that the numbers in ``edge_type`` stand for, from 0; all join `node_type`.
        metadata: node types and edge types, as ``HeteroData.metadata()`` gives them. The model has an input
          ``"x:TYPE"`` for each node type that the prediction depends on.
        output_type: the node type whose rows are the prediction, if the module returns those of several.
        edge_weight: whether the module is called with the edges' weights; by default, if its ``forward``
          takes them. With `metadata` it may also be the edge types that have weights.
        in_channels: the width of ``x``, or of each node type's; needed only where no layer of the module
          tells.

        Raises `ModelError` with the place of the layer or operation that cannot be imported, and what to do.
        """
        try:
            from livegnn.model.adapters.pyg import read
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "torch_geometric"):
                raise
            needed = f"importing a PyG module needs {error.name}, which is not installed"
            raise ModelError(f"{needed}: pip install 'livegnn[torch]'") from error
        return read(
            module,
            node_type=node_type,
            edge_type=edge_type,
            relations=relations,
            metadata=metadata,
            output_type=output_type,
            edge_weight=edge_weight,
            in_channels=in_channels,
        )

    def _value(self, name: str) -> Input:
        value = self._values.get(name)
        if value is None:
            raise ModelError(f"the model has no value {name!r}, only {', '.join(self._values)}")
        return value

    def _check(self) -> Mapping[str, Input]:
        values: dict[str, Input] = {}
        for name, given in self.inputs.items():
            if given.width < 1:
                raise ModelError(f"input {name!r} must be at least 1 channel wide, got {given.width}")
            values[name] = given
        if not values or not self.steps:
            raise ModelError(
                f"a model must have an input and a step, got {len(values)} and {len(self.steps)}"
            )
        for step in self.steps:
            if step.output in values:
                raise ModelError(
                    f"{describe(step)}: the value {step.output!r} exists already; every step writes a new one"
                )
            values[step.output] = self._check_step(step, values)
        unused = sorted(set(self.tensors) - {name for step in self.steps for name in step.tensors.values()})
        if unused:
            raise ModelError(f"no step uses the tensor {unused[0]!r}: leave it out")
        for what, name in (("output", self.output), *(("layer", layer) for layer in self.layers)):
            if name not in values:
                raise ModelError(
                    f"the {what} {name!r} is no value of the model, must be one of {', '.join(values)}"
                )
        if not self.layers or self.layers[0] not in self.inputs or self.layers[-1] != self.output:
            raise ModelError(
                f"layers must begin with an input and end with the output {self.output!r}, got {self.layers}"
            )
        return values

    def _check_step(self, step: Step, values: Mapping[str, Input]) -> Input:
        for name in step.inputs:
            if name not in values:
                missing = f"{describe(step)}: reads {name!r}, which no input and no earlier step gives"
                raise ModelError(f"{missing}; steps must be in topological order")
        for role, name in step.tensors.items():
            if name not in self.tensors:
                raise ModelError(f"{describe(step)}: its {role} {name!r} is not among the model's tensors")
        inputs = [values[name] for name in step.inputs]
        shapes = {role: self.tensors[name].shape for role, name in step.tensors.items()}
        width = check_step(step, [value.width for value in inputs], shapes)
        node_types = [value.node_type for value in inputs]
        if step.op == "propagate":
            source, _, target = Propagate.from_step(step).edge_type
            if node_types[0] != source:
                raise ModelError(
                    f"{describe(step)}: must read {source!r} rows like its edges, got {node_types[0]!r}"
                )
            return Input(target, width)
        if len(set(node_types)) > 1:
            raise ModelError(
                f"{describe(step)}: inputs must be rows of one node type, got {', '.join(node_types)}"
            )
        return Input(node_types[0], width)


def _freeze(name: str, array: FloatArray) -> FloatArray:
    array = np.asarray(array)
    if array.dtype != np.float32:
        raise ModelError(
            f"tensor {name!r} must be float32, got {array.dtype}: convert it with .astype(numpy.float32)"
        )
    if not np.isfinite(array).all():
        raise ModelError(f"tensor {name!r} must be finite, got NaN or infinity: the training has diverged")
    frozen = np.array(array, dtype=np.float32, order="C")
    frozen.flags.writeable = False
    return frozen
