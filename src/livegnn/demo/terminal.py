"""Shows the demo in a terminal: a progress bar with the figures that the page shows."""

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from livegnn.demo.meter import WINDOW, Figures, Mover

_BARS = " ▁▂▃▄▅▆▇█"


class Screen:
    """A context in which `show` replaces the figures by the newest; prints nothing without a terminal."""

    def __init__(self, console: Console, total: int) -> None:
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("replaying ratings", total=total)
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._silent = not console.is_terminal

    def __enter__(self) -> "Screen":
        if not self._silent:
            self._live.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if not self._silent:
            self._live.stop()

    def show(self, replayed: int, figures: Figures, movers: list[Mover], nodes: int) -> None:
        if self._silent:
            return
        self._progress.update(self._task, completed=replayed)
        self._live.update(
            Group(
                self._progress,
                describe_figures(figures, nodes),
                Text(f"risk moved most over the last {WINDOW} ratings", "dim"),
                describe_movers(movers),
            ),
            refresh=True,
        )


def describe_figures(figures: Figures, nodes: int) -> Table:
    """A table of speed, latency and reach, in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_row(
        Text("events a second", "dim"),
        f"{figures.events_per_second:,.0f}  ({figures.ratings_per_second:,.0f} ratings)",
    )
    table.add_row(
        Text("from event to answer", "dim"),
        f"p50 {milliseconds(figures.p50)}, p99 {milliseconds(figures.p99)}  "
        f"(to apply it {milliseconds(figures.apply_p50)}, {milliseconds(figures.apply_p99)})",
    )
    median = sorted(figures.reached)[len(figures.reached) // 2] if figures.reached else 0
    table.add_row(
        Text("nodes reached", "dim"),
        f"{median:,} of {nodes:,}, median  [cyan]{sparkline(figures.reached[-48:])}[/]",
    )
    return table


def describe_movers(movers: list[Mover]) -> Table:
    """A table of the members whose risk moved most."""
    table = Table.grid(padding=(0, 2))
    for mover in movers:
        colour = "red" if mover.after > mover.before else "green"
        table.add_row(f"member {mover.member}", f"{mover.before:.0%} → [{colour}]{mover.after:.0%}[/]")
    return table


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} ms"


def sparkline(values: tuple[int, ...]) -> str:
    """The values as a row of bars, scaled to the largest."""
    top = max(values, default=0)
    return "".join(_BARS[-(-value * 8 // top) if top else 0] for value in values)
