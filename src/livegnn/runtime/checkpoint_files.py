"""Chains of checkpoints: a file that is complete alone, and later files that take blocks from earlier files.

Files of different chains share nothing, so damage to one file reaches the checkpoints of one chain only. A
whole chain is removed at a time, its newest file first: if that is interrupted, each remaining file still has
all the files that it needs. A view may have written files that belong to one checkpoint alone.
"""

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from livegnn.checkpoint import read_contents
from livegnn.errors import FileFormatError

_NAME: Final = re.compile(r"checkpoint-[0-9]{20}\.lgck")
_BESIDE: Final = re.compile(r"part-[0-9]+-(?:[0-9a-f]{8}-)?([0-9]{20})\.lgck")


def list_checkpoints(directory: Path) -> list[Path]:
    """Returns the checkpoints in `directory`, the newest first."""
    found = (path for path in directory.glob("checkpoint-*.lgck") if _NAME.fullmatch(path.name))
    return sorted(found, reverse=True)


def seq_of(path: Path) -> int:
    """Returns the sequence number of a checkpoint, by its name, whose end it is."""
    return int(path.stem.rpartition("-")[2])


def list_beside(path: Path) -> list[Path]:
    """Returns the files that views have written for the checkpoint at `path` (`View.save_beside`)."""
    found = path.parent.glob(f"part-*-{seq_of(path):020d}.lgck")
    return sorted(file for file in found if _BESIDE.fullmatch(file.name) and file.is_file())


def remove_checkpoint(path: Path) -> None:
    """Removes a checkpoint, and then the files that belong to it: without it, they are of no use."""
    path.unlink(missing_ok=True)
    for file in list_beside(path):
        file.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Removes files of checkpoints that were not finished, or not removed, as the process was killed."""
    for pattern in ("checkpoint-*.partial", "part-*.partial"):
        for leftover in directory.glob(pattern):
            leftover.unlink()
    whole = {seq_of(path) for path in list_checkpoints(directory)}
    for path in directory.glob("part-*.lgck"):
        named = _BESIDE.fullmatch(path.name)
        if named is not None and int(named[1]) not in whole and path.is_file():
            path.unlink()


def list_chains(directory: Path, foreign: AbstractSet[Path] = frozenset()) -> list[list[Path]]:
    """Returns the checkpoints in `directory` by chain: the newest chain first, the newest file of each first.

    foreign: files that are left out. A file whose header cannot be read belongs to the chain that needs it,
    or to none.
    """
    paths = [path for path in list_checkpoints(directory) if path not in foreign]
    firsts: dict[str, str] = {}
    for path in paths:
        try:
            files = [source.name for source in read_contents(path).files]
        except (FileFormatError, OSError):
            continue
        for name in (path.name, *files):
            firsts.setdefault(name, files[0] if files else path.name)
    chains: dict[str, list[Path]] = {}
    for path in paths:
        if path.name in firsts:
            chains.setdefault(firsts[path.name], []).append(path)
    return list(chains.values())


def remove_old(
    directory: Path,
    keep: int,
    passed_over: AbstractSet[Path] = frozenset(),
    foreign: AbstractSet[Path] = frozenset(),
) -> Path | None:
    """Removes the files older than the newest `keep` chains; returns the oldest file that these chains need.

    passed_over: files that a start could not use. A chain of such files alone does not count, and is removed
    when there are `keep` newer ones. foreign: files of another history: they neither count nor are removed.
    Returns None, with nothing removed, until there are `keep` chains.
    """
    chains = [chain for chain in list_chains(directory, foreign) if not passed_over >= set(chain)]
    if len(chains) < keep:
        return None
    kept = {path for chain in chains[:keep] for path in chain}
    oldest = min(kept)
    for path in list_checkpoints(directory):
        if path not in kept and path not in foreign and path < oldest:
            remove_checkpoint(path)
    return oldest


def may_follow(path: Path, full_every: int) -> bool:
    """Returns whether the next checkpoint may take blocks from the one at `path`, or must begin a chain.

    A chain has at most `full_every` files. It ends when the files after the first together have more bytes
    than the first.
    """
    try:
        contents = read_contents(path)
        if contents.sha256 is None or len(contents.files) + 1 >= full_every:
            return False
        sizes = [path.with_name(source.name).stat().st_size for source in contents.files]
    except (FileFormatError, OSError):
        return False
    return sum(sizes[1:]) + contents.size <= sizes[0] if sizes else True
