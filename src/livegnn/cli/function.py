"""`livegnn function`: predictions from a snapshot, by workers that are started on demand."""

import inspect
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from livegnn.cli.logs import Level, LogJson, LogLevel, log_first_readiness, start_log
from livegnn.functions.options import MachineOptions

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

    if given["memory"] is not None:
        given["memory"] = check_int(given["memory"], "memory, in MiB,", 1) * 2**20
    settings = MachineSettings(**given)
    _limit(settings)
    from livegnn.functions.app import serve as serve_machine
    from livegnn.http.listening import address_of, listen

    machine = settings.open()
    with listen(host, port) as listener:
        address = address_of(listener)
        logger.info("a node listens at %s", address, extra={"address": address})
        typer.echo(f"a node listens at {address}")
        log_first_readiness(logger, lambda: machine.readiness)
        try:
            serve_machine(machine, listener)
        finally:
            logger.info("the node stopped")


def _add_serve() -> None:
    own = list(inspect.signature(serve).parameters.values())[:-1]
    hints = get_type_hints(MachineOptions)
    options = [
        inspect.Parameter(
            it.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if it.default is MISSING else it.default,
            annotation=Annotated[hints[it.name], typer.Option(**it.metadata)],
        )
        for it in fields(MachineOptions)
    ]
    serve.__signature__ = inspect.Signature([*options, *own])  # type: ignore[attr-defined]
    serve.__annotations__ = {it.name: it.annotation for it in [*options, *own]}
    app.command()(serve)


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
