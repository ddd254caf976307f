"""`livegnn cluster`: a graph that is divided among workers."""

from pathlib import Path
from typing import Annotated

import typer

from livegnn.cli.files import (
    GraphFile,
    Parallel,
    check_apart,
    check_apart_from_deployment,
    read_deployment,
    read_graph,
)

app = typer.Typer(help="Divide a graph among workers.", no_args_is_help=True)


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
