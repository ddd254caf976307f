"""The beginning of a log is deleted: what no graph, checkpoint or consumer goes on from any more.

A step deletes some whole rows, in one transaction that also notes where the log begins now, with the chain of
the last row that went. So after a crash the log begins somewhere between the two ends, with all that belongs
to what is left. The last row and the last batch always stay: they say where the log ends. Refused entries
keep their payload, in the table `dead_letters`, until they have been appended again. Thread safety: none, the
caller has the connection to itself.
"""

from itertools import accumulate
from typing import Any, Final

import apsw

from livegnn.log.keys import RETRY
from livegnn.log.sqlite.checksums import add_checksum
from livegnn.log.sqlite.entry_rows import Row, begin_of
from livegnn.log.sqlite.forgetting import drop_forgotten

_ROWS: Final = 256  # of a step at most
_BYTES: Final = 2**20  # of payload in a step, or one row


def trim_step(connection: apsw.Connection, up_to: int) -> int | None:
    """Deletes some rows at or before event `up_to`; returns the last event deleted, None if there are none.

    Raises FileFormatError or InputError for a refused entry that is not as it was written.
    """
    rows: list[Any] = connection.execute(
        "SELECT seq, length(payload), chain FROM entries "
        "WHERE seq <= ? AND seq < (SELECT max(seq) FROM entries) ORDER BY seq LIMIT ?",
        (up_to, _ROWS),
    ).fetchall()
    fitting = sum(size <= _BYTES for size in accumulate(length for _, length, _ in rows))
    if not rows:
        return None
    end, _, chain = rows[max(fitting, 1) - 1]
    begin = begin_of(connection).seq
    drop_forgotten(connection, end)
    _keep_letters(connection, begin, end)
    connection.execute("DELETE FROM entries WHERE seq <= ?", (end,))
    connection.execute("DELETE FROM batches WHERE seq <= ? AND seq < (SELECT max(seq) FROM batches)", (end,))
    connection.executemany(
        "REPLACE INTO properties VALUES (?, ?, ?)",
        map(add_checksum, [("trimmed", str(end)), ("trimmed_chain", (chain or b"").hex())]),
    )
    return int(end)


def forget_retried(connection: apsw.Connection) -> None:
    """Deletes refused entries before the beginning of the log that have been appended again since."""
    gone = begin_of(connection).seq, RETRY
    connection.execute("DELETE FROM dead_letters WHERE seq <= ? AND ? || seq IN (SELECT key FROM keys)", gone)
    connection.execute("DELETE FROM rejections WHERE seq <= ? AND ? || seq IN (SELECT key FROM keys)", gone)


def _keep_letters(connection: apsw.Connection, begin: int, end: int) -> None:
    connection.execute(
        "DELETE FROM rejections WHERE seq > ? AND seq <= ? AND ? || seq IN (SELECT key FROM keys)",
        (begin, end, RETRY),
    )
    rejected: list[Any] = connection.execute(
        "SELECT seq FROM rejections WHERE seq > ? AND seq <= ?", (begin, end)
    ).fetchall()
    for (seq,) in rejected:
        row: Any = connection.execute(f"{Row.SELECT} WHERE seq >= ? ORDER BY seq LIMIT 1", (seq,)).fetchone()
        entry = Row(*row).decode().entry(seq)
        if entry is not None:
            connection.execute("REPLACE INTO dead_letters VALUES (?, ?)", (seq, entry.events.to_bytes()))
