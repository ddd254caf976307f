"""`livegnn init`: a deployment from a model and tables, which loads them and gives exact predictions."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livegnn import Model
from livegnn.cli.init import init
from livegnn.deployment import Deployment
from livegnn.deployment.initial import Table, write_deployment
from livegnn.deployment.loading import load_files
from livegnn.errors import InputError
from livegnn.model import EdgeInput, Input, Propagate, Step, Transforms
from livegnn.model.transforms import Branches, Fill, Log, OneHot, Standardize
from livegnn.tables import EdgeRows, NodeRows
from livegnn.tables.guesses import ReadFeatures, guess_edges, guess_nodes, has_parallel_edges
from livegnn.tables.mapping import KEEP
from livegnn.texts import text_code
from streams import make_model

NODE, EDGE = "node", ("node", "to", "node")
USERS = "user_id,name,age,score,a,b\n" + "".join(
    f"u{at},näme{at},{at},{at / 7 if at % 5 else ''},{at % 3},{at * 2}\n" for at in range(60)
)
PAYMENTS = "id,sender,receiver,amount,at\n" + "".join(
    f"{at},u{at % 60},u{at * 7 % 60},{at / 3 + 0.1},2026-01-01T00:00:{at % 60:02d}Z\n" for at in range(200)
)


def write(folder: Path, **files: str) -> None:
    for name, content in files.items():
        (folder / f"{name}.csv").write_text(content, encoding="utf-8")
    make_model().save(folder / "model.lgnn")


def test_tables_are_a_live_graph_in_three_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, users=USERS, payments=PAYMENTS)
    init(Path("made"), Path("model.lgnn"), ["users.csv"], ["payments.csv"])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  livegnn load made/deployment.toml users users.csv",
        "  livegnn load made/deployment.toml payments payments.csv",
        "  livegnn serve made/deployment.toml",
    ]
    deployment = Deployment.read("made/deployment.toml")
    (users,), (payments,) = deployment.tables["users"].nodes, deployment.tables["payments"].edges
    assert users == NodeRows("user_id", NODE, x=["age", "score", "a", "b"], nulls={"score": 0})
    assert payments == EdgeRows("sender", "receiver", EDGE, weight="amount", time="at", key="id")
    assert "# not read: name\n" in Path("made/deployment.toml").read_text(encoding="utf-8")
    for name, rows in (("users", 60), ("payments", 200)):
        assert load_files(deployment, name, [Path(f"{name}.csv")]).rows == rows
    runtime = deployment.open()
    try:
        assert (runtime.graph.num_nodes(), runtime.graph.num_edges()) == (60, 200)
        assert runtime.engine.verify().predictions_ok
    finally:
        runtime.stop()
        runtime.log.close()
    with pytest.raises(InputError, match="made must not exist yet"):
        init(Path("made"), Path("model.lgnn"), ["users.csv"], ["payments.csv"])


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ("src,dst", ("src", "dst")),
        ("From_Account,To_Account", ("From_Account", "To_Account")),
        ("x,nameOrig,nameDest", ("nameOrig", "nameDest")),
        ("valid_from,valid_to,customer,shop", None),
        ("from_a,to_b,x", None),
    ],
)
def test_the_ends_of_edges_are_found_by_their_names(names: str, ends: tuple[str, str] | None) -> None:
    columns = {name: [0.5, 1.5] if name.startswith("valid") else [1, 2] for name in names.split(",")}
    sample = pa.table({**columns, "other": [3, 4], "more": [5, 6]})
    if ends is None:
        with pytest.raises(InputError, match="from and to, sender and receiver"):
            guess_edges(sample, EDGE, ReadFeatures(), "t.csv", weighted=False)
    else:
        rows = guess_edges(sample, EDGE, ReadFeatures(), "t.csv", weighted=False)
        assert (rows.src, rows.dst) == ends


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"users": "name,age\nx,1\nx,1\n", "payments": PAYMENTS}, "expected a column of ids"),
        ({"users": "id,age\n1,1\n", "payments": PAYMENTS}, "expected 4 columns of numbers besides 'id'"),
        ({"users": USERS, "payments": "x,y,z\n1,2,3\n"}, "expected two columns of ids"),
        ({"users": USERS, "payments": "src,dst\nu1,u2\n"}, "expected a column of weights"),
        ({"users": USERS, "payments": "src,dst,weight\nu1,u2,x\n"}, "expected a column of weights"),
        ({"users": USERS, "payments": "src,dst,weight\nu1\n"}, "payments.csv: expected CSV, got: row 0"),
    ],
)
def test_tables_that_do_not_fit_leave_nothing(tmp_path: Path, files: dict[str, str], says: str) -> None:
    write(tmp_path, **files)
    tables = [Table(tmp_path / f"{name}.csv") for name in ("users", "payments")]
    with pytest.raises(InputError, match=says):
        write_deployment(tmp_path / "made", tmp_path / "model.lgnn", tables[:1], tables[1:], undirected=False)
    assert not (tmp_path / "made").exists()


def test_each_type_of_a_model_has_its_table(tmp_path: Path) -> None:
    """By the name of the file, or by a type before it; a type without a table of nodes is added by edges."""
    buys, likes = ("user", "buys", "item"), ("user", "likes", "item")
    steps = tuple(
        Step("propagate", ("x",), name, attrs=Propagate(edge_type).to_attrs())
        for name, edge_type in (("a", buys), ("b", likes))
    )
    inputs = {"x": Input("user", 2)}
    model = Model(inputs, (*steps, Step("add", ("a", "b"), "out")), {}, "out", ("x", "out"))
    model.save(tmp_path / "model.lgnn")
    pq.write_table(pa.table({"id": [1, 2], "v": [[1.0, 2.0], [3.0, 4.0]]}), tmp_path / "users.parquet")
    pq.write_table(pa.table({"user_id": [1], "item_id": [7], "at": [10**12]}), tmp_path / "buys.parquet")
    pq.write_table(pa.table({"user": [2, 2], "item": [7, 7]}), tmp_path / "Ü b.parquet")
    made = write_deployment(
        tmp_path / "made",
        tmp_path / "model.lgnn",
        [Table(tmp_path / "users.parquet")],
        [Table(tmp_path / "buys.parquet"), Table(tmp_path / "Ü b.parquet", likes)],
        undirected=False,
    )
    schema = made.load_graph().schema
    assert schema.node_types == {"user": 2, "item": 0}
    assert list(schema.auto_add) == ["item"]
    assert schema.edge_types[buys].timed
    assert schema.edge_types[likes].duplicates == "keep"
    (entry,) = made.tables["buys"].edges
    assert (entry.src, entry.dst, entry.time, entry.time_unit) == ("user_id", "item_id", "at", "ms")
    for name, file in (("users", "users"), ("buys", "buys"), ("Ü b", "Ü b")):
        load_files(made, name, [tmp_path / f"{file}.parquet"])
    runtime = made.open()
    assert (runtime.graph.num_nodes("item"), runtime.graph.num_edges(likes)) == (1, 2)
    runtime.stop()
    runtime.log.close()
    with pytest.raises(InputError, match=r"one of the model's edge types, which are user,buys,item; user,l"):
        write_deployment(
            tmp_path / "x", tmp_path / "model.lgnn", [], [Table(tmp_path / "Ü b.parquet")], undirected=False
        )
    wrong = Table(tmp_path / "buys.parquet", ("a", "b", "c"))
    with pytest.raises(InputError, match="the edge type 'a,b,c'"):
        write_deployment(tmp_path / "x", tmp_path / "model.lgnn", [], [wrong], undirected=False)


def table(**columns: list[Any]) -> pa.Table:
    return pa.table(columns)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (table(ID=[1, 2], x=[1, 2]), NodeRows("ID", NODE)),
        (table(x=[1.5, 2], node_id=["a", "b"]), NodeRows("node_id", NODE)),
        (table(kind=["a", "a"], name=["x", "y"]), NodeRows("name", NODE)),
    ],
)
def test_ids_are_found(sample: pa.Table, expected: NodeRows) -> None:
    assert guess_nodes(sample, NODE, ReadFeatures(), "t") == expected


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (table(source=[1], target=[2]), EdgeRows("source", "target", EDGE)),
        (table(b=["x"], a=["y"], n=[1.5]), EdgeRows("b", "a", EDGE)),
        (table(src=[1], dst=[2], payment_id=[7]), EdgeRows("src", "dst", EDGE, key="payment_id")),
        (table(src=[1, 1], dst=[2, 2], shop_id=[7, 7]), EdgeRows("src", "dst", EDGE)),
        (table(src=[1], dst=[2], ts=[1.7e9]), EdgeRows("src", "dst", EDGE, time="ts", time_unit="s")),
        (table(src=[1], dst=[2], ts=[1.7e18]), EdgeRows("src", "dst", EDGE, time="ts", time_unit="ns")),
        (
            table(src=[1], dst=[2], seen=pa.array([1, None], pa.timestamp("us"))[:1]),
            EdgeRows("src", "dst", EDGE, time="seen"),
        ),
        (
            table(src=[1, 1], dst=[2, 2], time=[1, None], id=[1, 1]),
            EdgeRows("src", "dst", EDGE, time="time", time_unit="s", nulls={"time": "skip"}),
        ),
    ],
)
def test_ends_times_and_keys_are_found(sample: pa.Table, expected: EdgeRows) -> None:
    found = guess_edges(sample, EDGE, ReadFeatures(), "t", weighted=False)
    assert found == expected
    assert has_parallel_edges(sample, found) == (sample.num_rows > 1)


@pytest.mark.parametrize("order", list(permutations(("income", "country", "age"))))
def test_raw_features_of_a_model_are_found(tmp_path: Path, order: tuple[str, ...]) -> None:
    """By their names; texts are categories, and missing values are kept where the model replaces them."""
    kinds = (
        Branches(
            (
                ((0,), (Fill((1.5,)), Log())),
                ((1,), (OneHot(((text_code("DE"), text_code("FR")),)),)),
                ((2,), (Standardize((3.0,), (2.0,)),)),
            )
        ),
    )
    transforms = Transforms(("income", "country", "age"), kinds)
    steps = (Step("propagate", ("x",), "out", attrs=Propagate(EDGE).to_attrs()),)
    model = Model({"x": Input(NODE, 4)}, steps, {}, "out", ("x", "out")).with_transforms(transforms)
    model.save(tmp_path / "model.lgnn")
    rows_of = {"income": ("10", ""), "country": ("DE", ""), "age": ("", "31")}
    lines = ["id", "ann", "bob"], [(name, *rows_of[name]) for name in order]
    table = [",".join(row) for row in zip(lines[0], *lines[1], strict=True)]
    (tmp_path / "nodes.csv").write_text("\n".join(table) + "\n", encoding="utf-8")
    (tmp_path / "edges.csv").write_text("src,dst\nann,bob\n", encoding="utf-8")
    nodes, edges = Table(tmp_path / "nodes.csv"), Table(tmp_path / "edges.csv")
    deployment = write_deployment(
        tmp_path / "made", tmp_path / "model.lgnn", [nodes], [edges], undirected=False
    )
    (rows,) = deployment.tables["nodes"].nodes
    assert rows.features == ("income", "country", "age")
    assert rows.codes == {"country"}
    assert rows.nulls == {"income": KEEP, "country": KEEP, "age": 0}


def test_features_of_edges_are_found(tmp_path: Path) -> None:
    steps = (Step("propagate", ("e",), "out", attrs=Propagate(EDGE).to_attrs()),)
    model = Model(
        {"x": Input(NODE, 1)}, steps, {}, "out", ("x", "out"), edge_inputs={"e": EdgeInput(EDGE, 2)}
    )
    model.save(tmp_path / "model.lgnn")
    rows = [{"src": at, "dst": at + 1, "p": at * 1e-6, "q": at * 1e9} for at in range(5)]
    (tmp_path / "e.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    made = write_deployment(
        tmp_path / "made", tmp_path / "model.lgnn", [], [Table(tmp_path / "e.jsonl")], undirected=False
    )
    load_files(made, "e", [tmp_path / "e.jsonl"])
    runtime = made.open()
    expected = np.array([[at * 1e-6, at * 1e9] for at in range(5)], np.float32)
    assert np.array_equal(runtime.predict(np.arange(1, 6)).values, expected)
    runtime.stop()
    runtime.log.close()
