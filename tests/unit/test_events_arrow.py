"""Events from Arrow tables: the same events as from JSON lines; a bad row is named."""

import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from events_strategies import event_lists
from hypothesis import given, settings

from livegnn import Events, InputError
from livegnn.events import Chunk

SCHEMA = pa.schema(
    {
        "event": pa.string(),
        "src": pa.int64(),
        "dst": pa.int64(),
        "id": pa.int64(),
        "weight": pa.float32(),
        "time": pa.float64(),
        "x": pa.list_(pa.float32()),
        "edge_attr": pa.list_(pa.float32()),
        "edge_type": pa.list_(pa.string()),
        "node_type": pa.string(),
    }
)


def _table(events: Events, id_type: pa.DataType) -> pa.Table:
    schema = pa.schema(
        [field.with_type(id_type) if field.name in ("src", "dst", "id") else field for field in SCHEMA]
    )
    return pa.Table.from_pylist(
        [json.loads(line) for line in events.to_json_lines().split("\n") if line], schema
    )


def _storable(chunk: Chunk, kind: str) -> bool:
    """Whether a table with ids of `kind` can hold the chunk; the reader joins names of a type by \\x1f."""
    same = chunk.ids.dtype.kind == kind and (chunk.dst is None or chunk.dst.dtype.kind == kind)
    return same and (isinstance(chunk.type, str) or "\x1f" not in "".join(chunk.type))


@settings(deadline=None)
@given(event_lists())
def test_a_table_holds_the_events_of_json_lines(events: Events) -> None:
    for id_type, kind in ((pa.int64(), "i"), (pa.string(), "U")):
        part = Events()
        part.chunks = [chunk for chunk in events.chunks if _storable(chunk, kind)]
        part = Events.concatenate([part])
        assert Events.from_arrow(_table(part, id_type)) == part


def test_batches_dictionaries_and_other_widths_of_numbers_are_read() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "event": pa.array(["add_node", "add_node", "remove_node"]).dictionary_encode(),
            "id": pa.array(["a", "b", "a"]).dictionary_encode(),
            "x": pa.array([[1.0, 2.0], [3.0, 4.0], None], type=pa.list_(pa.float64(), 2)),
        }
    )
    expected = Events().add_nodes(["a", "b"], [[1, 2], [3, 4]]).remove_nodes("a")
    assert Events.from_arrow(batch) == expected
    table = pa.table({"event": ["add_edge"], "src": pa.array([1], pa.uint8()), "dst": [2], "weight": [3]})
    assert Events.from_arrow(table) == Events().add_edges(1, 2, weight=3)
    assert len(Events.from_arrow(table.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"src": [1]}, "must have a column 'event', got src"),
        ({"event": ["add_node"], "name": [1]}, "got 'name'"),
        ({"event": [1]}, "column 'event' must be text, got int64"),
        ({"event": ["add_node", "explode"], "id": [1, 2]}, "row 1: 'event' must be one of"),
        ({"event": ["add_node", None], "id": [1, 2]}, "row 1: 'event' must be one of"),
        ({"event": ["add_edge"], "src": [1]}, "row 0: add_edge needs a value for 'dst'"),
        ({"event": ["add_node", "add_node"], "id": [1, None]}, "row 1: add_node needs a value for 'id'"),
        (
            {"event": ["remove_node"], "id": [1], "weight": [1.0]},
            "row 0: remove_node takes id, node_type, got a value for 'weight'",
        ),
        ({"event": ["remove_node"], "id": [1.5]}, "rows 0 to 0: ids must be integers or text, got double"),
        ({"event": ["remove_node"], "id": [-1]}, "got -1"),
        ({"event": ["add_edge"], "src": [1], "dst": [2], "weight": ["a"]}, "must be numbers, got string"),
        ({"event": ["add_edge"], "src": [1], "dst": [2], "edge_type": [["a", "b"]]}, "edge_type must be"),
        (
            {"event": ["add_edge"], "src": [1], "dst": [2], "edge_type": ["to"]},
            "lists of three names, got string",
        ),
        (
            {"event": ["set_features"], "id": [1], "x": [1.0]},
            "column 'x' must be lists of numbers, got double",
        ),
        ({"event": ["set_features"], "id": [1], "x": [[1.0, None]]}, "got a null"),
        (
            {"event": ["add_edge"], "src": [1], "dst": [2], "edge_attr": [1.0]},
            "column 'edge_attr' must be lists of numbers, got double",
        ),
        (
            {"event": ["add_edge"], "src": [1], "dst": [2], "edge_attr": [["a"]]},
            "'edge_attr' must be lists of numbers, got lists of string",
        ),
        (
            {"event": ["add_edge"], "src": [1], "dst": [2], "x": [[1.0]]},
            "add_edge takes src, dst, weight, time, edge_attr, key, edge_type, got a value for 'x'",
        ),
        ({"event": ["set_features"], "id": [1], "x": [["a"]]}, "got lists of string"),
        ({"event": ["add_node"], "id": [1], "node_type": [2]}, "column 'node_type' must be text"),
        ({"event": ["add_node"], "id": [1], "time": [2.0]}, "'time' is that of features, got it without 'x'"),
    ],
)
def test_bad_tables_are_refused(columns: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InputError) as error:
        Events.from_arrow(pa.table(columns))
    assert message in str(error.value)


def test_only_arrow_is_read() -> None:
    with pytest.raises(InputError, match="Arrow table or record batch, got dict"):
        Events.from_arrow({"event": []})


ROWS = 131_072
GONE = pa.array(["remove_node"] * ROWS).dictionary_encode()
NOTHING = ("weight", "time", "key", "x", "edge_attr", "edge_type", "node_type")
HURTFUL = {
    "a long text beside short ones": {"id": pa.array([*["a"] * (ROWS - 1), "x" * 1024])},
    "a long text, as often as there are rows": {
        "id": pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["x" * 200]))
    },
    "numbers": {"id": pa.array(np.arange(ROWS))},
    "columns of nothing": {"id": pa.array(np.arange(ROWS)), **{name: pa.nulls(ROWS) for name in NOTHING}},
}


def decoded_size(column: pa.ChunkedArray) -> int:
    """Bytes of the values, each as often as it stands there."""
    return sum(
        (chunk.dictionary_decode() if pa.types.is_dictionary(chunk.type) else chunk).nbytes
        for chunk in column.chunks
    )


@pytest.mark.parametrize("name", HURTFUL)
def test_a_table_costs_at_most_four_times_its_decoded_size(name: str) -> None:
    table = pa.table({"event": GONE, **HURTFUL[name]})
    size = sum(map(decoded_size, table.columns))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        assert len(Events.from_arrow(table)) == ROWS
        grown = tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    assert grown <= 4 * size + 2**20


def test_runs_that_are_encoded_as_such_are_refused() -> None:
    ids = pa.RunEndEncodedArray.from_arrays([ROWS], [1], pa.run_end_encoded(pa.int32(), pa.int64()))
    with pytest.raises(InputError, match="ids must be integers or text, got run_end_encoded"):
        Events.from_arrow(pa.table({"event": GONE, "id": ids}))
