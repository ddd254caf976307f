"""When deltas are joined, when a base is written again, and which objects are not needed any more."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from livegnn.arguments import check_int, check_not_negative
from livegnn.errors import FileFormatError, InputError, ObjectMissingError
from livegnn.snapshots.manifest import Manifest, list_manifests
from livegnn.snapshots.objects import Objects, as_objects
from livegnn.snapshots.writer import DATA

Step: TypeAlias = Literal["delta", "merge", "base"]


@dataclass(frozen=True)
class Compaction:
    """most_deltas: how many layers a reader has to look through at most, besides the base. largest_share: how
    large one delta of all changes since the base may be, as a share of the base, before a base is due. Raises
    `InputError`.
    """

    most_deltas: int = 8
    largest_share: float = 0.5

    def __post_init__(self) -> None:
        check_int(self.most_deltas, "most_deltas", 0)
        check_not_negative(self.largest_share, "largest_share")

    def choose(self, base: int | None, deltas: Sequence[int], merged: int) -> Step:
        """The next layer to write. base, deltas: bytes of the present layers; None: there is no base. merged:
        about how many bytes one delta of all changes since the base would have."""
        if base is None or merged > self.largest_share * base:
            return "base"
        if len(deltas) >= self.most_deltas or sum(deltas) > 2 * max(merged, self.largest_share * base):
            return "merge"
        return "delta"


def check_grace(grace: object) -> float:
    """`grace`, if it is a finite number of seconds of at least 0. Raises `InputError`."""
    seconds = check_not_negative(grace, "grace, in seconds,")
    if seconds == math.inf:
        raise InputError("grace, in seconds, must be finite, got inf: 1e9 is about 30 years")
    return seconds


def collect(where: str | Objects, grace: float) -> int:
    """Removes manifests that were replaced at least `grace` seconds ago, and objects of layers that no
    manifest names and that are older than that. Returns the number of removed objects.

    Only the process that writes the snapshots may call it, between two of them: objects that it has not named
    yet would look like unused ones. Time is that of the store's clock, from manifest to manifest. where: the
    URL of a store, or an opened one. Raises `InputError` for other values, and for a grace that is negative
    or not finite.
    """
    check_grace(grace)
    objects = as_objects(where)
    manifests = list_manifests(objects)
    if not manifests:
        return 0
    now = manifests[-1].modified
    kept, removed = [], 0
    for item, later in zip(manifests, [*manifests[1:], None], strict=True):
        if later is not None and (now - later.modified).total_seconds() >= grace:
            objects.delete(item.path)
            removed += 1
        else:
            kept.append(item)
    named = set()
    for item in kept:
        try:
            manifest = Manifest.from_bytes(objects.get(item.path), item.path)
        except ObjectMissingError:
            continue
        except FileFormatError:
            return removed  # what a damaged manifest names is not known
        named |= {section.path for section in manifest.sections()}
    for item in objects.list(DATA):
        if item.path not in named and (now - item.modified).total_seconds() >= grace:
            objects.delete(item.path)
            removed += 1
    return removed
