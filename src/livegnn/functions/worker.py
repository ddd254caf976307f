"""The process of a worker: `python -m livegnn.functions.worker FUNCTION [MEMORY]`, FUNCTION as
`Function.to_json`, MEMORY the descriptor of a `MemoryFile`.

It reads frames from its standard input and writes one for each to its standard output; other output is
written to standard error. A frame is `FRAME`, little endian, and the body. The first frame of a worker is
written when it is ready: 200 and the description of its predictor, or a problem. A worker ends at the
end of its input and at SIGTERM, in both cases after the request in hand.

Its memory is limited (`memory_limit`) when the predictor is open: asking for more is a MemoryError. Memory
that it shares does not count.
"""

import os
import signal
import struct
import sys
from typing import BinaryIO, Final

import livegnn.log_lines as log_lines
from livegnn.errors import LiveGNNError
from livegnn.functions.bodies import Answer, answer_error, answer_json
from livegnn.functions.function import Function, answer, join_memory, limit
from livegnn.http.problems import PROBLEM_JSON
from livegnn.remote.memory_limit import prepare

FRAME: Final = struct.Struct("<HdQQQQq")
"""Before each body: the status; the seconds after which to try again, below 0 for none; the length of the
body; the numbers of requests to the store, of bytes for the answer, and of requests that were sent again; the
length of the JSON, below 0 if no tensors are behind it. Only the length of a request counts.
"""

_SOME = 64 << 10
_NEVER = -1.0
_NO_TENSORS = -1


def pack_request(length: int) -> bytes:
    """The frame before the body of a request."""
    return FRAME.pack(0, _NEVER, length, 0, 0, 0, _NO_TENSORS)


def pack_answer(found: Answer) -> bytes:
    """The frame before the body of an answer."""
    again = _NEVER if found.retry_after is None else found.retry_after
    read = found.store_requests, found.store_bytes, found.store_retries
    json_length = _NO_TENSORS if found.json_length is None else found.json_length
    return FRAME.pack(found.status, again, len(found.body), *read, json_length)


def unpack_answer(frame: bytes) -> tuple[Answer, int]:
    """An answer without its body, and the length of the body."""
    status, again, length, *read = FRAME.unpack(frame)
    retry_after = None if again < 0 else again
    requests, size, retries, json_length = read
    kind = "application/json" if status == 200 else PROBLEM_JSON
    tensors = None if json_length < 0 else json_length
    return Answer(status, b"", retry_after, kind, requests, size, retries, tensors), length


def main(given: list[str]) -> None:
    """Runs a worker until its input ends."""
    # Nothing that prints may write between frames.
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    source = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: all its processes receive it
    ending = _Ending()
    log_lines.start_as_told(os.environ)
    prepare()
    try:
        function = Function.from_json(given[0])
        predictor = function.open()
        if len(given) > 1:
            join_memory(predictor, int(given[1]))
        room = limit(predictor, function)
    except Exception as error:
        _write(output, answer_error(error))
        if isinstance(error, LiveGNNError):
            sys.exit(1)  # the machine says why
        raise
    _write(output, answer_json(dict(predictor.describe())))
    while True:
        try:
            body = _read(source, ending)
        except MemoryError as error:  # for the data from one stage to the next
            _write(output, answer_error(error))
            continue
        if body is None:
            break
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


def _read(source: BinaryIO, ending: _Ending) -> memoryview | None:
    """The body of the next frame; None at the end. Raises MemoryError for one that has no room, and reads on
    behind it."""
    ending.waits = True
    if ending.wanted:
        return None
    first = source.read(1)
    ending.waits = False
    head = memoryview(bytearray(FRAME.size))
    head[:1] = first or b"\0"
    if not first or not _fill(source, head[1:]):
        return None
    length = FRAME.unpack(head)[2]
    try:
        body = memoryview(bytearray(length))
    except MemoryError:
        some = memoryview(bytearray(_SOME))
        while length and _fill(source, some[: min(length, _SOME)]):
            length -= min(length, _SOME)
        raise
    return body if _fill(source, body) else None


def _fill(source: BinaryIO, into: memoryview) -> bool:
    """Whether this number of bytes arrived; False if the other side has closed the stream."""
    while into:
        count = source.readinto(into)  # type: ignore[attr-defined]
        if not count:
            return False
        into = into[count:]
    return True


def _write(output: BinaryIO, found: Answer) -> None:
    for part in (pack_answer(found), found.body):
        rest = memoryview(part)
        while rest:
            rest = rest[output.write(rest) :]


if __name__ == "__main__":
    main(sys.argv[1:])
