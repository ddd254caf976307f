"""`livegnn function`: predictions from a snapshot, by workers that are started on demand."""

import inspect
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from livegnn.cli.logs import Level, LogJson, LogLevel, log_first_readiness, start_log
from livegnn.functions.options import ClientOptions, MachineOptions

if TYPE_CHECKING:
    from livegnn.functions.settings import MachineSettings

app = typer.Typer(
    help="Predict from a snapshot, with workers that are started on demand: docs/functions.md.",
    no_args_is_help=True,
)

Host = Annotated[str, typer.Option(help="address to listen at")]
Port = Annotated[int, typer.Option(envvar="PORT", help="port to listen at; 0 takes any free port")]


def serve(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
    **given: Any,
) -> None:
    """Serve predictions over HTTP. No worker runs while there are no requests."""
    logger = start_log(log_level, log_json)
    from livegnn.arguments import check_int
    from livegnn.functions.settings import MachineSettings
    from livegnn.http.access import AccessSettings

    if given["memory"] is not None:
        given["memory"] = check_int(given["memory"], "memory, in MiB,", 1) * 2**20
    chosen = {it.name: given.pop(it.name) for it in fields(ClientOptions)}
    clients = AccessSettings(**{name: value for name, value in chosen.items() if value is not None})
    clients.check_address(host)
    access, tls = clients.access(), clients.tls()
    settings = MachineSettings(**given)
    _limit(settings)
    from livegnn.functions.app import serve as serve_machine
    from livegnn.http.listening import address_of, listen

    machine = settings.open()
    with listen(host, port) as listener:
        address = address_of(listener, "http" if tls is None else "https")
        logger.info("a node listens at %s", address, extra={"address": address})
        typer.echo(f"a node listens at {address}")
        log_first_readiness(logger, lambda: machine.readiness)
        try:
            serve_machine(machine, listener, access, tls)
        finally:
            logger.info("the node stopped")


def _add_serve() -> None:
    own = list(inspect.signature(serve).parameters.values())[:-1]
    hints = {**get_type_hints(MachineOptions), **get_type_hints(ClientOptions)}
    options = [
        inspect.Parameter(
            it.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if it.default is MISSING else it.default,
            annotation=Annotated[hints[it.name], typer.Option(*_flag_of(it), **it.metadata)],
        )
        for it in (*fields(MachineOptions), *fields(ClientOptions))
    ]
    serve.__signature__ = inspect.Signature([*options, *own])  # type: ignore[attr-defined]
    serve.__annotations__ = {it.name: it.annotation for it in [*options, *own]}
    app.command()(serve)


def _flag_of(option: "Field[Any]") -> list[str]:
    """The name of a switch, which has no opposite."""
    return [f"--{option.name}"] if option.default is False else []


_add_serve()


def _limit(settings: "MachineSettings") -> None:
    """Refuses a limit of memory that is too small. That of threads is one of this process."""
    from livegnn.remote.memory_limit import limit_memory, prepare

    threads = settings.place == "threads"
    if threads:
        prepare()
        import livegnn.functions.app  # noqa: F401 - the process loads it for any request
    settings.check_memory()
    if threads and settings.memory is not None:
        limit_memory(settings.memory, 0)
