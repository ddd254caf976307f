"""`livegnn log` as an operator calls it, beside a server that runs and on one that was stopped."""

import codecs
import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

import loopback
from livegnn import Events, checkpoint
from livegnn.cli import main
from livegnn.deployment import Deployment
from livegnn.graph import Graph
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.reader import SqliteReader
from livegnn.log.sqlite.tail import SqliteTail
from livegnn.runtime import Runtime, list_checkpoints
from serving import Server, write_deployment
from streams import make_stream
from waiting import PATIENCE, REQUEST_SECONDS

BAD = Events().remove_edges(10**6, 3)


class Called(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def call(*arguments: object) -> Called:
    """What the script `livegnn` does, in this process, which spares its start."""
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["livegnn", "log", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    out.flush()
    content = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return Called(int(ended.value.code or 0), content, err.getvalue())


def said(*arguments: object) -> str:
    """What a command prints, which must succeed."""
    result = call(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refusal(*arguments: object) -> str:
    """The one line with which a command refuses."""
    result = call(*arguments)
    assert result.returncode == 1, result.stdout
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    return result.stderr


def drain(runtime: Runtime) -> None:
    while runtime.step():
        pass


def stop(runtime: Runtime) -> None:
    runtime.stop()
    runtime.log.close()


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """One that has run: batches, two entries that were refused, checkpoints."""
    path = write_deployment(tmp_path)
    runtime = Deployment.read(path).open()
    for number, events in enumerate(make_stream(60)):
        runtime.append(events)
        if number in (5, 30):
            runtime.append(BAD)
        if number % 3 == 2:
            drain(runtime)
    stop(runtime)
    return path


def log_of(deployment: Path) -> Path:
    return deployment.parent / "events.db"


def test_it_is_a_command_of_the_script(deployment: Path) -> None:
    command = [sys.executable, "-m", "livegnn", "log"]
    result = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    for name in ("verify", "export", "import", "replay", "rejections", "retry", "trim"):
        assert name in result.stdout
    verified = subprocess.run([*command, "verify", deployment], capture_output=True, text=True, check=True)
    assert verified.stdout == said("verify", deployment)


def test_verify_counts_and_finds_damage(deployment: Path) -> None:
    path = log_of(deployment)
    text = said("verify", path)
    assert text == said("verify", deployment)
    assert re.fullmatch(
        rf"{path}: events 1 to \d+, 62 entries in 62 rows, \d+ batches up to event \d+, "
        r"2 refused entries \(0 trimmed\), 0 keys, 0 origins, 0 bad messages of sources\n",
        text,
    )
    with sqlite3.connect(path) as connection:
        (seq,) = connection.execute("SELECT seq FROM entries LIMIT 1 OFFSET 20").fetchone()
        connection.execute("UPDATE entries SET payload = zeroblob(30) WHERE seq = ?", (seq,))
    connection.close()
    result = call("verify", path)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: the row that ends at event {seq} is not as it was written: ")
    assert "is no log" not in result.stderr
    assert "got no such file" in refusal("verify", deployment.parent / "missing.db")
    assert not (deployment.parent / "missing.db").exists()


def test_export_writes_what_the_log_holds(deployment: Path) -> None:
    log = SqliteLog(log_of(deployment))
    entries = log.entries(0)
    log.close()
    lines = [json.loads(line) for line in said("export", deployment).splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, entries[-1].seq + 1))
    assert sorted({line.get("entry", line["seq"]) for line in lines}) == [entry.seq for entry in entries]
    records = [{key: value for key, value in line.items() if key not in {"seq", "entry"}} for line in lines]
    everything = Events.concatenate([entry.events for entry in entries])
    assert Events.concatenate([Events.from_records(records)]) == everything

    after, to = entries[9].seq, entries[19].seq
    part = deployment.parent / "part.jsonl"
    assert said("export", log_of(deployment), "--after", after, "--to", to, "-o", part) == ""
    assert [json.loads(line)["seq"] for line in part.read_text(encoding="utf-8").splitlines()] == list(
        range(after + 1, to + 1)
    )
    assert said("export", deployment, "--after", entries[-1].seq) == ""
    part.unlink()
    assert "must continue after event" in refusal("export", deployment, "--after", after - 1, "-o", part)
    assert not part.exists()


def test_an_import_is_the_inverse_of_an_export(deployment: Path) -> None:
    """Of all entries, those that were refused too; and each event once."""
    exported = deployment.parent / "events.jsonl"
    said("export", deployment, "-o", exported)
    (deployment.parent / "other").mkdir()
    other = write_deployment(deployment.parent / "other")
    result = call("import", other, exported)
    with closing(SqliteReader(log_of(deployment))) as old, closing(SqliteReader(log_of(other))) as new:
        end = old.last_seq()
        assert [(one.seq, one.events) for one in new.entries(0)] == [
            (one.seq, one.events) for one in old.entries(0)
        ]
        assert list(new.rejections()) == list(old.rejections()) != []
    assert result.returncode == 1
    assert result.stdout == f"{end} events appended, 0 appended earlier, event {end}\n"
    assert result.stderr.count("error: refused: ") == result.stderr.count(str(10**6)) == 2
    assert said("import", other, exported) == f"0 events appended, {end} appended earlier, event {end}\n"
    assert said("export", other) == exported.read_text(encoding="utf-8")
    grown = deployment.parent / "grown.jsonl"
    grown.write_bytes(codecs.BOM_UTF8 + exported.read_bytes() + b'{"event": "remove_node", "id": 1}\n')
    for target in (other, deployment):  # they have these events
        told = refusal("import", target, grown)
        assert f"{grown}: line 1: 'seq' must be after {end}" in told
        assert f"--after {end}" in told
    assert call("import", other, grown, "--renumber").stdout.endswith(f"event {2 * end + 1}\n")
    one = deployment.parent / "one.jsonl"
    one.write_text(f'{{"seq": {2 * end + 2}, "event": "add_node", "id": 77}}', encoding="utf-8")
    assert said("import", other, one) == f"1 event appended, 0 appended earlier, event {2 * end + 2}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "expected a JSON object"),
        ("[]", "expected a JSON object with a field 'event', got []"),
        ('{"event": "add_node", "id": 1, "seq": 1.5}', "expected a whole number as 'seq', got 1.5"),
        ('{"event": "add_nodes", "id": 1}', "to be one of add_edge"),
        ('{"event": "add_node", "id": 1, "x": [1.0]}', "x must have 4 features"),
        ('{"event": "add_node", "id": "' + "h" * 1100 + '"}', "at most 1,024"),
    ],
)
def test_a_file_of_events_with_a_wrong_line_is_not_imported(
    deployment: Path, line: str, message: str
) -> None:
    end = json.loads(said("export", deployment).splitlines()[-1])["seq"]
    wrong = deployment.parent / "wrong.jsonl"
    wrong.write_text(f'{{"event": "remove_node", "id": 1}}\n\n{line}\n', encoding="utf-8")
    told = refusal("import", deployment, wrong)
    assert message in told
    assert f"{wrong}: line 3: " in told or f"{wrong}: event 2: " in told
    empty = deployment.parent / "empty.jsonl"
    empty.touch()
    assert said("import", deployment, empty) == f"0 events appended, 0 appended earlier, event {end}\n"


def test_a_pipe_is_not_imported(deployment: Path) -> None:
    """It would be empty when it is read again."""
    pipe = deployment.parent / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/stdin"), Path("-")):
        assert "must be a file, which is read twice" in refusal("import", deployment, path)


def test_replay_makes_what_was_served_then(deployment: Path) -> None:
    """From the base, and from a checkpoint; what it writes is what a start would have found."""
    log = SqliteLog(log_of(deployment))
    ends = [batch.seq for batch in log.batches(0)]
    log.close()
    kept = [int(path.stem[-20:]) for path in list_checkpoints(deployment.parent / "checkpoints")]
    middle = next(end for end in ends if end > kept[-1])
    for seq, given in ((ends[4], ends[4]), (ends[4], ends[5] - 1), (middle, middle), (ends[-1], 10**9)):
        out = deployment.parent / "then.lgck"
        result = call("replay", deployment, "--to", given, "-o", out)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"seq {seq}: ")
        assert ("is the end of the last batch" in result.stderr) == (given != seq)
        saved = checkpoint.read(out)
        assert saved.seq == seq
        for path in (deployment.parent / "checkpoints").iterdir():
            path.rename(path.with_suffix(".away"))
        from_base = call("replay", deployment, "--to", given)
        for path in (deployment.parent / "checkpoints").iterdir():
            path.rename(path.with_suffix(".lgck"))
        assert from_base.stdout == result.stdout
    newest = checkpoint.read(list_checkpoints(deployment.parent / "checkpoints")[0])
    assert saved.seq == newest.seq
    for part in ("graph", "engine"):
        for name, array in newest.states[part].arrays.items():
            assert saved.states[part].arrays[name].tobytes() == array.tobytes(), (part, name)
    assert saved.states["log"].meta == newest.states["log"].meta


def test_wrong_numbers_of_an_export_are_named(deployment: Path) -> None:
    with closing(SqliteReader(log_of(deployment))) as reader:
        end = reader.last_seq()
    for options, message in (
        (("--to", -5), "--to must be at least 0"),
        (("--after", end, "--to", end - 1), f"--to must be at least {end}"),
        (("--after", -1), f"--after must be the number of an event up to {end}, the last, got -1"),
        (("--after", end + 1), f"--after must be the number of an event up to {end}"),
    ):
        assert message in refusal("export", deployment, *options)


def test_what_is_no_file_is_named_and_not_waited_for(deployment: Path) -> None:
    """A folder and a pipe, in the place of a log and of a checkpoint, and nothing."""
    log_of(deployment).unlink()
    for make, kind in ((os.mkfifo, "a named pipe"), (os.mkdir, "a directory")):
        make(log_of(deployment))
        for command in (
            ("verify", deployment), ("export", deployment), ("replay", deployment, "--to", 5),
            ("rejections", deployment), ("consumers", deployment), ("bind", deployment),
            ("retry", deployment, 1), ("trim", deployment),
        ):  # fmt: skip
            assert f"an event log must be a regular file, got {kind} at" in refusal(*command)
        (log_of(deployment).rmdir if kind == "a directory" else log_of(deployment).unlink)()
    for command in (("verify", deployment), ("consumers", deployment), ("bind", deployment)):
        assert "got nothing" in (told := refusal(*command)) or "got no such file" in told
    assert not log_of(deployment).exists()


def snapshot(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_output_is_none_of_the_files_that_are_read(deployment: Path) -> None:
    """By its name, another way to it, a symbolic or a hard link; and free names beside the log."""
    folder = deployment.parent
    (folder / "models").mkdir()
    (folder / "models" / "models.json").write_text("{}", encoding="utf-8")
    SqliteTail(log_of(deployment), "reader").close()
    names = ["events.db", "events.db-mark", "events.db-lock", "events.db-consumers/reader"]
    of_deployment = ["deployment.toml", "graph.npz", "model.lgnn", "models/models.json"]
    of_deployment += [str(path.relative_to(folder)) for path in list_checkpoints(folder / "checkpoints")]
    (folder / "elsewhere").mkdir()
    (folder / "link.db").symlink_to(log_of(deployment))
    before = snapshot(folder)
    export = ("export", deployment)
    replay = ("replay", deployment, "--to", 10)
    for name in (*names, *of_deployment):
        symbolic, hard = folder / "elsewhere" / "symbolic", folder / "elsewhere" / "hard"
        symbolic.symlink_to(folder / name)
        hard.hardlink_to(folder / name)
        by_log = [("export", log_of(deployment)), ("export", folder / "link.db")] if name in names else []
        for output in (folder / name, folder / "elsewhere" / ".." / name, symbolic, hard):
            for command in (export, replay, *by_log):
                said_of = refusal(*command, "-o", output)
                assert "-o must be another file than" in said_of
                assert said_of.endswith(f"got {output}: it would be lost\n")
        symbolic.unlink()
        hard.unlink()
    for ending in ("-wal", "-shm"):
        for command in (export, replay, ("export", folder / "link.db")):
            assert "-o must be another file than" in refusal(*command, "-o", f"{log_of(deployment)}{ending}")
    assert snapshot(folder) == before
    assert said("export", deployment, "-o", folder / "checkpoints" / "new.jsonl") == ""


def test_refused_entries_are_listed_and_appended_again(deployment: Path) -> None:
    listed = [json.loads(line) for line in said("rejections", deployment).splitlines()]
    assert [one["error"] for one in listed] == ["UnknownNodeError"] * 2
    assert [one["events"] for one in listed] == [[{"event": "remove_edge", "src": 10**6, "dst": 3}]] * 2
    first, second = (one["seq"] for one in listed)
    assert f"expected numbers of entries that were refused, got {first - 1}" in refusal(
        "retry", deployment, second, first - 1
    )
    text = said("retry", deployment, first)
    assert text == said("retry", deployment, first)
    again = int(text.split()[-1])
    runtime = Deployment.read(deployment).open()
    runtime.append(Events().add_nodes(10**6, x=[[0.0] * 4]).add_edges(10**6, 3, weight=1))
    drain(runtime)
    assert runtime.rejection(again) is not None  # the node was still not there
    stop(runtime)
    runtime = Deployment.read(deployment).open()
    edges = runtime.graph.num_edges()
    stop(runtime)
    said("retry", deployment, second)
    runtime = Deployment.read(deployment).open()
    drain(runtime)
    assert runtime.graph.num_edges() == edges - 1
    stop(runtime)


def test_consumers_are_listed_and_forgotten(deployment: Path) -> None:
    assert said("consumers", deployment) == ""
    tail = SqliteTail(log_of(deployment), "mirror")
    seq = tail.entries()[3].seq
    tail.commit(seq)
    last = tail.entries()[-1].seq
    assert said("consumers", log_of(deployment)) == f"mirror: event {seq}, {last - seq} behind\n"
    assert "under which one runs" in refusal("consumers", deployment, "--forget", "mirror")
    tail.close()
    assert said("consumers", deployment, "--forget", "mirror") == "forgot mirror\n"
    assert said("consumers", deployment) == ""
    assert "there are none" in refusal("consumers", deployment, "--forget", "mirror")


def test_trim_keeps_what_checkpoints_need(deployment: Path) -> None:
    oldest = int(list_checkpoints(deployment.parent / "checkpoints")[-1].stem[-20:])
    refused = said("rejections", deployment)
    newest = said("replay", deployment, "--to", 10**9)
    tail = SqliteTail(log_of(deployment), "slow")
    assert f"begins after event 0, the oldest checkpoint is of event {oldest}" in said("trim", deployment)
    tail.close()
    said("consumers", deployment, "--forget", "slow")
    assert f"begins after event {oldest}, the oldest" in said("trim", deployment)
    assert f"events {oldest + 1} to" in said("verify", deployment)
    assert said("rejections", deployment) == refused
    assert said("replay", deployment, "--to", 10**9) == newest
    assert f"begins after event {oldest}" in refusal("replay", deployment, "--to", oldest - 1)
    first = json.loads(said("export", deployment).splitlines()[0])
    assert first["seq"] == oldest + 1
    (deployment.parent / "checkpoints").rename(deployment.parent / "away")
    assert "must hold 2 checkpoints" in refusal("trim", deployment)
    lines = re.sub(r"\[checkpoint\][^\[]*", "", deployment.read_text(encoding="utf-8"))
    deployment.write_text(lines, encoding="utf-8")
    assert "must have a section [checkpoint]" in refusal("trim", deployment)


def test_bind_accepts_a_change(deployment: Path) -> None:
    said_before = said("bind", deployment)
    assert said_before == f"{log_of(deployment)} is bound to {deployment}\n"
    text = deployment.read_text(encoding="utf-8")
    deployment.write_text(text.replace('"graph.npz"', '"graph.npz"\nparallel = "last"'), encoding="utf-8")
    assert 'graph/parallel must be "refuse", got "last"' in refusal("replay", deployment, "--to", 10)
    assert 'graph/parallel: "refuse" -> "last"' in said("bind", deployment)
    assert said("replay", deployment, "--to", 10).startswith("seq ")
    deployment.write_text(text.replace("events.db", "other.db"), encoding="utf-8")
    assert "there must be a log at" in refusal("bind", deployment)
    assert not (deployment.parent / "other.db").exists()


def test_what_only_reads_runs_beside_a_server(deployment: Path) -> None:
    """And what writes does not."""
    with Server(deployment) as server:
        answer = loopback.post(
            f"{server.address}/v1/events?wait=true&timeout={REQUEST_SECONDS}",
            json={"events": [{"event": "add_node", "id": 10**7}]},
        )
        assert answer.status_code == 200, answer.text
        seq = answer.json()["seq"]
        assert f"to {seq}, " in said("verify", deployment)
        assert said("replay", deployment, "--to", seq).startswith(f"seq {seq}: ")
        assert len(said("export", deployment, "--after", seq - 1).splitlines()) == 1
        assert len(said("rejections", deployment).splitlines()) == 2
        for command in (("retry", deployment, 5), ("trim", deployment), ("bind", deployment)):
            assert f"process {server.process.pid} runs on it" in refusal(*command)
        tail = SqliteTail(log_of(deployment), "mirror", after=seq)
        loopback.post(f"{server.address}/v1/events", json={"events": [{"event": "remove_node", "id": 10**7}]})
        assert tail.wait(PATIENCE)
        assert tail.entries()[0].events == Events().remove_nodes(10**7)
        tail.close()


def test_a_base_alone_is_replayed(tmp_path: Path) -> None:
    """Without a model, without a checkpoint, and of a log that nobody has started."""
    graph = Graph.from_edges([0, 1], [1, 2])
    checkpoint.write(tmp_path / "graph.lgck", {"graph": graph.state()}, 0)
    path = tmp_path / "deployment.toml"
    path.write_text('[graph]\npath = "graph.lgck"\n[log]\npath = "events.db"\n', encoding="utf-8")
    assert "got no such file" in refusal("replay", path, "--to", 0)
    runtime = Deployment.read(path).open()
    runtime.append(Events().add_edges(2, 0))
    drain(runtime)
    stop(runtime)
    assert said("replay", path, "--to", 0) == "seq 0: 3 nodes, 2 edges\n"
    assert said("replay", path, "--to", 1) == "seq 1: 3 nodes, 3 edges\n"
