"""`livegnn function`: predictions from a snapshot, by workers that are started on demand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from livegnn.functions.settings import MachineSettings

app = typer.Typer(
    help="Predict from a snapshot, with workers that are started on demand: docs/functions.md.",
    no_args_is_help=True,
)

Host = Annotated[str, typer.Option(help="address to listen at")]
Port = Annotated[int, typer.Option(envvar="PORT", help="port to listen at; 0 takes any free port")]

Refresh = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="seconds between checks for a newer snapshot (default: 60)"),
]
Memory = Annotated[
    int | None,
    typer.Option(
        metavar="MIB",
        help="memory limit of a worker, or of all threads together, in MiB (default: none)",
    ),
]
Gap = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        help="largest gap, in bytes, between two ranges of an object that one request reads "
        "(default: 65536, 4096 for a folder)",
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="shared|private",
        help="one cache of features for all workers, or one in each worker (default: shared if workers "
        "are processes)",
    ),
]
SamplingWorkers = Annotated[
    int,
    typer.Option(help="maximum number of sampling workers, which fetch subgraphs; 0: each worker does both"),
]


@app.command()
def serve(
    snapshot: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="LIVEGNN_SNAPSHOT", help="URL or folder of the snapshot: docs/snapshots.md"
        ),
    ],
    model: Annotated[
        Path,
        typer.Option(metavar="FILE", envvar="LIVEGNN_MODEL", help="model file: docs/model-file.md"),
    ],
    workers: Annotated[int, typer.Option(help="maximum number of prediction workers")] = 4,
    sampling_workers: SamplingWorkers = 0,
    waiting: Annotated[
        int, typer.Option(help="maximum number of waiting requests; further requests are refused")
    ] = 100,
    keep_alive: Annotated[
        float, typer.Option(metavar="SECONDS", help="seconds after which an idle worker ends")
    ] = 600.0,
    memory: Memory = None,
    refresh: Refresh = None,
    gap: Gap = None,
    cache: Cache = None,
    place: Annotated[str, typer.Option(help="kind of workers: processes or threads")] = "processes",
    opener: Annotated[
        str, typer.Option(metavar="MODULE:NAME", help="function that opens the predictor")
    ] = "livegnn.remote.predictor:open_predictor",
    host: Host = "127.0.0.1",
    port: Port = 8080,
) -> None:
    """Serve predictions over HTTP. No worker runs while there are no requests."""
    from livegnn.arguments import check_int
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
        memory=None if memory is None else check_int(memory, "memory, in MiB,", 1) * 2**20,
        refresh=refresh,
        gap=gap,
        cache=cache,  # type: ignore[arg-type]
    )
    _limit(settings)
    from livegnn.functions.app import serve as serve_machine
    from livegnn.server.listening import address_of, listen

    machine = settings.open()
    with listen(host, port) as listener:
        typer.echo(f"a node listens at {address_of(listener)}")
        serve_machine(machine, listener)


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
