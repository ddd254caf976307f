"""`livegnn predict`: all predictions of a deployment or a server, or all scores of edges, into a file."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

import typer

from livegnn.cli.files import check_apart_from_deployment, read_deployment
from livegnn.errors import InputError, LogError
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.server.prediction_file import Written

_SCHEMES = ("http://", "https://")
_PATH = "/v1/predictions/all"


def predict(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="deployment file of no running server, or address of a running server"
        ),
    ],
    output_file: Annotated[Path, typer.Option("-o", metavar="FILE", help="Parquet file to write")],
    every: Annotated[bool, typer.Option("--all", help="of all nodes, or of all edges")] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", help="output or edge output of the model (default: the first output)"),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="name of the model (default: the serving one)")
    ] = None,
) -> None:
    """Write the predictions of all nodes, or the scores of all edges, to a Parquet file."""
    from livegnn.atomic_file import check_writable

    if not every:
        raise InputError("livegnn predict needs --all: a server answers for single nodes")
    check_writable(output_file)
    try:
        write = _write_from_server if source.lower().startswith(_SCHEMES) else _write_from_deployment
        written = write(source, output_file, output, model)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("livegnn predict", "pyarrow", error, "arrow")) from error
    kind = "scores of edges" if written.of_edges else "predictions"
    typer.echo(f"{written.rows:,} {kind}, event {written.seq}, in {output_file}")


def _write_from_server(address: str, path: Path, output: str | None, model: str | None) -> "Written":
    from livegnn.http.client import AnswerCut, ServerClient
    from livegnn.server.prediction_file import write_parquet

    asked = {name: value for name, value in (("output", output), ("model", model)) if value is not None}
    with ServerClient(address).open("GET", f"{_PATH}?{urlencode(asked)}") as answer:
        try:
            return write_parquet(answer, path)
        except AnswerCut as error:
            raise AnswerCut(f"{error}. Run it again: {path} is as it was") from error


def _write_from_deployment(source: str, path: Path, output: str | None, model: str | None) -> "Written":
    from livegnn.http.client import HERE
    from livegnn.log.location import OwnedElsewhere
    from livegnn.server.prediction_file import open_all, write_parquet

    if not Path(source).exists():
        raise InputError(f"SOURCE must be a deployment file, or an address such as {HERE}, got {source!r}")
    settings = read_deployment(Path(source))
    check_apart_from_deployment(path, Path(source), settings)
    try:
        runtime = settings.open()
    except OwnedElsewhere as error:
        raise LogError(f"{error}, or name the address of the server that runs there") from error
    with closing(runtime.log):
        try:
            return write_parquet(open_all(runtime, output, model), path)
        finally:
            runtime.stop()
