"""The command line. Each command imports its modules itself, so that `livegnn --help` is quick."""

import re
import subprocess
import sys
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

import livegnn.log_lines as log_lines
from livegnn.cli.checkpoint import app as checkpoint_app
from livegnn.cli.cluster import app as cluster_app
from livegnn.cli.files import DeploymentFile, check_apart, read_deployment
from livegnn.cli.function import app as function_app
from livegnn.cli.grow import grow
from livegnn.cli.init import init
from livegnn.cli.key import app as key_app
from livegnn.cli.load import load
from livegnn.cli.log import app as log_app
from livegnn.cli.logs import Level, LogJson, LogLevel, log_first_readiness, start_log
from livegnn.cli.model import app as model_app
from livegnn.cli.predict import predict
from livegnn.cli.quality import quality
from livegnn.cli.snapshot import app as snapshot_app
from livegnn.cli.worker import app as worker_app
from livegnn.errors import LiveGNNError, ModelError

if TYPE_CHECKING:
    from livegnn.types import EdgeType, NodeType

app = typer.Typer(
    help="Keeps the predictions of a graph neural network exact while its graph changes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(cluster_app, name="cluster")
app.add_typer(function_app, name="function")
app.add_typer(key_app, name="key")
app.add_typer(log_app, name="log")
app.add_typer(model_app, name="model")
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(worker_app, name="worker")
app.command()(grow)
app.command()(init)
app.command()(load)
app.command()(predict)
app.command()(quality)


@app.command()
def serve(
    deployment: DeploymentFile,
    host: Annotated[
        str | None, typer.Option(help="address to listen at (default: that of the deployment file)")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="port to listen at; 0 takes any free port (default: that of the deployment file)"),
    ] = None,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Serve a model on a live graph over HTTP, starting from the newest checkpoint and the log."""
    logger = start_log(log_level, log_json)
    from livegnn.deployment.quality_monitor import start_quality
    from livegnn.deployment.sinks import start_sinks
    from livegnn.deployment.snapshots import start_snapshots
    from livegnn.server import create_app, listen
    from livegnn.server import serve as serve_app
    from livegnn.server.bodies import Limits

    settings = read_deployment(deployment).listening_at(host, port)
    access, tls = settings.server.access(), settings.server.tls()
    # A second server must not touch the files of the first, so the address is bound before the log is opened.
    with listen(settings.server.host, settings.server.port) as listener:
        runtime = settings.open()
        with ExitStack() as opened:
            opened.callback(runtime.log.close)
            opened.callback(runtime.stop)
            runtime.start()
            limits = Limits(
                settings.server.largest_json_bytes,
                settings.server.largest_body_bytes,
                numbers=settings.server.largest_answer_numbers,
            )
            start_snapshots(runtime)
            start_sinks(runtime)
            if (monitor := start_quality(settings, runtime)) is not None:
                opened.callback(monitor.stop)
            for source in settings.connect(runtime):
                opened.callback(source.stop)
                source.start()

            def note_start(address: str) -> None:
                logger.info("listens at %s", address, extra={"address": address, "event": runtime.seq})
                log_first_readiness(logger, runtime.readiness)
                typer.echo(f"event {runtime.seq}, listening at {address}")

            serve_app(
                create_app(runtime, limits=limits, access=access),
                listener,
                until_failure=settings.server.when_failed == "exit",
                ready=note_start,
                tls=tls,
            )
        if runtime.failure is not None:
            _fail(f"the runtime ended at event {runtime.seq}: {runtime.failure}")


@app.command()
def verify(deployment: DeploymentFile) -> None:
    """Restore a deployment and compare every prediction with a full recomputation."""
    from livegnn.errors import InputError
    from livegnn.inference import Engine

    settings = read_deployment(deployment)
    if settings.cluster.partitions:
        raise InputError(
            "livegnn verify needs a graph in one piece, got partitions in [cluster]: verify a copy of the "
            "deployment without them, whose predictions have the same bits"
        )
    runtime = settings.open()
    models = runtime.models
    runtime.log.close()
    if not any(isinstance(models.find(name), Engine) for name in models.names):
        models.find_engine(None)  # raises: nothing here can be compared
    wrong: list[str] = []
    for name in models.names:
        predictor = models.find(name)
        if not isinstance(predictor, Engine):
            typer.echo(f"model {name} answers from samples, which are not compared")
            continue
        outputs: dict[str, str] = {}
        for output, value in predictor.model.outputs.items():
            outputs.setdefault(value, output)  # two names of one value are compared once
        alone = len(models.names) == len(outputs) == 1
        for output in outputs.values():
            verification = predictor.verify(output=output)
            typer.echo(
                f"seq {runtime.seq}: {'' if alone else f'model {name}, output {output}: '}"
                f"{verification.checked} predictions, largest difference "
                f"{verification.max_difference:.3g}, at most {verification.bound:.3g} allowed "
                f"(channel {verification.channel}, the worst)"
            )
            if not verification.predictions_ok:
                wrong.append(
                    "the predictions" + ("" if alone else f" of output {output} of the model {name}")
                )
        if not verification.kept_ok:
            wrong.append("the rows kept for later predictions" + ("" if alone else f" of the model {name}"))
    if wrong:
        _fail(f"{' and '.join(wrong)} are not those of a computation from scratch")


@app.command("import")
def import_model(
    program: Annotated[
        Path, typer.Argument(metavar="MODEL.PT2", help="program written by torch.export.save: docs/models.md")
    ],
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="GRAPH",
            help="source of the schema: a deployment file, a checkpoint, or a schema as JSON",
        ),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=ROWS",
            help="rows of an argument: a node type, SOURCE,RELATION,TARGET, a column such as edge_weight, "
            "or TYPE:COLUMN; may be repeated",
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            metavar="NAME",
            help="result that is the prediction (default: the first); repeat to name several outputs, "
            "the prediction first",
        ),
    ] = None,
    output_type: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="node type of the prediction, where results are of several types"),
    ] = None,
    node_type: Annotated[
        str, typer.Option(metavar="TYPE", help="node type of a graph with one type of nodes")
    ] = "node",
    edge_type: Annotated[
        str,
        typer.Option(metavar="SOURCE,RELATION,TARGET", help="edge type of a graph with one type of edges"),
    ] = "node,to,node",
    relations: Annotated[
        list[str] | None,
        typer.Option(
            "--relation",
            metavar="SOURCE,RELATION,TARGET",
            help="edge type of the next number in edge_type, from 0; may be repeated",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("-o", metavar="MODEL.LGNN", help="output file (default: beside the program)"),
    ] = None,
) -> None:
    """Import a model from an exported program, and print how it was understood. Needs torch."""
    from livegnn.atomic_file import check_writable
    from livegnn.deployment.graph_files import read_schema
    from livegnn.model import Model

    said = dict(map(_input, inputs or ()))
    edges = _edge_type(edge_type, "--edge-type")
    numbered = [_edge_type(one, "--relation") for one in relations or ()] or None
    path = program.parent / f"{program.stem}.lgnn" if to is None else to
    check_apart(path, [one for one in (program, schema) if one is not None])
    check_writable(path)
    types = None if schema is None else read_schema(schema)
    try:
        from livegnn.model import explain_exported
    except ModuleNotFoundError as error:
        _fail(f"importing a program needs {error.name}, which is not installed: pip install 'livegnn[torch]'")
    try:
        model = Model.from_exported(
            program,
            schema=types,
            inputs=said,
            output=output or None,
            output_type=output_type,
            relations=numbered,
            node_type=node_type,
            edge_type=edges,
        )
        if numbered is None:
            explained = explain_exported(
                program, schema=types, inputs=said, node_type=node_type, edge_type=edges
            )
        else:  # by their numbers, as the module distinguishes them
            whole = (node_type, "relation", node_type)
            explained = explain_exported(program, inputs=said, node_type=node_type, edge_type=whole)
    except ModelError as error:
        _fail(_with_options(str(error)))
    model.save(path)
    typer.echo(f"{explained}\n{model}\nwritten to {path}")


@app.command()
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="names of benchmarks; 'all' runs all, no name lists them")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="run smaller shapes, each within a minute")] = False,
) -> None:
    """Run the benchmarks of a source checkout."""
    directory = Path("benchmarks")
    scripts = {path.stem: path for path in sorted(directory.glob("*.py")) if _is_script(path)}
    if not scripts:
        _fail(f"benchmarks are part of a source checkout: call this in one, there are none in {Path.cwd()}")
    if not names:
        typer.echo("\n".join(scripts))
        return
    wanted = list(scripts) if names == ["all"] else names
    unknown = [name for name in wanted if name not in scripts]
    if unknown:
        _fail(f"a benchmark must be one of {', '.join(scripts)}, got {unknown[0]!r}")
    for name in wanted:
        code = subprocess.call([sys.executable, str(scripts[name]), *(["--quick"] if quick else [])])
        if code:
            raise typer.Exit(code)


@app.command()
def demo(
    headless: Annotated[
        bool, typer.Option("--headless", help="replay as fast as possible, verify, and exit")
    ] = False,
    speed: Annotated[float, typer.Option(help="replay speed in ratings a second")] = 40.0,
    host: Annotated[str, typer.Option(help="address to listen at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen at")] = 8080,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="open the page in a browser")
    ] = True,
    log_level: LogLevel = Level.INFO,
    log_json: LogJson = False,
) -> None:
    """Replay a real trust network and watch the risk of every member stay exact."""
    start_log(log_level, log_json)
    from livegnn.demo import run

    raise typer.Exit(run(headless=headless, speed=speed, host=host, port=port, browser=browser))


@app.callback(invoke_without_command=True)
def show_version(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    if version:
        import livegnn

        typer.echo(livegnn.__version__)
        raise typer.Exit


def main() -> None:
    """The command `livegnn`: errors that a user can act on are shown without a traceback, and letters that
    the terminal has not as escapes.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does
    try:
        app()
    except LiveGNNError as error:
        _fail(str(error))
    except OSError as error:  # its number says nothing more
        _fail(_without_number(error))


_COLUMNS = ("x", "edge_index", "edge_weight", "edge_attr", "edge_type")
_OPTIONS = {
    "schema": "--schema",
    "inputs": "--input",
    "output": "--output",
    "output_type": "--output-type",
    "relations": "--relation",
    "node_type": "--node-type",
    "edge_type": "--edge-type",
}
"""The options of the command line for the arguments of `Model.from_exported`."""


def _with_options(message: str) -> str:
    """An error that advises arguments, with the options that they are."""
    named = [option for name, option in _OPTIONS.items() if re.search(rf"\b{name}=", message)]
    return f"{message} (on the command line: {', '.join(named)})" if named else message


def _input(given: str) -> "tuple[str, NodeType | EdgeType | tuple[NodeType | EdgeType, str]]":
    """An argument of the program and whose rows it has, from NAME=ROWS."""
    parts = re.fullmatch(r"(\w+(?:\[.*\])?)=(.+)", given, re.DOTALL)
    if parts is None:
        raise typer.BadParameter(f"--input must be NAME=ROWS, as in x=paper, got {given!r}")
    name, rows = parts.groups()
    of, colon, column = rows.rpartition(":")
    if colon and column in _COLUMNS:
        return name, (_type(of), column)
    return name, _type(rows)


def _type(given: str) -> "NodeType | EdgeType":
    return _edge_type(given, "--input") if given.count(",") == 2 else given


def _edge_type(given: str, option: str) -> "EdgeType":
    names = given.split(",")
    if len(names) != 3 or not all(names):
        raise typer.BadParameter(
            f"{option} must be SOURCE,RELATION,TARGET, as in user,buys,item, got {given!r}"
        )
    source, relation, target = names
    return source, relation, target


def _is_script(path: Path) -> bool:
    return "__main__" in path.read_text(encoding="utf-8")


def _without_number(error: OSError) -> str:
    """The message of an error of the system, with the file that it names."""
    if not error.strerror or error.filename2 is not None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"


def _fail(message: str) -> NoReturn:
    if not log_lines.write_failure(message):
        typer.echo(f"error: {message}", err=True)
    raise SystemExit(1)
