"""`livegnn load`: files of tables into a deployment."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.files import DeploymentFile, read_deployment
from livegnn.cli.progress import Line, exit_if_refused
from livegnn.errors import InputError, LogError
from livegnn.wording import needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from livegnn.deployment import Deployment
    from livegnn.deployment.loading import Loaded, Progress


def load(
    deployment: DeploymentFile,
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE", help="name of the mapping: the section \\[tables.TABLE] of the file"),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", help="Parquet, CSV, Arrow IPC or JSON lines, or folders of them"),
    ],
    order: Annotated[
        str,
        typer.Option(metavar="name|time", help="order of the files in a folder: by name, or by last change"),
    ] = "name",
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="address of the running server of the deployment (default: no server runs)"
        ),
    ] = None,
) -> None:
    """Append the rows of files to a deployment, or to its running server, each once, and apply them."""
    settings = read_deployment(deployment)
    try:
        with Line("rows") as line:
            loaded = _load(settings, table, files, order, server, line.show)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("livegnn load", "pyarrow", error, "arrow")) from error
    typer.echo(
        f"{loaded.rows:,} rows loaded as {loaded.events:,} events, {loaded.known:,} rows loaded earlier, "
        f"event {loaded.seq}"
    )
    exit_if_refused(loaded)


def _load(
    settings: "Deployment",
    table: str,
    files: list[Path],
    order: str,
    server: str | None,
    note: "Callable[[Progress], None]",
) -> "Loaded":
    if server is None:
        return _load_into_log(settings, table, files, order, note)
    from livegnn.deployment.server_loading import load_into_server
    from livegnn.http.client import ServerClient

    return load_into_server(settings, table, files, ServerClient(server), order=order, note=note)


def _load_into_log(
    settings: "Deployment", table: str, files: list[Path], order: str, note: "Callable[[Progress], None]"
) -> "Loaded":
    from livegnn.deployment.loading import load_files
    from livegnn.log.location import OwnedElsewhere

    try:
        return load_files(settings, table, files, order=order, note=note)
    except OwnedElsewhere as error:
        raise LogError(f"{error}, or load into the server that runs there: --server URL") from error
