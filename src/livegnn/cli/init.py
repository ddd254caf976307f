"""`livegnn init`: a first deployment, from a model and tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.errors import InputError
from livegnn.wording import needs

if TYPE_CHECKING:
    from livegnn.deployment.initial import Table


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to make, with the deployment")],
    model: Annotated[
        Path, typer.Option("--model", metavar="FILE", help="model file, as Model.save writes it")
    ],
    nodes: Annotated[
        list[str] | None,
        typer.Option("--nodes", metavar="[TYPE=]FILE", help="table of nodes; may be repeated"),
    ] = None,
    edges: Annotated[
        list[str] | None,
        typer.Option(
            "--edges", metavar="[SOURCE,RELATION,TARGET=]FILE", help="table of edges; may be repeated"
        ),
    ] = None,
    undirected: Annotated[
        bool, typer.Option("--undirected", help="each edge counts for both of its ends")
    ] = False,
) -> None:
    """Write a deployment for a model and tables: Parquet, CSV, Arrow IPC or JSON lines."""
    try:
        from livegnn.deployment.initial import FILE, write_deployment

        tables = [_table(one) for one in nodes or []], [_table(one) for one in edges or []]
        if not tables[1]:
            raise InputError("livegnn init needs at least one table of edges, got none: --edges FILE")
        write_deployment(folder, model, *tables, undirected=undirected)
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        raise InputError(needs("livegnn init", "pyarrow", error, "arrow")) from error
    path = folder / FILE
    typer.echo(f"{path} is written. Read its mappings, then run:")
    for table in (*tables[0], *tables[1]):
        typer.echo(f"  livegnn load {path} {table.name} {table.file}")
    typer.echo(f"  livegnn serve {path}")


def _table(text: str) -> "Table":
    from livegnn.deployment.initial import Table

    type_, found, file = text.partition("=")
    if not found:
        return Table(Path(text))
    parts = tuple(type_.split(","))
    if len(parts) not in (1, 3):
        raise InputError(f"a type must be TYPE or SOURCE,RELATION,TARGET before the '=', got {text!r}")
    return Table(Path(file), type_ if len(parts) == 1 else (parts[0], parts[1], parts[2]))
