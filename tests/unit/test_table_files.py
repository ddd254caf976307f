"""Files of tables: every format gives the same events; files that are damaged are named with the place."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

import livegnn as lg
from livegnn.errors import InputError
from livegnn.tables import CsvForm, EdgeRows, NodeRows, TableMapping, TableReader
from livegnn.tables.files import digest_of, list_files, read_file

SCHEMA = lg.Schema(
    {"user": 2}, {("user", "pays", "user"): lg.EdgeSchema(weighted=True, timed=True)}, text_ids=True
)
MAPPING = TableMapping(
    [NodeRows("id", x=["a", "b"])],
    [EdgeRows("id", "to", weight="w", time="t", where={"k": "x"}, nulls={"w": 1})],
)
ROWS: list[dict[str, Any]] = [
    {
        "id": f"00{at}",
        "to": 'ä,"b"' if at % 2 else "0",
        "a": at,
        "b": 0.5,
        "w": None if at == 3 else at / 4,
        "t": f"2026-03-01T00:00:0{at}.25Z",
        "k": "y" if at == 4 else "x",
        "unread": None,
    }
    for at in range(7)
]
HEADER = "id,to,a,b,w,t,k\n"
LINE = "1,2,3,4,5,2026-03-01,x\n"


def packed(path: Path) -> Path:
    whole = path.with_name(f"{path.name}.gz")
    whole.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return whole


def written(directory: Path, kind: str) -> Path:
    """The rows in a file of one format."""
    path, table = directory / f"rows.{kind.removesuffix('.gz')}", pa.Table.from_pylist(ROWS)
    if kind.startswith("parquet"):
        pa.parquet.write_table(table, path, row_group_size=2)
    elif kind.startswith("csv"):
        pa.csv.write_csv(table, path)
    elif kind.startswith("tsv"):
        pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t"))
    elif kind.startswith("arrow"):
        pa.feather.write_feather(table, path, chunksize=3)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return packed(path) if kind.endswith(".gz") else path


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "tsv", "arrow", "jsonl", "jsonl.gz", "ndjson"])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_each_format_gives_the_events_of_the_table(kind: str, rows: int, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    reader = TableReader(MAPPING, SCHEMA)
    for skip in (0, 2, 6, 7, 9):
        read = list(read_file(path, MAPPING, SCHEMA, rows=rows, skip=skip))
        expected = reader.events(pa.Table.from_pylist(ROWS[skip:], pa.Table.from_pylist(ROWS).schema))
        records = [record for _, part in read for record in json_records(part)]
        assert sorted(records) == sorted(json_records(expected))
        assert [end for end, _ in read] == [
            min(end, 7) for end in range(rows, 7 + rows, rows) if min(end, 7) > skip
        ]


def json_records(events: lg.Events) -> list[str]:
    return events.to_json_lines().splitlines()


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", HEADER + LINE + LINE.replace("5", "five"), r"row 1, column 'w': .* invalid value 'five'"),
        ("a.csv", HEADER + LINE + "3,4\n", r"a.csv: expected CSV, got: row 1: Expected 7 columns, got 2"),
        (
            "a.csv",
            b"id,to,a,b,w,t,k\n1,\xff,3,4,5,2026-03-01,x\n",
            r"row 0, column 'to': .*invalid UTF8 data",
        ),
        ("a.csv", "", r"a.csv: expected CSV, got: .*Empty CSV file"),
        (
            "a.csv",
            HEADER.replace("w", "W") + LINE,
            r"a.csv, edges\[0\]: expected one column 'w', got 'id', 'to'",
        ),
        (
            "a.csv",
            HEADER + LINE + LINE.replace("1,2", ",2"),
            r"a.csv, nodes\[0\]: row 1, column 'id': expected a",
        ),
        (
            "a.csv",
            HEADER + LINE + LINE.replace("-03-01", "-02-30"),
            r"row 1, column 't': .* got '2026-02-30'",
        ),
        (
            "a.csv",
            HEADER + LINE + LINE.replace("2026-03-01", "1772323200"),
            r"row 1, column 't': .*time_unit",
        ),
        (
            "a.csv",
            HEADER + LINE.replace("5", "nan"),
            r"row 0, column 'w': expected a finite number .*, got nan",
        ),
        (
            "a.jsonl",
            '{"id": "1"}\n{"id": 2}\n',
            r"a.jsonl: expected JSON lines, got: .*column|Column.* row 1",
        ),
        ("a.jsonl", '{"id": "1"}\n{"id": "2', r"a.jsonl: expected JSON lines, got: JSON parse error.* row 1"),
        (
            "a.jsonl",
            '{"id": "1"}\n',
            r"a.jsonl, nodes\[0\]: expected one column 'a', got 'id'|row 0, column 'a'",
        ),
        ("a.parquet", b"PAR1 and more", r"a.parquet: expected Parquet, got: "),
        ("a.arrow", b"ARROW1 and more", r"a.arrow: expected an Arrow IPC file, got: "),
    ],
)
def test_a_file_that_is_wrong_is_named_with_the_place(
    name: str, content: "str | bytes", says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=says):
        list(read_file(tmp_path / name, MAPPING, SCHEMA))


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv.gz", "jsonl.gz"])
def test_a_file_that_is_cut_is_refused(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind)
    path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(InputError, match=r"rows\..*: expected "):
        list(read_file(path, MAPPING, SCHEMA))


def test_a_wrong_value_far_behind_has_its_row(tmp_path: Path) -> None:
    """The kinds of columns are guessed from the beginning of a CSV file."""
    path = tmp_path / "a.csv"
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER)
        file.writelines(LINE for _ in range(400_000))
        file.write(LINE.replace("5", "x"))
    with pytest.raises(InputError, match=r"row 400000, column 'w'"):
        list(read_file(path, MAPPING, SCHEMA))


def test_ids_of_text_files_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n007\n2026-01-01\n1e3\nNA\n", encoding="utf-8")
    ((_, events),) = read_file(tmp_path / "a.csv", TableMapping([NodeRows("id")]), SCHEMA)
    assert events.chunks[0].ids.tolist() == ["007", "2026-01-01", "1e3", "NA"]


def test_times_that_are_numbers_in_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,to,t\n1,2,1772323200250\n", encoding="utf-8")
    mapping = TableMapping(edges=[EdgeRows("id", "to", time="t", time_unit="ms")])
    ((_, events),) = read_file(tmp_path / "a.csv", mapping, SCHEMA)
    assert events.chunks[0].time is not None
    assert events.chunks[0].time.tolist() == [1772323200.25]


@pytest.mark.parametrize("content", ["id,to,t\n", "id,to,t\n1,2,\n3,4,\n"])
def test_times_that_are_all_missing(content: str, tmp_path: Path) -> None:
    """A column without values has no kind."""
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    for rule, expected in (("skip", 0), (5, content.count("\n") - 1)):
        entry = EdgeRows("id", "to", time="t", time_unit="ms", nulls={"t": rule})
        read = list(read_file(tmp_path / "a.csv", TableMapping(edges=[entry]), SCHEMA))
        assert sum(len(events) for _, events in read) == expected
    if expected:
        assert read[0][1].chunks[0].time.tolist() == [5, 5]  # type: ignore[union-attr]


def test_integers_of_json_lines_are_ids_of_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 7}\n{"id": 8}\n', encoding="utf-8")
    ((_, events),) = read_file(tmp_path / "a.jsonl", TableMapping([NodeRows("id")]), SCHEMA)
    assert events.chunks[0].ids.tolist() == ["7", "8"]


FORMS = [
    CsvForm(),
    CsvForm("|"),
    CsvForm(skip=3),
    CsvForm("\t", 2, ["to", "id"]),
    CsvForm(None, 0, ["id", "to"]),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed_too", [False, True])
def test_a_csv_file_of_any_form(form: CsvForm, packed_too: bool, tmp_path: Path) -> None:
    """And an error has the row and the column, counted from the first row."""
    names = list(form.columns or ["id", "to"])
    by = form.delimiter or ","
    head = ["", '# a comment, with\ttabs | and a "', "x"][: form.skip] + [by.join(names)] * (
        form.columns is None
    )
    rows = [{"id": "01", "to": "2"}, {"id": "a b", "to": f'"3{by}4"'}]
    path = tmp_path / "a.csv"
    path.write_text(
        "\n".join([*head, *(by.join(row[name] for name in names) for row in rows)]), encoding="utf-8"
    )
    path = packed(path) if packed_too else path
    mapping = TableMapping(edges=[EdgeRows("id", "to")], csv=form)
    ((_, events),) = read_file(path, mapping, SCHEMA)
    (chunk,) = events.chunks
    assert chunk.dst is not None
    assert (chunk.ids.tolist(), chunk.dst.tolist()) == (["01", "a b"], ["2", f"3{by}4"])
    numbers = lg.Schema({"user": 0}, {("user", "pays", "user"): lg.EdgeSchema()})
    with pytest.raises(InputError, match=r"a.csv.*: row 1, column '(to|id)': CSV conversion error to int64"):
        list(read_file(path, mapping, numbers))


@pytest.mark.parametrize(
    ("content", "form", "says"),
    [
        (
            "id,to,to\n1,2,3\n",
            CsvForm(),
            r"several columns named 'to': name all columns by columns in \[tables",
        ),
        ("#\nid,to,to\n1,2,3\n", CsvForm(skip=1), r"several columns named 'to': name all"),
        ("1,2\n3\n", CsvForm(columns=["id", "to"]), r"row 1: Expected 2 columns, got 1: 3"),
        ("#\n1,2\n", CsvForm(columns=["id", "to"]), r"row 0: Expected 2 columns, got 1: #"),
        ("#\n1,2,3\n", CsvForm(skip=1, columns=["id", "to"]), r"row 0: Expected 2 columns, got 3: 1,2,3"),
        ("1\n2\n", CsvForm(skip=2), r"a.csv: expected a header after 2 lines, got 2 lines"),
        ("1\n2\n", CsvForm(skip=3, columns=["id", "to"]), r"a.csv: expected CSV, got: "),
        ("id|to\n1|2\n", CsvForm(), r"expected one column 'id', got 'id\|to'"),
    ],
)
def test_a_csv_file_of_another_form_is_refused(
    content: str, form: CsvForm, says: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=says):
        list(read_file(tmp_path / "a.csv", TableMapping(edges=[EdgeRows("id", "to")], csv=form), SCHEMA))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"delimiter": ""}, r"delimiter must be one ASCII character, no quote and no end of a line, got ''"),
        ({"delimiter": '"'}, r"delimiter must be one"),
        ({"delimiter": "é"}, r"delimiter must be one"),
        ({"skip": -1}, r"skip must be"),
        ({"skip": 1.5}, r"skip must be"),
        ({"columns": []}, r"columns must be the names of all columns, got \[\]"),
        ({"columns": ["a", ""]}, r"columns must be the names"),
        ({"columns": "a"}, r"columns must be the names"),
        ({"columns": ["a", "b", "a"]}, r"columns must be different names, got 'a' twice"),
    ],
)
def test_forms_are_checked(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        CsvForm(**given)
    with pytest.raises(InputError, match=r"csv must be a CsvForm, got dict"):
        TableMapping([NodeRows("id")], csv=given)  # type: ignore[arg-type]


def test_folders_are_listed_in_order(tmp_path: Path) -> None:
    for number, name in enumerate(["b.csv", "c/a.parquet", "a.jsonl.gz"]):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (number, number))
    for name in ("notes.txt", "notes.md"):
        (tmp_path / name).touch()
    names = ["a.jsonl.gz", "b.csv", "c/a.parquet"]
    assert list_files([tmp_path]) == [tmp_path / name for name in names]
    assert list_files([tmp_path], "time") == [
        tmp_path / name for name in ["b.csv", "c/a.parquet", "a.jsonl.gz"]
    ]
    assert list_files([tmp_path / "b.csv", tmp_path / "c"]) == [tmp_path / "b.csv", tmp_path / "c/a.parquet"]
    with pytest.raises(
        InputError, match=r"notes.md must have one of the endings .parquet, .*, got 'notes.md'"
    ):
        list_files([tmp_path / "notes.md"])
    assert list_files([tmp_path / "notes.txt"]) == [tmp_path / "notes.txt"]  # named by a person
    with pytest.raises(InputError, match=r"must be a file or a folder, got no such path"):
        list_files([tmp_path / "none.csv"])
    with pytest.raises(InputError, match=r"order must be 'name' or 'time', got 'size'"):
        list_files([tmp_path], "size")  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty must have files with the endings"):
        list_files([tmp_path / "empty"])


def test_a_digest_depends_on_content_mapping_and_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id\n1\n", encoding="utf-8")
    first = digest_of(path, MAPPING, "users")
    assert first == digest_of(path, MAPPING, "users")
    assert first != digest_of(path, MAPPING, "payments")
    assert first != digest_of(path, TableMapping([NodeRows("id")]), "users")
    assert first != digest_of(path, replace(MAPPING, csv=CsvForm(skip=1)), "users")
    assert first != digest_of(path, replace(MAPPING, csv=CsvForm()), "users")
    path.write_text("id\n2\n", encoding="utf-8")
    assert first != digest_of(path, MAPPING, "users")
