"""All predictions, those of some nodes, or all scores of an edge output, as an Arrow IPC stream.

The stream is made part by part. Each part is read at one event, which its metadata has, so that a slow reader
keeps a part in memory and never delays a batch.
"""

import io
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from livegnn.inference import Engine, RowPredictor
from livegnn.inference.followed_edges import EdgeNames
from livegnn.runtime import Runtime
from livegnn.runtime.present_rows import (
    PresentRows,
    list_edges,
    list_ids,
    read_present,
    read_present_edges,
)
from livegnn.texts import Texts
from livegnn.types import Ids

if TYPE_CHECKING:
    from jaxtyping import Shaped


_PART_BYTES: Final = 1 << 20  # a server sends some ten of them ahead of a reader
_MOST_ROWS: Final = 8192


class _Sink(io.RawIOBase):
    """The bytes that were written since they were last taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def encode_all(
    runtime: Runtime, output: str | None, model: str | None, *, seq: int | None = None
) -> Generator[bytes, None, None]:
    """The stream of all nodes or, if `output` is an edge output, of all its edges. seq: the event at which it
    begins, by default the last one.

    Raises the errors of `find_row_predictor`, and of `find_engine` for an edge output; InputError for an
    unknown output, and UnknownTypeError for an edge output of edges that the graph does not have.
    """
    begin = runtime.seq if seq is None else seq
    engine = runtime.models.find_row_predictor(model)
    if output is not None and output in engine.model.edge_outputs:
        scorer = runtime.models.find_engine(engine.name)
        scorer.predict_edges([], [], output=output)  # raises the errors
        return _encode_edges(runtime, scorer, output, begin)
    chosen = engine.outputs.find(output, engine.model.edge_outputs)
    ids = list_ids(runtime.graph, chosen.node_type)
    return encode(runtime, engine, output, ids, begin)


def encode(
    runtime: Runtime,
    engine: RowPredictor,
    output: str | None,
    ids: "Shaped[Ids, 'ids'] | Texts",
    seq: int,
) -> Generator[bytes, None, None]:
    """The stream: the head, then parts of whole rows, one row for each of `ids`, in order. The prediction of
    a node that is not in the graph is null. seq: the event at which it begins.
    """
    chosen = engine.outputs.find(output)
    width = engine.model.width(chosen.value)
    metadata = {
        "seq": str(seq),
        "rows": str(len(ids)),
        "model": engine.name,
        "digest": engine.digest,
        "output": next(iter(engine.model.outputs)) if output is None else output,
        "node_type": chosen.node_type,
    }
    text = isinstance(ids, Texts)
    schema = pa.schema(
        [
            pa.field("id", pa.string() if text else pa.int64(), nullable=False),
            pa.field("prediction", pa.list_(pa.float32(), width)),
        ],
        metadata=metadata,
    )
    sink, size = _Sink(), _rows_of_part(width)
    with pa.ipc.new_stream(sink, schema) as writer:
        yield sink.take()
        for begin in range(0, len(ids), size):
            part = ids[begin : begin + size]
            rows = read_present(runtime, engine, part, output)
            names = pa.array(part.tolist(), pa.string()) if text else pa.array(part)
            columns = [names, _column(rows, width)]
            batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            writer.write_batch(batch, custom_metadata={"seq": str(rows.seq)})
            yield sink.take()
    yield sink.take()


def _encode_edges(runtime: Runtime, engine: Engine, output: str, seq: int) -> Generator[bytes, None, None]:
    """The stream of all edges: the head, then parts of whole rows. An edge that was removed before its part
    is read has no row. The last part is empty; its metadata have the number of rows.

    The ids of nodes are listed at the beginning, the edges of some nodes shortly before they are read.
    """
    scores = engine.edge_outputs.find(output).scores
    graph, edge_type, width = runtime.graph, scores.edge_type, scores.width
    ids, size = list_ids(graph, edge_type[0]), _rows_of_part(width)
    schema = _schema_of_edges(runtime, engine, output, seq)
    sink, begin, count = _Sink(), 0, 0
    with pa.ipc.new_stream(sink, schema) as writer:
        yield sink.take()
        while begin < len(ids):
            listed = list_edges(graph, edge_type, ids[begin : begin + _MOST_ROWS], size)
            for at in range(0, len(listed), size):
                names = listed.names(at, at + size)
                rows = read_present_edges(runtime, engine, names, output)
                if not len(rows.values):
                    continue
                count += len(rows.values)
                told = {"seq": str(rows.seq)}
                writer.write_batch(_edge_rows(schema, names, rows, width), custom_metadata=told)
                yield sink.take()
            begin += listed.sources
        last = {"seq": str(runtime.seq), "rows": str(count)}
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=schema), custom_metadata=last)
    yield sink.take()


def _schema_of_edges(runtime: Runtime, engine: Engine, output: str, seq: int) -> pa.Schema:
    scores = engine.edge_outputs.find(output).scores
    end = pa.string() if runtime.graph.schema.text_ids else pa.int64()
    fields = [pa.field("source", end, nullable=False), pa.field("target", end, nullable=False)]
    if runtime.graph.schema.edge_types[scores.edge_type].duplicates == "keep":
        fields.append(pa.field("key", pa.uint32(), nullable=False))
    metadata = {
        "seq": str(seq),
        "model": engine.name,
        "digest": engine.digest,
        "output": output,
        "edge_type": ",".join(scores.edge_type),
    }
    return pa.schema([*fields, pa.field("score", pa.list_(pa.float32(), scores.width))], metadata=metadata)


def _edge_rows(schema: pa.Schema, names: EdgeNames, rows: PresentRows, width: int) -> pa.RecordBatch:
    ends = [pa.array(column[rows.present]) for column in names if column is not None]
    scores = pa.FixedSizeListArray.from_arrays(pa.array(rows.values.reshape(-1)), width)
    return pa.RecordBatch.from_arrays([*ends, scores], schema=schema)


def _rows_of_part(width: int) -> int:
    return max(1, min(_MOST_ROWS, _PART_BYTES // (4 * width)))


def _column(rows: PresentRows, width: int) -> pa.Array:
    if rows.present.all():
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.values.reshape(-1)), width)
    values = np.zeros((len(rows.present), width), np.float32)
    values[rows.present] = rows.values
    validity = pa.py_buffer(np.packbits(rows.present, bitorder="little"))
    type_ = pa.list_(pa.float32(), width)
    return pa.Array.from_buffers(type_, len(values), [validity], children=[pa.array(values.reshape(-1))])
