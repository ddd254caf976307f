"""The progress of a load on a terminal, and its outcome."""

import sys
import time
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from livegnn.deployment.loading import Loaded, Progress

_EVERY: Final = 0.2  # seconds
_MOST_SHOWN: Final = 20


class Line:
    """The progress, on one line of standard error that is cleared at the end.

    what: that is counted, such as rows.
    """

    def __init__(self, what: str) -> None:
        self._what, self._shown, self._at = what, "", 0.0

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def show(self, progress: "Progress") -> None:
        if sys.stderr.isatty() and time.monotonic() - self._at >= _EVERY:
            self._clear()
            self._shown = f"{progress.file.name}: {progress.rows:,} {self._what} {progress.step}"
            self._at = time.monotonic()
            typer.echo(self._shown, nl=False, err=True)

    def _clear(self) -> None:
        if self._shown:
            typer.echo("\r" + " " * len(self._shown) + "\r", nl=False, err=True)
            self._shown = ""


def exit_if_refused(loaded: "Loaded") -> None:
    """Prints the first entries that were refused, and ends the command with status 1 if there are some; and
    how many others are, of loads before."""
    if loaded.standing:
        typer.echo(
            f"{loaded.standing:,} earlier entries of the log are refused, and their rows are not in the "
            "graph: livegnn log rejections lists them",
            err=True,
        )
    for reason in loaded.refused[:_MOST_SHOWN]:
        typer.echo(f"error: refused: {reason}", err=True)
    if (more := len(loaded.refused) - _MOST_SHOWN) > 0:
        typer.echo(f"error: {more:,} more were refused: livegnn log rejections lists them", err=True)
    if loaded.refused:
        typer.echo(
            "error: no row of a refused entry is in the graph: correct its cause, such as an unknown node "
            "(add it, or set auto_add_nodes in [graph] before the first load), then livegnn log retry",
            err=True,
        )
        raise SystemExit(1)
