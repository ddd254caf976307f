"""A gateway: spreads requests over the schedulers of several nodes.

Each request goes to one node, and to the next one in these cases alone: the node cannot be reached or breaks
the connection; or it refuses with 503 and `retry-after`, because too many requests are there or it stops. A
store that is away is away for all nodes, so this 503 is passed on. Predictions change nothing, so a request
may be asked twice. Each node is asked once; if all refuse, so does the gateway, with the shortest
`retry-after`. All of them together have the time of the request. Every other answer, errors among them, is
passed on as it is: another node would answer the same. A node that cannot be reached is left out for a pause,
which doubles as long as it fails, from a second to half a minute; while all nodes are left out, all are
asked.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import httpx

from livegnn.errors import InputError, TimeoutExpired
from livegnn.functions.bodies import (
    Answer,
    answer_error,
    answer_json,
    answer_problem,
    read_asked,
    says_store_away,
)
from livegnn.readiness import Readiness
from livegnn.wording import quoted

Policy: TypeAlias = Literal["round-robin", "least-loaded"]

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_DOUBLINGS = 20  # after which a pause is long enough; a power of two past 1,023 is no number
_BEYOND: Final = 1.0  # seconds for the way of an answer, so that a node can say itself that time is over
_CONNECT_SECONDS: Final = 2.0
_HEALTH_SECONDS: Final = 5.0


class Spread:
    """Which nodes a request is sent to, in which order. Has no clock: time is an argument, in seconds.

    "round-robin": each in turn. "least-loaded": the one with the fewest requests of this gateway, in turn
    among equals.
    """

    def __init__(self, nodes: int, policy: Policy) -> None:
        if policy not in ("round-robin", "least-loaded"):
            raise InputError(f"policy must be 'round-robin' or 'least-loaded', got {quoted(policy)}")
        self._policy = policy
        self._turn = 0
        self.load = [0] * nodes
        self._failures = [0] * nodes
        self._left_out_until = [-float("inf")] * nodes

    def order(self, now: float) -> list[int]:
        """The nodes that one request is sent to, until one takes it."""
        count = len(self.load)
        turns = [(self._turn + place) % count for place in range(count)]
        self._turn = (self._turn + 1) % count
        there = [node for node in turns if self._left_out_until[node] <= now] or turns
        return sorted(there, key=lambda node: self.load[node]) if self._policy == "least-loaded" else there

    def failed(self, node: int, now: float) -> None:
        """A node could not be reached."""
        pause = min(_FIRST_PAUSE * 2.0 ** min(self._failures[node], _DOUBLINGS), _LONGEST_PAUSE)
        if self._left_out_until[node] <= now:  # requests that fail together are one failure
            self._failures[node] += 1
            self._left_out_until[node] = now + pause

    def reached(self, node: int) -> None:
        """A node has answered, whatever it said."""
        self._failures[node] = 0
        self._left_out_until[node] = -float("inf")


class Gateway:
    """Answers requests through nodes. Belongs to one event loop.

    nodes: their addresses, such as ``"http://10.0.0.7:8080"``. Raises InputError.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        policy: Policy = "round-robin",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not nodes:
            raise InputError("nodes must have at least one address, got none")
        for node in nodes:
            if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", node):
                raise InputError(
                    f"a node must be an address such as http://10.0.0.7:8080, got {quoted(node)}"
                )
        self._nodes = [node.rstrip("/") for node in nodes]
        self._spread, self._clock = Spread(len(nodes), policy), clock
        self._client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None))
        self._sent, self._unreached, self._refused = ([0] * len(nodes) for _ in range(3))
        self._closing = False

    async def predict(self, body: bytes) -> Answer:
        """The answer of a node."""
        try:
            asked = read_asked(body)
        except InputError as error:
            return answer_error(error)
        if self._closing:
            return answer_problem("GatewayStops", "the gateway stops: send the request again", 503, 1.0)
        began = self._clock()
        refusals: list[Answer] = []
        for node in self._spread.order(began):
            left = asked.timeout - (self._clock() - began)
            if left <= 0:
                return _too_late(f"no node of {', '.join(self._nodes)} has", asked.timeout)
            try:
                found = await self._ask(node, body, left + _BEYOND)
            except TimeoutError:
                self._note_failure(node)
                return _too_late(f"{self._nodes[node]} has not", asked.timeout)
            except httpx.TransportError:
                self._note_failure(node)
                continue
            self._spread.reached(node)
            refuses = found.status == httpx.codes.SERVICE_UNAVAILABLE and found.retry_after is not None
            if not refuses or says_store_away(found):
                return found
            self._refused[node] += 1
            refusals.append(found)
        if refusals:
            return min(refusals, key=lambda one: one.retry_after or 0.0)
        return answer_problem("NoNode", f"no node can be reached of {', '.join(self._nodes)}", 503, 1.0)

    async def report_health(self) -> Answer:
        """200 if a node takes requests, with the answer of each; else 503."""
        answers = await asyncio.gather(*map(self._health_of, self._nodes))
        found = dict(zip(self._nodes, answers, strict=True))
        readiness = self._readiness_of(found)
        content: dict[str, object] = {"nodes": found}
        if not readiness.ready:
            content["reasons"] = readiness.reasons
        return answer_json(content, 200 if readiness.ready else 503)

    def _readiness_of(self, answers: Mapping[str, str]) -> Readiness:
        """Whether one of the nodes takes requests, by what each has answered."""
        if self._closing:
            return Readiness({"gateway": "it stops"})
        return Readiness({} if "ok" in answers.values() else dict(answers))

    async def report_metrics(self) -> Answer:
        """By node: requests that were sent, refused, and could not be."""
        lines = []
        for name, kind, values in (
            ("sent_total", "counter", self._sent),
            ("refused_total", "counter", self._refused),
            ("unreached_total", "counter", self._unreached),
            ("requests", "gauge", self._spread.load),
        ):
            lines.append(f"# TYPE livegnn_gateway_{name} {kind}")
            lines += [
                f'livegnn_gateway_{name}{{node="{node}"}} {value}'
                for node, value in zip(self._nodes, values, strict=True)
            ]
        return Answer(200, "\n".join([*lines, ""]).encode(), content_type="text/plain; version=0.0.4")

    async def close(self, seconds: float = 0.0) -> None:
        """Takes no further request."""
        self._closing = True
        await self._client.aclose()

    async def _ask(self, node: int, body: bytes, timeout: float) -> Answer:
        """The answer of one node. Raises TimeoutError, and httpx.TransportError if it cannot be reached."""
        self._sent[node] += 1
        self._spread.load[node] += 1
        try:
            async with asyncio.timeout(timeout):
                found = await self._client.post(
                    f"{self._nodes[node]}/v1/predictions",
                    content=body,
                    headers={"content-type": "application/json"},
                    timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),  # those of HTTPX are for each part
                )
        finally:
            self._spread.load[node] -= 1
        retry_after = found.headers.get("retry-after", "")
        return Answer(found.status_code, found.content, float(retry_after) if retry_after.isdigit() else None)

    async def _health_of(self, node: str) -> str:
        try:
            found = await self._client.get(f"{node}/v1/health", timeout=_HEALTH_SECONDS)
        except httpx.TransportError as error:
            return f"cannot be reached: {quoted(error)}"
        return "ok" if found.status_code == httpx.codes.OK else f"answers {found.status_code}"

    def _note_failure(self, node: int) -> None:
        self._unreached[node] += 1
        self._spread.failed(node, self._clock())


def _too_late(who: str, seconds: float) -> Answer:
    return answer_error(TimeoutExpired(f"{who} answered within {seconds:g} seconds"))
