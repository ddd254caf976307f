"""SVG files of `serverless.py`: lines, steps and stacked bars, each panel with its own axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from serverless_shapes import Float64

COLORS = ("#dc2626", "#2563eb", "#059669", "#f59e0b", "#7c3aed", "#6b7280")
LEFT, WIDTH, TOP, HEIGHT, GAP = 70, 340, 50, 230, 90
INK, GREY = "#1f2937", "#6b7280"


@dataclass(frozen=True)
class Lines:
    """series: x and y of each line by its name."""

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[Float64, Float64]]


@dataclass(frozen=True)
class Bars:
    """parts: the heights of each part by its name, one for each of `names`."""

    title: str
    y: str
    names: Sequence[str]
    parts: Mapping[str, Sequence[float]]


def cumulative(values: Float64) -> tuple[Float64, Float64]:
    """The share of values up to each value."""
    ordered = np.sort(values)
    return ordered, np.arange(1, len(ordered) + 1) / len(ordered)


def draw(title: str, panels: Sequence[Lines | Bars]) -> str:
    width, height = LEFT + len(panels) * (WIDTH + GAP), TOP + HEIGHT + 130
    font = 'font-family="system-ui, sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {font}>',
        f"  <title>{escape(title)}</title>",
        f'  <rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        left = LEFT + number * (WIDTH + GAP)
        parts.append(_text(left, TOP - 18, panel.title, INK, 'font-weight="600"'))
        parts += _lines(panel, left) if isinstance(panel, Lines) else _bars(panel, left)
    return "\n".join([*parts, "</svg>", ""])


def _lines(panel: Lines, left: int) -> list[str]:
    low = min(float(x.min()) for x, _ in panel.series.values())
    high = max(float(x.max()) for x, _ in panel.series.values())
    top = max(float(y.max()) for _, y in panel.series.values()) or 1.0
    span = (high - low) or 1.0
    parts = _axes(left, panel.y, top, [(low + span * i / 4, i / 4) for i in range(5)])
    parts.append(_text(left + WIDTH / 2, TOP + HEIGHT + 38, panel.x, GREY, 'text-anchor="middle"'))
    for (x, y), color in zip(panel.series.values(), COLORS, strict=False):
        kept = np.unique(np.linspace(0, len(x) - 1, 600).astype(int))
        points = " ".join(
            f"{left + WIDTH * (a - low) / span:.1f},{TOP + HEIGHT * (1 - b / top):.1f}"
            for a, b in zip(x[kept], y[kept], strict=True)
        )
        parts.append(f'  <polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"/>')
    return [*parts, *_legend(left, list(panel.series))]


def _bars(panel: Bars, left: int) -> list[str]:
    top = float(np.sum([list(each) for each in panel.parts.values()], axis=0).max()) or 1.0
    parts = _axes(left, panel.y, top, [])
    step = WIDTH / len(panel.names)
    for i, name in enumerate(panel.names):
        base = 0.0
        for each, color in zip(panel.parts.values(), COLORS, strict=False):
            y = TOP + HEIGHT * (1 - (base + each[i]) / top)
            size = HEIGHT * each[i] / top
            place = f'x="{left + step * (i + 0.2):.1f}" y="{y:.1f}" width="{step * 0.6:.1f}"'
            parts.append(f'  <rect {place} height="{size:.1f}" fill="{color}"/>')
            base += each[i]
        parts.append(
            _text(
                left + step * (i + 0.5), TOP + HEIGHT + 18, name, GREY, 'text-anchor="middle" font-size="10"'
            )
        )
    return [*parts, *_legend(left, list(panel.parts))]


def _axes(left: int, label: str, top: float, ticks: Sequence[tuple[float, float]]) -> list[str]:
    parts = [_text(left - 50, TOP - 4, label, GREY, "")]
    for i in range(5):
        y = TOP + HEIGHT * (1 - i / 4)
        parts.append(f'  <path d="M{left} {y:.1f} h {WIDTH}" stroke="#e5e7eb"/>')
        parts.append(_text(left - 6, y + 4, f"{top * i / 4:.3g}", GREY, 'text-anchor="end"'))
    for value, share in ticks:
        parts.append(
            _text(left + WIDTH * share, TOP + HEIGHT + 18, f"{value:.3g}", GREY, 'text-anchor="middle"')
        )
    return parts


def _legend(left: int, names: Sequence[str]) -> list[str]:
    parts = []
    for i, (name, color) in enumerate(zip(names, COLORS, strict=False)):
        x, y = left + (i % 2) * 170, TOP + HEIGHT + 62 + 20 * (i // 2)
        parts.append(f'  <path d="M{x} {y - 4} h 16" stroke="{color}" stroke-width="4"/>')
        parts.append(_text(x + 21, y, name, INK, ""))
    return parts


def _text(x: float, y: float, text: str, color: str, more: str) -> str:
    return f'  <text x="{x:.1f}" y="{y:.1f}" fill="{color}" {more}>{escape(text)}</text>'
