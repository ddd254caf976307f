"""The routes that the demo adds to the server: the page, its feed, and the details of a member."""

import asyncio
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Literal

import numpy as np
import orjson
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field

from livegnn.demo.meter import WINDOW
from livegnn.demo.session import Session
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.types import JSON

RATERS_SHOWN = 14
MOVERS_SHOWN = 16
_INTERVAL = 0.2  # seconds between two states of the feed


class Control(BaseModel):
    """The settings of the replay that a visitor may change."""

    paused: bool | None = None
    speed: float | Literal["unlimited"] | None = Field(default=None, description="ratings a second")


def add_routes(app: FastAPI, session: Session) -> None:
    """Add `/`, which redirects to the page, and everything below `/demo`."""

    @app.get("/", include_in_schema=False)
    @app.get("/demo", include_in_schema=False)
    def home() -> RedirectResponse:
        return RedirectResponse("/demo/")

    @app.get("/demo/state", include_in_schema=False)
    def state() -> Response:
        return to_json(describe(session))

    @app.get("/demo/feed", include_in_schema=False)
    async def feed() -> StreamingResponse:
        return StreamingResponse(states(session), media_type="text/event-stream")

    @app.get("/demo/members/{member}", include_in_schema=False)
    def show_member(member: int) -> Response:
        return to_json(describe_member(session, member))

    @app.put("/demo/replay", include_in_schema=False)
    def control(change: Control) -> Response:
        if change.paused is not None:
            session.replay.set_paused(change.paused)
        if change.speed is not None:
            if change.speed != "unlimited" and not 0 < change.speed < float("inf"):
                raise InputError(f"speed must be above 0, in ratings a second, got {change.speed}")
            session.replay.set_speed(None if change.speed == "unlimited" else change.speed)
        return to_json(describe(session))

    page = files("livegnn.demo") / "page"
    app.mount("/demo", StaticFiles(directory=str(page), html=True), name="demo")


def to_json(value: dict[str, JSON]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


async def states(session: Session) -> AsyncIterator[bytes]:
    """The state as server-sent events, until the session closes."""
    while not session.closed:
        yield b"data: " + orjson.dumps(await run_in_threadpool(describe, session)) + b"\n\n"
        await asyncio.sleep(_INTERVAL)


def describe(session: Session) -> dict[str, JSON]:
    """Everything on the page except the chosen member; dates in unix seconds, latencies in milliseconds."""
    replay, figures = session.replay, session.meter.figures()
    verification = session.verification
    return {
        "progress": {
            "replayed": session.meter.replayed,
            "total": session.total,
            "start": session.start_date,
            "date": replay.date,
            "paused": replay.paused,
            "speed": replay.speed,
            "done": session.done,
        },
        "rate": figures.events_per_second,
        "ratings_rate": figures.ratings_per_second,
        "latency": {
            "p50": figures.p50,
            "p99": figures.p99,
            "apply_p50": figures.apply_p50,
            "apply_p99": figures.apply_p99,
        },
        "reached": list(figures.reached),
        "window": WINDOW,
        "movers": [
            {"id": mover.member, "before": mover.before, "after": mover.after}
            for mover in session.meter.movers(MOVERS_SHOWN)
        ],
        "nodes": session.runtime.graph.num_nodes(),
        "edges": session.runtime.graph.num_edges(),
        "seq": session.runtime.seq,
        "verification": None
        if verification is None
        else {
            "ok": verification.ok,
            "max_difference": verification.max_difference,
            "bound": verification.bound,
            "checked": verification.checked,
            "seconds": session.verification_seconds,
        },
    }


def describe_member(session: Session, member: int) -> dict[str, JSON]:
    """A member's risk, its history, and the members who rated it last.

    For each rater, the engine computes the effect of its rating: the current risk minus the risk if that
    rating had never been given. Raises UnknownNodeError.
    """
    ratings = session.ratings
    risk = float(session.runtime.predict([member]).values[0, 0])
    sent = slice(0, session.replay.position)
    received = np.flatnonzero(ratings.dst[sent] == member)
    marks = list(zip(ratings.rating[received].tolist(), ratings.time[received].tolist(), strict=True))
    newest = received[::-1][:RATERS_SHOWN]
    raters = ratings.src[newest]
    own = session.runtime.predict(raters).values[:, 0].tolist() if len(raters) else []
    shown: list[JSON] = []
    for place, (rater, rater_risk) in enumerate(zip(raters.tolist(), own, strict=True)):
        others = marks.copy()
        rating, time = others.pop(len(marks) - 1 - place)
        features = session.standings.without(rater, member, rating, others)
        never = Events().remove_edges(rater, member).set_features([rater, member], features)
        otherwise = float(session.runtime.what_if(never, [member]).values[0, 0])
        shown.append(
            {"id": rater, "rating": rating, "time": time, "risk": rater_risk, "effect": risk - otherwise}
        )
    return {
        "id": member,
        "risk": risk,
        "received": len(received),
        "negative": sum(rating < 0 for rating, _ in marks),
        "given": int((ratings.src[sent] == member).sum()),
        "history": [[date, value] for date, value in session.meter.history(member)],
        "ratings": [[time, rating] for rating, time in marks],
        "raters": shown,
    }
