"""Whether a snapshot is as it was written: each byte that its manifest names, by the checksums there."""

import zlib
from collections.abc import Iterator

import numpy as np

from livegnn.errors import ObjectDamagedError, ObjectMissingError
from livegnn.snapshots.manifest import Manifest, Section
from livegnn.snapshots.objects import Objects

_PIECE = 32 << 20


def find_damage(objects: Objects, manifest: Manifest) -> Iterator[str]:
    """The damage, a sentence for each section that is not whole; nothing if all are.

    Raises `StoreUnavailableError` if the store does not answer.
    """
    for number, layer in enumerate(manifest.layers):
        for key, table in layer.tables.items():
            named = dict(table.sections)
            if table.changed is not None:
                named["changed"] = table.changed
            for name, section in named.items():
                wrong = _check(objects, section)
                if wrong is not None:
                    yield f"layer {number} ({layer.kind}), {key}, {name}: {wrong}"


def _check(objects: Objects, section: Section) -> str | None:
    crc32 = 0
    try:
        if not section.length:
            objects.size(section.path)
        for begin in range(0, section.length, _PIECE):
            length = min(_PIECE, section.length - begin)
            data = objects.get_ranges(section.path, np.array([section.offset + begin]), np.array([length]))
            crc32 = zlib.crc32(data.data, crc32)
    except (ObjectMissingError, ObjectDamagedError) as error:
        return str(error)
    if crc32 != section.crc32:
        return f"{section.path} has other bytes than were written: their checksum is another"
    return None
