"""`livegnn log`: commands that read, verify and maintain an event log."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from livegnn.cli.files import check_apart_from_deployment, check_apart_from_log, read_deployment
from livegnn.errors import InputError, LogError, SourceError

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.graph import Graph, View
    from livegnn.log import Write
    from livegnn.log.sqlite import SqliteLog
    from livegnn.log.sqlite.reader import SqliteReader

app = typer.Typer(help="Read, verify and maintain an event log.", no_args_is_help=True)

LogFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="log, or deployment file (.toml) that names a log")
]
DeploymentFile = Annotated[
    Path, typer.Argument(metavar="DEPLOYMENT.TOML", help="deployment file of the log: docs/deployment.md")
]
_EVENTS_AT_ONCE = 8192


@app.command()
def verify(file: LogFile) -> None:
    """Read a whole log and print each error in it. A server may run on the log."""
    from livegnn.log.sqlite.examination import examine

    path = _log_of(file)
    report = examine(path)
    typer.echo(
        f"{path}: events {report.begin + 1} to {report.end}, "
        f"{_counted(report.entries, 'entry', 'entries')} in {_counted(report.rows, 'row')}, "
        f"{_counted(report.batches, 'batch', 'batches')} up to event {report.last_batch}, "
        f"{_counted(report.rejections, 'refused entry', 'refused entries')} ({report.dead_letters} trimmed), "
        f"{_counted(report.keys, 'key')}, {_counted(report.origins, 'origin')}, "
        f"{_counted(report.bad_messages, 'bad message')} of sources"
    )
    for problem in report.problems:
        typer.echo(f"error: {problem}", err=True)
    if report.problems:
        raise SystemExit(1)


@app.command()
def export(
    file: LogFile,
    after: Annotated[
        int | None,
        typer.Option("--after", metavar="SEQ", help="start after this event number (must end an entry)"),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="SEQ", help="stop at the last entry that ends at or before this event number"
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE", help="output file (default: standard output)")
    ] = None,
) -> None:
    """Write events as JSON lines, each with its sequence number in `seq`."""
    _check_output(output, file)
    with _reading(file) as reader, _writing(output) as stream:
        end = reader.last_seq()
        if after is not None and not 0 <= after <= end:
            raise InputError(f"--after must be the number of an event up to {end}, the last, got {after}")
        last = reader.first_seq() - 1 if after is None else after
        if to is not None and to < last:
            raise InputError(f"--to must be at least {last}, after which the export begins, got {to}")
        while writes := reader.writes(last, up_to=to, max_events=_EVENTS_AT_ONCE):
            for write in writes:
                stream.write(_lines_of(write))
            last = writes[-1].seq


def _lines_of(write: "Write") -> bytes:
    """The events of a write as JSON lines, with their numbers and that of their entry."""
    import orjson

    from livegnn.events.json_lines import ENTRY, SEQ, to_records

    records = iter(to_records(write.events.chunks))
    after, lines = write.after, []
    for end in write.ends.tolist():
        entry = {} if end == after + 1 else {ENTRY: end}
        for seq, record in zip(range(after + 1, end + 1), records, strict=False):
            lines.append(orjson.dumps({SEQ: seq} | entry | record) + b"\n")
        after = end
    return b"".join(lines)


@app.command("import")
def import_(
    deployment: DeploymentFile,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="JSON lines, as `livegnn log export` writes them")
    ],
    renumber: Annotated[
        bool, typer.Option("--renumber", help="take events whose numbers the log has already")
    ] = False,
) -> None:
    """Append the events of files to the log, each once, and apply them. The server must not run."""
    from livegnn.cli.progress import Line, exit_if_refused
    from livegnn.deployment.event_files import import_events

    settings = read_deployment(deployment)
    with Line("events") as line:
        loaded = import_events(settings, files, renumber=renumber, note=line.show)
    appended = _counted(loaded.events, "event")
    typer.echo(f"{appended} appended, {loaded.known:,} appended earlier, event {loaded.seq}")
    exit_if_refused(loaded)


@app.command()
def replay(
    deployment: DeploymentFile,
    to: Annotated[int, typer.Option("--to", metavar="SEQ", help="last event to apply")],
    output: Annotated[
        Path | None, typer.Option("-o", metavar="CHECKPOINT", help="checkpoint to write (default: none)")
    ] = None,
) -> None:
    """Restore the graph after event SEQ from the recorded batches. A server may run on the log."""
    from livegnn.atomic_file import check_writable
    from livegnn.inference import Engine

    if output is not None:
        check_writable(output)
    settings = read_deployment(deployment)
    check_apart_from_deployment(output, deployment, settings)
    with _reading(settings.log.file) as reader:
        graph, views = _replay(settings, reader, to)
        nodes = sum(graph.num_nodes(type_) for type_ in graph.schema.node_types)
        edges = sum(graph.num_edges(type_) for type_ in graph.schema.edge_types)
        said = f"seq {graph.seq}: {nodes} nodes, {edges} edges"
        engine = views.get("engine")
        if isinstance(engine, Engine):
            predictions = hashlib.blake2b(engine.embeddings(-1).tobytes(), digest_size=16)
            said += f", predictions {predictions.hexdigest()}"
        if output is not None:
            _write_checkpoint(output, graph, views, reader)
    typer.echo(said)
    if graph.seq < to:
        typer.echo(f"event {graph.seq} is the end of the last batch that ends at or before {to}", err=True)


@app.command()
def rejections(file: LogFile) -> None:
    """List, as JSON lines, refused entries, and then bad messages of sources."""
    import orjson

    from livegnn.events.json_lines import to_records

    with _reading(file) as reader:
        for seq, error, message in reader.listed():
            entry = reader.entry(seq)
            events = [] if entry is None else to_records(entry.events.chunks)
            said = orjson.dumps({"seq": seq, "error": error, "message": message, "events": events})
            typer.echo(said.decode())
        for bad in reader.bad_messages():
            typer.echo(orjson.dumps(bad._asdict() | {"payload": bad.text}).decode())


@app.command()
def retry(
    deployment: DeploymentFile,
    seqs: Annotated[list[int], typer.Argument(metavar="SEQ...", help="event numbers of refused entries")],
) -> None:
    """Append refused entries again. The next start applies them. The server must not run."""
    from livegnn.log.idempotency import retry_key

    with _owning(read_deployment(deployment)) as log:
        refused = {rejection.seq for rejection in log.rejections()}
        entries = {seq: log.entry(seq) for seq in seqs if seq in refused}
        for seq in seqs:
            if entries.get(seq) is None:
                raise InputError(
                    f"expected numbers of entries that were refused, got {seq}: see livegnn log rejections"
                )
        for seq, entry in entries.items():
            assert entry is not None
            again = log.append(entry.events, key=retry_key(seq))
            typer.echo(f"entry {seq} is appended again as entry {again}")


@app.command()
def forget(
    deployment: DeploymentFile,
    up_to: Annotated[
        int, typer.Argument(metavar="NUMBER", help="last event to forget, or last offset with --source")
    ],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="forget the bad messages of this source instead"),
    ] = None,
    partition: Annotated[int, typer.Option("--partition", help="partition of the source")] = 0,
) -> None:
    """Forget refused entries up to an event, or bad messages up to an offset. The server must not run."""
    settings = read_deployment(deployment)
    with _owning(settings) if settings.log.path is not None else closing(settings.log.open()) as log:
        if source is None:
            typer.echo(f"forgot {log.forget_rejections(up_to)} refused entries")
        else:
            typer.echo(f"forgot {log.forget_bad_messages(source, partition, up_to)} bad messages")


@app.command()
def consumers(
    file: LogFile,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="NAME", help="remove the position of this consumer")
    ] = None,
) -> None:
    """List the consumers of a log and the last event of each."""
    from livegnn.log import consumers as known

    with _reading(file) as reader:
        if forget is not None:
            known.forget(reader.path, forget)
            typer.echo(f"forgot {forget}")
            return
        last = reader.last_seq()
        for name, seq in known.read_positions(reader.path).items():
            typer.echo(f"{name}: event {seq}, {last - seq} behind")


@app.command()
def trim(deployment: DeploymentFile) -> None:
    """Delete events that no checkpoint and no consumer needs. The server must not run."""
    from livegnn.runtime import oldest_kept

    settings = read_deployment(deployment)
    if settings.checkpoint is None:
        raise InputError(
            f"{deployment} must have a section [checkpoint]: without checkpoints all of the log is needed"
        )
    policy = settings.checkpoint.policy()
    with _owning(settings) as log:
        oldest = oldest_kept(policy, log)
        if oldest is None:
            raise InputError(
                f"{policy.directory} must hold {policy.keep} checkpoints that share nothing before anything "
                "is trimmed, got fewer"
            )
        end = log.trim(oldest)
        typer.echo(f"{log.path} begins after event {end}, the oldest checkpoint is of event {oldest}")


@app.command()
def bind(deployment: DeploymentFile) -> None:
    """Accept the graph, the schema and the settings of a deployment for its log. The server must not run."""
    from livegnn.deployment.growing import table_properties
    from livegnn.runtime import restore, schema_properties

    settings = read_deployment(deployment)
    with _owning(settings) if settings.log.path is not None else closing(settings.log.open()) as log:
        directory = None if settings.checkpoint is None else settings.checkpoint.directory
        graph, _ = restore({}, replace(settings, features=None).load_graph, directory=directory)
        settings.complete_schema(graph)
        wanted = {**settings.properties(), **table_properties(settings.tables)}
        before, wanted = log.bound(), {**wanted, **schema_properties(graph.schema)}
        base = "graph/digest of path"
        if directory is not None and before.get(base, wanted.get(base)) != wanted.get(base):
            _refuse_checkpoints(directory, settings.graph.path)
        log.bind(wanted, replace=True)
        changed = {name: value for name, value in log.bound().items() if before.get(name) != value}
    for name, value in changed.items():
        typer.echo(f"{name}: {before.get(name, 'nothing')} -> {value}")
    what = settings.log.path or f"the topic {settings.log.topic!r} of Kafka"
    typer.echo(f"{what} is bound to {deployment}")


def _refuse_checkpoints(directory: Path, graph: Path) -> None:
    """The next start continues from the newest checkpoint, with any contents of the graph's file."""
    from livegnn.runtime import list_checkpoints

    if checkpoints := list_checkpoints(directory):
        raise InputError(
            f"another graph in {graph} must have no checkpoints of the previous graph, got "
            f"{len(checkpoints)} in {directory}, from which the next start would continue: remove them, and "
            "bind again; the log is then applied to the new graph"
        )


@app.command()
def skip(
    deployment: DeploymentFile,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="name of a source in \\[sources]")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="partition of the source")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="offset of the next message to read")],
) -> None:
    """Continue a source at a later offset, and skip the messages before it. The server must not run."""
    from livegnn.connectors import skip as skip_to

    settings = read_deployment(deployment)
    if source not in settings.sources:
        known = ", ".join(settings.sources) or "none"
        raise InputError(f"expected one of the sources of {deployment}, which are {known}, got {source!r}")
    try:
        settings.sources[source].check_skip(partition, offset)
    except SourceError as error:
        typer.echo(f"whether the topic has this place was not asked: {error}", err=True)
    with closing(settings.log.open()) as log:
        first = skip_to(log, source, partition, offset)
    typer.echo(f"{source} continues at {offset} in partition {partition}, without {offset - first} messages")


@app.command()
def create(
    deployment: DeploymentFile,
    partitions: Annotated[int, typer.Option(help="number of partitions of the topic of events")] = 1,
    replication: Annotated[
        int, typer.Option(help="copies of each partition; -1 takes the brokers' default")
    ] = -1,
) -> None:
    """Create the topics of a log in Kafka. Topics that exist are not changed."""
    log = read_deployment(deployment).log
    log.create(partitions, replication)
    typer.echo(f"{log.topic} and {log.topic}.control are at {log.kafka}")


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"


def _replay(settings: "Deployment", reader: "SqliteReader", up_to: int) -> "tuple[Graph, dict[str, View]]":
    from livegnn.runtime import replay as replay_batches
    from livegnn.runtime import restore, schema_properties

    settings = settings.with_seed_of(reader.bound())
    directory = None if settings.checkpoint is None else settings.checkpoint.directory
    factories = settings.factories(in_memory=True)
    load = replace(settings, features=None).load_graph
    graph, views = restore(factories, load, directory=directory, log=reader, up_to=up_to)
    settings.complete_schema(graph)
    reader.check_bound({**settings.properties(), **schema_properties(graph.schema)})
    replay_batches(reader, graph, up_to=up_to)
    return graph, views


def _write_checkpoint(path: Path, graph: "Graph", views: "dict[str, View]", reader: "SqliteReader") -> None:
    import livegnn.checkpoint as checkpoint
    from livegnn.runtime import history_state

    states = {name: state for name, view in views.items() if (state := view.state()) is not None}
    log = history_state(reader, graph.seq)
    checkpoint.write(path, {"graph": graph.state(), **states, "log": log}, graph.seq)


def _log_of(file: Path) -> Path:
    """The log itself, of a deployment file too."""
    return read_deployment(file).log.file if file.suffix == ".toml" else file


def _check_output(output: Path | None, file: Path) -> None:
    if file.suffix == ".toml":
        check_apart_from_deployment(output, file, read_deployment(file))
    else:
        check_apart_from_log(output, file)


@contextmanager
def _reading(file: Path) -> "Iterator[SqliteReader]":
    from livegnn.log.sqlite.reader import SqliteReader

    with closing(SqliteReader(_log_of(file))) as reader:
        yield reader


@contextmanager
def _owning(settings: "Deployment") -> "Iterator[SqliteLog]":
    """The log of a deployment without a running server; it must exist."""
    from livegnn.log.sqlite import SqliteLog

    if not settings.log.file.exists():
        raise LogError(f"there must be a log at {settings.log.file}, got nothing")
    with closing(SqliteLog(settings.log.file)) as log:
        yield log


@contextmanager
def _writing(path: Path | None) -> Iterator[BinaryIO]:
    from livegnn.atomic_file import replace_file

    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with replace_file(path) as stream:
        yield stream
