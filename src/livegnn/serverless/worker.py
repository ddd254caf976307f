"""The process of a worker: `python -m livegnn.serverless.worker FUNCTION [MEMORY]`, FUNCTION as
`Function.to_json`, MEMORY the descriptor of a `MemoryFile`.

It reads frames from its standard input and writes one for each to its standard output; what would be printed
goes to standard error. A frame is `FRAME`, little endian, and the body. The first frame of a worker is
written when it is ready: 200 and what its predictor says of itself, or 500 and an error. A worker ends at the
end of its input and at SIGTERM, in both cases after the request in hand.

Its memory is limited (`memory_limit`) when the predictor is open: asking for more is a MemoryError. Memory
that it shares does not count.
"""

import os
import signal
import struct
import sys
from typing import BinaryIO, Final

from livegnn.errors import LiveGNNError
from livegnn.serverless.bodies import Answer, answer_error, answer_json
from livegnn.serverless.function import Function, answer, confine, join_memory
from livegnn.serverless.memory_limit import limit_memory, prepare

FRAME: Final = struct.Struct("<HQQQ")
"""Status, length of the body, and of an answer how many requests to the store it took, and bytes."""


def main(given: list[str]) -> None:
    """Runs a worker until its input ends."""
    # Whatever prints must not write between frames.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: it goes to all its processes
    ending = _Ending()
    prepare()
    try:
        function = Function.from_json(given[0])
        predictor = function.open()
        if len(given) > 1:
            join_memory(predictor, int(given[1]))
        room = confine(
            predictor, function, None if function.memory is None else limit_memory(function.memory)
        )
    except Exception as error:
        _write(output, answer_error(error)._replace(status=500))
        if isinstance(error, LiveGNNError):
            sys.exit(1)  # the node says why
        raise
    _write(output, answer_json(dict(predictor.describe())))
    while (body := _read(source, ending)) is not None:
        _write(output, answer(predictor, function.stage, body, room))


class _Ending:
    """SIGTERM: ends the process at once while it waits for a request, else after the one in hand."""

    def __init__(self) -> None:
        self.wanted = self.waits = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.wanted = True
        if self.waits:
            raise SystemExit(0)


def _read(source: BinaryIO, ending: _Ending) -> bytes | None:
    """The body of the next frame; None at the end."""
    ending.waits = True
    if ending.wanted:
        return None
    first = source.read(1)
    ending.waits = False
    head = _exactly(source, FRAME.size - 1, first)
    if head is None:
        return None
    _, length, _, _ = FRAME.unpack(head)
    return _exactly(source, length, b"")


def _exactly(source: BinaryIO, count: int, begun: bytes) -> bytes | None:
    """`begun` and `count` more bytes; None if the other side has gone."""
    parts, missing = [begun], count
    while missing:
        part = source.read(missing)
        if not part:
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _write(output: BinaryIO, found: Answer) -> None:
    head = FRAME.pack(found.status, len(found.body), found.store_requests, found.store_bytes)
    rest = memoryview(head + found.body)
    while rest:
        rest = rest[output.write(rest) :]


if __name__ == "__main__":
    main(sys.argv[1:])
