"""The files of commands: deployments; and a command must not overwrite a file that it reads."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from livegnn.errors import InputError

if TYPE_CHECKING:
    from livegnn.deployment import Deployment

DeploymentFile = Annotated[
    Path, typer.Argument(metavar="DEPLOYMENT.TOML", help="deployment file: docs/deployment.md")
]
_BESIDE = ("", "-wal", "-shm", "-mark", "-lock")


def read_deployment(file: Path) -> "Deployment":
    """The deployment of a file. Its modules are loaded now. Raises InputError."""
    from livegnn.deployment import Deployment

    return Deployment.read(file)


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
    check_apart(output, [file, *_files(settings)], _folders(settings))
    if settings.log.path is not None:
        check_apart_from_log(output, settings.log.path)


def _files(settings: "Deployment") -> Iterator[Path]:
    yield settings.graph.path
    if settings.model is not None:
        yield settings.model.path


def _folders(settings: "Deployment") -> Iterator[Path]:
    sections = settings.models, settings.features, settings.checkpoint
    yield from (section.directory for section in sections if section is not None)
    if settings.engine.state_dir is not None:
        yield settings.engine.state_dir
