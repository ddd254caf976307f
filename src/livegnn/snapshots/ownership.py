"""Snapshots belong to a log, which an object at the top of their store names.

It has the contents of the file in a folder that belongs to a log. A store has no locks: there the number of a
snapshot is given once, so only one of two processes on copies of one log continues.
"""

from livegnn.errors import InputError, ObjectExistsError, ObjectMissingError
from livegnn.log.directories import OWNER, Record, parse_record, to_bytes, where_it_was
from livegnn.snapshots.objects import Objects


def claim(objects: Objects, record: Record) -> None:
    """Makes the snapshots of a store those of the log of `record`, if they belong to no log.

    Raises InputError if they are another log's, FileFormatError if the record of the owner is damaged,
    SnapshotError.
    """
    if check_owner(objects, record):
        return
    try:
        objects.put_new(OWNER, to_bytes(record))
    except ObjectExistsError:
        check_owner(objects, record)  # of another one, which was first


def check_owner(objects: Objects, record: Record) -> bool:
    """Whether snapshots are those of the log of `record`; False without an owner. Raises as `claim`."""
    try:
        theirs = parse_record(objects.get(OWNER), f"{OWNER} in {objects.url}")
    except ObjectMissingError:
        return False
    if theirs.log != record.log:
        raise InputError(
            f"{objects.url} must hold the snapshots of this log, {record.place}, got those of another one, "
            f"{where_it_was(theirs, record.place)}: name another place; or, if neither that log nor an "
            f"object there is needed, remove {OWNER} there"
        )
    return True
