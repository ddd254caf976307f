"""`SqliteReader`, by the name that users import it under."""

from livegnn.log.sqlite.reader import SqliteReader

__all__ = ["SqliteReader"]
