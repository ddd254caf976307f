"""Keys of clients: created, listed and revoked in a file that never holds them."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from livegnn import FileFormatError, InputError
from livegnn.cli import app
from livegnn.http.keys import SCOPES, Key, KeyFile, create_key, read_keys, revoke_key


def test_a_key_is_found_by_its_text_and_by_no_other(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    first, second = create_key(path, "first", ["read"]), create_key(path, "second", ["write", "admin"])
    keys = KeyFile(path)
    found = keys.find(second.encode())
    assert found is not None
    assert (found.name, found.scopes) == ("second", ("write", "admin"))
    assert keys.find(first[:-1].encode()) is None
    assert keys.find(b"") is None
    assert keys.find(found.sha256.encode()) is None


def test_a_file_holds_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = create_key(path, "client", ["read"])
    assert text.removeprefix("lgk_") not in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert text not in repr(KeyFile(path).keys)


def test_a_file_that_others_can_read_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "client", ["read"])
    KeyFile(path)
    assert not caplog.records
    path.chmod(0o640)
    KeyFile(path)
    assert f"{path} can be read by other users" in caplog.text


def test_a_name_is_given_once_and_a_revoked_one_is_free(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "client", ["read"])
    with pytest.raises(InputError, match="has a key 'client' already"):
        create_key(path, "client", ["admin"])
    assert [key.scopes for key in read_keys(path)] == [("read",)]
    revoke_key(path, "client")
    with pytest.raises(InputError, match="has no key 'client', it has none"):
        revoke_key(path, "client")
    create_key(path, "client", ["write"])
    assert [key.scopes for key in read_keys(path)] == [("write",)]


def test_keys_that_are_created_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    threads = [threading.Thread(target=create_key, args=(path, f"k{i}", ["read"])) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {key.name for key in read_keys(path)} == {f"k{i}" for i in range(16)}


@pytest.mark.parametrize("scopes", [(), ("read", "read"), ("root",), ("admin", "READ")])
def test_scopes_are_named_each_once(tmp_path: Path, scopes: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="scopes must be some of read, write, admin"):
        create_key(tmp_path / "keys.json", "client", scopes)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 65, "ü", "a/b", "a\n"])
def test_a_name_is_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="a key's name must be"):
        create_key(tmp_path / "keys.json", name, ["read"])


@given(st.binary(max_size=200))
def test_a_file_of_any_bytes_is_refused_as_damaged(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="does not hold keys"):
        read_keys(path)


RECORD = {"name": "a", "sha256": "0" * 64, "scopes": ["read"], "created": "2026-01-01T00:00:00+00:00"}


@pytest.mark.parametrize(
    "held",
    [
        {"format": "livegnn-keys", "version": 3, "keys": []},
        {"format": "livegnn-keys", "version": True, "keys": []},
        {"format": "other", "version": 1, "keys": []},
        {"format": "livegnn-keys", "version": 1, "keys": {}},
        {"format": "livegnn-keys", "version": 1, "keys": [1]},
        {"format": "livegnn-keys", "version": 1, "keys": [{**RECORD, "key": "lgk_"}]},
        {"format": "livegnn-keys", "version": 1, "keys": [{**RECORD, "scopes": "read"}]},
        {"format": "livegnn-keys", "version": 1, "keys": [{**RECORD, "scopes": [["read"]]}]},
        {"format": "livegnn-keys", "version": 1, "keys": [{**RECORD, "sha256": "0" * 63}]},
        {"format": "livegnn-keys", "version": 1, "keys": [RECORD, RECORD]},
        {"format": "livegnn-keys", "version": 1, "keys": [RECORD, {**RECORD, "name": "b"}]},
    ],
)
def test_a_file_of_other_content_is_refused(tmp_path: Path, held: object) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(FileFormatError):
        read_keys(path)


def test_a_file_that_is_damaged_later_leaves_the_keys_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys.json"
    text = create_key(path, "client", ["read"])
    keys = KeyFile(path)
    path.write_bytes(b"{")
    assert [key.name for key in keys.keys] == ["client"]
    assert keys.problem is not None
    assert [key.name for key in keys.keys] == ["client"]
    messages = [record.getMessage() for record in caplog.records]
    warnings = [message for message in messages if str(path) in message]
    assert warnings  # the thread may have seen the file half written as well
    assert len(set(warnings)) == len(warnings)
    assert keys.find(text.encode()) is not None
    path.unlink()
    assert [key.name for key in keys.keys] == ["client"]
    create_key(path, "other", ["read"])
    assert [key.name for key in keys.keys] == ["other"]
    assert keys.problem is None


def test_a_pipe_in_place_of_the_file_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    text = create_key(path, "client", ["read"])
    keys = KeyFile(path)
    path.unlink()
    os.mkfifo(path)
    assert [key.name for key in keys.keys] == ["client"]
    assert keys.problem is not None
    assert "must be a regular file" in keys.problem
    assert keys.find(text.encode()) is not None
    with pytest.raises(FileFormatError, match="must be a regular file"):
        read_keys(path)


def test_an_older_file_is_for_its_owner_alone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    create_key(path, "first", ["read"])
    path.chmod(0o644)
    create_key(path, "second", ["read"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_admin_admits_everything() -> None:
    key = Key("a", "0" * 64, ("admin",), "")
    assert all(key.admits(scope) for scope in SCOPES)
    assert not Key("a", "0" * 64, ("write",), "").admits("read")


def test_commands(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    run = CliRunner()
    created = run.invoke(app, ["key", "create", path, "shop", "--scope", "write", "--scope", "read"])
    assert created.exit_code == 0
    assert KeyFile(path).find(created.stdout.strip().encode()) is not None
    listed = run.invoke(app, ["key", "list", path, "--json"])
    assert [(one["name"], one["scopes"]) for one in json.loads(listed.stdout)] == [
        ("shop", ["write", "read"])
    ]
    assert "shop: write, read, created 20" in run.invoke(app, ["key", "list", path]).stdout
    assert run.invoke(app, ["key", "revoke", path, "shop"]).exit_code == 0
    assert read_keys(Path(path)) == []
