"""The SQLite inside apsw: a log is opened with none that can lose what was committed."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from livegnn import Events, LogError
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.examination import examine
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.sequence import check_sqlite
from livegnn.log.sqlite.tail import SqliteTail
from livegnn.log.streams.sqlite import SqliteStream, SqliteStreamReader
from owned import content_of

OLDER = ("3.51.2", "3.51.2.1", "3.50.7", "3.46.1", "3.9.100")
"""A number that is compared as text would be above some of them."""


def test_what_is_installed_and_newer_ones_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sqlite()
    for version in ("3.51.3", "3.52.0", "3.100.0", "4.0.0"):
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda found=version: found)
        check_sqlite()


@pytest.mark.parametrize("version", OLDER)
@pytest.mark.parametrize(
    "open_it",
    [
        SqliteLog,
        SqliteReader,
        examine,
        lambda path: SqliteTail(path, "follower"),
        lambda path: SqliteStream(path, "told"),
        lambda path: SqliteStreamReader(path, "told", 0),
    ],
    ids=["log", "reader", "examination", "tail", "stream", "stream reader"],
)
def test_older_ones_are_refused_in_a_line_and_touch_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, open_it: Callable[[Path], object]
) -> None:
    """There is none to be had here, so it is said that the one that is used is older."""
    path = tmp_path / "events.db"
    log = SqliteLog(path)
    log.append(Events().add_nodes(1))
    log.close()
    SqliteStream(path, "told").close()
    before = content_of(tmp_path)
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: version)
    with pytest.raises(LogError) as error:
        open_it(path)
    assert "\n" not in str(error.value)
    assert (
        f"SQLite 3.51.3 or newer, because older ones can lose committed transactions, got {version}"
        in str(error.value)
    )
    assert "pip install -U 'apsw>=3.51.3.0'" in str(error.value)
    assert content_of(tmp_path) == before
    with pytest.raises(LogError, match="or newer"):
        SqliteLog(tmp_path / "new.db")
    assert content_of(tmp_path) == before


def test_an_installation_asks_for_what_a_start_asks_for() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    dependencies = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    (asked,) = (one for one in dependencies if re.match(r"apsw\b", one))
    assert asked == "apsw>=3.51.3.0"
