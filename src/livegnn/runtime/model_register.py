"""What keeps the models that are deployed for the next start."""

from collections.abc import Collection, Sequence
from typing import Protocol

from livegnn.inference import Mode
from livegnn.model import Model


class ModelRegister(Protocol):
    """Keeps what is deployed for the next start. What it raises leaves the runtime as it was."""

    @property
    def names(self) -> Collection[str]:
        """Those that it keeps."""

    @property
    def serving(self) -> str | None:
        """The model that answered last; None if none was chosen, so that the first engine answers."""

    @property
    def previous(self) -> str | None:
        """The one that answered before."""

    def add(self, name: str, model: Model, mode: Mode | Sequence[Mode]) -> None:
        """Keeps a model that follows the graph, and the mode of its engine."""

    def remove(self, name: str) -> None:
        """Forgets one."""

    def serve(self, name: str, previous: str | None) -> None:
        """Notes which model answers, and which one before."""

    def find_loss(self) -> str | None:
        """Why the next start would not find what it keeps; None if it would."""


class Nothing:
    """Keeps nothing: after a restart the models are those that the runtime is made with."""

    @property
    def names(self) -> Collection[str]:
        """None."""
        return ()

    serving = previous = None

    def add(self, name: str, model: Model, mode: Mode | Sequence[Mode]) -> None:
        """Does nothing."""

    def remove(self, name: str) -> None:
        """Does nothing."""

    def serve(self, name: str, previous: str | None) -> None:
        """Does nothing."""

    def find_loss(self) -> str | None:
        """None: there is nothing to lose."""
