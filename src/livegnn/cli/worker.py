"""`livegnn worker`: sampling and serving workers, each a process, and their front end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.files import DeploymentFile, read_deployment
from livegnn.cli.logs import Level, LogJson, LogLevel, log_first_readiness, start_log
from livegnn.errors import InputError

if TYPE_CHECKING:
    import logging

    from starlette.types import ASGIApp

    from livegnn.deployment import Deployment
    from livegnn.http.guard import Access
    from livegnn.http.tls import Tls
    from livegnn.readiness import Readiness

app = typer.Typer(
    help="Run sampling workers, serving workers and their front end: docs/workers.md.", no_args_is_help=True
)

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="number of the worker, from 0")]
Host = Annotated[str, typer.Option(help="address to listen at")]
_SECONDS = 0.2

Port = Annotated[int, typer.Option(help="port to listen at; 0 takes any free port")]


@app.command()
def sample(
    deployment: DeploymentFile,
    number: Number,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run a sampling worker from its last checkpoint. It continues when the number of workers changes."""
    logger = start_log(log_level, log_json)
    import signal
    import threading
    from contextlib import closing

    from livegnn.deployment.workers import open_sampling

    settings, stopped = read_deployment(deployment), threading.Event()
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda number, frame: stopped.set())
    while not stopped.is_set():
        with closing(open_sampling(settings, number, stopped)) as worker:
            if not worker.ended:
                logger.info("sampling worker %d runs from event %d on", number, worker.seq)
                typer.echo(
                    f"sampling worker {number} of {worker.plan.sampling_workers}, at event {worker.seq}"
                )
            worker.run()
            if not worker.ended:
                logger.info("sampling worker %d stopped at event %d", number, worker.seq)
                return
            logger.info("sampling worker %d has handed over at event %d", number, worker.seq)
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
    replica: Annotated[
        int, typer.Option(help="number of the replica among workers with the same seeds, from 0")
    ] = 0,
    host: Host = "127.0.0.1",
    port: Port = 0,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run a serving worker over HTTP."""
    logger = start_log(log_level, log_json)
    from livegnn.deployment.workers import open_serving
    from livegnn.workers.app import create_serving_app

    read = read_deployment(deployment)
    access, tls = _clients(read, host, behind_front=True)
    worker = open_serving(read, number, replica)
    worker.start()
    try:
        app, readiness = create_serving_app(worker, access), worker.readiness
        _listen(app, host, port, f"serving worker {number}", logger, readiness, tls, worker.stop)
    finally:
        worker.stop()


@app.command()
def front(
    deployment: DeploymentFile,
    addresses: Annotated[
        list[str],
        typer.Argument(
            metavar="URL...",
            help="addresses of the serving workers, in order; commas join the addresses of replicas",
        ),
    ],
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run the front end, which sends each seed to its serving worker."""
    logger = start_log(log_level, log_json)
    from livegnn.deployment.workers import plan_workers

    with _needs_cluster("a front end"):
        from livegnn.workers.front import create_front
    read = read_deployment(deployment)
    access, tls = _clients(read, host)
    served = create_front(plan_workers(read), [replicas.split(",") for replicas in addresses], access, tls)
    _listen(served, host, port, "the front end", logger, served.state.find_readiness, tls)


@app.command()
def cluster(
    deployment: DeploymentFile,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run all workers on the machines of a Ray cluster, and their front end."""
    logger = start_log(log_level, log_json)
    from livegnn.deployment.workers import cluster_spec

    read = read_deployment(deployment)
    access, tls = _clients(read, host)
    spec, plan = cluster_spec(read)
    with _needs_cluster("a cluster"):
        import ray

        from livegnn.cluster.app import create_cluster_app
        from livegnn.cluster.cluster import Cluster
    # Data is sent through the log, so a Ray of its own needs little memory for objects.
    own = {"object_store_memory": 80 << 20, "include_dashboard": False}
    try:
        ray.init(read.cluster.ray or "local", log_to_driver=False, **({} if read.cluster.ray else own))
    except (ConnectionError, RuntimeError) as error:
        raise InputError(
            f"ray in [cluster] must be the address of a head node of Ray, got {read.cluster.ray!r}: {error}"
        ) from error
    try:
        section = read.cluster
        running = Cluster.start(spec, namespace=section.namespace, patience=section, pace=section)
        try:
            running.register(plan.query)
            served = create_cluster_app(running, plan, access, tls)
            _listen(served, host, port, "the front end", logger, served.state.find_readiness, tls)
        finally:
            running.stop()
    finally:
        ray.shutdown()


@app.command()
def resize(
    deployment: DeploymentFile,
    finish: Annotated[
        bool,
        typer.Option(
            "--finish", help="finish a change: serving workers drop the seeds that other workers have now"
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(help="longest wait for the workers, in seconds")] = 600.0,
) -> None:
    """Change the numbers of running workers to those of the deployment file."""
    from livegnn.deployment.workers import resize_workers

    state = resize_workers(read_deployment(deployment), finish, timeout)
    plan = state.next or state.plan
    numbers = f"{plan.sampling_workers} sampling and {plan.serving_workers} serving workers"
    if state.next is None:
        typer.echo(f"in effect: {numbers}")
    else:
        typer.echo(f"ready: {numbers}. Send requests to these, then call again with --finish")


@contextmanager
def _needs_cluster(what: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(
            f"{what} needs {error.name}, which is not installed: pip install 'livegnn[cluster]'"
        ) from error


def _clients(read: "Deployment", host: str, *, behind_front: bool = False) -> "tuple[Access, Tls | None]":
    """The clients to admit at an address, and the certificate. Raises InputError."""
    section = read.workers
    if section is None:
        raise InputError("workers need a section [workers], got none: docs/deployment.md")
    section.check_address(host)
    return section.access(behind_front=behind_front), section.tls()


def _listen(
    app: "ASGIApp",
    host: str,
    port: int,
    what: str,
    logger: "logging.Logger",
    find_readiness: "Callable[[], Readiness]",
    tls: "Tls | None",
    end_waits: "Callable[[], None] | None" = None,
) -> None:
    """Serves until SIGINT or SIGTERM. end_waits: called in a thread then, so that requests that wait end."""
    import signal
    import threading

    from livegnn.http.listening import address_of, listen
    from livegnn.http.serving import HttpServer

    def stop() -> None:
        if end_waits is not None:
            threading.Thread(target=end_waits, daemon=True).start()

    def leave(sig: int, frame: "FrameType | None") -> None:
        for number in (signal.SIGTERM, signal.SIGINT):  # later signals change nothing
            signal.signal(number, signal.SIG_IGN)
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    with listen(host, port) as listener:
        address = address_of(listener, "http" if tls is None else "https")
        logger.info("%s listens at %s", what, address, extra={"address": address})
        typer.echo(f"{what} listens at {address}")
        log_first_readiness(logger, find_readiness)
        try:
            HttpServer(app, listener, on_stop=stop, tls=tls).run()
        finally:
            logger.info("%s stopped", what)
