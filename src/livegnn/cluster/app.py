"""The front end of a cluster over HTTP: requests for seeds, and an operator's requests to the coordinator."""

from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from livegnn.http.guard import Access
from livegnn.http.tls import Tls
from livegnn.server.bodies import Limits, media_type_of, parse, read_body, to_json
from livegnn.workers import WorkerPlan
from livegnn.workers.front import create_front

if TYPE_CHECKING:
    from fastapi import FastAPI

    from livegnn.cluster.cluster import Cluster


class ReplicasRequest(BaseModel):
    """The number of workers that answer for the seeds of a serving worker."""

    model_config = ConfigDict(extra="forbid")
    serving_worker: int = Field(ge=0, strict=True)
    replicas: int = Field(ge=1, strict=True)


def create_cluster_app(
    cluster: "Cluster", plan: WorkerPlan, access: Access | None = None, tls: Tls | None = None
) -> "FastAPI":
    """The front end as an ASGI application, which follows where workers are. access, tls: as of
    `create_front`."""
    app = create_front(plan, cluster.addresses, access, tls)

    @app.get("/v1/workers")
    async def workers() -> Response:
        found = await run_in_threadpool(cluster.workers)
        said = await run_in_threadpool(cluster.said)
        return to_json({"workers": [one._asdict() for one in found], "said": said})

    @app.post("/v1/replicas")
    async def replicate(request: Request) -> Response:
        body = await read_body(request, Limits().objects, "send two numbers")
        wanted = parse(ReplicasRequest, body, media_type_of(request))
        await run_in_threadpool(cluster.replicate, wanted.serving_worker, wanted.replicas)
        return to_json(wanted.model_dump())

    @app.post("/v1/checkpoint")
    async def checkpoint() -> Response:
        return to_json({"seq": await run_in_threadpool(cluster.checkpoint)})

    return app
