"""The register that keeps the deployed models for the next start."""

from collections.abc import Collection, Sequence
from typing import Protocol

from livegnn.inference import Mode
from livegnn.model import Model


class ModelRegister(Protocol):
    """A register of the deployed models for the next start. An error leaves the runtime as it was."""

    @property
    def names(self) -> Collection[str]:
        """The names of the models that it keeps."""

    @property
    def serving(self) -> str | None:
        """The model that answered last; None if none was chosen, so that the first engine answers."""

    @property
    def previous(self) -> str | None:
        """The model that answered before."""

    @property
    def switches(self) -> int:
        """The number of calls of `serve`, in all processes."""

    def add(self, name: str, model: Model, mode: Mode | Sequence[Mode]) -> None:
        """Keeps a model that follows the graph, and the mode of its engine."""

    def remove(self, name: str) -> None:
        """Removes a model."""

    def serve(self, name: str, previous: str | None) -> None:
        """Notes the model that answers, and the previous one."""

    def find_loss(self) -> str | None:
        """Returns why the next start would not find a kept model; None if it would find all."""


class Nothing:
    """A register that keeps nothing: a restart has only the models that the runtime is made with."""

    @property
    def names(self) -> Collection[str]:
        """No names."""
        return ()

    serving = previous = None
    switches = 0

    def add(self, name: str, model: Model, mode: Mode | Sequence[Mode]) -> None:
        """Does nothing."""

    def remove(self, name: str) -> None:
        """Does nothing."""

    def serve(self, name: str, previous: str | None) -> None:
        """Does nothing."""

    def find_loss(self) -> str | None:
        """Returns None: there is nothing to lose."""
