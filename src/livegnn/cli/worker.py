"""`livegnn worker`: sampling and serving workers, each a process, and the front end before them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

app = typer.Typer(
    help="Draw samples in some processes and serve them in others: docs/workers.md.", no_args_is_help=True
)

DeploymentFile = Annotated[
    Path, typer.Argument(metavar="DEPLOYMENT.TOML", help="what to run: docs/deployment.md")
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="of the worker, from 0")]
Host = Annotated[str, typer.Option(help="the address to listen at")]
Port = Annotated[int, typer.Option(help="the port; 0 for any free one")]


@app.command()
def sample(deployment: DeploymentFile, number: Number) -> None:
    """Run a sampling worker, from where its last steps left off."""
    import signal

    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import open_sampling

    worker = open_sampling(Deployment.read(deployment), number)
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, frame: worker.stop())
    typer.echo(f"sampling worker {number} of {worker.plan.sampling_workers}, at event {worker.seq}")
    try:
        worker.run()
    finally:
        worker.close()


@app.command()
def serve(
    deployment: DeploymentFile,
    number: Number,
    replica: Annotated[int, typer.Option(help="which of those that have the same seeds, from 0")] = 0,
    host: Host = "127.0.0.1",
    port: Port = 0,
) -> None:
    """Run a serving worker over HTTP."""
    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import open_serving
    from livegnn.workers.app import create_serving_app

    worker = open_serving(Deployment.read(deployment), number, replica)
    worker.start()
    try:
        _listen(create_serving_app(worker), host, port, f"serving worker {number}", worker.stop)
    finally:
        worker.stop()


@app.command()
def front(
    deployment: DeploymentFile,
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="URL...", help="of the serving workers, in order; those of replicas joined by commas"
        ),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8080,
) -> None:
    """Run the front end, which sends each seed to the serving worker that has it."""
    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import plan_workers

    with _needs_cluster("a front end"):
        from livegnn.workers.front import create_front
    plan, _ = plan_workers(Deployment.read(deployment))
    _listen(create_front(plan, [one.split(",") for one in addresses]), host, port, "the front end")


@app.command()
def cluster(deployment: DeploymentFile, host: Host = "127.0.0.1", port: Port = 8080) -> None:
    """Run all workers on the machines of a Ray cluster, and a front end before them."""
    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import cluster_spec

    read = Deployment.read(deployment)
    spec, plan = cluster_spec(read)
    with _needs_cluster("a cluster"):
        import ray

        from livegnn.cluster.app import create_cluster_app
        from livegnn.cluster.cluster import Cluster
    # Data goes through the log, so a Ray of its own needs little memory for objects.
    own = {"object_store_memory": 80 << 20, "include_dashboard": False}
    try:
        ray.init(read.cluster.ray or "local", log_to_driver=False, **({} if read.cluster.ray else own))
    except (ConnectionError, RuntimeError) as error:
        raise InputError(
            f"ray in [cluster] must be the address of a head node of Ray, got {read.cluster.ray!r}: {error}"
        ) from error
    try:
        section = read.cluster
        running = Cluster.start(
            spec, namespace=section.namespace, patience=section.patience(), pace=section.pace()
        )
        try:
            running.register(plan.query)
            _listen(create_cluster_app(running, plan), host, port, "the front end")
        finally:
            running.stop()
    finally:
        ray.shutdown()


@contextmanager
def _needs_cluster(what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"{what} needs {error.name}, which is not installed: pip install 'livegnn[cluster]'"
        ) from error


def _listen(
    served: "FastAPI", host: str, port: int, what: str, end_waits: "Callable[[], None] | None" = None
) -> None:
    """Serves until SIGINT or SIGTERM. end_waits: called in a thread then, so that requests that wait end."""
    import signal
    import threading

    import uvicorn

    from livegnn.server import listen

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: "FrameType | None") -> None:
            if end_waits is not None:
                threading.Thread(target=end_waits, daemon=True).start()
            super().handle_exit(sig, frame)

    def leave(sig: int, frame: "FrameType | None") -> None:
        for one in (signal.SIGTERM, signal.SIGINT):  # what comes afterwards is not told again
            signal.signal(one, signal.SIG_IGN)
        raise SystemExit(0)

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, leave)
    with listen(host, port) as listener:
        found, number = listener.getsockname()[:2]
        shown = f"[{found}]" if ":" in found else found
        typer.echo(f"{what} listens at http://{shown}:{number}")
        config = uvicorn.Config(served, log_level="warning", access_log=False, timeout_graceful_shutdown=5)
        Server(config).run([listener])
