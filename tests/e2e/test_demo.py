"""The demo through the real log, runtime and server: it ends verified, notices damage, shows its page."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

from livegnn import Engine, Events, Graph
from livegnn.demo import ratings, run, serving, session, show
from livegnn.demo.ratings import Ratings
from livegnn.demo.serving import open_session
from livegnn.demo.session import Session
from livegnn.errors import InputError
from livegnn.log.sqlite import SqliteLog
from livegnn.types import JSON, State
from waiting import PATIENCE

REPLAYED = 200


def some_ratings() -> Ratings:
    everything = ratings.load()
    return everything.first(everything.cutoff + REPLAYED)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A demo that has replayed its few ratings and still serves."""
    folder = tmp_path_factory.mktemp("demo")
    with open_session(folder, "127.0.0.1", 0, speed=None, ratings=some_ratings()) as opened:
        opened.replay.start()
        opened.replay.join()
        assert opened.replay.error is None
        yield opened


def ask(demo: Session, path: str, change: JSON = None) -> tuple[int, str, bytes]:
    """Status, media type and body of the answer; `change` is put, if there is one."""
    with closing(HTTPConnection(*demo.address, timeout=PATIENCE)) as connection:
        if change is None:
            connection.request("GET", path)
        else:
            connection.request("PUT", path, json.dumps(change), {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.headers.get_content_type(), answer.read()


def test_a_headless_run_ends_verified(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(headless=True) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "12,458 ratings replayed" in printed
    assert "verified: 5,881 predictions against the oracle" in printed


def test_a_headless_run_with_a_damaged_state_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    intact = session.start_engine
    monkeypatch.setattr(serving, "start_engine", lambda graph: damage(graph, intact(graph)))
    monkeypatch.setattr(serving, "load", some_ratings)
    assert run(headless=True) == 1
    assert "verification failed" in capsys.readouterr().out


def damage(graph: Graph, engine: Engine) -> Engine:
    """An engine restored from a state in which everything that it keeps of one layer is off by one."""
    state = engine.state()
    arrays = {name: np.array(array) for name, array in state.arrays.items()}
    rows = next(array for name, array in arrays.items() if name.startswith("rows/") and array.shape[1] > 1)
    rows += 1
    return Engine(graph, engine.model, state=State(state.meta, arrays))


def test_the_replay_passes_through_the_log(demo: Session) -> None:
    log = demo.runtime.log
    assert isinstance(log, SqliteLog)
    assert log.last_seq() == demo.runtime.seq > 3 * REPLAYED
    assert demo.runtime.graph.num_edges() == demo.ratings.cutoff + REPLAYED
    assert demo.done
    assert demo.meter.replayed == REPLAYED
    assert demo.verify().ok


@pytest.mark.parametrize(
    ("path", "media_type", "start"),
    [
        ("/demo/", "text/html", b"<!doctype html>"),
        ("/demo/app.js", "text/javascript", b"// The demo's page."),
        ("/demo/style.css", "text/css", b":root {"),
    ],
)
def test_the_page_is_served(demo: Session, path: str, media_type: str, start: bytes) -> None:
    status, kind, body = ask(demo, path)
    assert (status, kind) == (200, media_type)
    assert body.startswith(start)


def test_the_root_leads_to_the_page(demo: Session) -> None:
    assert ask(demo, "/")[0] == 307


def test_the_state_has_the_figures(demo: Session) -> None:
    demo.verify()
    state = json.loads(ask(demo, "/demo/state")[2])
    assert state["progress"]["replayed"] == state["progress"]["total"] == REPLAYED
    assert state["progress"]["done"] is True
    assert 0 < state["latency"]["p50"] <= state["latency"]["p99"]
    assert max(state["reached"]) <= state["nodes"]
    moves = [abs(mover["after"] - mover["before"]) for mover in state["movers"]]
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 0.05
    assert state["verification"]["ok"] is True
    assert state["verification"]["max_difference"] <= state["verification"]["bound"]


def test_the_feed_sends_the_state(demo: Session) -> None:
    with closing(HTTPConnection(*demo.address, timeout=PATIENCE)) as connection:
        connection.request("GET", "/demo/feed")
        answer = connection.getresponse()
        assert answer.headers.get_content_type() == "text/event-stream"
        line = answer.readline()
    assert line.startswith(b"data: ")
    assert json.loads(line[6:])["seq"] == demo.runtime.seq


def test_a_member_comes_with_past_and_raters(demo: Session) -> None:
    rated = int(demo.ratings.dst[demo.ratings.cutoff + REPLAYED - 1])
    member = json.loads(ask(demo, f"/demo/members/{rated}")[2])
    received = demo.ratings.dst == rated
    assert member["received"] == received.sum() == len(member["ratings"])
    assert member["negative"] == (demo.ratings.rating[received] < 0).sum()
    assert member["risk"] == member["history"][-1][1]
    newest = member["raters"][0]
    assert newest["id"] == demo.ratings.src[-1]
    assert newest["rating"] == demo.ratings.rating[-1]
    assert newest["effect"] == pytest.approx(member["risk"] - risk_without_the_last(demo, rated), abs=1e-6)


def risk_without_the_last(demo: Session, member: int) -> float:
    """What the model says of a network in which the last rating was never given."""
    network = demo.ratings.first(len(demo.ratings) - 1)
    everything = Ratings(network.src, network.dst, network.rating, network.time, len(network))
    graph, _ = session.graph_at_cutoff(everything)
    return float(session.start_engine(graph).predict(member)[0, 0])


def test_a_stranger_is_not_found(demo: Session) -> None:
    assert ask(demo, "/demo/members/999999")[0] == 404


def test_speed_and_pause_are_the_visitors(demo: Session) -> None:
    assert ask(demo, "/demo/replay", {"speed": 12.5, "paused": True})[0] == 200
    assert (demo.replay.speed, demo.replay.paused) == (12.5, True)
    assert ask(demo, "/demo/replay", {"speed": "unlimited", "paused": False})[0] == 200
    assert (demo.replay.speed, demo.replay.paused) == (None, False)
    assert ask(demo, "/demo/replay", {"speed": 0})[0] == 400
    assert ask(demo, "/demo/replay", {"speed": "fast"})[0] == 400
    assert demo.replay.speed is None


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with serving.bind("127.0.0.1", port) as listener:
            assert listener.getsockname()[1] not in (0, port)


def test_a_replay_that_the_server_refuses_ends_with_the_reason(tmp_path: Path) -> None:
    with open_session(tmp_path, "127.0.0.1", 0, speed=None, ratings=some_ratings()) as opened:
        member = next(
            rater for rater in opened.ratings.src[opened.ratings.cutoff :] if rater in opened.standings
        )
        opened.runtime.wait(opened.runtime.append(Events().remove_nodes(member)))
        opened.replay.start()
        opened.replay.join()
        assert "but answered 409" in str(opened.replay.error)
        assert str(member) in str(opened.replay.error)
        assert not opened.done


def test_a_speed_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="speed must be above 0, in ratings a second, got 0"):
        run(headless=True, speed=0)


def test_an_interrupted_run_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(show, "replay", interrupt)
    monkeypatch.setattr(serving, "load", some_ratings)
    assert run(headless=True) == 130
    assert run(port=0, browser=False) == 0
    assert "Stopped." in capsys.readouterr().out
