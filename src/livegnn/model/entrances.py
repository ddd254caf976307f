"""The functions of higher layers that `Model.from_pyg`, `Model.from_exported` and `Model.from_convolutions`
call.

`livegnn.model` does not import importers and verification: `livegnn/__init__.py` registers where these names
are, and each is loaded when it is first used (`livegnn.lazy_names`). Only type checkers import them here.
"""

from typing import TYPE_CHECKING

from livegnn import lazy_names

if TYPE_CHECKING:
    from livegnn.importers.exported import import_exported as import_exported
    from livegnn.importers.importing import import_module as import_module
    from livegnn.importers.settings import CallSettings as CallSettings
    from livegnn.importers.settings import check_torch as check_torch
    from livegnn.verification import verify as verify


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value
