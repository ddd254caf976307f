"""The face that every benchmark shows: its arguments, its table, its JSON, and what machine it ran on.

    parser = arguments(__doc__)
    options = parser.parse_args()
    report = Report("incremental")
    report.add("batch 10, median", 0.05, "ms", aim=0.06, peer="PyG", peer_value=640.0, floor=0.01)
    report.could_not_run("reddit", "needs 40 GB of memory, this machine has 24 GB")
    report.finish(options.json)

`python benchmarks/report.py FOLDER` renders the JSON files of a folder to FOLDER/results.md. Each file
names the machine that measured it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.table import Table

import livegnn


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The parser with the options that all benchmarks share; a benchmark may add its own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a smaller shape; ends within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    return parser


@dataclass(frozen=True)
class Row:
    """One figure; `ratio` says how many times better it is than the peer's, `floor` what bounds it."""

    name: str
    value: float
    unit: str
    higher_is_better: bool
    aim: float | None
    peer: str | None
    peer_value: float | None
    ratio: float | None
    floor: float | None

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None if there is none."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.higher_is_better else self.value <= self.aim


class Report:
    """Collects rows as they are measured; prints and writes them at the end."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[Row] = []
        self._sections: list[tuple[int, str]] = []
        self._notes: list[str] = []
        self._not_run: list[tuple[str, str]] = []
        if isinstance(sys.stdout, TextIOWrapper):  # in a locale without µ and ≤
            sys.stdout.reconfigure(errors="replace")
        # A pipe has no width: there the table takes what it needs.
        self.console = Console() if sys.stdout.isatty() else Console(width=160)

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        higher_is_better: bool = False,
        aim: float | None = None,
        peer: str | None = None,
        peer_value: float | None = None,
        floor: float | None = None,
    ) -> None:
        value, higher_is_better = float(value), bool(higher_is_better)
        aim, peer_value, floor = (None if x is None else float(x) for x in (aim, peer_value, floor))
        ratio = None
        if peer_value is not None:
            better, worse = (value, peer_value) if higher_is_better else (peer_value, value)
            ratio = better / worse if worse else None
        self.rows.append(Row(name, value, unit, higher_is_better, aim, peer, peer_value, ratio, floor))

    def section(self, title: str) -> None:
        """The rows from here on stand in a table of their own."""
        self._sections.append((len(self.rows), title))

    def note(self, text: str) -> None:
        """A line under the table."""
        self._notes.append(text)

    def could_not_run(self, name: str, why: str) -> None:
        self._not_run.append((name, why))

    def finish(self, path: Path | None) -> None:
        """Print everything; write the rows to `path` if there is one."""
        starts = [(0, self.title), *self._sections]
        ends = [start for start, _ in starts[1:]] + [len(self.rows)]
        for (start, title), end in zip(starts, ends, strict=True):
            if start < end:
                self.console.print(_table(title, self.rows[start:end]))
        for text in self._notes:
            self.console.print(text)
        for name, why in self._not_run:
            self.console.print(f"[bold]could not run[/bold] {name}: {why}")
        for line in machine():
            self.console.print(line, style="dim", highlight=False)
        if path is not None:
            self.write(path)

    def write(self, path: Path) -> None:
        """Write the machine and the rows measured so far."""
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {"machine": machine(), "rows": [asdict(row) for row in self.rows]}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    for heading in HEADINGS:
        table.add_column(
            heading, justify="left" if heading in ("name", "unit", "peer") else "right", no_wrap=True
        )
    for row in rows:
        style = {None: None, True: "green", False: "red"}[row.met]
        table.add_row(*cells(row), style=style)
    return table


HEADINGS = ("name", "value", "unit", "aim", "ratio", "peer", "peer's value", "floor")


def cells(row: Row) -> list[str]:
    """A row as text, one cell for each heading."""
    return [
        row.name,
        figure(row.value),
        row.unit,
        "" if row.aim is None else ("≥ " if row.higher_is_better else "≤ ") + figure(row.aim),
        "" if row.ratio is None else f"{row.ratio:.1f} x",
        row.peer or "",
        figure(row.peer_value),
        figure(row.floor),
    ]


def figure(value: float | None) -> str:
    """Three significant digits, thousands separated."""
    if value is None:
        return ""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine() -> list[str]:
    """What the figures depend on: processor, caches, memory, system, versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    versions = [f"livegnn {livegnn.__version__}", f"Python {platform.python_version()}"]
    for package in ("numpy", "torch", "torch_geometric"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return [
        f"CPU: {_processor()}, {cores} cores; caches: {_caches()}; memory: {memory_gib():.0f} GiB",
        f"OS: {platform.system()} {platform.release()} {platform.machine()}; {', '.join(versions)}",
    ]


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def _processor() -> str:
    """The model as the kernel names it; where it does not, what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = dict(line.replace("\t", "").split(":", 1) for line in reversed(lines) if ":" in line)
    name = facts.get("model name", platform.machine()).strip()
    numbers = [f"{key} {facts[key].strip()}" for key in ("cpu family", "model") if key in facts]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def _caches() -> str:
    """Size of each level of the first core."""
    found = []
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = (
                (cache / field).read_text(encoding="utf-8").strip() for field in ("level", "type", "size")
            )
        except OSError:
            continue
        found.append(f"L{level}{'' if kind == 'Unified' else kind[0].lower()} {size}")
    return ", ".join(found) or "unknown"


def render(folder: Path) -> str:
    """Markdown of all results in a folder. Each names the machine that measured it."""
    lines = ["# Results", ""]
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(result, list):  # written before results named their machine
            result = {"machine": ["CPU: not recorded"], "rows": result}
        lines += [
            f"## {path.stem}",
            "",
            *result["machine"],
            "",
            _line(HEADINGS),
            _line(["---"] * len(HEADINGS)),
        ]
        lines += [_line(cells(Row(**row))) for row in result["rows"]]
        lines.append("")
    return "\n".join(lines)


def _line(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Render a folder of results to its results.md.")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    (folder / "results.md").write_text(render(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
