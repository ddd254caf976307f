"""`livegnn function`: predictions from a snapshot, by workers that come with requests."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from livegnn.functions.machine import Machine
    from livegnn.functions.settings import MachineSettings

app = typer.Typer(
    help="Predict from a snapshot, with workers that come with requests: docs/functions.md.",
    no_args_is_help=True,
)

Host = Annotated[str, typer.Option(help="the address to listen at")]
Port = Annotated[
    int, typer.Option(envvar="PORT", help="the port, or that of the variable PORT; 0 for any free one")
]

Refresh = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="after which a worker looks for a newer snapshot; 60"),
]
Memory = Annotated[
    int | None,
    typer.Option(metavar="MIB", help="that a worker may take, in MiB; threads all together"),
]
Gap = Annotated[
    int | None,
    typer.Option(metavar="BYTES", help="between two ranges of an object that one request reads along"),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="shared|private",
        help="features are kept for all workers, or by each; shared where workers are processes",
    ),
]
SamplingWorkers = Annotated[
    int, typer.Option(help="at most, that fetch subgraphs for them; 0: each worker does both")
]


@app.command()
def serve(
    snapshot: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="LIVEGNN_SNAPSHOT", help="where the snapshot is: docs/snapshots.md"
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(metavar="FILE", envvar="LIVEGNN_MODEL", help="the model file: docs/model-file.md"),
    ],
    workers: Annotated[int, typer.Option(help="at most, that predict")] = 4,
    sampling_workers: SamplingWorkers = 0,
    waiting: Annotated[int, typer.Option(help="requests that may wait; further ones are refused")] = 100,
    keep_alive: Annotated[
        float, typer.Option(metavar="SECONDS", help="after which an idle worker ends")
    ] = 600.0,
    memory: Memory = None,
    refresh: Refresh = None,
    gap: Gap = None,
    cache: Cache = None,
    place: Annotated[str, typer.Option(help="what workers are: processes or threads")] = "processes",
    opener: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="what opens the predictor")
    ] = "livegnn.remote.predictor:open_predictor",
    host: Host = "127.0.0.1",
    port: Port = 8080,
) -> None:
    """Serve predictions over HTTP; nothing but this runs while there are no requests."""
    from livegnn.arguments import whole
    from livegnn.functions.settings import MachineSettings

    settings = MachineSettings(
        snapshot,
        str(model),
        opener=opener,
        place=place,  # type: ignore[arg-type]
        workers=workers,
        sampling_workers=sampling_workers,
        waiting=waiting,
        keep_alive=keep_alive,
        memory=None if memory is None else whole(memory, "memory, in MiB,", 1) * 2**20,
        refresh=refresh,
        gap=gap,
        cache=cache,  # type: ignore[arg-type]
    )
    _limit(settings)
    _listen(settings.open(), host, port)


def _limit(settings: "MachineSettings") -> None:
    """Refuses a limit of memory that is too small. That of threads is one of this process."""
    from livegnn.remote.memory_limit import limit_memory, prepare

    threads = settings.place == "threads"
    if threads:
        prepare()
        import livegnn.functions.app  # noqa: F401 - what the process has, whatever is asked
    settings.check_memory()
    if threads and settings.memory is not None:
        limit_memory(settings.memory, 0)


def _listen(machine: "Machine", host: str, port: int) -> None:
    from livegnn.functions.app import serve
    from livegnn.server.listening import listen

    with listen(host, port) as listener:
        found, number = listener.getsockname()[:2]
        shown = f"[{found}]" if ":" in found else found
        typer.echo(f"a node listens at http://{shown}:{number}")
        serve(machine, listener)
