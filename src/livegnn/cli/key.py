"""The commands that create, list and revoke clients' keys."""

import json
from pathlib import Path
from typing import Annotated

import typer

from livegnn.errors import InputError

app = typer.Typer(help="Create, list and revoke the keys of clients.", no_args_is_help=True)

KeysFile = Annotated[
    Path,
    typer.Argument(
        metavar="KEYS.JSON", help="file of keys, named by keys in the deployment: docs/security.md"
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of the key, such as that of its client")]


@app.command()
def create(
    path: KeysFile,
    name: Name,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, write or admin (everything); may be repeated; by default read"),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="most requests a second of all clients with this key")
    ] = None,
    body_bytes: Annotated[
        int | None, typer.Option("--bytes", help="most bytes of request bodies a second")
    ] = None,
    feeds: Annotated[int | None, typer.Option(help="most open change feeds")] = None,
) -> None:
    """Add a key, and print it. It is printed once: the file has only its hash."""
    from livegnn.http.keys import KeyLimits, create_key

    limits = KeyLimits(requests, body_bytes, feeds)
    typer.echo(create_key(path, name, scopes or ["read"], limits))  # type: ignore[arg-type]  # it checks


@app.command("list")
def list_keys(
    path: KeysFile, as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False
) -> None:
    """List names, scopes, times of creation and limits."""
    from livegnn.http.keys import read_keys

    keys = read_keys(path)
    if as_json:
        shown = [
            {
                "name": key.name,
                "scopes": key.scopes,
                "created": key.created,
                **({"limits": limits} if (limits := key.limits.given()) else {}),
            }
            for key in keys
        ]
        typer.echo(json.dumps(shown, indent=1))
        return
    for key in keys:
        units = {"requests": "requests a second", "bytes": "bytes a second", "feeds": "feeds"}
        limited = "".join(f", {count} {units[what]}" for what, count in key.limits.given().items())
        typer.echo(f"{key.name}: {', '.join(key.scopes)}, created {key.created}{limited}")


@app.command()
def revoke(path: KeysFile, name: Name) -> None:
    """Remove a key. Running servers refuse it within a second."""
    from livegnn.http.keys import revoke_key

    if not path.exists():
        raise InputError(f"{path} must be a file of keys, and there is none: name that of the process")
    revoke_key(path, name)
    typer.echo(f"{name} is revoked")
