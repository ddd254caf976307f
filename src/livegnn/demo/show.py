"""Runs the demo from beginning to end and reports to the terminal."""

import os
import sys
import webbrowser
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

from rich.console import Console

from livegnn.demo.serving import open_session
from livegnn.demo.session import Session
from livegnn.demo.terminal import Screen, milliseconds
from livegnn.errors import InputError

_FRAME = 0.25  # seconds between two updates of the terminal
_MOVERS = 5


def show(*, headless: bool, speed: float, host: str, port: int, browser: bool) -> int:
    """See `livegnn.demo.run`."""
    if not (isfinite(speed) and speed > 0):
        raise InputError(f"speed must be above 0, in ratings a second, got {speed}")
    console = Console(highlight=False)
    try:
        with TemporaryDirectory(prefix="livegnn-demo-") as folder:
            wanted = 0 if headless else port
            with open_session(Path(folder), host, wanted, speed=None if headless else speed) as session:
                if not headless:
                    welcome(console, session, port)
                    if browser and has_display():
                        webbrowser.open(session.url)
                replay(console, session)
                status = report(console, session)
                if not headless and status == 0:
                    console.print(f"The page stays at {session.url} until you press Ctrl-C.")
                    Event().wait()
                return status
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130 if headless else 0


def welcome(console: Console, session: Session, wanted_port: int) -> None:
    """Print the address of the page and the size of the graph."""
    if wanted_port not in (0, session.address[1]):
        console.print(f"Port {wanted_port} is taken; using {session.address[1]}, which was free.")
    console.print(f"[bold]LiveGNN[/]: the Bitcoin OTC trust network, live at [bold]{session.url}[/]")
    graph = session.runtime.graph
    console.print(
        f"[dim]{graph.num_nodes():,} members, {graph.num_edges():,} ratings at the cut-off; "
        f"{session.total:,} ratings follow. Ctrl-C ends it.[/]"
    )


def replay(console: Console, session: Session) -> None:
    """Replay everything and show the figures; raises the error that ended the replay, if any."""
    session.replay.start()
    with Screen(console, session.total) as screen:
        while session.replay.running:
            session.replay.join(_FRAME)
            meter = session.meter
            screen.show(
                meter.replayed, meter.figures(), meter.movers(_MOVERS), session.runtime.graph.num_nodes()
            )
    if session.replay.error is not None:
        raise session.replay.error


def report(console: Console, session: Session) -> int:
    """Verify every prediction and print the result; 0 if all are within the bound, otherwise 1."""
    figures = session.meter.figures()
    verification = session.verify()
    result = "[green]verified[/]" if verification.ok else "[red]verification failed[/]"
    console.print(
        f"{session.total:,} ratings replayed ({session.runtime.seq:,} events), from event to answer "
        f"p50 {milliseconds(figures.p50)}, p99 {milliseconds(figures.p99)}; to apply a batch "
        f"p50 {milliseconds(figures.apply_p50)}, p99 {milliseconds(figures.apply_p99)}."
    )
    console.print(
        f"[bold]{result}[/]: {verification.checked:,} predictions against the oracle, largest difference "
        f"{verification.max_difference:.2g}, bound {verification.bound:.2g}"
    )
    return 0 if verification.ok else 1


def has_display() -> bool:
    """Whether a browser would open its own window rather than run in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
