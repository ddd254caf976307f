"""Whether a checkpoint is of the history of a log: of that log, and of what it holds up to that event."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from livegnn.checkpoint import read_contents
from livegnn.errors import FileFormatError, LogError
from livegnn.log import ReadableLog
from livegnn.log.directories import identity_of
from livegnn.runtime.checkpoint_files import list_checkpoints
from livegnn.types import JSON, State

_WAY_OUT: Final = "Put back the log that the checkpoints belong to, or move the checkpoints away"


def history_state(log: ReadableLog, seq: int) -> State:
    """What a checkpoint at event `seq` knows of its log."""
    return State({"digest": log.digest(seq), "log": identity_of(log)}, {})


def check_history(log: ReadableLog, path: Path, known: Mapping[str, JSON], seq: int) -> None:
    """Raises LogError if a checkpoint is of another history than `log` has: by the digests of both, or, where
    one is not known any more, by the identities of the logs.

    known: what `history_state` said, nothing of older checkpoints. A log that is too short may be the one.
    """
    theirs = known.get("digest")
    ours = log.digest(seq) if theirs is not None and seq <= log.last_seq() else None
    if ours is not None:
        if ours != theirs:
            raise LogError(
                f"the log must hold what led to the checkpoint {path}, entries up to event {seq} with the "
                f"digest {theirs}, got {ours}: it is not the log of this graph. {_WAY_OUT}"
            )
    elif None not in (theirs := known.get("log"), ours := identity_of(log)) and theirs != ours:
        raise LogError(
            f"the log must be the one that led to the checkpoint {path}, of the identity {theirs}, got "
            f"{ours}: it is not the log of this graph. {_WAY_OUT}"
        )


def find_foreign(log: ReadableLog, directory: Path, own: Collection[Path] = ()) -> set[Path]:
    """The checkpoints in `directory` that are not of the history of `log`. own: those that are known to be.

    One whose header cannot be read, or that says nothing of its log, is not among them.
    """
    return {path for path in list_checkpoints(directory) if path not in own and is_foreign(log, path)}


def is_foreign(log: ReadableLog, path: Path) -> bool:
    """Whether there is a checkpoint at `path` that is not of the history of `log`."""
    try:
        contents = read_contents(path)
    except (FileFormatError, OSError):
        return False
    known = contents.meta.get("log", {})
    if known.get("log") not in (None, identity_of(log)) or log.last_seq() < contents.seq:
        return True
    try:
        check_history(log, path, known, contents.seq)
    except LogError:
        return True
    return False
