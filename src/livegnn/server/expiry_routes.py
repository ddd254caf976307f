"""The route by which a person lets an expiry of very many edges happen."""

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel

from livegnn.runtime import Runtime
from livegnn.server.bodies import to_json


class HeldExpiryAnswer(BaseModel):
    """At time `now`, `edges` of the `of` edges with a time to live would expire."""

    seq: int
    now: float
    edges: int
    of: int


def add_expiry_routes(router: APIRouter, runtime: Runtime) -> None:
    """Adds the route."""

    @router.post("/v1/expiry/confirm", responses={200: {"model": HeldExpiryAnswer}})
    def confirm_expiry() -> Response:
        """Let the expiry that waits happen: `/healthz` shows it as `held_expiry`."""
        return to_json({"seq": runtime.seq, **runtime.confirm_expiry()._asdict()})
