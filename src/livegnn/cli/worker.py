"""`livegnn worker`: sampling and serving workers, each a process, and their front end."""

from typing import Annotated

import typer

from livegnn.cli.files import DeploymentFile, read_deployment
from livegnn.cli.listening import Host, Port, find_clients, listen_until_stopped, needs_extra
from livegnn.cli.logs import Level, LogJson, LogLevel, start_log

app = typer.Typer(
    help="Run sampling workers, serving workers and their front end: docs/workers.md.", no_args_is_help=True
)

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="number of the worker, from 0")]
_SECONDS = 0.2


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
    access, tls = find_clients(read, host, behind_front=True)
    worker = open_serving(read, number, replica)
    worker.start()
    try:
        app, readiness = create_serving_app(worker, access), worker.readiness
        listen_until_stopped(app, host, port, f"serving worker {number}", logger, readiness, tls, worker.stop)
    finally:
        worker.stop()


@app.command()
def front(
    deployment: DeploymentFile,
    addresses: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL...]",
            show_default=False,
            help="addresses of the serving workers, in order; commas join the addresses of replicas. Without "
            "any, those of the workers that `livegnn cluster up` has started",
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run the front end, which sends each seed to its serving worker."""
    logger = start_log(log_level, log_json)
    from livegnn.cli.cluster import find_cluster
    from livegnn.deployment.workers import plan_workers

    with needs_extra("a front end"):
        from livegnn.workers.front import create_front
    read = read_deployment(deployment)
    access, tls = find_clients(read, host)
    plan = plan_workers(read)
    if addresses:
        served = create_front(plan, [replicas.split(",") for replicas in addresses], access, tls)
    else:
        from livegnn.cluster.app import create_cluster_app

        served = create_cluster_app(find_cluster(read), plan, access, tls)
    listen_until_stopped(served, host, port, "the front end", logger, served.state.find_readiness, tls)


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
