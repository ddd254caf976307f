"""`livegnn checkpoint`: shows the contents of checkpoints, and verifies them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from livegnn.checkpoint import Contents
    from livegnn.types import JSON

app = typer.Typer(help="Inspect and verify checkpoints.", no_args_is_help=True)


@app.command()
def inspect(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="checkpoint: docs/checkpoint.md")],
    as_json: Annotated[
        bool, typer.Option("--json", help="print JSON, with the metadata of each part")
    ] = False,
) -> None:
    """Show the event, the parts and the arrays of a checkpoint. Reads only the header."""
    from livegnn.checkpoint import read_contents

    contents = read_contents(path)
    typer.echo(json.dumps(_as_json(contents), indent=1) if as_json else _as_text(contents))


@app.command()
def verify(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="checkpoint, or directory of a deployment's checkpoints"),
    ],
) -> None:
    """Read whole checkpoints and report each as whole or broken. The status is 1 if one is broken."""
    import livegnn.checkpoint as checkpoint
    from livegnn.runtime import list_checkpoints

    files = list_checkpoints(path) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path} must hold checkpoints, files named checkpoint-*.lgck, got none")
    broken = 0
    for file in files:
        try:
            typer.echo(f"{file}: whole, event {checkpoint.read(file).seq}")
        except FileNotFoundError:  # removed meanwhile, as it was too old
            if file == path:
                raise
        except FileFormatError as error:
            if not file.exists():  # the newest of a chain is removed first
                continue
            broken += 1
            typer.echo(f"{file}: broken: {error}")
    if broken:
        raise typer.Exit(1)


def _as_text(contents: "Contents") -> str:
    from livegnn.wording import format_count, format_size

    lines = [f"event {contents.seq:,}, {format_size(contents.size)}, format version {contents.version}"]
    lines += [f"takes {format_size(one.length)} from {one.name}" for one in contents.files]
    for part in contents.meta:
        arrays = [section for section in contents.sections if section.state == part]
        total = sum(section.length for section in arrays)
        lines.append(f"{part}: {format_count(len(arrays), 'array')}, {format_size(total)}")
        lines += [f"  {one.name}  {one.dtype.str} {list(one.shape)}  {one.length:,} bytes" for one in arrays]
    return "\n".join(lines)


def _as_json(contents: "Contents") -> "dict[str, JSON]":
    parts: dict[str, JSON] = {
        part: {
            "meta": dict(meta),
            "arrays": [
                {
                    "name": one.name,
                    "dtype": one.dtype.str,
                    "shape": list(one.shape),
                    "bytes": one.length,
                    "crc32": one.crc32,
                }
                for one in contents.sections
                if one.state == part
            ],
        }
        for part, meta in contents.meta.items()
    }
    files: list[JSON] = [
        {"name": one.name, "sha256": one.sha256, "bytes": one.length} for one in contents.files
    ]
    return {
        "version": contents.version,
        "seq": contents.seq,
        "bytes": contents.size,
        "files": files,
        "parts": parts,
    }
