"""All scores of an edge output, as an Arrow stream and as a Parquet file: against `predict_edges`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import EdgeSchema, Engine, Events, Graph, Model, Schema
from livegnn.cli.predict import predict
from livegnn.deployment import Deployment
from livegnn.errors import InputError, SourceError, UnknownTypeError
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from livegnn.partitions import LocalPartitions
from livegnn.placement import Owners
from livegnn.runtime import Runtime
from livegnn.server import arrow_stream, create_app, prediction_file
from livegnn.server.app import server_of
from livegnn.server.arrow_stream import encode_all
from livegnn.server.prediction_file import open_all, write_parquet
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType
from scored_edges import COLUMNS, NODES, WIDTH, edge_schemas, make_batch, make_scorer, name
from served import running
from serving import write_deployment
from streams import make_arrays

OUTPUTS = ["risk", "alike"]
SCHEMA = EdgeSchema(weighted=True, duplicates="keep", edge_dim=COLUMNS)
USERS, ITEMS = ["user", "item"], ("user", "buys", "item")
LIKES: EdgeType = ("item", "like", "item")

Scores = dict[tuple[object, ...], bytes]
"""The bytes of the score of each edge, by source, target and key."""


def open_runtime(
    folder: Path, edges: EdgeSchema = SCHEMA, *, text: bool = False, mode: str = "eager"
) -> Runtime:
    """A runtime of some nodes without edges."""
    graph = Graph(Schema({"node": WIDTH}, {DEFAULT_EDGE_TYPE: edges}, text_ids=text))
    model = make_scorer(edge_dim=edges.edge_dim, weighted=edges.weighted)
    runtime = Runtime(SqliteLog(folder / "log.db"), graph, Engine(graph, model, threads=1, mode=mode))
    x = np.random.default_rng(0).normal(size=(NODES, WIDTH))
    apply(runtime, Events().add_nodes(name(np.arange(NODES), text), x))
    return runtime


def apply(runtime: Runtime, events: Events) -> None:
    runtime.append(events)
    runtime.step()


def expect(engine: Engine, output: str) -> Scores:
    """All edges of the graph, each scored by `predict_edges`."""
    edge_type = engine.edge_outputs.find(output).scores.edge_type
    snapshot = engine.graph.snapshot()
    ends = [
        snapshot.ids[end][at] for end, at in zip(edge_type[::2], snapshot.edge_index[edge_type], strict=True)
    ]
    key = snapshot.key.get(edge_type)
    return collect([*ends, key], engine.predict_edges(*ends, key=key, output=output))


def collect(columns: list[np.ndarray | None], scores: np.ndarray) -> Scores:
    """The scores by edge; each edge is there once."""
    edges = list(zip(*(one.tolist() for one in columns if one is not None), strict=True))
    found = dict(zip(edges, map(bytes, np.ascontiguousarray(scores)), strict=True))
    assert len(found) == len(edges)
    return found


def collect_table(table: pa.Table | pa.RecordBatch) -> Scores:
    *columns, scores = (np.array(column.to_pylist()) for column in table.columns)
    return collect([*columns], scores.astype(np.float32))


def read_parts(stream: bytes) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The parts of a stream, each with its event."""
    reader, rows = pa.ipc.open_stream(stream), 0
    while True:
        batch, told = reader.read_next_batch_with_custom_metadata()
        rows += batch.num_rows
        if b"rows" in told:
            assert (batch.num_rows, int(told[b"rows"])) == (0, rows)
            return
        assert batch.num_rows
        yield int(told[b"seq"]), batch


@settings(max_examples=draws(15, 200), deadline=None)
@given(
    edges=edge_schemas(),
    text=st.booleans(),
    lazy=st.booleans(),
    size=st.sampled_from([1, 3, 1000]),
    batches=st.integers(0, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_file_has_the_scores_of_all_edges(
    edges: EdgeSchema, text: bool, lazy: bool, size: int, batches: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_stream, "_MOST_ROWS", size)
        patch.setattr(prediction_file, "_GROUP_ROWS", 7)
        path = Path(folder) / "all.parquet"
        runtime = open_runtime(Path(folder), edges, text=text, mode="lazy" if lazy else "eager")
        with closing(runtime.log):
            for _ in range(batches):
                apply(runtime, make_batch(rng, edges, np.ones(WIDTH), text, hub=seed % 2 == 0))
            for output in OUTPUTS:
                written = write_parquet(open_all(runtime, output, None), path)
                table, expected = pq.read_table(path), expect(runtime.engine, output)
                assert written == (len(expected), runtime.seq, True)
                assert collect_table(table) == expected
                keyed = ["key"] if edges.duplicates == "keep" else []
                assert table.column_names == ["source", "target", *keyed, "score"]
                assert table.schema.metadata[b"seq"] == str(runtime.seq).encode()


@settings(max_examples=draws(12, 200), deadline=None)
@given(
    edges=edge_schemas(),
    text=st.booleans(),
    every=st.integers(1, 4),
    size=st.sampled_from([1, 2, 5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_each_part_is_of_one_event_while_batches_go_on(
    edges: EdgeSchema, text: bool, every: int, size: int, seed: int
) -> None:
    """An edge that is there all the time has one row; each row is that of the event of its part."""
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_stream, "_MOST_ROWS", size)
        runtime = open_runtime(Path(folder), edges, text=text)
        with closing(runtime.log):
            for _ in range(4):
                apply(runtime, make_batch(rng, edges, np.ones(WIDTH), text, hub=True))
            states = {runtime.seq: expect(runtime.engine, "risk")}
            begin, data = runtime.seq, list[bytes]()
            for at, part in enumerate(encode_all(runtime, "risk", None)):
                data.append(part)
                if at % every == 0:
                    apply(runtime, make_batch(rng, edges, np.ones(WIDTH), text))
                    states[runtime.seq] = expect(runtime.engine, "risk")
            found: Scores = {}
            for seq, part in read_parts(b"".join(data)):
                assert seq >= begin
                rows = collect_table(part)
                assert rows.items() <= states[seq].items()
                assert not rows.keys() & found.keys()
                found |= rows
            assert set.intersection(*map(set, states.values())) <= found.keys()


def test_the_edges_of_a_hub_are_read_part_by_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 4)
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        columns = {"weight": np.ones(NODES), "edge_attr": np.ones((NODES, COLUMNS))}
        apply(runtime, Events().add_edges(np.full(NODES, 3), np.arange(NODES), **columns))
        stream = iter(encode_all(runtime, "risk", None))
        data = [next(stream), next(stream)]
        events = Events().remove_nodes(9).remove_edges(3, 8)
        apply(runtime, events.add_edges(3, 5, weight=1, edge_attr=[0, 0]))
        parts = list(read_parts(b"".join([*data, *stream])))
        assert [seq for seq, _ in parts] == [runtime.seq - 3, runtime.seq, *[runtime.seq] * (len(parts) - 2)]
        rows = [target for _, part in parts for target in part["target"].to_pylist()]
        assert sorted(rows) == [0, 1, 2, 3, 4, 5, 6, 7]  # the parallel edge was added after the list was made


def make_shop() -> tuple[Graph, Model]:
    """Users and items, and an edge output for each of two types of edges."""
    steps = tuple(
        step
        for number, edge_type in enumerate([ITEMS, LIKES])
        for step in (
            Step("source", (f"z_{edge_type[0]}",), f"from{number}", attrs={"edge_type": edge_type}),
            Step("target", (f"z_{edge_type[2]}",), f"to{number}", attrs={"edge_type": edge_type}),
            Step("multiply", (f"from{number}", f"to{number}"), f"score{number}"),
        )
    )
    model = Model(
        {f"x_{end}": Input(end, WIDTH) for end in USERS},
        (*(Step("relu", (f"x_{end}",), f"z_{end}") for end in USERS), *steps),
        {},
        "z_user",
        ("x_user", "z_user"),
        outputs={"user": "z_user", "item": "z_item"},
        edge_outputs={"buys": "score0", "like": "score1"},
    )
    graph = Graph(Schema(dict.fromkeys(USERS, WIDTH), {ITEMS: EdgeSchema(), LIKES: EdgeSchema()}))
    return graph, model


def test_outputs_of_several_types_of_edges(tmp_path: Path) -> None:
    graph, model = make_shop()
    log = SqliteLog(tmp_path / "log.db")
    runtime, path = Runtime(log, graph, Engine(graph, model)), tmp_path / "all.parquet"
    with closing(log):
        for output in ("buys", "like"):  # an empty graph
            assert write_parquet(open_all(runtime, output, None), path) == (0, 0, True)
            assert pq.read_table(path).num_rows == 0
        rng, events = np.random.default_rng(0), Events()
        for end, count in (("user", 5), ("item", 3)):
            events.add_nodes(np.arange(count), rng.normal(size=(count, WIDTH)), node_type=end)
        apply(runtime, events.add_edges([0, 4, 4], [2, 0, 1], edge_type=ITEMS))
        write_parquet(open_all(runtime, "buys", None), path)
        table = pq.read_table(path)
        assert collect_table(table) == expect(runtime.engine, "buys")
        assert table.num_rows == 3
        assert table.schema.metadata[b"edge_type"] == b"user,buys,item"
        assert write_parquet(open_all(runtime, "like", None), path).rows == 0
        apply(runtime, Events().remove_nodes([4], node_type="user"))
        assert write_parquet(open_all(runtime, "buys", None), path).rows == 1


def test_a_stream_that_is_cut_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 4)
    path, runtime = tmp_path / "all.parquet", open_runtime(tmp_path)
    with closing(runtime.log):
        columns = {"weight": np.ones(NODES), "edge_attr": np.ones((NODES, COLUMNS))}
        apply(runtime, Events().add_edges(np.arange(NODES), np.arange(NODES), **columns))
        content = open_all(runtime, "risk", None).read()
    path.write_bytes(b"before")
    for size in range(0, len(content) - 8, 8):  # the last eight bytes only end the stream
        with pytest.raises(SourceError, match="Run it again"):
            write_parquet(io.BytesIO(content[:size]), path)
        assert path.read_bytes() == b"before"
    assert write_parquet(io.BytesIO(content), path).rows == NODES


def test_what_is_refused(tmp_path: Path) -> None:
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        with pytest.raises(
            InputError, match="one of the model's, 'class', 'embedding', 'risk', 'alike', got 'none'"
        ):
            open_all(runtime, "none", None)
        with running(lambda listener: server_of(create_app(runtime), listener)) as address:
            route = f"{address}/v1/predictions/all"
            answer = httpx.get(route, params={"output": "risk"})
            assert answer.status_code == 200
            assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0
            answer = httpx.get(route, params={"output": "risk", "since": runtime.seq})
            assert answer.status_code == 400
            assert "since must be for the first output" in answer.json()["detail"]
    graph, model = Graph(runtime.graph.schema), runtime.engine.model
    divided = LocalPartitions.from_graph(graph, model, Owners("jump", 2), threads=1)
    with closing(SqliteLog(tmp_path / "parts.db")) as log:
        runtime = Runtime(log, divided.graph, divided)
        with pytest.raises(InputError, match="whose graph is in parts"):
            open_all(runtime, "risk", None)
    graph, model = make_shop()
    lacking = Graph(replace(graph.schema, edge_types={ITEMS: EdgeSchema()}))
    with closing(SqliteLog(tmp_path / "other.db")) as log:
        runtime = Runtime(log, lacking, Engine(lacking, model))
        with pytest.raises(UnknownTypeError, match="the graph has no item,like,item edges"):
            open_all(runtime, "like", None)


def test_the_command_asks_a_server_or_restores_a_deployment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, deployment = tmp_path / "all.parquet", write_deployment(tmp_path)
    make_scorer(edge_dim=0).save(tmp_path / "model.lgnn")
    arrays = make_arrays()
    np.savez(tmp_path / "graph.npz", **{**arrays, "x": arrays["x"][:, :WIDTH]})
    runtime = Deployment.read(deployment).open()
    apply(runtime, Events().set_features(3, np.ones(WIDTH, np.float32)))
    expected = expect(runtime.engine, "risk")
    with running(lambda listener: server_of(create_app(runtime), listener)) as address:
        predict(address, path, every=True, output="risk")
    assert collect_table(pq.read_table(path)) == expected
    runtime.stop()
    runtime.log.close()
    path.unlink()
    predict(str(deployment), path, every=True, output="risk")
    assert collect_table(pq.read_table(path)) == expected
    assert capsys.readouterr().out == 2 * f"{len(expected)} scores of edges, event 1, in {path}\n"
