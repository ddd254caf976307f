"""`SqliteTail`, by the name that users import it under."""

from livegnn.log.sqlite.tail import SqliteTail

__all__ = ["SqliteTail"]
