"""The schema of a deployment grows to its mappings, and changes that would alter a meaning are refused."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from livegnn import Events, Growth, InputError, ModelError, checkpoint
from livegnn.cli import app
from livegnn.deployment import Deployment
from livegnn.runtime import Runtime
from streams import WIDTH, make_graph, make_model, make_wider_model

OLD = ["a", "b", "c", "d"]


def write(folder: Path, x: list[str], nulls: str = "{}", id: str = "id") -> Path:
    """A deployment with a table of nodes and one of edges."""
    make_model().save(folder / "model.lgnn")
    if not (folder / "graph.lgck").exists():
        checkpoint.write(folder / "graph.lgck", {"graph": make_graph().state()}, 0)
    file = folder / "deployment.toml"
    columns = ", ".join(f'"{name}"' for name in x)
    file.write_text(
        f"""
[model]
path = "model.lgnn"
[graph]
path = "graph.lgck"
[log]
path = "events.db"
[[tables.users.nodes]]
id = "{id}"
x = [{columns}]
nulls = {nulls}
[[tables.likes.edges]]
src = "s"
dst = "t"
weight = "w"
""",
        encoding="utf-8",
    )
    return file


def start(file: Path) -> Runtime:
    return Deployment.read(file).open()


def close(runtime: Runtime) -> None:
    runtime.stop()
    runtime.log.close()


def test_a_new_column_of_a_mapping_is_added_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    close(start(write(tmp_path, OLD)))
    file = write(tmp_path, [*OLD, "age"], "{ age = 0.5 }")
    caplog.set_level("INFO")
    runtime = start(file)
    assert (
        "the schema grows to the mappings: node type 'node' gets the column 'age', 0.5 where" in caplog.text
    )
    assert runtime.graph.schema.growths == (Growth(columns={"node": {"age": 0.5}}),)
    assert runtime.graph.features([1])[0, -1] == 0.5
    runtime.append(Events().set_features([1], np.ones((1, WIDTH + 1))))
    runtime.step()
    close(runtime)
    again = start(file)  # replays the growth, and adds nothing
    assert again.log.last_seq() == 2
    assert again.graph.features([1])[0].tolist() == [1] * (WIDTH + 1)
    close(again)


def test_a_mapping_of_the_old_columns_goes_on_after_a_growth(tmp_path: Path) -> None:
    file = write(tmp_path, OLD)
    runtime = start(file)
    runtime.grow(Growth(columns={"node": {"age": 0.5}}))
    runtime.step()
    close(runtime)
    close(start(file))
    with pytest.raises(InputError, match=r"x must begin with \['a', 'b', 'c', 'd', 'age'\]"):
        start(write(tmp_path, [*OLD, "income", "city"], "{ city = 0 }"))
    runtime = start(write(tmp_path, [*OLD, "age", "city"], "{ city = 2 }"))
    assert runtime.graph.features([1])[0, -2:].tolist() == [0.5, 2.0]
    close(runtime)


def test_a_log_with_a_growth_is_imported(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    runtime, file = start(write(tmp_path, OLD)), write(tmp_path / "new", OLD)
    for events in (
        Events().set_features([1], np.zeros((1, WIDTH))),
        Events().grow(Growth(columns={"node": {"age": 0.5}}, node_types={"tag": 1})),
        Events().set_features([2], np.ones((1, WIDTH + 1))).add_nodes([7], [[3.0]], node_type="tag"),
    ):
        runtime.append(events)
        runtime.step()
    close(runtime)
    exported = CliRunner().invoke(app, ["log", "export", str(tmp_path / "events.db")])
    (tmp_path / "events.jsonl").write_text(exported.stdout, encoding="utf-8")
    imported = CliRunner().invoke(app, ["log", "import", str(file), str(tmp_path / "events.jsonl")])
    assert imported.exit_code == 0, imported.output
    again = start(file)
    assert again.graph.features([1, 2])[:, -1].tolist() == [0.5, 1.0]
    assert again.graph.features([7], "tag").tolist() == [[3.0]]
    close(again)


def test_a_start_makes_a_model_of_new_columns_after_the_replay(tmp_path: Path) -> None:
    """The log has the growth, and no checkpoint after it."""
    file = write(tmp_path, OLD)
    file.write_text(file.read_text(encoding="utf-8") + '[models]\ndirectory = "models"\n', encoding="utf-8")
    runtime = start(file)
    runtime.start()
    runtime.grow(Growth(columns={"node": {"age": 0.5}}))
    runtime.models.deploy("wider", make_wider_model())
    runtime.models.switch("wider")
    expected = runtime.predict(runtime.graph.ids()).values
    close(runtime)
    again = start(file)
    again.start()
    assert np.array_equal(again.predict(again.graph.ids()).values, expected)
    assert again.models.serving == "wider"
    close(again)


def test_a_model_that_never_fits_is_refused_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, OLD)
    runtime = start(file)
    runtime.append(Events().set_features([1], np.ones((1, WIDTH))))
    runtime.step()
    close(runtime)
    make_wider_model().save(tmp_path / "model.lgnn")
    monkeypatch.setattr("livegnn.deployment.Runtime", None)  # nothing is replayed
    with pytest.raises(ModelError, match="the model reads 5 features of 'node' nodes"):
        start(file)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"x": OLD[:3]},
            r"x must begin with \['a', 'b', 'c', 'd'\], .*got \['a', 'b', 'c'\]: put new columns",
        ),
        ({"x": ["b", "a", "c", "d"]}, "x must begin with"),
        ({"x": ["age", *OLD], "nulls": "{ age = 1 }"}, "x must begin with"),
        ({"x": [*OLD, "age"]}, "the new column 'age' must have a value for nodes that have none"),
        ({"x": OLD, "id": "other"}, "id must be 'id', by which rows in the log were read, got 'other'"),
    ],
)
def test_what_would_change_a_meaning_is_refused(
    tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    close(start(write(tmp_path, OLD)))
    file = write(tmp_path, **changed)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        start(file)
    runtime = start(write(tmp_path, OLD))
    assert runtime.log.last_seq() == 0
    close(runtime)


def test_columns_that_the_log_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="x must have 4 columns for node type 'node', got 5"):
        start(write(tmp_path, [*OLD, "age"], "{ age = 1 }"))


def test_the_command_says_what_it_adds_and_adds_it(tmp_path: Path) -> None:
    close(start(write(tmp_path, OLD)))
    file, run = write(tmp_path, [*OLD, "age"], "{ age = 0.5 }"), CliRunner()
    said = "node type 'node' gets the column 'age', 0.5 where there is none\n"
    assert run.invoke(app, ["grow", str(file), "--check"]).output == said
    assert run.invoke(app, ["grow", str(file), "--check"]).output == said
    assert run.invoke(app, ["grow", str(file)]).output == f"{said}the schema has them from event 1 on\n"
    assert run.invoke(app, ["grow", str(file)]).output == "the schema has all columns of the mappings\n"
    refused = run.invoke(app, ["grow", str(write(tmp_path, OLD)), "--check"])
    assert "x must begin with ['a', 'b', 'c', 'd', 'age']" in str(refused.exception)
