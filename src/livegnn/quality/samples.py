"""Samples of features and scores, one a day, from which drift is computed: files in the folder of figures.

The nodes of a sample are drawn again each day. They are read in small parts, so that no batch waits for long.
"""

from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError
from livegnn.inference import RowPredictor
from livegnn.quality.drift import compare
from livegnn.quality.report import Row, write_rows
from livegnn.runtime import Runtime
from livegnn.runtime.present_rows import list_ids, read_present
from livegnn.texts import Texts
from livegnn.types import FloatArray, Ids, NodeType

DRIFT: Final = "drift.parquet"
_SAMPLE: Final = "sample.parquet"
_READ_BYTES: Final = 1 << 20
_DAYS: Final = 30  # that are compared with the reference
_FIELDS: Final = pa.schema([("kind", pa.string()), ("of", pa.string()), ("row", pa.list_(pa.float32()))])


class Population(NamedTuple):
    """A sample. kind: "feature" or "score". of: the type of the nodes, or the name of the model. values
    [rows, columns]: features, or predictions of the first output."""

    kind: str
    of: str
    values: FloatArray


def draw_populations(runtime: Runtime, rows: int, random: np.random.Generator) -> list[Population]:
    """Samples of at most `rows` nodes: the features of each type that has some, and the scores of each model
    that keeps rows. A graph in parts has no features here. Empty samples are left out."""
    graph, found = runtime.graph, []
    for node_type, width in {} if graph.names_only else graph.schema.node_types.items():
        if width:
            ids = _draw(runtime, node_type, rows, random)
            values = _read(ids, width, partial(_features, runtime, node_type))
            found.append(Population("feature", node_type, values))
    for name in runtime.models.names:
        view = runtime.views.find(name)
        if isinstance(view, RowPredictor):
            ids = _draw(runtime, view.output_type_name, rows, random)
            width = view.model.width(view.model.output)
            values = _read(ids, width, partial(_scores, runtime, view))
            found.append(Population("score", name, values))
    return [one for one in found if len(one.values)]


def _draw(runtime: Runtime, node_type: NodeType, rows: int, random: np.random.Generator) -> Ids | Texts:
    _, ids = runtime.read(partial(list_ids, runtime.graph, node_type))
    if len(ids) <= rows:
        return ids
    chosen = np.sort(random.choice(len(ids), rows, replace=False))
    if isinstance(ids, Texts):
        listed = ids.tolist()
        return Texts.of([listed[at] for at in chosen.tolist()])
    return ids[chosen]


def _read(ids: Ids | Texts, width: int, read: Callable[[Ids | Texts], FloatArray]) -> FloatArray:
    size = max(1, _READ_BYTES // (4 * width))
    parts = [read(ids[begin : begin + size]) for begin in range(0, len(ids), size)]
    return np.concatenate([np.empty((0, width), np.float32), *parts])


def _features(runtime: Runtime, node_type: NodeType, ids: Ids | Texts) -> FloatArray:
    graph = runtime.graph

    def read() -> FloatArray:
        present = graph.contains(ids, node_type).tolist()
        there = [id for id, one in zip(ids.tolist(), present, strict=True) if one]
        return graph.features(there, node_type)

    return runtime.read(read)[1]


def _scores(runtime: Runtime, model: RowPredictor, ids: Ids | Texts) -> FloatArray:
    return read_present(runtime, model, ids).values


def has_sample(directory: Path, day: date) -> bool:
    """Whether the folder of figures has the sample of a day."""
    return (directory / f"date={day}" / _SAMPLE).exists()


def write_sample(directory: Path, day: date, populations: list[Population]) -> None:
    """Keeps the sample of a day. Raises OSError."""
    path = directory / f"date={day}" / _SAMPLE
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = []
    for one in populations:
        rows, columns = one.values.shape
        offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * columns)
        listed = pa.ListArray.from_arrays(offsets, pa.array(one.values.reshape(-1)))
        names = (pa.repeat(pa.scalar(name, pa.string()), rows) for name in (one.kind, one.of))
        tables.append(pa.table([*names, listed], schema=_FIELDS))
    with replace_file(path) as file:
        pq.write_table(pa.concat_tables([_FIELDS.empty_table(), *tables]), file)


def _read_sample(path: Path) -> Iterator[Population]:
    try:
        table = pq.read_table(path, schema=_FIELDS, partitioning=None)
        names = table.select(["kind", "of"]).group_by(["kind", "of"], use_threads=False).aggregate([])
        for name in names.to_pylist():
            chosen = pc.and_(*(pc.equal(table[key], value) for key, value in name.items()))
            rows = table["row"].filter(chosen).combine_chunks()
            yield Population(**name, values=np.asarray(rows.flatten(), np.float32).reshape(len(rows), -1))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileFormatError(f"{path}: expected a sample of features and scores, got: {error}") from error


def update_drift(directory: Path, reference: date | None) -> list[Row]:
    """Compares the samples of the last days with a reference, writes the drift of each day beside its sample,
    and returns it. reference: the day of the reference, by default the first; a population that it does not
    have, such as the scores of a newer model, is compared with its first sample after it. Raises
    FileFormatError and OSError."""
    samples = {
        date.fromisoformat(path.parent.name.removeprefix("date=")): path
        for path in sorted(directory.glob(f"date=*/{_SAMPLE}"))
    }
    days = [day for day in samples if reference is None or day >= reference]
    first: dict[tuple[str, str, int], FloatArray] = {}
    rows: list[Row] = []
    for day in days:
        late = day in days[-_DAYS:]
        found: list[Row] = []
        for one in _read_sample(samples[day]):
            before = first.setdefault((one.kind, one.of, one.values.shape[1]), one.values)
            model = one.of if one.kind == "score" else ""
            part = "channel" if one.kind == "score" else f"{one.of} feature"
            figures = compare(before, one.values, one.kind, part) if late else ()
            found += [Row(day, "", model, each.metric, each.part, each.value) for each in figures]
        if late:
            write_rows(found, directory / f"date={day}" / DRIFT)
            rows += found
    return rows
