"""The folder of deployed models: what is kept, what a crash leaves, what is damaged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from livegnn import FileFormatError, InputError, Model, ModelError
from livegnn.deployment.models import ModelDirectory
from livegnn.model import Input, Step
from streams import make_model

A, B = make_model(1), make_model(2)


def kept(directory: Path) -> tuple[dict[str, str], str | None, str | None]:
    """What another process finds."""
    found = ModelDirectory(directory, "log.db")
    return {name: model.digest for name, model in found.load().items()}, found.serving, found.previous


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    directory = tmp_path / "deployed" / "models"
    assert kept(directory) == ({}, None, None)
    assert not directory.exists()
    models = ModelDirectory(directory, "log.db")
    models.add("a", A, "eager")
    models.add("b.2", B, "presampled")
    assert kept(directory) == ({"a": A.digest, "b.2": B.digest}, None, None)
    found = ModelDirectory(directory, "log.db")
    assert [found.mode_of(name) for name in ("a", "b.2", "c")] == ["eager", "presampled", None]
    models.serve("b.2", "engine")
    assert kept(directory) == ({"a": A.digest, "b.2": B.digest}, "b.2", "engine")
    models.serve("engine", "b.2")
    models.remove("b.2")
    models.remove("never")
    assert kept(directory) == ({"a": A.digest}, "engine", None)
    assert sorted(path.name for path in directory.iterdir()) == ["a.lgnn", "models.json"]
    assert set(models.names) == {"a"}


def test_a_crash_between_two_writes_leaves_a_folder_that_is_whole(tmp_path: Path) -> None:
    models = ModelDirectory(tmp_path, "log.db")
    models.add("a", A, "eager")
    index = (tmp_path / "models.json").read_bytes()
    models.add("b", B, "eager")
    shutil.copy(tmp_path / "models.json", tmp_path / "later")
    (tmp_path / "models.json").write_bytes(index)  # the file of `b` came first
    assert kept(tmp_path)[0] == {"a": A.digest}
    models = ModelDirectory(tmp_path, "log.db")
    models.add("b", A, "eager")  # over the file that nobody names
    assert kept(tmp_path)[0] == {"a": A.digest, "b": A.digest}


def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    models = ModelDirectory(tmp_path, "log.db")
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
            ModelDirectory(tmp_path, "log.db")
    index.write_bytes(whole.replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(FileFormatError, match=r"version 1, got 2: update"):
        ModelDirectory(tmp_path, "log.db")
    index.write_bytes(whole)
    B.save(tmp_path / "a.lgnn")
    with pytest.raises(FileFormatError, match=r"a\.lgnn must hold the model that was deployed as 'a'"):
        ModelDirectory(tmp_path, "log.db").load()
    (tmp_path / "a.lgnn").unlink()
    with pytest.raises(FileFormatError, match=r"there is no .*a\.lgnn: put the file back"):
        ModelDirectory(tmp_path, "log.db").load()


def test_a_model_with_code_cannot_be_kept(tmp_path: Path) -> None:
    step = Step("call", ("x",), "y", attrs={"function": "f", "width": 3})
    model = Model({"x": Input("node", 3)}, (step,), {}, "y", ("x", "y"), functions={"f": np.tanh})
    with pytest.raises(ModelError, match=r"holds no code"):
        ModelDirectory(tmp_path, "log.db").add("own", model, "eager")
    assert kept(tmp_path) == ({}, None, None)


def test_another_deployment_is_refused(tmp_path: Path) -> None:
    models, other = ModelDirectory(tmp_path, "log.db"), ModelDirectory(tmp_path, "other.db")
    models.add("a", A, "eager")
    with pytest.raises(InputError, match=r"whose log is other.db, got those of one with the log log.db"):
        ModelDirectory(tmp_path, "other.db")
    with pytest.raises(InputError, match="name another directory"):
        other.add("a", B, "eager")
    with pytest.raises(InputError, match="name another directory"):
        other.serve("a", None)
    assert ModelDirectory(tmp_path, "log.db").names == {"a"}


def test_what_a_write_left_goes(tmp_path: Path) -> None:
    (tmp_path / "a.lgnn.1234.partial").write_bytes(b"half")
    models = ModelDirectory(tmp_path, "log.db")
    models.add("a", A, "eager")
    models.clean()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.lgnn", "models.json"]
