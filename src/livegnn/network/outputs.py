"""Finds an output, or an edge output, of a model by its name; a model without its edge outputs."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from livegnn.errors import InputError
from livegnn.network.edge_scores import EdgeScores
from livegnn.network.model import Model
from livegnn.network.steps import needed_steps
from livegnn.types import EdgeType, NodeType
from livegnn.wording import format_edge_type, quoted


class Output(NamedTuple):
    """An output: its position among the distinct output values, the type of its nodes, and the value."""

    position: int
    node_type: NodeType
    value: str


class Outputs:
    """The outputs of one model by name. Immutable."""

    def __init__(self, model: Model) -> None:
        self.values = tuple(dict.fromkeys(model.outputs.values()))
        """The values of the outputs, each once."""
        self._by_name = {
            name: Output(self.values.index(value), model.node_type(value), value)
            for name, value in model.outputs.items()
        }
        self._first = next(iter(self._by_name.values()))
        self._of_edges = frozenset(model.edge_outputs)

    def find(self, name: str | None, others: Collection[str] = ()) -> Output:
        """The output with a name; None means the first. Raises `InputError` if there is none. others: names
        that the caller could have given too."""
        if name is None:
            return self._first
        found = self._by_name.get(name) if isinstance(name, str) else None
        if found is None:
            if isinstance(name, str) and name in self._of_edges:
                raise InputError(
                    f"{name!r} is an edge output: read it by score, predict_edges or a sink of edges"
                )
            names = ", ".join(map(repr, [*self._by_name, *others]))
            raise InputError(f"output must be one of the model's, {names}, got {name!r}")
        return found


class EdgeOutput(NamedTuple):
    """An edge output: its position among them, its name, and what it reads and computes."""

    position: int
    name: str
    scores: EdgeScores


class EdgeOutputs:
    """The edge outputs of one model by name. Immutable."""

    def __init__(self, model: Model) -> None:
        self._by_name = {
            name: EdgeOutput(position, name, scores)
            for position, (name, scores) in enumerate(model.edge_scores.items())
        }

    def find(self, name: str | None, edge_type: EdgeType | None = None) -> EdgeOutput:
        """The edge output with a name, or the only one, for edges of this type. Raises `InputError` if there
        is none, or if there are several and the arguments do not say which."""
        if not self._by_name:
            raise InputError(
                "the model has no edge output, so it scores no edges: import a module whose output has a row "
                "for each edge"
            )
        if name is not None and (not isinstance(name, str) or name not in self._by_name):
            raise InputError(f"output must be one of the edge outputs, {self._list()}, got {quoted(name)}")
        named = self._by_name.values() if name is None else [self._by_name[name]]
        found = [one for one in named if edge_type in (None, one.scores.edge_type)]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"output must be given, one of {self._list()}: the model has several")
        raise InputError(f"edge_type must be that of an edge output, {self._list()}, got {quoted(edge_type)}")

    def _list(self) -> str:
        return ", ".join(
            f"{one.name!r} of {format_edge_type(one.scores.edge_type)} edges"
            for one in self._by_name.values()
        )


def without_edge_outputs(model: Model) -> Model:
    """The model without its edge outputs, and without what only they read; the same object if it has none."""
    if not model.edge_outputs:
        return model
    steps = needed_steps(model.steps, model.shown)
    read = {name for step in steps for name in step.inputs}
    tensors = {name for step in steps for name in step.tensors.values()}
    functions = {step.text("function") for step in steps if step.op == "call"}
    return replace(
        model,
        steps=tuple(steps),
        tensors={name: array for name, array in model.tensors.items() if name in tensors},
        functions={name: function for name, function in model.functions.items() if name in functions},
        edge_inputs={name: given for name, given in model.edge_inputs.items() if name in read},
        edge_outputs={},
    )
