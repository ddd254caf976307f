"""The functions that `Model.from_pyg`, `Model.from_exported` and `Model.from_convolutions` call.

They import and verify models, in packages that need `Model`. So only their signatures are here. The functions
are in `livegnn.model.entry_points`, and `livegnn.model`, from which users get `Model`, registers them.
"""

from os import PathLike
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from livegnn.network.call_settings import CallSettings, ExportedSettings

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from livegnn.network.own_convolution import Convolution

Made = TypeVar("Made")
Made_co = TypeVar("Made_co", covariant=True)
"""`Model`, which this module does not import."""


class EntryPoints(Protocol[Made_co]):
    """Functions that make and check models; for the arguments see the methods of `Model`."""

    def import_module(self, module: object, settings: CallSettings) -> Made_co:
        """The model of a module."""
        ...

    def import_exported(
        self, program: "ExportedProgram | str | PathLike[str]", settings: ExportedSettings
    ) -> Made_co:
        """The model of an exported program."""
        ...

    def check_convolution(self, convolution: "Convolution", in_channels: int, edge_dim: int) -> None:
        """Raises `ModelError` if `livegnn.model.verify` does not accept a convolution."""
        ...


class Registered(Generic[Made]):
    """The entry points, once they are registered, which happens while a module is imported."""

    def __init__(self) -> None:
        self._entry_points: EntryPoints[Made] | None = None

    def register(self, entry_points: EntryPoints[Made]) -> None:
        self._entry_points = entry_points

    def get(self) -> EntryPoints[Made]:
        """The entry points. Raises `RuntimeError` if there are none, as before ``import livegnn.model``."""
        if self._entry_points is None:
            raise RuntimeError("models are imported and verified by livegnn.model: import it first")
        return self._entry_points
