"""Finds an output of a model by its name."""

from typing import NamedTuple

from livegnn.errors import InputError
from livegnn.network.model import Model
from livegnn.types import NodeType


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

    def find(self, name: str | None) -> Output:
        """The output with a name; None means the first. Raises `InputError` if there is none."""
        if name is None:
            return self._first
        found = self._by_name.get(name) if isinstance(name, str) else None
        if found is None:
            names = ", ".join(map(repr, self._by_name))
            raise InputError(f"output must be one of the model's, {names}, got {name!r}")
        return found
