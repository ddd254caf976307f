"""Small requests to a serving worker, answered as their bytes arrive.

Thread safety: belongs to the event loop of the server.
"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import ClassVar, TypeAlias

import orjson

from livegnn.http.request_counts import RequestCounts
from livegnn.workers.serving import ServingWorker
from livegnn.workers.small_requests import Head, SmallRequestProtocol, SmallRequests, read_wanted

SmallAnswer: TypeAlias = Callable[[list[int]], dict[str, object]]
"""From ids to the content of an answer; raises LiveGNNError."""


class HotPath:
    """Answers small requests to the paths of `answers`.

    worker: whose `seq` must have reached their `min_seq`. counts: of the requests to the same server.
    """

    def __init__(
        self, worker: ServingWorker, answers: Mapping[str, SmallAnswer], counts: RequestCounts
    ) -> None:
        self._worker, self._answers, self.counts = worker, answers, counts

    def protocol(self) -> "type[HotPathProtocol]":
        """Returns the protocol of a connection: `http` of uvicorn's `Config`."""
        members = {"hot": self, "requests": SmallRequests(self._answers)}
        return type("HotPathProtocol", (HotPathProtocol,), members)

    def text_of(self, head: Head, body: bytes) -> bytes | None:
        """The body of the answer; None if the request is for the application."""
        wanted = read_wanted(body)
        if wanted is None or not self._worker.shows(wanted.min_seq):
            return None
        try:
            return orjson.dumps(self._answers[head.path](wanted.ids), option=orjson.OPT_SERIALIZE_NUMPY)
        except Exception:  # whatever it is, the application tells the client
            return None


class HotPathProtocol(SmallRequestProtocol):
    """A connection that answers small requests at once."""

    hot: ClassVar[HotPath]

    def take(self, head: Head, body: bytes, data: bytes) -> bool:
        """Answers a small request; False if it is for the application."""
        began = perf_counter()
        text = self.hot.text_of(head, body)
        if text is None:
            return False
        self.write_answer(text)
        self.hot.counts.count(head.path, "POST", 200, perf_counter() - began)
        return True
