"""Files of tables: Parquet, CSV, Arrow IPC and JSON lines, alone or in folders, read a part at a time."""

import csv
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json

from livegnn.arguments import as_path
from livegnn.errors import InputError
from livegnn.events import Events
from livegnn.schema import Schema
from livegnn.tables.csv_form import CsvForm
from livegnn.tables.mapping import TableMapping
from livegnn.tables.reader import TableReader
from livegnn.tables.repetitions import WholeTable
from livegnn.tables.streams import ROWS_AT_ONCE, read_parts
from livegnn.wording import quoted

Order: TypeAlias = Literal["name", "time"]
FORMATS: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "csv",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".jsonl": "json",
    ".ndjson": "json",
}
_IN_FOLDERS: Final = tuple(one for one in FORMATS if one != ".txt")  # a folder may hold a text for people
_PACKED: Final = (".gz", ".bz2", ".zst", ".lz4")
_BLOCK: Final = 8 << 20  # bytes; a line of text must fit


class FileForm(NamedTuple):
    """The columns of a file that are read. kinds: of those whose kind a text file does not say. csv: the form
    of a CSV file."""

    columns: Sequence[str]
    kinds: Mapping[str, pa.DataType]
    csv: CsvForm | None = None


def list_files(paths: Sequence[object], order: Order = "name") -> list[Path]:
    """The files of `paths`, in order: those of a folder by name, or by the time of their last change.

    Raises InputError for a path that does not exist, a folder without such files, and an unknown ending.
    """
    if order not in get_args(Order):
        raise InputError(f"order must be 'name' or 'time', got {quoted(order)}")
    found = []
    for given in paths:
        path = as_path(given, "path")
        if path.is_dir():
            inside = [one for one in path.rglob("*") if one.is_file() and _ending(one) in _IN_FOLDERS]
            if not inside:
                raise InputError(
                    f"{path} must have files with the endings {', '.join(_IN_FOLDERS)}, got none"
                )
            key: Callable[[Path], object] = _time_and_name if order == "time" else str
            found += sorted(inside, key=key)  # type: ignore[arg-type]
        elif not path.is_file():
            raise InputError(f"{path} must be a file or a folder, got no such path")
        elif _ending(path) not in FORMATS:
            raise InputError(f"{path} must have one of the endings {', '.join(FORMATS)}, got {path.name!r}")
        else:
            found.append(path)
    return found


def read_file(
    path: Path,
    mapping: TableMapping,
    schema: Schema,
    *,
    rows: int = ROWS_AT_ONCE,
    skip: int = 0,
    check_keys: bool = False,
) -> Iterator[tuple[int, Events]]:
    """The events of a file, `rows` rows at a time, each with the number of rows up to their end.

    skip: rows at the beginning that are not read as events. check_keys: whether to look for keys that repeat
    in the rows where they must not: an error may then be raised after the last part. Raises InputError with
    the file, the row, counted from 0, and the column.
    """
    reader = TableReader(mapping, schema, str(path))
    end = 0
    with WholeTable(reader.entries if check_keys else (), schema) as whole:
        for part in _parts(path, reader, rows):
            start, end = end, end + part.num_rows
            if end > skip:
                part = part.slice(max(skip - start, 0))
                yield end, reader.events(part, max(start, skip), whole if check_keys else None)
        whole.finish()


def read_sample(path: Path, rows: int) -> pa.Table:
    """The first rows of a file, or of the first one in a folder, with all columns. Raises InputError."""
    file = list_files([path])[0]
    try:
        return pa.dataset.dataset(file, format=_format(file, {}, None)).head(rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: expected {_kind(file)}, got: {_plain_words(file, str(error), None)}"
        ) from error


def _parts(path: Path, reader: TableReader, rows: int) -> Iterator[pa.Table]:
    """The rows of a file, with the columns that the mapping reads."""
    form = FileForm(reader.mapping.columns, _kinds(reader), reader.mapping.csv)
    yield from read_columns(path, form, reader.check, rows)


def read_columns(
    path: Path, form: FileForm, check: Callable[[pa.Schema], None], rows: int = ROWS_AT_ONCE
) -> Iterator[pa.Table]:
    """The columns of a file, `rows` rows at a time. check: raises InputError for columns that do not fit.

    Raises InputError, also for a file that cannot be read.
    """
    columns = list(form.columns)
    try:
        dataset = pa.dataset.dataset(path, format=_format(path, form.kinds, form.csv))
        check(dataset.schema)
        stream = dataset.scanner(columns=columns, batch_size=rows, use_threads=False).to_reader()
        yield from read_parts(stream, columns, rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: expected {_kind(path)}, got: {_plain_words(path, str(error), form.csv)}"
        ) from error


def _plain_words(path: Path, error: str, form: CsvForm | None) -> str:
    """An error of Arrow with the row, counted from 0, and the name of the column of a CSV file."""
    error = re.split(r"input source '.*?': ", error)[-1].removeprefix("Invalid: ")
    form = form or CsvForm()
    first = form.skip + 1 + (form.columns is None)  # the line of the first row, counted from 1
    if lines := re.match(r"CSV parse error: Row #(\d+): ", error):
        row = int(lines[1]) - first
        return f"{'the header' if row < 0 else f'row {row}'}: {error[lines.end() :]}"
    if same := re.match(r"CSV file contained multiple columns named (.*)", error):
        return f"several columns named {same[1]!r}: name all columns by columns in [tables.NAME.csv]"
    found = re.match(r"In CSV column #(\d+): (?:Row #(\d+): )?", error)
    if found is None:
        return error
    names = _names(path, form)
    at = int(found[1])
    row_named = "" if found[2] is None else f"row {int(found[2]) - first}, "
    name = names[at] if at < len(names) else f"number {at}"
    return f"{row_named}column {name!r}: {error[found.end() :]}"


def _delimiter(path: Path, form: CsvForm) -> str:
    return form.delimiter or ("\t" if FORMATS[_ending(path)] == "tsv" else ",")


def _names(path: Path, form: CsvForm) -> Sequence[str]:
    """The columns of a CSV file. Raises InputError if it ends before its header."""
    if form.columns is not None:
        return form.columns
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(_BLOCK).decode(errors="replace").splitlines()
    if len(head) <= form.skip:
        raise InputError(f"{path}: expected a header after {form.skip} lines, got {len(head)} lines")
    return next(csv.reader(head[form.skip : form.skip + 1], delimiter=_delimiter(path, form)), [])


def _format(
    path: Path, kinds: Mapping[str, pa.DataType], form: CsvForm | None
) -> "str | pa.dataset.FileFormat":
    """The format of a file, by which texts as ids are not taken for numbers, or for times. kinds: of columns
    that a text file does not say. form: of a CSV file."""
    kind = FORMATS[_ending(path)]
    if kind in ("csv", "tsv"):
        form = form or CsvForm()
        # Arrow's data sets look for a header in the first line, whatever is skipped.
        names = None if form == CsvForm(form.delimiter) else _names(path, form)
        skip = form.skip + (names is not None and form.columns is None)
        return pa.dataset.CsvFileFormat(
            pa.csv.ParseOptions(delimiter=_delimiter(path, form), newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=kinds,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
            read_options=pa.csv.ReadOptions(block_size=_BLOCK, skip_rows=skip, column_names=names),
        )
    if kind == "json":
        read = pa.json.ReadOptions(block_size=_BLOCK)
        guessed = pa.dataset.dataset(path, format=pa.dataset.JsonFileFormat(read_options=read)).schema
        kinds = {
            name: kind
            for name, kind in kinds.items()
            if not (name in guessed.names and pa.types.is_integer(guessed.field(name).type))
        }
        return pa.dataset.JsonFileFormat(
            parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(list(kinds.items()))),
            read_options=read,
        )
    return kind


def _kinds(reader: TableReader) -> dict[str, pa.DataType]:
    """The kinds of columns that a text file does not say. A column with two uses has one kind."""
    kinds: dict[str, pa.DataType] = {}
    of_role = {
        "id": pa.string() if reader.schema.text_ids else pa.int64(),
        "key": pa.int64(),
        "time": pa.string(),
        "number": pa.float64(),
        "features": pa.float64(),
        "text": pa.string(),
    }
    for wanted, kind in of_role.items():
        for entry in reader.entries:
            counted = wanted == "time" and getattr(entry.rows, "time_unit", None) is not None
            for name, role in entry.roles():
                if role == wanted and not counted:
                    kinds.setdefault(name, kind)
    for entry in reader.entries:
        for condition in entry.rows.conditions:
            values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
            if all(isinstance(one, str) for one in values):
                kinds.setdefault(condition.column, pa.string())
    return kinds


def digest_of(path: Path, mapping: TableMapping, name: str) -> str:
    """A text that another content of the file, another mapping or another table does not have."""
    said: tuple[object, ...] = (name, mapping) if mapping.csv is None else (name, mapping, mapping.csv)
    if any(one.time is not None for one in mapping.nodes):
        said = (*said, [(one.time, one.time_unit) for one in mapping.nodes])
    codes = [sorted(one.codes) for one in mapping.nodes] + [sorted(one.codes) for one in mapping.edges]
    if any(codes):
        said = (*said, codes)
    digest = hashlib.blake2b(repr(said).encode(), digest_size=16)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _ending(path: Path) -> str:
    """The ending of a file's name, without that of a packed one."""
    endings = [one.lower() for one in path.suffixes]
    if (
        len(endings) > 1
        and endings[-1] in _PACKED
        and endings[-2] in (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")
    ):
        return endings[-2]
    return endings[-1] if endings else ""


def _kind(path: Path) -> str:
    names = {
        "parquet": "Parquet",
        "csv": "CSV",
        "tsv": "CSV",
        "ipc": "an Arrow IPC file",
        "json": "JSON lines",
    }
    return names[FORMATS[_ending(path)]]


def _time_and_name(path: Path) -> tuple[int, str]:
    return path.stat().st_mtime_ns, str(path)
