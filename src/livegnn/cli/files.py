"""The files of commands: deployments and graphs; and a command must not overwrite a file that it reads."""

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.errors import InputError

if TYPE_CHECKING:
    from livegnn.deployment import Deployment
    from livegnn.graph import Graph

DeploymentFile = Annotated[
    Path, typer.Argument(metavar="DEPLOYMENT.TOML", help="deployment file: docs/deployment.md")
]
GraphFile = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH", help="deployment file, checkpoint, or .npz file as in \\[graph] of a deployment"
    ),
]
Parallel = Annotated[
    str | None,
    typer.Option(
        metavar="refuse|last|sum|keep",
        help="treatment of parallel edges of an .npz file, as in \\[graph] of a deployment (default: refuse)",
    ),
]
_BESIDE = ("", "-wal", "-shm", "-mark", "-lock")


def read_deployment(file: Path) -> "Deployment":
    """The deployment of a file. Its modules are loaded now. Raises InputError."""
    from livegnn.deployment import Deployment

    return Deployment.read(file)


def read_graph(source: Path, parallel: str | None) -> "Graph":
    """The graph of a deployment file, up to its last recorded batch, of a checkpoint, or of an `.npz` file.

    parallel: treatment of parallel edges of an `.npz` file. Raises InputError, FileFormatError.
    """
    from livegnn.deployment.graph_files import read_graph

    if source.suffix != ".toml":
        try:
            return read_graph(source, parallel)
        except InputError as error:
            if "parallel=" not in str(error):
                raise
            raise InputError(f"{error} (on the command line: --parallel)") from error
    if parallel is not None:
        raise InputError(
            f"--parallel is for arrays, got {parallel!r} with the deployment {source}: write it into "
            "its [graph]"
        )
    from livegnn.tables import check_mappings

    settings = read_deployment(source)
    graph = read_graph_of(settings)
    check_mappings(settings.tables, graph.schema)
    return graph


def read_graph_of(settings: "Deployment") -> "Graph":
    """The graph of a deployment, up to its last recorded batch; its mappings may need another schema."""
    from livegnn.log.sqlite.reader import SqliteReader
    from livegnn.runtime import replay, restore

    directory = None if settings.checkpoint is None else settings.checkpoint.directory
    load = replace(settings, features=None).load_graph
    if settings.log.path is not None and not settings.log.path.exists():  # it was never served
        graph = load()
        settings.complete_schema(graph)
        return graph
    with closing(SqliteReader(settings.log.file)) as reader:  # a server may run beside it
        graph, _ = restore({}, load, directory=directory, log=reader)
        settings.complete_schema(graph)
        replay(reader, graph)
    return graph


def check_apart(output: Path | None, files: Iterable[Path], folders: Iterable[Path] = ()) -> None:
    """Raises InputError if `output` is one of `files`, or an existing file in `folders`. Links are resolved.

    `files` need not exist.
    """
    if output is None:
        return
    target = Path(os.path.realpath(output))
    for file in files:
        linked = target.exists() and file.exists() and target.samefile(file)
        if linked or target == Path(os.path.realpath(file)):
            raise InputError(
                f"-o must be another file than {file}, which is read, got {output}: it would be lost"
            )
    for folder in folders:
        if target.exists() and (
            Path(os.path.realpath(folder)) in target.parents
            or any(file.samefile(target) for file in folder.rglob("*") if file.is_file())
        ):
            raise InputError(
                f"-o must be another file than those in {folder}, which are read, got {output}: it would be "
                "lost"
            )


def check_apart_from_log(output: Path | None, log: Path) -> None:
    """Raises InputError if `output` is a log, one of the files beside it, or a consumer's position."""
    real = Path(os.path.realpath(log))
    beside = [file.with_name(file.name + ending) for file in (log, real) for ending in _BESIDE]
    check_apart(output, beside, [real.with_name(f"{real.name}-consumers")])


def check_apart_from_deployment(output: Path | None, file: Path, settings: "Deployment") -> None:
    """Raises InputError if `output` is a deployment file, or something that the deployment names."""
    from livegnn.deployment.directories import mark_of

    check_apart(output, [file, mark_of(file), *_files(settings)], _folders(settings))
    if settings.log.path is not None:
        check_apart_from_log(output, settings.log.path)


def _files(settings: "Deployment") -> Iterator[Path]:
    yield settings.graph.path
    if settings.model is not None:
        yield settings.model.path
    yield from (path for path in _labels(settings) if path.is_file())


def _folders(settings: "Deployment") -> Iterator[Path]:
    sections = settings.models, settings.features, settings.checkpoint, settings.quality
    yield from (section.directory for section in sections if section is not None)
    yield from (path for path in _labels(settings) if path.is_dir())
    if settings.engine.state_dir is not None:
        yield settings.engine.state_dir


def _labels(settings: "Deployment") -> Iterator[Path]:
    yield from (one.files for one in settings.labels.values() if one.files is not None)
