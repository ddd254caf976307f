"""`livegnn grow`: the columns that changed mappings add to the schema of a deployment."""

from contextlib import closing
from typing import Annotated

import typer

from livegnn.cli.files import DeploymentFile, read_deployment, read_graph_of


def grow(
    deployment: DeploymentFile,
    check: Annotated[
        bool, typer.Option("--check", help="print what would be added, and add nothing")
    ] = False,
) -> None:
    """Add the new columns of mappings to the schema, or refuse what would change a meaning."""
    from livegnn.deployment.growing import describe, growth_to
    from livegnn.log.sqlite.reader import SqliteReader

    settings = read_deployment(deployment)
    graph = read_graph_of(settings)
    with closing(SqliteReader(settings.log.file)) as reader:
        growth = growth_to(settings.tables, reader.bound(), graph.schema)
    for line in [] if growth is None else describe(growth):
        typer.echo(line)
    if growth is None:
        typer.echo("the schema has all columns of the mappings")
    elif not check:
        runtime = settings.open()
        runtime.stop()
        runtime.log.close()
        typer.echo(f"the schema has them from event {runtime.seq} on")
