"""`livegnn model`: deploys, compares and switches the models of a running server without a pause."""

import json
import time
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from livegnn.errors import InputError, LiveGNNError

if TYPE_CHECKING:
    from livegnn.types import JSON

app = typer.Typer(help="Deploy, compare and switch the models of a running server.", no_args_is_help=True)

_POLL_SECONDS: Final = 0.2

Server = Annotated[str, typer.Option(metavar="URL", envvar="LIVEGNN_SERVER", help="address of the server")]
_HERE: Final = "http://127.0.0.1:8080"
Name = Annotated[str, typer.Argument(metavar="NAME", help="name of a model, as in `livegnn model list`")]


@app.command("list")
def list_models(server: Server = _HERE) -> None:
    """List the models of a server and mark the serving model."""
    found = _ask(server, "GET", "/v1/models")
    for model in _listed(found["models"]):
        mark = "*" if model["serving"] else "-" if model["name"] == found["previous"] else " "
        reason = f": {model['reason']}" if model["reason"] else ""
        typer.echo(f"{mark} {model['name']}  {model['phase']}  {str(model['digest'])[:12]}{reason}")


@app.command()
def deploy(
    path: Annotated[Path, typer.Argument(metavar="MODEL.LGNN", help="model file, written by Model.save")],
    name: Annotated[str | None, typer.Option(help="name of the model (default: name of the file)")] = None,
    hold: Annotated[
        bool,
        typer.Option("--hold", help="compare only; `livegnn model switch` makes it the serving model later"),
    ] = False,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="eager|lazy|presampled", help="engine mode (default: that of the serving model)"
        ),
    ] = None,
    server: Server = _HERE,
) -> None:
    """Compute a model beside the serving model, print how they differ, and switch to it."""
    name = path.stem if name is None else name
    given = "" if mode is None else "?" + urllib.parse.urlencode({"mode": mode})
    where = f"/v1/models/{_quoted(name)}{given}"
    _ask(server, "PUT", where, path.read_bytes(), "application/octet-stream")
    while True:
        found = _ask(server, "GET", "/v1/models")
        model = next((one for one in _listed(found["models"]) if one["name"] == name), None)
        if model is None:
            raise LiveGNNError(f"the server has forgotten the model {name!r}: was it started again?")
        if model["phase"] == "failed":
            raise LiveGNNError(f"the model {name!r} was not deployed: {model['reason']}")
        if model["phase"] == "following":
            break
        time.sleep(_POLL_SECONDS)
    typer.echo(f"{name} follows the graph")
    if found["serving"] not in (None, name):
        said = "it follows the graph and does not answer. To let it answer anyway: livegnn model switch"
        try:
            comparison = _ask(server, "GET", f"/v1/models/{_quoted(name)}/comparison")
        except InputError as error:
            if hold:
                typer.echo(str(error))
                return
            raise InputError(f"{error}; {said} {name}") from error
        _show(comparison)
        if comparison["not_finite"] and not hold:
            raise LiveGNNError(f"{comparison['not_finite']} predictions are not finite; {said} {name}")
    if not hold and found["serving"] != name:
        switch(name, server)


@app.command()
def compare(
    name: Name,
    first: Annotated[
        str | None, typer.Option("--with", metavar="NAME", help="other model (default: the serving model)")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="differences above this count")] = 1e-4,
    server: Server = _HERE,
) -> None:
    """Print how the predictions of two models differ."""
    given: dict[str, str | float] = {"tolerance": tolerance, **({} if first is None else {"first": first})}
    _show(_ask(server, "GET", f"/v1/models/{_quoted(name)}/comparison?{urllib.parse.urlencode(given)}"))


@app.command()
def switch(name: Name, server: Server = _HERE) -> None:
    """Make a model the serving model, between two batches."""
    _say(_ask(server, "PUT", "/v1/serving", json.dumps({"model": name}).encode()))


@app.command()
def rollback(server: Server = _HERE) -> None:
    """Make the previous serving model the serving model again."""
    _say(_ask(server, "POST", "/v1/serving/rollback"))


@app.command()
def remove(name: Name, server: Server = _HERE) -> None:
    """Remove a deployed model that is not the serving model."""
    _ask(server, "DELETE", f"/v1/models/{_quoted(name)}")
    typer.echo(f"{name} is removed")


def _show(found: "dict[str, JSON]") -> None:
    classes = found["changed_class"]
    typer.echo(
        f"{found['second']} beside {found['first']}, {found['nodes']} nodes, events {found['since']} to "
        f"{found['seq']}:\n"
        f"  {found['different']} differ by more than {found['tolerance']}"
        + ("" if classes is None else f", {classes} are of another class")
        + f"\n  difference {found['mean']:.3g} in the mean, {found['largest']:.3g} at most"
        + ("" if found["largest_id"] is None else f" (node {found['largest_id']})")
        + (f"\n  {found['not_finite']} are not finite" if found["not_finite"] else "")
    )
    for one in _listed(found["degrees"]):
        least = one["degree"]
        assert isinstance(least, int)
        span = f"{least}" if least < 2 else f"{least} to {2 * least - 1}"
        typer.echo(
            f"  in-degree {span}: {one['nodes']} nodes, {one['different']} differ, {one['mean']:.3g} in the "
            f"mean, {one['largest']:.3g} at most"
        )


def _say(found: "dict[str, JSON]") -> None:
    before = "" if found["previous"] is None else f" instead of {found['previous']}"
    back = "" if found["previous"] is None else "; back with: livegnn model rollback"
    typer.echo(f"after event {found['seq']} {found['model']} answers{before}{back}")


def _listed(value: "JSON") -> "list[dict[str, JSON]]":
    assert isinstance(value, list)
    return [one for one in value if isinstance(one, dict)]


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _ask(
    server: str, method: str, path: str, body: bytes | None = None, media_type: str = "application/json"
) -> "dict[str, JSON]":
    from livegnn.http.client import ServerClient

    return ServerClient(server).ask(method, path, body, media_type)
