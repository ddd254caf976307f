"""The functions that `Model.from_pyg`, `Model.from_exported` and `Model.from_convolutions` call.

Each function loads the package that it needs when it is called, so a model alone loads no torch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

from livegnn.errors import ModelError
from livegnn.network.call_settings import CallSettings, ExportedSettings
from livegnn.network.model import Model
from livegnn.network.own_convolution import Convolution

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def import_module(module: object, settings: CallSettings) -> Model:
    with _loading("a PyG module"):
        from livegnn.importers import importing

    return importing.import_module(module, settings)


def import_exported(program: "ExportedProgram | str | PathLike[str]", settings: ExportedSettings) -> Model:
    with _loading("an exported program"):
        from livegnn.importers import exported

    return exported.import_exported(program, settings)


def check_convolution(convolution: Convolution, in_channels: int, edge_dim: int) -> None:
    from livegnn.verification import verify

    verify(convolution, in_channels=in_channels, edge_dim=edge_dim).raise_for_failure()


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Raises `ModelError` if torch or PyG is missing or too old for loading an importer."""
    from livegnn.importers.settings import check_torch

    check_torch()
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "torch_geometric"):
            raise
        needed = f"importing {what} needs {error.name}, which is not installed"
        raise ModelError(f"{needed}: pip install 'livegnn[torch]'") from error
