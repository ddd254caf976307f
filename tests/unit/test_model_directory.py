"""The folder of deployed models: what is kept, what a crash leaves, what is damaged."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from livegnn import FileFormatError, InputError, Model, ModelError
from livegnn.deployment.models import ModelDirectory, _checksum
from livegnn.log.directories import OWNER
from livegnn.log.sqlite import SqliteLog
from livegnn.model import Input, Step
from owned import content_of, names_in
from streams import make_model

A, B = make_model(1), make_model(2)


@pytest.fixture
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteLog]:
    with closing(SqliteLog(tmp_path_factory.mktemp("log") / "log.db")) as one:
        yield one


def of(log: SqliteLog, directory: Path) -> ModelDirectory:
    """The models of a deployment whose log this is."""
    return ModelDirectory(log.directories.own(directory, "models"), log.path.name)


def kept(log: SqliteLog, directory: Path) -> tuple[dict[str, str], str | None, str | None]:
    """What another process finds."""
    found = of(log, directory)
    return {name: model.digest for name, model in found.load().items()}, found.serving, found.previous


def test_what_is_kept_is_found_again(tmp_path: Path, log: SqliteLog) -> None:
    directory = tmp_path / "deployed" / "models"
    assert kept(log, directory) == ({}, None, None)
    assert not directory.exists()
    models = of(log, directory)
    models.add("a", A, "eager")
    models.add("b.2", B, "presampled")
    assert kept(log, directory) == ({"a": A.digest, "b.2": B.digest}, None, None)
    found = of(log, directory)
    assert [found.mode_of(name) for name in ("a", "b.2", "c")] == ["eager", "presampled", None]
    models.serve("b.2", "engine")
    assert kept(log, directory) == ({"a": A.digest, "b.2": B.digest}, "b.2", "engine")
    models.serve("engine", "b.2")
    models.remove("b.2")
    models.remove("never")
    assert kept(log, directory) == ({"a": A.digest}, "engine", None)
    assert names_in(directory) == ["a.lgnn", "models.json"]
    assert set(models.names) == {"a"}


def test_a_crash_between_two_writes_leaves_a_folder_that_is_whole(tmp_path: Path, log: SqliteLog) -> None:
    models = of(log, tmp_path)
    models.add("a", A, "eager")
    index = (tmp_path / "models.json").read_bytes()
    models.add("b", B, "eager")
    shutil.copy(tmp_path / "models.json", tmp_path / "later")
    (tmp_path / "models.json").write_bytes(index)  # the file of `b` came first
    assert kept(log, tmp_path)[0] == {"a": A.digest}
    models = of(log, tmp_path)
    models.add("b", A, "eager")  # over the file that nobody names
    assert kept(log, tmp_path)[0] == {"a": A.digest, "b": A.digest}


def test_what_is_damaged_is_named(tmp_path: Path, log: SqliteLog) -> None:
    models = of(log, tmp_path)
    models.add("a", A, "eager")
    models.serve("a", None)
    index = tmp_path / "models.json"
    whole = index.read_bytes()
    for damaged in (
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        whole[:-5],
        whole.replace(b'"a"', b'"b"'),
        whole.replace(b'"serving": "a"', b'"serving": null'),
        json.dumps({**json.loads(whole), "crc32": 1}).encode(),
    ):
        assert damaged != whole
        index.write_bytes(damaged)
        with pytest.raises(FileFormatError, match=r"models\.json must be as livegnn wrote it"):
            of(log, tmp_path)
    index.write_bytes(whole.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(FileFormatError, match=r"version 1, got 2: update"):
        of(log, tmp_path)
    index.write_bytes(whole)
    B.save(tmp_path / "a.lgnn")
    with pytest.raises(FileFormatError, match=r"a\.lgnn must hold the model that was deployed as 'a'"):
        of(log, tmp_path).load()
    (tmp_path / "a.lgnn").unlink()
    with pytest.raises(FileFormatError, match=r"there is no .*a\.lgnn: put the file back"):
        of(log, tmp_path).load()


def test_a_model_with_code_cannot_be_kept(tmp_path: Path, log: SqliteLog) -> None:
    step = Step("call", ("x",), "y", attrs={"function": "f", "width": 3})
    model = Model({"x": Input("node", 3)}, (step,), {}, "y", ("x", "y"), functions={"f": np.tanh})
    with pytest.raises(ModelError, match=r"holds no code"):
        of(log, tmp_path).add("own", model, "eager")
    assert kept(log, tmp_path) == ({}, None, None)


def test_another_deployment_is_refused(tmp_path: Path, log: SqliteLog) -> None:
    directory = tmp_path / "models"
    with closing(SqliteLog(tmp_path / "other.db")) as other_log:
        models, other = of(log, directory), of(other_log, directory)
        models.add("a", A, "eager")
        before = content_of(directory)
        with pytest.raises(InputError, match=r"of this log, .*other.db, .* was at .*log.db: name another"):
            of(other_log, directory)
        for change in (
            lambda: other.add("a", B, "eager"),
            lambda: other.serve("a", None),
            other.clean,
        ):
            with pytest.raises(InputError, match="name another directory"):
                change()
        assert content_of(directory) == before
        assert of(log, directory).names == {"a"}


def test_what_an_earlier_version_kept_is_adopted_by_its_own_log_alone(tmp_path: Path, log: SqliteLog) -> None:
    """It told logs apart by their paths from the directory."""
    models = of(log, tmp_path)
    models.add("a", A, "eager")
    (tmp_path / OWNER).unlink()
    path = tmp_path / "models.json"
    content = json.loads(path.read_bytes()) | {"log": "log.db"}
    del content["crc32"]
    path.write_text(json.dumps({**content, "crc32": _checksum(content)}), encoding="utf-8")
    message = r"whose log is other.db, got those of one with the log log.db"
    with closing(SqliteLog(tmp_path / "other.db")) as other, pytest.raises(InputError, match=message):
        of(other, tmp_path)
    assert of(log, tmp_path).names == {"a"}
    assert (tmp_path / OWNER).exists()


def test_what_a_write_left_goes(tmp_path: Path, log: SqliteLog) -> None:
    (tmp_path / "a.lgnn.1234.partial").write_bytes(b"half")
    models = of(log, tmp_path)
    models.add("a", A, "eager")
    models.clean()
    assert names_in(tmp_path) == ["a.lgnn", "models.json"]
