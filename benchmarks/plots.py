"""Figures of benchmarks as SVG files: lines and stacked bars, each panel with its own axes.

Needs matplotlib: `pip install matplotlib`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = NDArray[np.float64]
COLORS = ("#dc2626", "#2563eb", "#059669", "#f59e0b", "#7c3aed", "#6b7280")
PANEL_INCHES = (4.6, 3.6)
MOST_POINTS = 600


@dataclass(frozen=True)
class Lines:
    """series: x and y of each line by its name. scale: of both axes."""

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[Values, Values]]
    scale: Literal["linear", "log"] = "linear"
    level: float | None = None
    """Where a dashed line marks an aim."""

    def draw(self, axes: Axes) -> None:
        for (name, (x, y)), color in zip(self.series.items(), COLORS, strict=False):
            kept = np.unique(np.linspace(0, len(x) - 1, MOST_POINTS).astype(int))
            axes.plot(x[kept], y[kept], color=color, label=name, linewidth=1.6)
        if self.level is not None:
            axes.axhline(self.level, color="#6b7280", linestyle="--", linewidth=1)
        axes.set(xlabel=self.x, ylabel=self.y, xscale=self.scale, yscale=self.scale)
        if self.scale == "linear":
            axes.set_ylim(bottom=0)


@dataclass(frozen=True)
class Bars:
    """parts: the heights of each part by its name, one for each of `names`."""

    title: str
    y: str
    names: Sequence[str]
    parts: Mapping[str, Sequence[float]]

    def draw(self, axes: Axes) -> None:
        base = np.zeros(len(self.names))
        for (name, heights), color in zip(self.parts.items(), COLORS, strict=False):
            axes.bar(self.names, heights, 0.6, base, color=color, label=name)
            base += heights
        axes.set_ylabel(self.y)
        axes.tick_params("x", labelrotation=20, labelsize="small")


def cumulative(values: Values) -> tuple[Values, Values]:
    """The share of values up to each value."""
    ordered = np.sort(values)
    return ordered, np.arange(1, len(ordered) + 1) / len(ordered)


def draw(path: Path, title: str, panels: Sequence[Lines | Bars]) -> None:
    """Writes the panels beside each other as an SVG file."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    width, height = PANEL_INCHES
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": title, "font.family": "sans-serif"}):
        figure = Figure((width * len(panels), height), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel.draw(axes)
            axes.set_title(panel.title, fontsize="medium", fontweight="bold")
            axes.grid(axis="y", color="#e5e7eb")
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize="small")
        figure.savefig(path, format="svg", metadata={"Title": title, "Date": None})
