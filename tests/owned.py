"""What lies in a directory that belongs to a log."""

from pathlib import Path

from livegnn.log.directories import LOCK, OWNER


def content_of(directory: Path) -> dict[str, bytes]:
    """All files below it, but locks, by path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != LOCK
    }


def names_in(directory: Path) -> list[str]:
    """The names of what was written there, without those by which the directory is owned."""
    return sorted(path.name for path in directory.iterdir() if path.name not in (LOCK, OWNER))
