"""Files of tables that are appended to the log of a running server, each row once."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlencode

from livegnn.backoff import Backoff
from livegnn.deployment.loading import (
    ROWS,
    Finished,
    Loaded,
    Part,
    Progress,
    TableRows,
    append_files,
    find_mapping,
)
from livegnn.errors import OverloadedError
from livegnn.events import Events
from livegnn.http.client import NoAnswer, RequestRefused, ServerClient
from livegnn.schema import Schema
from livegnn.tables.entries import fit_entries

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.tables import TableMapping
    from livegnn.types import JSON

_PATH: Final = "/v1/events"
_LINES: Final = "application/x-ndjson"
_BODY_BYTES: Final = 4 << 20  # of a usual part as JSON lines: half of what a server takes by default
_EVENT_BYTES: Final = 200  # of an event with ids of usual length
_NUMBER_BYTES: Final = 24
_TRIES: Final = 10
_PAUSES: Final = Backoff(0.2, 5.0)
_WAIT_SECONDS: Final = 60
_PAGE: Final = 1000
_APPLIED_AND_REFUSED: Final = 409


def load_into_server(
    settings: "Deployment",
    name: str,
    paths: Sequence[Path],
    client: ServerClient,
    *,
    order: str = "name",
    note: Callable[[Progress], None] = lambda progress: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Loaded:
    """As `load_files`, into the running server of `client`, whose schema the mapping must fit.

    Only the mapping of the deployment is read. A request is repeated while the server refuses events because
    too many wait, and for half a minute while it does not answer. sleep: waits for seconds. Raises NoAnswer,
    after which the same call continues; RequestRefused; and errors as `load_files` does.
    """
    from livegnn.tables.files import list_files

    server = _Server(client, find_mapping(settings, name), sleep)
    files = list_files(paths, order)  # type: ignore[arg-type]
    return append_files(files, TableRows(settings, name), server, note)


class _Server:
    """The log of a server, by its API."""

    parts = 1

    def __init__(self, client: ServerClient, mapping: "TableMapping", sleep: Callable[[float], None]) -> None:
        self._client, self._sleep = client, sleep
        self.schema = Schema.from_json(self._ask("GET", "/v1/schema")["schema"])
        self.rows = _rows_of(mapping, self.schema)
        self._first: int | None = None
        self._last: tuple[str, bytes] | None = None

    def check(self, events: Events) -> None:
        events.check()

    def position(self, stream: str) -> int | None:
        answer = self._ask("GET", f"{_PATH}/position?{urlencode({'source': stream})}")
        return cast("int | None", answer["position"])

    def append(self, stream: str, parts: Sequence[Part]) -> list[int]:
        seqs = []
        for row, events in parts:
            path = f"{_PATH}?{urlencode({'source': stream, 'position': row - 1})}"
            body = events.to_json_lines().encode()
            seqs.append(cast("int", self._ask("POST", path, body)["seq"]))
            self._last = path, body
        if self._first is None:
            self._first = seqs[0]
        return seqs

    def finish(self) -> Finished:
        """The last part is sent once more, which changes nothing: the answer is sent when it is applied."""
        if self._last is None or self._first is None:
            return Finished(cast("int", self._ask("GET", "/v1/schema")["seq"]), {})
        path, body = self._last
        status = "logged"
        while status != "applied":
            try:
                answer = self._ask("POST", f"{path}&wait=true&timeout={_WAIT_SECONDS}", body)
                status = cast("str", answer["status"])
            except RequestRefused as error:
                if error.status != _APPLIED_AND_REFUSED:
                    raise
                break
        return self._refused(self._first - 1)

    def count_refused(self) -> int:
        return len(self._refused(0).refused)

    def _refused(self, after: int) -> Finished:
        """The entries that were refused after an event."""
        refused: dict[int, str] = {}
        while True:
            answer = self._ask("GET", f"/v1/rejections?after={after}&bad_after={2**63 - 1}&limit={_PAGE}")
            page = cast("list[dict[str, JSON]]", answer["rejections"])
            if not page:
                return Finished(cast("int", answer["seq"]), refused)
            refused |= {cast("int", one["seq"]): str(one["message"]) for one in page}
            after = max(refused)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> "dict[str, JSON]":
        """An answer, for which it waits while the server is overloaded, and for a time while it is away."""
        failures = 0
        while True:
            try:
                return self._client.ask(method, path, body, _LINES)
            except OverloadedError as error:
                pause = error.retry_after
            except NoAnswer as error:
                failures += 1
                if failures > _TRIES:
                    raise NoAnswer(
                        f"{error}. Run it again: it continues after the last loaded row"
                    ) from error
                pause = _PAUSES.after(failures)
            self._sleep(pause)


def _rows_of(mapping: "TableMapping", schema: Schema) -> int:
    """The rows of a part, so that it fits into a request; always the same for a mapping and a schema."""
    nodes, edges = fit_entries(mapping, schema, "table")
    row = sum(_EVENT_BYTES + _NUMBER_BYTES * one.width for one in (*nodes, *edges))
    return max(1, min(ROWS, _BODY_BYTES // row))
