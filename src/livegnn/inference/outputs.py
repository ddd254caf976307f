"""Which of a model's outputs is meant by its name."""

from typing import NamedTuple

from livegnn.errors import InputError
from livegnn.model import Model
from livegnn.types import NodeType


class Output(NamedTuple):
    """Where an output stands among those of the model, and whose rows it has."""

    position: int
    node_type: NodeType


class Outputs:
    """The outputs of one model by name. Immutable."""

    def __init__(self, model: Model) -> None:
        self._by_name = {
            name: Output(position, model.node_type(value))
            for position, (name, value) in enumerate(model.outputs.items())
        }
        self._values = tuple(model.outputs.values())
        self._first = next(iter(self._by_name.values()))

    def find(self, name: str | None) -> Output:
        """The output of a name; None means the first. Raises `InputError` if there is none of that name."""
        if name is None:
            return self._first
        found = self._by_name.get(name) if isinstance(name, str) else None
        if found is None:
            names = ", ".join(map(repr, self._by_name))
            raise InputError(f"output must be one of the model's, {names}, got {name!r}")
        return found

    def value(self, name: str | None) -> str:
        """The value of the model that an output is. Raises `InputError` as `find` does."""
        return self._values[self.find(name).position]
