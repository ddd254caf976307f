"""Bodies of events as a stream of Arrow, read without trust.

Arrow reads a stream in place, so a body may claim more than it has: a compressed column of a thousand times
its bytes, a billion rows without bytes, indices outside of their column. Compression and dictionaries are
refused by the description of each message, before Arrow reads its columns; the number of rows is bounded by
that of the bytes; then Arrow validates every value.
"""

import struct
from typing import TYPE_CHECKING, Final

from livegnn.errors import InputError, TooLargeError
from livegnn.events import Events
from livegnn.events.builder import from_chunks
from livegnn.events.chunk import Chunk
from livegnn.events.json_lines import STRANGERS
from livegnn.http.refusals import ExtraMissing
from livegnn.wording import quoted

if TYPE_CHECKING:
    import pyarrow as pa

_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The end of a stream: a message without bytes."""
_HEADER_FIELD: Final = 2  # of the table Message, in Arrow's Message.fbs
_COMPRESSION_FIELD: Final = 3  # of the table RecordBatch


def read_arrow(body: bytes) -> "pa.Table":
    """The rows of a body. Raises InputError, and ExtraMissing where pyarrow is not installed."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise ExtraMissing(
            "a stream of Arrow needs pyarrow, which is not installed where the server runs: pip install "
            "'livegnn[arrow]', or send JSON lines"
        ) from None
    try:
        source = pa.BufferReader(body)
        _check_messages(pa.ipc.MessageReader.open_stream(source))
        if source.tell() != len(body) or not body.endswith(_END):
            raise InputError(
                f"the body must be one whole stream of Arrow, got {len(body) - source.tell():,} bytes after "
                "its end, or no end: events there would be lost"
            )
        batches = []
        with pa.ipc.open_stream(body) as stream:
            _check_types(stream.schema)
            for batch in stream:
                if batch.num_rows > len(body):
                    raise InputError(
                        f"a body of {len(body):,} bytes must have as many rows at most, got more"
                    )
                batch.validate(full=True)
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except InputError:
        raise
    except (pa.ArrowException, OSError, struct.error, ValueError) as error:
        raise InputError(f"the body must be a stream of Arrow, got {error}") from error


def read_arrow_events(body: bytes) -> Events:
    """The events of a body, a row each. Raises InputError that names the row."""
    return events_of(read_arrow(body))


def events_of(table: "pa.Table") -> Events:
    """The events of rows of `read_arrow`. Raises InputError that names the row."""
    import pyarrow as pa

    from livegnn.events import arrow

    chunks: list[Chunk] = []
    try:
        for chunk in arrow.decode(table):
            if len(chunks) == STRANGERS.runs:
                raise TooLargeError(
                    f"events may change their kind, type or fields {STRANGERS.runs:,} times, got more: send "
                    "them in parts, or those of one kind one after the other"
                )
            chunks.append(chunk)
    except pa.ArrowException as error:
        raise InputError(
            f"the columns of events must have the types of Events.from_arrow: {error}"
        ) from error
    return from_chunks(chunks)


def _check_types(schema: "pa.Schema") -> None:
    """Raises InputError for types whose values may be many times as many as their bytes, and for columns of
    one name."""
    from pyarrow import types

    names: set[str] = set()
    for field in schema:
        name, kind = field.name, field.type  # a name may be bytes that are no text
        if name in names:
            raise InputError(f"each column must be there once, got {quoted(name)} twice")
        names.add(name)
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            kind = kind.value_type
        elif types.is_null(kind):
            continue
        known = (types.is_string, types.is_large_string, types.is_integer, types.is_floating)
        if not any(is_kind(kind) for is_kind in known):
            raise InputError(
                f"columns must be text, numbers, or lists of them, got {quoted(name)} of {field.type}"
            )


def _check_messages(messages: "pa.ipc.MessageReader") -> None:
    """Raises InputError for messages that become larger than they are."""
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            return
        if message.type == "dictionary":
            raise InputError("columns must have no dictionaries, got one: send texts as text")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise InputError("columns must not be compressed, got a compressed one: write the stream without")


def _is_compressed(metadata: bytes) -> bool:
    """Whether the message has the field that describes how its columns are compressed."""
    message = struct.unpack_from("<I", metadata)[0]
    header = _field(metadata, message, _HEADER_FIELD)
    if header is None:
        return False
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    return _field(metadata, batch, _COMPRESSION_FIELD) is not None


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """The place of a field of a table, as FlatBuffers lay it out; None if it is left out."""
    layout = table - struct.unpack_from("<i", metadata, table)[0]
    size = struct.unpack_from("<H", metadata, layout)[0]
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", metadata, layout + place)[0] if place < size else 0
    return table + offset if offset else None
