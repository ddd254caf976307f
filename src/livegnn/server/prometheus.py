"""Metrics as lines of Prometheus' text format 0.0.4."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import isnan
from typing import Final, TypeAlias

from livegnn.histogram import Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Value: TypeAlias = float | Histogram


def metric(
    kind: str,
    name: str,
    text: str,
    values: Value | Mapping[str, Value] | Mapping[tuple[str, str], Value],
    *labels: str,
) -> Iterator[str]:
    """The lines of a metric. text: what it is; "" for none. values: its value, or one for each combination of
    parts that its labels may have, one part as it is, several as a tuple."""
    name = f"livegnn_{name}"
    if text:
        yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for parts, value in (values if isinstance(values, Mapping) else {(): values}).items():
        each = (parts,) if isinstance(parts, str) else parts
        pairs = [f'{label}="{_escape(part)}"' for label, part in zip(labels, each, strict=True)]
        if isinstance(value, Histogram):
            bounds = [*(f"{bound:.6g}" for bound in value.bounds), "+Inf"]
            for bound, count in zip(bounds, value.cumulative(), strict=True):
                yield _line(f"{name}_bucket", [*pairs, f'le="{bound}"'], count)
            yield _line(f"{name}_sum", pairs, value.total)
            yield _line(f"{name}_count", pairs, count)
        else:
            yield _line(name, pairs, value)


gauge, counter, histogram = (partial(metric, kind) for kind in ("gauge", "counter", "histogram"))


def _line(name: str, pairs: Sequence[str], value: float) -> str:
    number = repr(float(value))
    if isnan(value):
        number = "NaN"
    elif float(value).is_integer():
        number = str(int(value))
    return f"{name}{{{','.join(pairs)}}} {number}" if pairs else f"{name} {number}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
