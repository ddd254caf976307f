"""The model: inputs, steps and weights, checked once in the constructor."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING

from livegnn.arguments import check_bool
from livegnn.errors import ModelError
from livegnn.network.call_settings import CallSettings, ExportedSettings, Members
from livegnn.network.checks import check_outputs, frozen_tensor
from livegnn.network.digest import digest_of
from livegnn.network.edge_scores import EdgeScores, edge_scores_of
from livegnn.network.entry_points import Registered
from livegnn.network.hops import check_query, num_hops
from livegnn.network.operators import check_values
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.raw_inputs import put_in_front
from livegnn.network.softmax import exponentiate_on_edges
from livegnn.network.steps import EdgeInput, Function, Input, Step, check_step, describe
from livegnn.network.transforms import Transforms
from livegnn.query import Query
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType, FloatArray, NodeType
from livegnn.wording import format_count, format_edge_type, never_raises

if TYPE_CHECKING:
    import torch
    from torch_geometric.data import Data, HeteroData

    from livegnn.graph import Graph, Schema
    from livegnn.network.own_convolution import Convolution


@dataclass(frozen=True, eq=False)
class Model:
    """A graph neural network as data.

    inputs: name of a value -> the node features that it holds. steps: in topological order; each writes one
    new value; the exponentials of a softmax over in-edges are moved to the edges (`livegnn.network.softmax`).
    tensors: name -> float32 array; copied and made read-only. output: the value that is the prediction.
    layers: the values that ``embeddings(layer)`` returns: ``layers[0]`` is an input, ``layers[l]`` the output
    of the l-th convolution block as the next convolution reads it, and ``layers[-1]`` the output.
    edge_inputs: name of a value -> the column of the edges that it holds. functions: name -> function, for
    steps ``call``; a model with functions cannot be saved. outputs: name -> value, for all outputs of
    ``predict``; the first is the prediction. By default only the prediction, named ``"output"``. query: the
    sampling query that the model was trained with, if any; it draws as many hops as the model reads.
    edge_outputs: name -> value on edges, for scores of edges (`livegnn.network.edge_scores`); every value on
    nodes that they read at the ends of an edge is one of the outputs.

    Raises `ModelError` if the parts do not fit together, with the step, what was expected and what was given.
    """

    inputs: Mapping[str, Input]
    steps: tuple[Step, ...]
    tensors: Mapping[str, FloatArray]
    output: str
    layers: tuple[str, ...]
    edge_inputs: Mapping[str, EdgeInput] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    query: Query | None = None
    edge_outputs: Mapping[str, str] = field(default_factory=dict)
    _values: Mapping[str, Input | EdgeInput] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("inputs", "edge_inputs", "functions", "edge_outputs"):
            object.__setattr__(self, name, dict(getattr(self, name)))
        object.__setattr__(self, "outputs", dict(self.outputs) or {"output": self.output})
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(
            self, "tensors", {name: frozen_tensor(name, array) for name, array in self.tensors.items()}
        )
        object.__setattr__(self, "_values", self._check())
        steps = exponentiate_on_edges(self.steps, self.shown)
        if steps != self.steps:
            object.__setattr__(self, "steps", steps)
            object.__setattr__(self, "_values", self._check())
        if self.query is not None:
            check_query(self.query, self.num_hops, self.node_type(self.output))

    @never_raises
    def __repr__(self) -> str:
        """The inputs, the outputs and the size of the model, in one line."""
        reads = [f"{name}: {given.node_type}[{given.width}]" for name, given in self.inputs.items()]
        reads += [
            f"{name}: {format_edge_type(e.edge_type)}[{e.width}]" for name, e in self.edge_inputs.items()
        ]
        propagations = sum(step.op == "propagate" for step in self.steps)
        numbers = sum(tensor.size for tensor in self.tensors.values())
        writes = [
            ("" if name == "output" and len(self.outputs) == 1 else f"{name}: ")
            + f"{self.node_type(value)}[{self.width(value)}]"
            for name, value in self.outputs.items()
        ]
        writes += [
            f"{name}: {format_edge_type(scored.edge_type)}[{scored.width}]"
            for name, scored in self.edge_scores.items()
        ]
        return (
            f"Model({', '.join(reads)} -> {', '.join(writes)}, "
            f"{format_count(len(self.layers) - 1, 'layer')}, {format_count(propagations, 'propagation')}, "
            f"{format_count(len(self.steps), 'step')}, {format_count(numbers, 'parameter')})"
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """The values that a caller can read, each once: the outputs and the layers."""
        return tuple(dict.fromkeys([*self.outputs.values(), *self.layers]))

    def width(self, value: str) -> int:
        """The number of channels of a value. Raises `ModelError` if the model has no such value."""
        return self._value(value).width

    def node_type(self, value: str) -> NodeType:
        """The type of the nodes whose rows a value holds. Raises `ModelError` if there is no such value."""
        found = self._value(value)
        if isinstance(found, Input):
            return found.node_type
        raise ModelError(
            f"the value {value!r} must have rows of nodes, it has rows of {found.edge_type} edges"
        )

    def edge_type(self, value: str) -> EdgeType | None:
        """The type of the edges whose rows a value holds; None if they are rows of nodes."""
        found = self._value(value)
        return found.edge_type if isinstance(found, EdgeInput) else None

    @property
    def edge_types(self) -> tuple[EdgeType, ...]:
        """The edge types that the model propagates along or counts, each once, in the order of its steps."""
        found: dict[EdgeType, None] = {}
        for step in self.steps:
            if step.op == "propagate":
                found |= dict.fromkeys(Propagate.from_step(step).edge_types)
            elif step.op == "degree":
                found[step.edge_type()] = None
        return tuple(found)

    @cached_property
    def edge_scores(self) -> Mapping[str, EdgeScores]:
        """The edge outputs by name: what they read, and the steps that compute them."""
        return {
            name: edge_scores_of(value, self._values, self.steps, self.outputs)
            for name, value in self.edge_outputs.items()
        }

    @property
    def num_hops(self) -> int:
        """From how many hops away the outputs are made: the number of layers of convolutions."""
        reached = num_hops(self.inputs, self.edge_inputs, self.steps)
        return max(reached[value] for value in self.outputs.values())

    def with_query(self, query: Query | None) -> "Model":
        """The model with the sampling query that it was trained with. Raises `ModelError` if their numbers of
        hops differ, or the query begins at nodes of another type than the prediction's."""
        return replace(self, query=query)

    def with_transforms(self, transforms: Transforms | Mapping[str, Transforms]) -> "Model":
        """The model on raw columns; its first steps transform them. transforms: of the only input, or by the
        name of the input. Raises `ModelError` if they do not make the columns that the model reads."""
        return replace(self, **vars(put_in_front(self, transforms)))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model's computation, in hexadecimal; equal models have equal digests.

        It covers the code of functions and the numbers and arrays that they name, not attributes of objects.
        """
        description = {name: part for name, part in self.to_json().items() if name != "query"}
        return digest_of(description, self.functions, self.tensors)

    def to_json(self) -> dict[str, object]:
        """The model without tensors and functions, as JSON values."""
        edge_inputs = {name: given.to_json() for name, given in self.edge_inputs.items()}
        return {
            "inputs": {name: given.to_json() for name, given in self.inputs.items()},
            **({"edge_inputs": edge_inputs} if edge_inputs else {}),
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
            **({"outputs": dict(self.outputs)} if self.outputs != {"output": self.output} else {}),
            **({"query": self.query.to_json()} if self.query is not None else {}),
            **({"edge_outputs": dict(self.edge_outputs)} if self.edge_outputs else {}),
        }

    def save(self, path: str | PathLike[str], *, private: bool = False) -> None:
        """Writes the model as one file (docs/model-file.md). It replaces an existing file atomically; for a
        symbolic link, it replaces the link's target. private: whether a new file is for its owner alone.

        Raises `ModelError` if the model has functions of the user, since a file holds no code, `InputError`
        if `path` is a device, a directory or the like, and `OSError` if writing fails.
        """
        from livegnn.network import file

        if self.functions:
            raise ModelError(
                f"a model with functions ({', '.join(self.functions)}) cannot be saved, as a file holds no "
                "code: build it again from the code that makes it"
            )

        file.write(self, path, private=private)

    @staticmethod
    def load(path: str | PathLike[str]) -> "Model":
        """Reads a model from a file that `save` wrote. Raises `FileFormatError` if it is damaged or not such
        a file."""
        from livegnn.network import file

        return file.read(path, Model)

    @staticmethod
    def from_pyg(
        module: "torch.nn.Module",
        data: "Data | HeteroData | Schema | Graph | None" = None,
        *,
        inputs: Mapping[str, object] | None = None,
        method: str = "forward",
        output: str | Sequence[str] | None = None,
        node_type: NodeType = DEFAULT_NODE_TYPE,
        edge_type: EdgeType = DEFAULT_EDGE_TYPE,
        relations: Sequence[EdgeType] | None = None,
        metadata: tuple[Sequence[NodeType], Sequence[EdgeType]] | None = None,
        output_type: NodeType | None = None,
        edge_weight: bool | Collection[EdgeType] | None = None,
        in_channels: int | Mapping[NodeType, int] | None = None,
        edge_channels: int | Mapping[EdgeType, int] | None = None,
        groups: Mapping[str | None, Members] | None = None,
    ) -> "Model":
        """Imports a trained PyG module, in evaluation mode, without changing the module. Needs torch.

        The import exports the module, reads it operator by operator, for any types of layers, and checks the
        model against it on small graphs, which takes a second or two.

        module: takes rows of nodes, edges and optionally their weights and features, and returns a row for
          each node, or for each edge or pair of nodes (``edge_outputs``); by default ``x``, ``edge_index``,
          ``edge_weight``, ``edge_attr`` and, if it must be given, ``edge_label_index``, the pairs. With
          `relations` it also takes ``edge_type``. With several types it takes ``x_dict``, ``edge_index_dict``
          and so on (or these names without _dict), and returns rows of one node type, or a dict from node
          types to rows.
        data: a PyG ``Data`` or ``HeteroData`` that the module can be called with, the schema of a graph, or a
          graph; it gives types, widths and the names of inputs. Without it, the module's layers and the
          arguments below must give them.
        inputs: argument -> its meaning, if the argument's name does not give it: the name of an attribute of
          `data`, ``("node", channels)`` or ``("edge", channels)`` for rows, or a constant (also as
          ``("value", constant)``); parameter of the module -> ``"node"``, if it has a row for each node.
        method: the method that predicts; ``"decode"`` is the module's ``encode``, and that on its result.
        output: the prediction among several results: its key in a dict, otherwise ``"output[0]"``,
          ``"output[1]"``, ...; or a list of outputs, the prediction first. By default all results of one node
          type are outputs, in order.
        node_type, edge_type: the names of the graph's types of nodes and edges.
        relations: the edge types for the numbers 0, 1, ... in ``edge_type``; all join nodes of `node_type`.
        metadata: node types and edge types, as in ``HeteroData.metadata()``. The model has an input
          ``"x:TYPE"`` for each node type that the prediction depends on, and edge inputs
          ``f"edge_attr:{edge_type}"`` (also with `relations`).
        output_type: the node type of the prediction, if the module returns rows of several types.
        edge_weight: whether the module is called with the edges' weights; by default, if it takes them. With
          `metadata` it may also be the edge types that have weights.
        in_channels: the width of ``x``, or the width for each node type; needed only if no layer of the
          module gives it.
        edge_channels: the width of ``edge_attr``, the features of the edges; 0 if the module is called
          without them. By default the module is called with them if it needs them or one of its layers was
          made for them, and the layers give the width. With `metadata` it may also be the edge types that
          have features, with their widths; by default these are the types whose convolution in a HeteroConv
          was made for features, or all types if the module has no HeteroConv.
        groups: argument that numbers the group of each node -> the type of the edges from nodes to their
          groups, or, with one node type, the type of the groups alone, joined by ``"in"``. None stands for
          all nodes as one group. The prediction may then have a row for each group (docs/groups.md).

        Raises only `ModelError`, with the line of the module that cannot be imported, if known, and what to
        do. An exception that the module raises is the error's ``__cause__``.
        """
        settings = CallSettings(
            data=data,
            inputs=inputs,
            method=method,
            output=output,
            output_type=output_type,
            node_type=node_type,
            edge_type=edge_type,
            relations=relations,
            metadata=metadata,
            edge_weight=edge_weight,
            in_channels=in_channels,
            edge_channels=edge_channels,
            groups=groups,
        )
        return ENTRY_POINTS.get().import_module(module, settings)

    @staticmethod
    def from_exported(
        program: "torch.export.ExportedProgram | str | PathLike[str]",
        *,
        schema: "Schema | Graph | Data | HeteroData | None" = None,
        inputs: "Mapping[str, NodeType | EdgeType | tuple[NodeType | EdgeType, str]] | None" = None,
        output: str | Sequence[str] | None = None,
        output_type: NodeType | None = None,
        relations: Sequence[EdgeType] | None = None,
        node_type: NodeType = DEFAULT_NODE_TYPE,
        edge_type: EdgeType = DEFAULT_EDGE_TYPE,
    ) -> "Model":
        """Imports a program that ``torch.export.export`` made from a module; the module's code is not needed.

        The module must be exported in evaluation mode, on the CPU, with any number of nodes and edges
        (``dynamic_shapes``). Needs torch.

        program: the program, or the path of a file that ``torch.export.save`` wrote.
        schema: the types of nodes and edges, and their widths; or a graph or PyG data with these types.
          Needed if the keys of the program's arguments do not give the types.
        inputs: argument, as in the call (``"x"``, ``"x_dict['paper']"``) -> its rows, if they are not clear:
          a node type or an edge type; or a column: ``"x"``, ``"edge_attr"``, ``"edge_weight"`` or
          ``"edge_type"``; or both, as a pair.
        output: the prediction among several results; by default the first. All results are outputs.
        output_type: the node type of the prediction, if results are of several types.
        relations: the edge types for the numbers in ``edge_type``.
        node_type, edge_type: the types of a graph that has one of each.

        Raises `ModelError` with the reason and what to do, `FileFormatError` if the file holds no program, is
        damaged, or would run code, `OSError` if it cannot be read.
        """
        settings = ExportedSettings(
            schema=schema,
            inputs=inputs,
            output=output,
            output_type=output_type,
            relations=relations,
            node_type=node_type,
            edge_type=edge_type,
        )
        return ENTRY_POINTS.get().import_exported(program, settings)

    @staticmethod
    def from_convolutions(
        convolutions: "Sequence[Convolution]",
        in_channels: int,
        *,
        edge_type: EdgeType = DEFAULT_EDGE_TYPE,
        edge_dim: int = 0,
        verify: bool = True,
    ) -> "Model":
        """Makes a model of layers that are given by their operators; each layer reads the previous one.

        in_channels: channels of the nodes' features. edge_type: the edges that carry the messages, between
        nodes of one type. edge_dim: channels of the edges' features, if a message reads them.
        verify: whether `livegnn.model.verify` must accept each layer first.

        Raises `ModelError` if the operators do not fit together, or a condition fails, with a counterexample.
        """
        from livegnn.network.assembly import build

        check = ENTRY_POINTS.get().check_convolution if check_bool(verify, "verify") else None
        return build(Model, convolutions, in_channels, edge_type=edge_type, edge_dim=edge_dim, check=check)

    def _value(self, name: str) -> Input | EdgeInput:
        value = self._values.get(name)
        if value is None:
            raise ModelError(f"the model has no value {name!r}, only {', '.join(self._values)}")
        return value

    def _check(self) -> Mapping[str, Input | EdgeInput]:
        values: dict[str, Input | EdgeInput] = {}
        named: list[tuple[str, Input | EdgeInput]] = [*self.inputs.items(), *self.edge_inputs.items()]
        for name, given in named:
            if given.width < 1:
                raise ModelError(f"input {name!r} must be at least 1 channel wide, got {given.width}")
            if name in values:
                raise ModelError(f"{name!r} must be an input or an edge input, got both")
            if isinstance(given, EdgeInput) and given.column == "weight" and given.width != 1:
                raise ModelError(f"the weights {name!r} must be 1 channel wide, got {given.width}")
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
        uncalled = sorted(
            set(self.functions) - {str(s.attrs["function"]) for s in self.steps if s.op == "call"}
        )
        if uncalled:
            raise ModelError(f"no step calls the function {uncalled[0]!r}: leave it out")
        check_outputs(self.outputs, self.edge_outputs, self.output)
        outputs = [("output", value) for value in self.outputs.values()]
        for what, name in (*outputs, *(("layer", layer) for layer in self.layers)):
            if name not in values:
                raise ModelError(
                    f"the {what} must be a value of the model, one of {', '.join(values)}, got {name!r}"
                )
            if not isinstance(values[name], Input):
                raise ModelError(f"the {what} {name!r} must have rows of nodes, it has rows of edges")
        if not self.layers or self.layers[0] not in self.inputs or self.layers[-1] != self.output:
            raise ModelError(
                f"layers must begin with an input and end with the output {self.output!r}, got {self.layers}"
            )
        for value in self.edge_outputs.values():
            edge_scores_of(value, values, self.steps, self.outputs)
        return values

    def _check_step(self, step: Step, values: Mapping[str, Input | EdgeInput]) -> Input | EdgeInput:
        for name in step.inputs:
            if name not in values:
                missing = f"{describe(step)}: reads {name!r}, which no input and no earlier step gives"
                raise ModelError(f"{missing}; steps must be in topological order")
        for role, name in step.tensors.items():
            if name not in self.tensors:
                raise ModelError(f"{describe(step)}: its {role} {name!r} is not among the model's tensors")
        inputs = [values[name] for name in step.inputs]
        shapes = {role: self.tensors[name].shape for role, name in step.tensors.items()}
        widths = [value.width for value in inputs]
        width = check_step(step, widths, shapes)
        try:
            check_values(step.op, widths, {role: self.tensors[name] for role, name in step.tensors.items()})
        except ModelError as error:
            raise ModelError(f"{describe(step)}: {error}") from None
        if step.op == "call" and step.text("function") not in self.functions:
            raise ModelError(
                f"{describe(step)}: {step.text('function')!r} is not among the model's functions"
            )
        if step.op == "propagate":
            return self._check_propagate(step, inputs)
        if step.op == "degree":
            return Input(Degree.from_step(step).node_type, width)
        if step.op in ("source", "target"):
            edge_type = step.edge_type()
            _check_place(step, inputs[0], edge_type[0 if step.op == "source" else 2])
            return EdgeInput(edge_type, width)
        places = list(dict.fromkeys(map(_place, inputs)))
        if len(places) > 1:
            raise ModelError(
                f"{describe(step)}: inputs must be rows of one node type or one edge type, got "
                f"{' and '.join(map(str, places))}"
            )
        return Input(places[0], width) if isinstance(places[0], str) else EdgeInput(places[0], width)

    def _check_propagate(self, step: Step, inputs: Sequence[Input | EdgeInput]) -> Input:
        operators = Propagate.from_step(step)
        try:
            operators.check_widths([value.width for value in inputs])
        except ModelError as error:
            raise ModelError(f"{describe(step)}: {error}") from None
        each = 2 if operators.coefficients else 1
        for i, edge_type in enumerate(operators.edge_types):
            value, *coefficients = inputs[each * i : each * (i + 1)]
            if isinstance(value, Input):
                _check_place(step, value, operators.source_type(edge_type))
            else:
                _check_place(step, value, edge_type)
                if "source_rsqrt" in operators.message_local or operators.self_loops is not None:
                    raise ModelError(
                        f"{describe(step)}: source_rsqrt and self_loops need rows of source nodes, got rows "
                        "of edges"
                    )
            for coefficient in coefficients:
                _check_place(step, coefficient, edge_type)
        for own in inputs[each * len(operators.edge_types) :]:
            _check_place(step, own, operators.target_type)
        return Input(operators.target_type, inputs[0].width)


def _place(value: Input | EdgeInput) -> NodeType | EdgeType:
    return value.node_type if isinstance(value, Input) else value.edge_type


def _check_place(step: Step, value: Input | EdgeInput, expected: NodeType | EdgeType) -> None:
    if _place(value) != expected:
        raise ModelError(f"{describe(step)}: must read {expected!r} rows, got {_place(value)!r}")


ENTRY_POINTS: Registered[Model] = Registered()
"""Imports and verifies models; `livegnn.model` registers it."""
