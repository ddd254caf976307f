"""The HTTP server: events in, predictions out (see docs/server.md). Loaded when it is first used."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livegnn.server.app import create_app as create_app
    from livegnn.server.app import listen as listen
    from livegnn.server.app import serve as serve

__all__ = ["create_app", "listen", "serve"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from livegnn.server import app

    value: object = getattr(app, name)
    return value
