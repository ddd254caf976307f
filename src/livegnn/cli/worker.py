"""`livegnn worker`: sampling and serving workers, each a process, and the front end before them."""

from pathlib import Path
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
_SECONDS = 0.2

Port = Annotated[int, typer.Option(help="the port; 0 for any free one")]


@app.command()
def sample(deployment: DeploymentFile, number: Number) -> None:
    """Run a sampling worker, from where its last steps left off, and go on when their number changes."""
    import signal
    import threading
    from contextlib import closing

    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import open_sampling

    found, stopped = Deployment.read(deployment), threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda number, frame: stopped.set())
    while not stopped.is_set():
        with closing(open_sampling(found, number, stopped)) as worker:
            if not worker.ended:
                typer.echo(
                    f"sampling worker {number} of {worker.plan.sampling_workers}, at event {worker.seq}"
                )
            worker.run()
            if not worker.ended:
                return
            if number >= worker.plan.sampling_workers:
                typer.echo(
                    f"sampling worker {number} has handed over to {worker.plan.sampling_workers} others"
                )
                return
        stopped.wait(_SECONDS)  # for the others to hand over too


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
        _listen(create_serving_app(worker), host, port, f"serving worker {number}")
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

    try:
        from livegnn.workers.front import create_front
    except ModuleNotFoundError as error:
        raise InputError(
            f"a front end needs {error.name}, which is not installed: pip install 'livegnn[cluster]'"
        ) from error
    plan, _ = plan_workers(Deployment.read(deployment))
    _listen(create_front(plan, [one.split(",") for one in addresses]), host, port, "the front end")


@app.command()
def resize(
    deployment: DeploymentFile,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="end a change: serving workers lose the seeds that others have now"),
    ] = False,
    timeout: Annotated[float, typer.Option(help="seconds to wait for the workers")] = 600.0,
) -> None:
    """Change the numbers of workers to those of the deployment file, while they run."""
    from livegnn.deployment import Deployment
    from livegnn.deployment.workers import resize_workers

    state = resize_workers(Deployment.read(deployment), finish, timeout)
    plan = state.next or state.plan
    numbers = f"{plan.sampling_workers} sampling and {plan.serving_workers} serving workers"
    if state.next is None:
        typer.echo(f"in effect: {numbers}")
    else:
        typer.echo(f"ready: {numbers}. Send requests to these, then call again with --finish")


def _listen(served: "FastAPI", host: str, port: int, what: str) -> None:
    import uvicorn

    from livegnn.server import listen

    with listen(host, port) as listener:
        found, number = listener.getsockname()[:2]
        shown = f"[{found}]" if ":" in found else found
        typer.echo(f"{what} listens at http://{shown}:{number}")
        uvicorn.Server(uvicorn.Config(served, log_level="warning")).run([listener])
