"""Chains of checkpoints: a file that stands alone, and those after it that take blocks from files before.

Files of different chains share nothing, so what happens to one file reaches the checkpoints of one chain
only. A whole chain is removed at a time, its newest file first: whenever that stops, each file that is left
has all that it needs.
"""

import re
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from livegnn.checkpoint import read_contents
from livegnn.errors import FileFormatError

_NAME: Final = re.compile(r"checkpoint-[0-9]{20}\.lgck")


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in `directory`, the newest first."""
    found = (path for path in directory.glob("checkpoint-*.lgck") if _NAME.fullmatch(path.name))
    return sorted(found, reverse=True)


def seq_of(path: Path) -> int:
    """The sequence number of a checkpoint, by its name."""
    return int(path.stem.removeprefix("checkpoint-"))


def list_chains(directory: Path, foreign: AbstractSet[Path] = frozenset()) -> list[list[Path]]:
    """The checkpoints in `directory` by chain, the newest first, and so each chain.

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
    """Removes what is older than the newest `keep` chains; returns the oldest file that they need.

    passed_over: files that a start could not use. A chain of such files alone does not count, and goes when
    `keep` newer ones are there. foreign: files that are not of this history: they neither count nor go. None,
    with nothing removed, until there are as many.
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
    """Whether the next checkpoint may take blocks from the one at `path`, or must begin a chain.

    A chain has `full_every` files at most, and those after the first do not take more than the first.
    """
    try:
        contents = read_contents(path)
        if contents.sha256 is None or len(contents.files) + 1 >= full_every:
            return False
        sizes = [path.with_name(source.name).stat().st_size for source in contents.files]
    except (FileFormatError, OSError):
        return False
    return sum(sizes[1:]) + contents.size <= 2 * sizes[0] if sizes else True
