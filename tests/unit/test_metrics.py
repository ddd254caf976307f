"""Metrics of every process: the text of Prometheus, and counts of requests."""

import asyncio
import math
import platform
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from prometheus_client.core import Metric

import livegnn
from livegnn.histogram import Histogram
from livegnn.http.metrics import CONTENT_TYPE, Metrics, counter, gauge, histogram
from livegnn.http.request_counts import CountedApplication, RequestCounts
from scraped import scrape, types


def render(*metrics: Metric, counts: RequestCounts | None = None) -> str:
    return Metrics(lambda: iter(metrics), counts or RequestCounts()).render().decode()


def test_values_with_and_without_labels() -> None:
    lag = {("a\n", "0"): 12_345_678, ('"b"\\', "1"): math.nan}
    text = render(
        gauge("up", "1 while all\nis well", True), counter("lag_total", "Lag", lag, "source", "partition")
    )
    assert text.startswith(
        "# HELP livegnn_up 1 while all\\nis well\n# TYPE livegnn_up gauge\nlivegnn_up 1.0\n"
    )
    assert "\n# TYPE livegnn_lag_total counter\n" in text
    found = scrape(text)
    assert found['livegnn_lag_total{partition="0",source="a\n"}'] == 12_345_678
    assert math.isnan(found['livegnn_lag_total{partition="1",source=""b"\\"}'])
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_buckets_count_all_values_up_to_their_bound() -> None:
    times = Histogram([0.5, 1.0])
    for seconds in (0.25, 0.75, 0.75, 3.0):
        times.record(seconds)
    for values, labels, shown in ((times, (), ""), ({"infer": times}, ("stage",), 'stage="infer"')):
        found = scrape(render(histogram("t", "Times", values, *labels)))
        counts = {"0.5": 1, "1": 3, "+Inf": 4}
        for bound, count in counts.items():
            among = ",".join(filter(None, (f'le="{bound}"', shown)))
            assert found[f"livegnn_t_bucket{{{among}}}"] == count
        among = f"{{{shown}}}" if shown else ""
        assert (found[f"livegnn_t_sum{among}"], found[f"livegnn_t_count{among}"]) == (4.75, 4)


def test_every_process_says_what_it_is() -> None:
    text = render()
    build = f'livegnn_build_info{{python="{platform.python_version()}",version="{livegnn.__version__}"}}'
    found = scrape(text)
    assert found[build] == 1
    assert found["process_resident_memory_bytes"] > 1e6
    assert not [name for name in types(text) if name.startswith(("python_gc", "python_info"))]


def make_app() -> FastAPI:
    app = FastAPI()

    @app.get("/nodes/{id}")
    def read(id: str) -> str:
        return id

    @app.post("/fails")
    def fail() -> None:
        raise ZeroDivisionError

    @app.get("/feed")
    def follow() -> StreamingResponse:
        return StreamingResponse(iter(["a", "b"]))

    return app


def counted(ask: Callable[[httpx.AsyncClient], Awaitable[object]]) -> dict[str, float]:
    """The numbers of requests that an application has counted."""
    counts = RequestCounts()
    app = CountedApplication(make_app(), counts, ["/fast"])

    async def work() -> None:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await ask(client)

    asyncio.run(work())
    found = scrape(render(counts=counts))
    return {name: value for name, value in found.items() if name.startswith("livegnn_http_requests_total")}


def labels(route: str, method: str, status: object) -> str:
    return f'livegnn_http_requests_total{{method="{method}",route="{route}",status="{status}"}}'


def test_requests_are_counted_by_route_method_and_status() -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for id in ("a", "b", "c"):
            await client.get(f"/nodes/{id}")
        await client.delete("/nodes/a")
        await client.post("/fails")
        await client.get("/feed")
        for path in ("/fast", "/nowhere", "/nowhere/else", "/nodes/"):
            await client.get(path)
        await client.request("BREW", "/nodes/a")

    assert counted(ask) == {
        labels("/nodes/{id}", "GET", 200): 3,
        labels("/nodes/{id}", "DELETE", 405): 1,
        labels("/nodes/{id}", "other", 405): 1,
        labels("/fails", "POST", 500): 1,
        labels("/feed", "GET", 200): 1,
        labels("/fast", "GET", 404): 1,
        labels("other", "GET", 404): 3,
    }


def test_an_answer_counts_when_it_ends_with_all_of_its_time() -> None:
    counts, began, ends = RequestCounts(), asyncio.Event(), asyncio.Event()

    async def feed(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        began.set()
        await ends.wait()
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        pass

    async def work() -> None:
        scope = {"type": "http", "path": "/feed", "method": "GET"}
        app = CountedApplication(feed, counts, ["/feed"])
        asking = asyncio.create_task(app(scope, send, send))
        await began.wait()
        assert not counts.times()
        ends.set()
        await asking

    asyncio.run(work())
    assert list(counts.times()) == [("/feed", "GET", "200")]


def test_a_request_without_an_answer_is_counted() -> None:
    counts = RequestCounts()

    async def leave(scope: Any, receive: Any, send: Any) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(
            CountedApplication(leave, counts, [])({"type": "http", "path": "/", "method": "GET"}, None, None)  # type: ignore[arg-type]
        )
    assert list(counts.times()) == [("other", "GET", "none")]


def test_other_connections_are_not_counted() -> None:
    counts, seen = RequestCounts(), []

    async def live(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    asyncio.run(CountedApplication(live, counts, [])({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert (seen, dict(counts.times())) == (["lifespan"], {})


def test_metrics_are_collected_for_each_request() -> None:
    def collect() -> Iterator[Metric]:
        rounds.append(None)
        yield gauge("rounds", "Rounds", len(rounds))

    rounds: list[None] = []
    metrics = Metrics(collect, RequestCounts())
    assert not rounds
    for expected in (1, 2):
        assert scrape(metrics.render().decode())["livegnn_rounds"] == expected
