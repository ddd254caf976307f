"""All predictions as a Parquet file: of a deployment, of a server, and of an answer that is cut."""

import io
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_bulk import apply, change, open_runtime

from livegnn import Events
from livegnn.cli.predict import predict
from livegnn.deployment import Deployment
from livegnn.errors import InputError, LiveGNNError, LogError, SourceError
from livegnn.http.client import AnswerCut, NoAnswer
from livegnn.runtime import Runtime
from livegnn.server import arrow_stream, create_app, prediction_file
from livegnn.server.app import server_of
from livegnn.server.prediction_file import open_all, write_parquet
from served import running
from serving import write_deployment
from streams import WIDTH
from waiting import PATIENCE


def check(path: Path, runtime: Runtime) -> None:
    """Whether a file has all predictions of a runtime."""
    table = pq.read_table(path)
    assert sorted(table["id"].to_pylist()) == sorted(runtime.graph.ids().tolist())
    ids = table["id"].to_pylist() if runtime.graph.schema.text_ids else table["id"].to_numpy()
    expected = runtime.predict(ids).values
    assert np.array_equal(np.array(table["prediction"].to_pylist(), np.float32), expected)
    assert table.schema.metadata[b"seq"] == str(runtime.seq).encode()
    assert table.schema.metadata[b"digest"] == runtime.engine.digest.encode()


@pytest.mark.parametrize("text", [False, True])
def test_a_file_has_all_predictions(
    tmp_path: Path, rng: np.random.Generator, text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 7)
    monkeypatch.setattr(prediction_file, "_GROUP_ROWS", 16)
    path = tmp_path / "all.parquet"
    runtime = open_runtime(tmp_path, text=text)
    with closing(runtime.log):
        for _ in range(5):
            change(runtime, rng)
        written = write_parquet(open_all(runtime, None, None), path)
        assert written == (len(runtime.graph.ids()), runtime.seq, False)
        check(path, runtime)


def test_nodes_that_are_removed_meanwhile_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 7)
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        stream = open_all(runtime, None, None)
        head = stream.read(1)
        gone = runtime.graph.ids()[-3:]
        apply(runtime, Events().remove_nodes(gone))
        whole = io.BytesIO(head + stream.read())
        assert write_parquet(whole, tmp_path / "all.parquet").rows == len(runtime.graph.ids())
        assert not set(pq.read_table(tmp_path / "all.parquet")["id"].to_pylist()) & set(gone.tolist())


def test_an_answer_that_is_cut_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_stream, "_MOST_ROWS", 7)
    path = tmp_path / "all.parquet"
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        content = open_all(runtime, None, None).read()
    path.write_bytes(b"before")
    for size in range(0, len(content) - 8, 97):  # the last eight bytes say that the stream has ended
        with pytest.raises(SourceError, match="Run it again"):
            write_parquet(io.BytesIO(content[:size]), path)
        assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir() if "parquet" in one.name] == ["all.parquet"]
    write_parquet(io.BytesIO(content), path)
    assert pa.ipc.open_stream(content).read_all().num_rows == pq.read_table(path).num_rows


def test_the_command_asks_a_server_or_restores_a_deployment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, deployment = tmp_path / "all.parquet", str(write_deployment(tmp_path))
    runtime = Deployment.read(Path(deployment)).open()
    apply(runtime, Events().set_features(3, np.ones(WIDTH, np.float32)))
    with running(lambda listener: server_of(create_app(runtime), listener)) as address:
        predict(address, path, every=True)
        check(path, runtime)
        with pytest.raises(InputError, match="one of"):
            predict(address, path, every=True, output="none")
        with pytest.raises(LogError, match="name the address of the server"):
            predict(deployment, path, every=True)
    runtime.stop()
    runtime.log.close()
    with pytest.raises(LiveGNNError, match="does not answer"):
        predict(address, path, every=True)
    check(path, runtime)
    path.unlink()
    predict(deployment, path, every=True)
    check(path, runtime)
    said = f"{len(runtime.graph.ids())} predictions, event 1, in {path}\n"
    assert capsys.readouterr().out == 2 * said
    for wrong in ("graph.npz", "events.db", "deployment.toml"):
        with pytest.raises(InputError, match="it would be lost"):
            predict(deployment, tmp_path / wrong, every=True)
    with pytest.raises(InputError, match="needs --all"):
        predict(deployment, path)


@contextmanager
def full_disk() -> Iterator[None]:
    """Writes fail past the first bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path, runtime = tmp_path / "all.parquet", open_runtime(tmp_path)
    path.write_bytes(b"before")
    with running(lambda listener: server_of(create_app(runtime), listener)) as address:
        with full_disk(), pytest.raises(LiveGNNError) as of_server:
            predict(address, path, every=True)
        with full_disk(), pytest.raises(LiveGNNError) as of_runtime:
            write_parquet(open_all(runtime, None, None), path)
    runtime.log.close()
    assert str(of_server.value) == str(of_runtime.value) == f"{path} cannot be written: File too large"
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir() if "parquet" in one.name] == ["all.parquet"]


@contextmanager
def sending(data: bytes, *, stall: bool) -> Iterator[str]:
    """The address of a server that sends this to one client, and then no more: it stalls, or cuts it."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(data)
            while stall and connection.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("stall", [False, True])
@pytest.mark.parametrize(
    "head", ["transfer-encoding: chunked\r\n\r\n1000000\r\n", "content-length: 9999999\r\n\r\n"]
)
def test_a_connection_that_is_cut_or_stalls_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, stall: bool
) -> None:
    monkeypatch.setattr("livegnn.http.client._ANSWER_SECONDS", 0.2 if stall else PATIENCE)
    path = tmp_path / "all.parquet"
    path.write_bytes(b"before")
    runtime = open_runtime(tmp_path)
    with closing(runtime.log):
        content = open_all(runtime, None, None).read()
    why = r"nothing arrived for 0\.2 seconds" if stall else "the connection was cut before its end"
    for size in (0, 3, len(content) // 2, len(content) - 9):
        data = f"HTTP/1.1 200 OK\r\n{head}".encode() + content[:size]
        with sending(data, stall=stall) as address, pytest.raises(AnswerCut, match=f"{why}. Run it again"):
            predict(address, path, every=True)
        assert path.read_bytes() == b"before"
    if stall:
        with sending(b"", stall=True) as address, pytest.raises(NoAnswer, match=why):
            predict(address, path, every=True)
