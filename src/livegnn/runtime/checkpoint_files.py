"""Chains of checkpoints: a file that is complete alone, and later files that take blocks from earlier files.

Files of different chains share nothing, so damage to one file reaches the checkpoints of one chain only. A
whole chain is removed at a time, its newest file first: if that is interrupted, each remaining file still has
all the files that it needs.
"""

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from livegnn.checkpoint import read_contents
from livegnn.errors import FileFormatError

_NAME: Final = re.compile(r"checkpoint-[0-9]{20}\.lgck")


def list_checkpoints(directory: Path) -> list[Path]:
    """Returns the checkpoints in `directory`, the newest first."""
    found = (path for path in directory.glob("checkpoint-*.lgck") if _NAME.fullmatch(path.name))
    return sorted(found, reverse=True)


def seq_of(path: Path) -> int:
    """Returns the sequence number of a checkpoint, by its name."""
    return int(path.stem.removeprefix("checkpoint-"))


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
            path.unlink()
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
