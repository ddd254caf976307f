"""All predictions, or those of some nodes, as an Arrow IPC stream, part by part.

Each part is read at one event, which its metadata has, so that a slow reader keeps a part in memory and never
delays a batch.
"""

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from livegnn.inference import RowPredictor
from livegnn.runtime import Runtime
from livegnn.runtime.present_rows import PresentRows, list_ids, read_present
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
) -> Iterator[bytes]:
    """The stream of all nodes. seq: the event at which it begins, by default the last one.

    Raises the errors of `find_row_predictor`, and InputError for an unknown output.
    """
    begin = runtime.seq if seq is None else seq
    engine = runtime.models.find_row_predictor(model)
    ids = list_ids(runtime.graph, engine.outputs.find(output).node_type)
    return encode(runtime, engine, output, ids, begin)


def encode(
    runtime: Runtime,
    engine: RowPredictor,
    output: str | None,
    ids: "Shaped[Ids, 'ids'] | Texts",
    seq: int,
) -> Iterator[bytes]:
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
    sink = _Sink()
    size = max(1, min(_MOST_ROWS, _PART_BYTES // (4 * width)))
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


def _column(rows: PresentRows, width: int) -> pa.Array:
    if rows.present.all():
        return pa.FixedSizeListArray.from_arrays(pa.array(rows.values.reshape(-1)), width)
    values = np.zeros((len(rows.present), width), np.float32)
    values[rows.present] = rows.values
    validity = pa.py_buffer(np.packbits(rows.present, bitorder="little"))
    type_ = pa.list_(pa.float32(), width)
    return pa.Array.from_buffers(type_, len(values), [validity], children=[pa.array(values.reshape(-1))])
