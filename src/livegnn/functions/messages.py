"""A request as bytes, from the process that has read its body to the workers of each stage.

A worker trusts them: the body was read and checked once. `MAGIC`, the length of the head (u32), the head in
JSON, then the ids: little-endian integers of 64 bits, or texts in UTF-8 with a NUL between them, which no id
has. Anything may follow, such as a subgraph. A message lives as long as a request, so there is one version.
"""

import json
import struct
from typing import Final, cast

import numpy as np

from livegnn.errors import FileFormatError
from livegnn.functions.bodies import Asked
from livegnn.http.inference_protocol import AnswerForm

MAGIC: Final = b"LGNNASK1"
_LENGTH: Final = struct.Struct("<I")
_BEGIN: Final = len(MAGIC) + _LENGTH.size


def pack(asked: Asked) -> bytes:
    """The bytes of a request, without its timeout, which no worker needs."""
    text = len(asked.ids) > 0 and isinstance(asked.ids[0], str)
    data = "\0".join(cast("list[str]", asked.ids)).encode() if text else np.array(asked.ids, "<i8").tobytes()
    head = json.dumps(
        {
            "text": text,
            "size": len(data),
            "min_seq": asked.min_seq,
            "form": asked.form,
            "version": asked.version,
            "describes": asked.describes,
            "checks": asked.checks,
        }
    ).encode()
    return b"".join([MAGIC, _LENGTH.pack(len(head)), head, data])


def unpack(message: memoryview) -> tuple[Asked, memoryview]:
    """The request in bytes that `pack` wrote, and the bytes that follow it. Raises FileFormatError for any
    others."""
    if bytes(message[: len(MAGIC)]) != MAGIC:
        raise FileFormatError(
            f"a request to a worker must begin with {MAGIC!r}, got {bytes(message[:8])!r}: pack it with "
            "livegnn.functions.messages"
        )
    begin = _BEGIN + _LENGTH.unpack_from(message, len(MAGIC))[0]
    head = json.loads(bytes(message[_BEGIN:begin]))
    end = begin + head["size"]
    data = bytes(message[begin:end])
    ids = data.decode().split("\0") if head["text"] else np.frombuffer(data, "<i8").astype(np.int64)
    form = None if head["form"] is None else AnswerForm(*head["form"])
    asked = Asked(
        ids,
        head["min_seq"],
        form=form,
        version=head["version"],
        describes=head["describes"],
        checks=head["checks"],
    )
    return asked, message[end:]
