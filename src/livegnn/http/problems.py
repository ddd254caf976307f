"""Failing answers of every process: a problem (RFC 9457) for each error, and a page for each kind of problem.

`PROBLEMS` is the one table of statuses. It loads fast, because functions import it at their start.
"""

import json
import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from livegnn.errors import (
    DiskFullError,
    FileFormatError,
    InputError,
    LiveGNNError,
    LogBusyError,
    LogError,
    LogMovedError,
    ModelError,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    OverloadedError,
    SnapshotError,
    SnapshotReplacedError,
    SourceError,
    StoreUnavailableError,
    TimeoutExpired,
    TooLargeError,
    UnknownEdgeError,
    UnknownNodeError,
    UnknownTypeError,
    ViewMissingError,
    WorkersFailed,
    WorkerUnavailableError,
    shortened,
)
from livegnn.http.refusals import (
    AddressBusy,
    BodyTooLarge,
    BodyTooSlow,
    ChangesNotKept,
    ExtraMissing,
    KeyExhausted,
    KeyForbids,
    KeyMissing,
    KeyUnknown,
    LoopEnded,
    NotVisible,
    ProcessStops,
    UnknownHost,
    UnknownMediaType,
    UnknownMethod,
    UnknownOrigin,
    UnknownPath,
)

PROBLEM_JSON: Final = "application/problem+json"
PAGES: Final = "/problems"
"""The path of the page that lists all kinds; the page of a kind is below it."""
PAGE_TYPE: Final = "text/plain; charset=utf-8"

_PROTOCOL: Final = "/v2"
_RETRY: Final = 1.0
_SAME_AGAIN: Final = "Send the request again after the seconds of the header retry-after."
_LOG: Final = "The log of the process has the traceback. Repair its cause, or report it."


class Kind(NamedTuple):
    """A kind of problems. retry_after: seconds after which a request may be repeated; None if the answer does
    not say it.
    """

    name: str
    status: int
    title: str
    when: str
    advice: str
    retry_after: float | None = None

    @property
    def page(self) -> str:
        """The text of its page."""
        return (
            f"{self.title}\n\ntype: {PAGES}/{self.name}\nstatus: {self.status}\n\n"
            f"When: {self.when}\n\nWhat to do: {self.advice}\n"
        )


PROBLEMS: Final[Mapping[type[Exception], Kind]] = {
    InputError: Kind(
        "invalid-input",
        400,
        "Invalid input",
        "A part of the request cannot be accepted: its address, a parameter, a field or a value.",
        "Correct the request as detail says. Nothing has changed.",
    ),
    UnknownTypeError: Kind(
        "unknown-type",
        400,
        "Unknown type",
        "The request names a node type or an edge type that the graph does not have.",
        "Use a type of the schema, which detail lists.",
    ),
    UnknownEdgeError: Kind(
        "unknown-edge",
        400,
        "Unknown edge",
        "The graph has no edge between the two ids.",
        "Add the edge first, or name an existing one.",
    ),
    KeyMissing: Kind(
        "key-missing",
        401,
        "Key missing",
        "The server requires a key, and the request has none.",
        "Ask an administrator for a key, and send it in the header authorization: Bearer KEY.",
    ),
    KeyUnknown: Kind(
        "key-unknown",
        401,
        "Key unknown",
        "The key of the request is not in the server's file of keys, or was revoked.",
        "Ask an administrator for a new key.",
    ),
    KeyForbids: Kind(
        "key-forbids",
        403,
        "Key without the scope",
        "The key of the request does not have the scope that the route needs.",
        "Use a key with the scope that detail names.",
    ),
    UnknownOrigin: Kind(
        "unknown-origin",
        403,
        "Unknown origin",
        "A page of another site has sent the request, and its origin is not listed.",
        "Add the origin of the page to the origins of the server.",
    ),
    UnknownNodeError: Kind(
        "unknown-node",
        404,
        "Unknown node",
        "An id names no node of the graph, or a node that was removed.",
        "Add the node first, or omit its id. After an event of your own, send its seq as min_seq.",
    ),
    UnknownPath: Kind(
        "unknown-path",
        404,
        "Unknown path",
        "Nothing is at the path, for instance because it ends with a slash too many.",
        "Use a path that detail names, or one that /docs of a server lists.",
    ),
    UnknownMethod: Kind(
        "unknown-method",
        405,
        "Unknown method",
        "The path exists for other methods.",
        "Use a method that the header allow lists.",
    ),
    ChangesNotKept: Kind(
        "changes-not-kept",
        410,
        "Changes not kept",
        "The request is for the changes since an event, and the server does not keep all of them any more.",
        "Read all predictions, without since. Their seq is the next since.",
    ),
    TooLargeError: Kind(
        "too-large",
        413,
        "Too large",
        "The request, or its answer, is larger than a limit allows.",
        "Send less, or request less at once, as detail says.",
    ),
    BodyTooLarge: Kind(
        "body-too-large",
        413,
        "Body too large",
        "The body of the request has more bytes than the route takes.",
        "Send it in parts, as detail says.",
    ),
    BodyTooSlow: Kind(
        "body-too-slow",
        408,
        "Body too slow",
        "The body of the request did not arrive in time.",
        "Send it again, in parts if the connection is slow.",
    ),
    UnknownMediaType: Kind(
        "unknown-media-type",
        415,
        "Unknown media type",
        "The body is compressed, or its content-type is not one that the route takes.",
        "Send the body uncompressed, as application/json, or events as JSON lines.",
    ),
    UnknownHost: Kind(
        "unknown-host",
        421,
        "Unknown host",
        "The request names a host for which the server does not answer.",
        "Use an address of the server, or add the name to its hosts.",
    ),
    OverloadedError: Kind(
        "overloaded",
        429,
        "Overloaded",
        "More events, or more requests, wait than may. Nothing of the request was done.",
        _SAME_AGAIN,
        _RETRY,
    ),
    KeyExhausted: Kind(
        "key-exhausted",
        429,
        "Limit of the key",
        "The key of the request has limits, and its clients send more, or have more open feeds.",
        f"{_SAME_AGAIN} Ask an administrator for a key with other limits.",
        _RETRY,
    ),
    AddressBusy: Kind(
        "address-busy",
        429,
        "Address busy",
        "The address of the client has as many open requests as one address may have.",
        f"{_SAME_AGAIN} Behind a proxy, raise requests_per_address in the settings of the process.",
        _RETRY,
    ),
    NotVisible: Kind(
        "not-visible",
        202,
        "Not visible yet",
        "With wait=true, the events are in the log and were not visible in time. They take effect later.",
        "Do not send them again. Read with min_seq, the seq of the answer.",
    ),
    TimeoutExpired: Kind(
        "timeout",
        503,
        "Not in time",
        "The request could not be answered within its timeout, or the event of min_seq is not visible yet.",
        "Send the request again, or with a longer timeout.",
    ),
    ProcessStops: Kind(
        "process-stops",
        503,
        "The process stops",
        "The process has begun to stop, and does not finish the request.",
        "Send the request again, to another process if there is one. An idempotency key makes that safe for "
        "events.",
        _RETRY,
    ),
    LoopEnded: Kind(
        "loop-ended",
        503,
        "The loop has ended",
        "The loop that applies events has failed. The events are not in the log.",
        "Send the events again after a restart of the server. Its log says why the loop has failed.",
    ),
    DiskFullError: Kind(
        "disk-full",
        503,
        "Disk full",
        "The disk of the log has no space. The events are not in the log.",
        f"{_SAME_AGAIN} It is accepted when there is space.",
        _RETRY,
    ),
    LogBusyError: Kind(
        "log-busy",
        503,
        "Log busy",
        "Another program has held the lock for writing to the log for ten seconds. The events are not in the "
        "log.",
        f"{_SAME_AGAIN} It is accepted when the other program releases the lock.",
        _RETRY,
    ),
    LogMovedError: Kind(
        "log-moved",
        503,
        "Log moved",
        "A file of the log was removed, renamed or replaced. The events are not in the log.",
        "Put the file back, with the commands that detail has. Then send the events again.",
    ),
    ViewMissingError: Kind(
        "view-missing",
        503,
        "View missing",
        "The model or another view is being built, for the first time or because it failed.",
        _SAME_AGAIN,
        _RETRY,
    ),
    WorkerUnavailableError: Kind(
        "worker-unavailable",
        503,
        "Worker unavailable",
        "No replica of a serving worker answers the front end, or a part of a divided graph is lost.",
        f"{_SAME_AGAIN} Check the worker that detail names.",
        _RETRY,
    ),
    WorkersFailed: Kind(
        "workers-failed",
        503,
        "Workers failed",
        "Workers of a function crashed with the request, or do not start.",
        f"{_SAME_AGAIN} The log of the process says why workers fail.",
        _RETRY,
    ),
    StoreUnavailableError: Kind(
        "store-unavailable",
        503,
        "Store unavailable",
        "The store of the snapshot answers with errors, too slowly or not at all.",
        _SAME_AGAIN,
        _RETRY,
    ),
    SnapshotReplacedError: Kind(
        "snapshot-replaced",
        503,
        "Snapshot replaced",
        "A newer snapshot has replaced the snapshot of the request while it was answered.",
        _SAME_AGAIN,
        _RETRY,
    ),
    LogError: Kind(
        "log-failed",
        500,
        "Log failed",
        "The log cannot be read or written. If its disk failed during a write, the events may be in the log.",
        "Repair the cause that detail names. Before events are sent again, compare log_seq after a restart.",
    ),
    SourceError: Kind(
        "source-failed",
        500,
        "Source failed",
        "A source of events cannot be read. None of its messages is lost or skipped.",
        "Repair the cause that detail names.",
    ),
    SnapshotError: Kind(
        "snapshot-failed",
        500,
        "Snapshot failed",
        "A snapshot in object storage cannot be written or read.",
        "Repair the cause that detail names.",
    ),
    ObjectMissingError: Kind(
        "object-missing",
        500,
        "Object missing",
        "An object that the snapshot names is not in its store.",
        "Write a new snapshot, and find the program that has removed the object.",
    ),
    ObjectDamagedError: Kind(
        "object-damaged",
        500,
        "Object damaged",
        "An object of the snapshot is too short, or has other bytes than were written.",
        "Write a new snapshot, and check the store.",
    ),
    ObjectExistsError: Kind(
        "object-exists",
        500,
        "Object exists",
        "An object that is written once is in the store already. Nothing was overwritten.",
        "Check that only one process writes snapshots to this place.",
    ),
    ModelError: Kind(
        "model-failed",
        500,
        "Model failed",
        "The model cannot be used with the graph.",
        "Use a model that fits the graph, as detail says.",
    ),
    FileFormatError: Kind(
        "file-damaged",
        500,
        "File damaged",
        "A file is corrupt or truncated, or has another kind or version.",
        "Replace the file that detail names.",
    ),
    ExtraMissing: Kind(
        "extra-missing",
        501,
        "Package missing",
        "The answer needs a Python package that is not installed where the process runs.",
        "Install the package that detail names, and start the process again.",
    ),
    MemoryError: Kind(
        "out-of-memory",
        500,
        "Out of memory",
        "The request needs more memory than the process may take.",
        "Ask for less at once, or raise the memory limit of the process.",
    ),
    LiveGNNError: Kind(
        "failed",
        500,
        "Failed",
        "The process cannot do its work, for the reason that detail has.",
        _LOG,
    ),
    Exception: Kind("unforeseen", 500, "Unforeseen error", "The process has an unforeseen error.", _LOG),
}
"""For each class of errors its kind. An error has the kind of the first of its classes that has one."""

_BY_NAME: Final = {kind.name: kind for kind in PROBLEMS.values()}
_BY_CLASS_NAME: Final = {of.__name__: kind for of, kind in PROBLEMS.items()}


class Problem(NamedTuple):
    """The content of a failing answer. name: of its kind; None if its status says all."""

    status: int
    name: str | None
    title: str
    detail: str
    retry_after: float | None = None

    def is_of(self, error: type[Exception]) -> bool:
        """Whether it is of the kind of a class of errors."""
        return self.name == kind_of(error).name

    def members(self) -> dict[str, object]:
        """Its members in JSON."""
        type_ = "about:blank" if self.name is None else f"{PAGES}/{self.name}"
        return {"type": type_, "title": self.title, "status": self.status, "detail": self.detail}

    def encode(self) -> bytes:
        """The body of an answer, as `PROBLEM_JSON`."""
        return _encode(self.members())


def kind_of(error: type[BaseException]) -> Kind:
    """The kind of a class of errors."""
    return next((PROBLEMS[one] for one in error.__mro__ if one in PROBLEMS), PROBLEMS[Exception])


def problem_of(error: Exception) -> Problem:
    """The problem of an error."""
    kind, detail = kind_of(type(error)), str(error)
    retry_after = error.retry_after if isinstance(error, OverloadedError) else kind.retry_after
    if isinstance(error, MemoryError):
        detail = f"the request needs more memory than the process may take: ask for less at once. {detail}"
    elif not isinstance(error, LiveGNNError):
        detail = f"the process failed, its log says where: {type(error).__name__}: {detail}"
    return _problem(kind, detail, retry_after)


def problem_of_refusal(error: str, detail: str) -> Problem:
    """The problem of an entry that was refused when it was applied, and is in the log. error: the name of the
    class of its error."""
    kind = _BY_CLASS_NAME.get(error, PROBLEMS[InputError])
    return _problem(kind, detail, None)._replace(status=409)


def read_problem(body: bytes) -> Problem:
    """The problem in the body of an answer of another process of this version."""
    found = json.loads(body)
    name = found["type"].removeprefix(f"{PAGES}/")
    return Problem(found["status"], name, found["title"], found["detail"])


def write(problem: Problem, path: str) -> tuple[bytes, dict[str, str]]:
    """The body of the answer to a request for `path`, and its headers. Below /v2 it has the form of the Open
    Inference Protocol."""
    headers = {} if problem.retry_after is None else {"retry-after": seconds(problem.retry_after)}
    if is_protocol(path):
        return _encode({"error": problem.detail}), {"content-type": "application/json", **headers}
    return problem.encode(), {"content-type": PROBLEM_JSON, **headers}


def is_protocol(path: str) -> bool:
    """Whether a path belongs to the Open Inference Protocol, whose errors have a form of their own."""
    return path == _PROTOCOL or path.startswith(f"{_PROTOCOL}/")


def seconds(retry_after: float) -> str:
    """The value of the header retry-after."""
    return str(max(1, math.ceil(retry_after)))


def is_page(path: str) -> bool:
    """Whether a path is at or below `PAGES`."""
    return path == PAGES or path.startswith(f"{PAGES}/")


def find_page(path: str) -> str | None:
    """The text of the page at a path, as `PAGE_TYPE`; None if there is none."""
    if path == PAGES:
        return "".join(f"{PAGES}/{kind.name} {kind.status} {kind.title}\n" for kind in _BY_NAME.values())
    kind = _BY_NAME.get(path.removeprefix(f"{PAGES}/")) if is_page(path) else None
    return None if kind is None else kind.page


def _problem(kind: Kind, detail: str, retry_after: float | None) -> Problem:
    return Problem(kind.status, kind.name, kind.title, shortened(detail), retry_after)


def _encode(content: Mapping[str, object]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace")  # of halves of surrogate pairs, which JSON in UTF-8 cannot have
