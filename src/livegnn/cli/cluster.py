"""`livegnn cluster`: workers and parts of a graph on the machines of Ray, partition files, rebalancing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.files import (
    DeploymentFile,
    GraphFile,
    Parallel,
    check_apart,
    check_apart_from_deployment,
    read_deployment,
    read_graph,
)
from livegnn.cli.listening import Host, Port, clients_of, find_clients, listen_until_stopped, needs_extra
from livegnn.cli.logs import Level, LogJson, LogLevel, start_log
from livegnn.errors import InputError

if TYPE_CHECKING:
    from livegnn.cluster.cluster import Cluster
    from livegnn.deployment import Deployment

app = typer.Typer(
    help="Run workers and parts of a graph on the machines of Ray: docs/cluster.md.", no_args_is_help=True
)
_HEADINGS = ("kind", "number", "replica", "node", "id", "process", "event", "state", "address")
_ID = 8  # letters of Ray's id of a machine


@app.command()
def partition(
    source: GraphFile,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="partition file to write")],
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="number of workers")],
    partitioner: Annotated[
        str,
        typer.Option(
            metavar="metis|fennel",
            help="metis cuts fewer edges and needs pymetis; fennel needs no package",
        ),
    ] = "metis",
    seed: Annotated[int, typer.Option(help="seed of the random numbers of METIS")] = 0,
    parallel: Parallel = None,
) -> None:
    """Divide the nodes of a graph among workers, and write their owners to a partition file."""
    from livegnn.atomic_file import check_writable
    from livegnn.placement import partition_graph

    check_apart(out, [source])
    if source.suffix == ".toml":
        check_apart_from_deployment(out, source, read_deployment(source))
    check_writable(out)
    graph = read_graph(source, parallel)
    found = partition_graph(graph, workers, partitioner=partitioner, seed=seed)  # type: ignore[arg-type]
    size = found.write(out)
    typer.echo(f"{found}\nwritten to {out}, {size:,} bytes")


@app.command()
def rebalance(
    file: DeploymentFile,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIRECTORY", help="write the new set there, and leave the present one"
        ),
    ] = None,
    partitioner: Annotated[
        str | None,
        typer.Option(
            metavar="metis|fennel",
            help="metis divides the graph afresh, fennel moves few nodes (default: owners of the deployment)",
        ),
    ] = None,
) -> None:
    """Divide the parts of a stopped server again, so that fewer edges are cut, for its next start."""
    from livegnn.deployment.rebalancing import rebalance

    report = rebalance(read_deployment(file), partitioner, out)  # type: ignore[arg-type]
    typer.echo(str(report))
    typer.echo("nothing was written" if report.path is None else f"written to {report.path}")


@app.command()
def up(
    deployment: DeploymentFile,
    detach: Annotated[
        bool, typer.Option("--detach", help="return once the workers are started, without a front end")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Start the workers of a deployment on the machines of Ray, and their front end. Those that run stay."""
    logger = start_log(log_level, log_json)
    from livegnn.deployment.workers import cluster_spec

    read = read_deployment(deployment)
    access, tls = find_clients(read, host)
    spec, plan = cluster_spec(read)
    section = read.cluster
    if detach and not section.ray:
        raise InputError(
            "ray in [cluster] must name a Ray that stays when this command ends, got none: start one with "
            "`ray start --head`, and write ray = 'auto'"
        )
    with needs_extra("a cluster"):
        from livegnn.cluster.joining import join_ray

        join_ray(section.ray, starts=True)
        import ray

        from livegnn.cluster.app import create_cluster_app
        from livegnn.cluster.cluster import Cluster
    try:
        running = Cluster.start(spec, namespace=section.namespace, patience=section, pace=section)
        try:
            running.register(plan.query)
            if detach:
                count = spec.sampling_workers + sum(running.replicas().values())
                typer.echo(f"up: {count} workers, which `livegnn cluster status` shows")
                return
            served = create_cluster_app(running, plan, access, tls)
            readiness = served.state.find_readiness
            listen_until_stopped(served, host, port, "the front end", logger, readiness, tls)
        finally:
            if not detach:
                running.stop()
    finally:
        ray.shutdown()


@app.command()
def front(
    deployment: DeploymentFile,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Run a front of a graph in parts, which reads predictions from the parts themselves."""
    logger = start_log(log_level, log_json)
    from livegnn.server.bodies import Limits

    with needs_extra("a front"):
        from livegnn.partitions.front import PartsFront
        from livegnn.partitions.front_app import create_front_app
    read = read_deployment(deployment)
    access, tls = clients_of(read.server, host)
    if read.cluster.fronts is None:
        raise InputError(
            "a front finds the parts by the file fronts of [cluster], got none: name a file there, and start "
            "the server again"
        )
    limits = Limits(read.server.largest_json_bytes, numbers=read.server.largest_answer_numbers)
    served = create_front_app(PartsFront(read.cluster.fronts), limits, access)
    listen_until_stopped(served, host, port, "the front", logger, served.state.find_readiness, tls)


@app.command()
def status(deployment: DeploymentFile) -> None:
    """Show all workers of a deployment, and the parts of its graph: where they run, and what they do."""
    read = read_deployment(deployment)
    rows: list[Sequence[object]] = []
    if read.cluster.partitions:
        _refuse_own_machine(read)
        _join(read)
        from livegnn.cluster.parts import list_parts

        for part in list_parts(read.cluster.namespace):
            state = "runs" if part.ended is None else f"ended with {part.ended}"
            place = part.node, part.id[:_ID], part.process
            rows.append(("partition", part.number, 0, *place, "-", state, "-"))
    else:
        for one in find_cluster(read).workers():
            state = "ready" if one.ready else "starts"
            place = one.node, one.id[:_ID], one.process
            rows.append((one.kind, one.number, one.replica, *place, one.seq, state, one.address or "-"))
    typer.echo(_table([_HEADINGS, *rows]))


@app.command()
def add(
    deployment: DeploymentFile,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="number of the serving worker, from 0")],
    replicas: Annotated[int, typer.Option(metavar="N", help="replicas to add")] = 1,
) -> None:
    """Start more replicas of a serving worker. The deployment file says how many it may have."""
    read = read_deployment(deployment)
    if read.cluster.partitions:
        raise InputError(
            "parts of a graph are added while their server is stopped, got a deployment with partitions = "
            f"{read.cluster.partitions}: stop it, write another number in [cluster], and start it; with "
            "owners = 'metis' or 'fennel' livegnn cluster rebalance may divide the graph before"
        )
    cluster = find_cluster(read)
    before = cluster.replicas()
    if number not in before:
        raise InputError(f"NUMBER must be a serving worker, one of {sorted(before)}, got {number}")
    cluster.replicate(number, before[number] + replicas)
    typer.echo(f"serving worker {number}: {before[number] + replicas} replicas")


@app.command()
def drain(
    deployment: DeploymentFile,
    node: Annotated[str, typer.Argument(metavar="NODE", help="address of the machine, or its id in Ray")],
    undo: Annotated[bool, typer.Option("--undo", help="let the machine take workers again")] = False,
    timeout: Annotated[
        float, typer.Option(help="longest wait for checkpoints and for parts, in seconds")
    ] = 30.0,
) -> None:
    """Move the workers, or the parts, of a machine to others, and start none there."""
    read = read_deployment(deployment)
    if read.cluster.partitions:
        typer.echo(_drain_parts(read, node, undo, timeout))
        return
    moved = find_cluster(read).drain(node, not undo, timeout)
    if undo:
        typer.echo(f"{node} takes workers")
    else:
        typer.echo(f"{node} takes no workers; moved: {', '.join(moved) or 'none'}")


@app.command()
def down(
    deployment: DeploymentFile,
    timeout: Annotated[float, typer.Option(help="longest wait for checkpoints, in seconds")] = 30.0,
) -> None:
    """End all workers of a deployment, sampling workers with a checkpoint. Ray continues."""
    read = read_deployment(deployment)
    if read.cluster.partitions:
        raise InputError("parts end with their server, got a deployment with partitions: stop livegnn serve")
    cluster = find_cluster(read)
    count = len(cluster.workers())
    cluster.stop(timeout)
    typer.echo(f"down: {count} workers have ended")


def _drain_parts(read: "Deployment", node: str, undo: bool, timeout: float) -> str:
    """The text that says what became of the parts of a machine. Raises InputError, LogError."""
    _refuse_own_machine(read)
    if read.checkpoint is None:
        raise InputError(
            "a part moves to another machine with a checkpoint, got no section [checkpoint]: write one, and "
            "start the server again"
        )
    _join(read)
    from livegnn.cluster.parts import drain_parts
    from livegnn.deployment.worker_sections import place_of

    place = place_of(read.log, read.checkpoint.directory)
    found = drain_parts(place, read.cluster.namespace, node, not undo, timeout)
    if undo:
        return f"{node} takes parts"
    if found.left:
        parts = ", ".join(map(str, found.left))
        return (
            f"{node} takes no parts; their server has not moved {parts} yet: livegnn cluster status shows it"
        )
    return f"{node} takes no parts; moved: {', '.join(map(str, found.moved)) or 'none'}"


def _refuse_own_machine(read: "Deployment") -> None:
    if not read.cluster.ray:
        raise InputError(
            "parts are shown and moved here if they are on the machines of Ray, got no ray in [cluster]: the "
            "server's own machine has all parts, read GET /readyz and GET /metrics of the server"
        )


def find_cluster(read: "Deployment") -> "Cluster":
    """The cluster that `up` has started. Raises InputError if there is none."""
    from livegnn.deployment.workers import cluster_spec

    spec, _ = cluster_spec(read)
    _join(read)
    from livegnn.cluster.cluster import Cluster

    return Cluster.find(spec, namespace=read.cluster.namespace)


def _join(read: "Deployment") -> None:
    from livegnn.cluster.joining import join_ray

    with needs_extra("a cluster"):
        join_ray(read.cluster.ray)


def _table(rows: Sequence[Sequence[object]]) -> str:
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(rows[0]))]
    lines = (
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
