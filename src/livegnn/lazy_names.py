"""Names that a package exports and loads on first use.

The package registers the modules that define them (`register`) and loads them in its ``__getattr__``
(`load`). So ``from livegnn.model import Model`` loads neither the importers nor torch.

Thread safety: a package registers its names once, while it is imported; later they are only read.
"""

from collections.abc import Collection, Mapping
from importlib import import_module

_homes: dict[str, Mapping[str, str]] = {}


def register(package: str, homes: Mapping[str, str]) -> None:
    """Registers the lazy names of a package. homes: name -> the module that defines it, or that it is."""
    _homes[package] = homes


def names(package: str) -> Collection[str]:
    """The lazy names of a package."""
    return _homes[package].keys()


def load(package: str, name: str) -> object:
    """The object behind a lazy name. Raises `AttributeError` if there is none, and what its module raises."""
    home = _homes[package].get(name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    module = import_module(home)
    found: object = module if home.endswith(f".{name}") else getattr(module, name)
    return found
