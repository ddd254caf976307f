"""`livegnn snapshot`: writes, inspects and verifies graphs in object storage."""

from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.cli.files import GraphFile, Parallel, read_graph
from livegnn.errors import InputError

if TYPE_CHECKING:
    from livegnn.snapshots.manifest import Layer, Manifest
    from livegnn.snapshots.objects import Objects
    from livegnn.types import JSON

app = typer.Typer(help="Write, inspect and verify snapshots in object storage.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Argument(metavar="URL", help="store: s3://, gs://, az://, file:// or a folder: docs/snapshots.md"),
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="option of the store, such as endpoint=http://..., or timeout and patience, in seconds; may "
        "be repeated. Keys are also read from the environment (AWS_ACCESS_KEY_ID, ...)",
    ),
]


@app.command()
def write(
    source: GraphFile,
    url: Url,
    direction: Annotated[
        list[str] | None,
        typer.Option(metavar="in|out", help="lists of directed edges to write (default: both)"),
    ] = None,
    parallel: Parallel = None,
    grace: Annotated[
        float, typer.Option(metavar="SECONDS", help="seconds after which a replaced snapshot is removed")
    ] = 600.0,
    option: Options = None,
) -> None:
    r"""Write a whole graph as the newest snapshot of a store. A running server uses \[snapshots]."""
    from livegnn.snapshots.compaction import check_grace, collect
    from livegnn.snapshots.writer import write_snapshot

    check_grace(grace)
    objects = _open(url, option)
    wanted = direction or ["in", "out"]
    manifest = write_snapshot(read_graph(source, parallel), objects, directions=wanted)  # type: ignore[arg-type]
    collect(objects, grace)
    typer.echo(_as_text(manifest))


@app.command()
def inspect(
    url: Url,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest as JSON")] = False,
    option: Options = None,
) -> None:
    """Show the contents of the newest snapshot of a store. Reads only its manifest."""
    manifest = _newest(_open(url, option), url)
    if as_json:
        typer.echo(manifest.to_bytes().partition(b"\n")[2].decode())
    else:
        typer.echo(_as_text(manifest))


@app.command()
def verify(url: Url, option: Options = None) -> None:
    """Read the whole newest snapshot and report damage. The status is 1 if it is damaged."""
    from livegnn.snapshots.verification import find_damage
    from livegnn.wording import format_size

    objects = _open(url, option)
    manifest = _newest(objects, url)
    damaged = 0
    for wrong in find_damage(objects, manifest):
        damaged += 1
        typer.echo(wrong)
    if damaged:
        typer.echo(f"{url}: broken, event {manifest.seq}: write the snapshot again")
        raise typer.Exit(1)
    typer.echo(f"{url}: whole, event {manifest.seq}, {format_size(manifest.size)}")


def _open(url: str, options: list[str] | None) -> "Objects":
    from livegnn.snapshots.objects import open_objects

    if url.startswith("memory://"):
        raise InputError(
            f"the store of a command must outlive it, got {url!r}, which is lost when the command ends: name "
            "a folder, file://, s3://, gs:// or az://"
        )
    settings: dict[str, str | float] = {}
    for setting in options or ():
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"--option must be NAME=VALUE, as in region=eu-west-1, got {setting!r}")
        settings[name] = _seconds(name, value) if name in ("patience", "timeout") else value
    return open_objects(url, **settings)  # type: ignore[arg-type]


def _seconds(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise typer.BadParameter(f"{name} must be a number of seconds, got {value!r}") from None


def _newest(objects: "Objects", url: str) -> "Manifest":
    from livegnn.snapshots.manifest import read_newest_manifest

    manifest = read_newest_manifest(objects)
    if manifest is None:
        raise InputError(f"expected a snapshot in {url}, found none: name the place where one was written")
    return manifest


def _as_text(manifest: "Manifest") -> str:
    from livegnn.graph import Schema
    from livegnn.wording import format_count, format_size

    schema = Schema.from_json(manifest.schema)
    total, layers = format_size(manifest.size), format_count(len(manifest.layers), "layer")
    lines = [f"event {manifest.seq:,}, generation {manifest.generation:,}, {total} in {layers}"]
    for (name, width), (_, nodes) in zip(schema.node_types.items(), manifest.nodes, strict=True):
        lines.append(f"{name}: {format_count(nodes, 'node')}, x={width}")
    for layer in manifest.layers:
        lines.append(f"{layer.kind}: {format_size(layer.size)}")
        lines += _tables(layer, schema.to_json())
    return "\n".join(lines)


def _tables(layer: "Layer", schema: "JSON") -> list[str]:
    from livegnn.graph import Schema
    from livegnn.wording import format_count, format_size

    types = Schema.from_json(schema)
    lines = []
    for key, table in layer.tables.items():
        listed = key.kind not in ("ids", "features")
        name = " ".join(list(types.edge_types)[key.type]) if listed else list(types.node_types)[key.type]
        entries = f", {table.entries:,} entries" if listed else ""
        total = sum(section.length for section in table)
        lines.append(
            f"  {key.kind} of {name}: {format_count(table.rows, 'row')}{entries}, {format_size(total)}"
        )
    return lines
