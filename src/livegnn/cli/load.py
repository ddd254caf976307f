"""`livegnn load`: files of tables into a deployment."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.files import DeploymentFile, read_deployment
from livegnn.errors import InputError
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.deployment.loading import Progress

_EVERY = 0.2  # seconds


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
) -> None:
    """Append the rows of files to the log of a deployment, each once, and apply them."""
    from livegnn.deployment.loading import load_files

    settings = read_deployment(deployment)
    line = _Line()
    try:
        loaded = load_files(settings, table, files, order=order, note=line.show)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("livegnn load", "pyarrow", error, "arrow")) from error
    finally:
        line.clear()
    typer.echo(
        f"{loaded.rows:,} rows loaded as {loaded.events:,} events, {loaded.known:,} rows loaded earlier, "
        f"event {loaded.seq}"
    )
    for reason in loaded.refused:
        typer.echo(f"error: refused: {reason}", err=True)
    if loaded.refused:
        raise SystemExit(1)


class _Line:
    """The progress on a terminal, on one line."""

    def __init__(self) -> None:
        self._shown, self._at = "", 0.0

    def show(self, progress: "Progress") -> None:
        if sys.stderr.isatty() and time.monotonic() - self._at >= _EVERY:
            self.clear()
            self._shown = f"{progress.file.name}: {progress.rows:,} rows {progress.step}"
            self._at = time.monotonic()
            typer.echo(self._shown, nl=False, err=True)

    def clear(self) -> None:
        if self._shown:
            typer.echo("\r" + " " * len(self._shown) + "\r", nl=False, err=True)
            self._shown = ""
