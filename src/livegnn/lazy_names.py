"""Names that a package shows and that are loaded when they are first used.

`livegnn/__init__.py`, which runs before every other module and stands above all rooms, says where they are
(`register`). The package asks for them in its ``__getattr__`` (`load`). So a package can show what lies in a
room above it, such as `livegnn.model.verify`, and imports nothing of that room.

Thread safety: all is registered before any other module runs, and only read afterwards.
"""

from collections.abc import Collection, Mapping
from importlib import import_module

_homes: dict[str, Mapping[str, str]] = {}


def register(package: str, homes: Mapping[str, str]) -> None:
    """Says where the names of a package are. homes: name -> the module that has it, or that it is."""
    _homes[package] = homes


def names(package: str) -> Collection[str]:
    """What a package shows in this way."""
    return _homes[package].keys()


def load(package: str, name: str) -> object:
    """What a package shows by this name. Raises `AttributeError` if nothing, and what its module raises."""
    home = _homes[package].get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = import_module(home)
    found: object = module if home.endswith(f".{name}") else getattr(module, name)
    return found
