"""What is refused costs little, and is what a loop refuses that applies each entry by itself."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import livegnn.log.sqlite.reader
from gate import draws
from livegnn import Engine, Events, Graph, InputError
from livegnn.events.builder import cut
from livegnn.graph import GraphDelta, View
from livegnn.log import Batch, Rejection, Write
from livegnn.log.sqlite import SqliteLog
from livegnn.log.sqlite.entry_rows import Row
from livegnn.runtime import AheadPolicy, Runtime, refusals, replay
from livegnn.runtime.future_events import Ahead
from livegnn.runtime.refusals import find_cause
from livegnn.runtime.sifting import MOST_REFUSED
from livegnn.server import create_app
from streams import WIDTH, make_graph, make_model

NODES = range(8)
ENTRIES = 1000


class CountingLog(SqliteLog):
    """Counts batches."""

    recorded = 0

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        self.recorded += 1
        super().record_batch(batch, *rejections)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CountingLog]:
    with closing(CountingLog(tmp_path / "events.db")) as log:
        yield log


class Drawn(NamedTuple):
    """An event of a node, or of the edge from it to another."""

    kind: str
    node: int
    other: int = 0
    time: float = 0.0


def named(nodes: Iterable[int], text: bool) -> list[str] | list[int]:
    return [f"n{node}" for node in nodes] if text else list(nodes)


def small_graph(auto_add: bool, text: bool) -> Graph:
    count = len(NODES) // 2
    graph = Graph.from_edges(
        named(range(count - 1), text),
        named(range(1, count), text),
        time=np.zeros(count - 1),
        x=np.ones((count, 1)),
        ids=named(range(count), text),
    )
    if auto_add:
        livegnn.graph.auto_add_nodes(graph.core, ["node"])
    return graph


node = st.sampled_from(NODES)
event = st.one_of(
    st.builds(Drawn, st.just("add_edges"), node, node, st.sampled_from([1.0, 2.0, 30.0])),
    st.builds(Drawn, st.just("remove_edges"), node, node),
    st.builds(Drawn, st.just("add_nodes"), node),
    st.builds(Drawn, st.just("remove_nodes"), node),
    st.builds(Drawn, st.just("set_features"), node),
)


def to_events(drawn: Iterable[Drawn], text: bool) -> Events:
    events = Events()
    for one in drawn:
        ids, others = named([one.node], text), named([one.other], text)
        if one.kind == "add_edges":
            events.add_edges(ids, others, time=one.time)
        elif one.kind == "remove_edges":
            events.remove_edges(ids, others)
        elif one.kind == "set_features":
            events.set_features(ids, np.full((1, 1), float(one.node)))
        else:
            getattr(events, one.kind)(ids)
    return events


def content(graph: Graph) -> list[object]:
    ids = np.sort(graph.ids())
    return [
        (id_, graph.features([id_]).tolist(), sorted(graph.neighbors(id_, direction="out").ids.tolist()))
        for id_ in ids.tolist()
    ]


@settings(max_examples=draws(25, 2000))
@example(  # the reason is another one once a node is removed
    entries=[[Drawn("set_features", 6)], [Drawn("remove_nodes", 2)], [Drawn("add_edges", 2, 5, 1.0)]],
    auto_add=False,
    ahead=False,
    text=True,
)
@example(
    entries=[
        [Drawn("remove_edges", 3, 3), Drawn("remove_nodes", 2)],
        [Drawn("remove_edges", 2, 5), Drawn("add_nodes", 4), Drawn("remove_edges", 4, 1)],
        [Drawn("add_nodes", 4), Drawn("remove_edges", 6, 0)],
    ],
    auto_add=False,
    ahead=True,
    text=True,
)
@given(
    entries=st.lists(st.lists(event, min_size=1, max_size=3), min_size=1, max_size=12),
    auto_add=st.booleans(),
    ahead=st.booleans(),
    text=st.booleans(),
)
def test_the_same_entries_are_refused_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[list[Drawn]],
    auto_add: bool,
    ahead: bool,
    text: bool,
) -> None:
    policy, found = AheadPolicy(10.0) if ahead else None, []
    for at_once in (1, 4096):
        folder = tmp_path_factory.mktemp("log")
        with closing(SqliteLog(folder / "events.db")) as log:
            graph = small_graph(auto_add, text)
            runtime = Runtime(log, graph, ahead=policy, expiry=None, max_batch_events=at_once)
            runtime.append_all([to_events(entry, text) for entry in entries])
            while runtime.step():
                pass
            again = small_graph(auto_add, text)
            replay(log, again)
            assert content(again) == content(graph)
            refused = [
                (one.seq, one.error, one.message if one.error == "UnknownNodeError" else "")
                for one in log.rejections()
            ]
            counts = runtime.statistics.rejected_entries
            assert counts.count == len(refused)
            assert counts.total + runtime.statistics.batch_events.total == log.last_seq()
            found.append((refused, content(graph)))
    assert found[0] == found[1]


@pytest.mark.parametrize("pattern", ["doomed", "each second", "with new nodes"])
def test_a_refused_entry_costs_no_batch_of_its_own(log: CountingLog, pattern: str) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    good = [Events().add_edges(1, 2), Events().remove_edges(1, 2)]
    if pattern == "with new nodes":
        good = [Events().add_nodes(1000 + at).add_edges(1000 + at, 1) for at in range(ENTRIES)]
    bad = Events().add_edges(1, 999)
    entries = [bad if pattern == "doomed" or at % 2 else good[at // 2 % len(good)] for at in range(ENTRIES)]
    runtime.append_all(entries)
    while runtime.step():
        pass
    assert len(log.rejections()) == (ENTRIES if pattern == "doomed" else ENTRIES // 2)
    assert log.recorded <= ENTRIES // 100
    assert runtime.engine.verify().ok


GOOD = {
    "edges": Events().add_edges(1, 2, weight=2.0),
    "features": Events().set_features([3], np.ones((1, WIDTH))),
    "nodes": Events().add_nodes([50]),
}
BAD = {
    "a source": Events().add_edges(999, 1, weight=2.0),
    "a target": Events().add_edges(1, 999),
    "both ends": Events().add_edges(998, 999),
    "a removal": Events().remove_edges(1, 999),
    "features": Events().set_features([999], np.ones((1, WIDTH))),
    "a node": Events().remove_nodes([999]),
}


@pytest.mark.parametrize("bad", BAD)
def test_who_names_nobody_is_found_without_reading_each_entry(
    log: CountingLog, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    alone = []

    def note(events: Events, graph: Graph, ahead: Ahead) -> InputError | None:
        alone.append(events)
        return find_cause(events, graph, ahead)

    graph = make_graph()
    expected = find_cause(BAD[bad], graph, Ahead(None))
    monkeypatch.setattr(refusals, "find_cause", note)
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.append_all([one for _ in range(400) for good in GOOD.values() for one in (good, BAD[bad])])
    while runtime.step():
        pass
    assert alone == []
    assert log.recorded <= 1200 // MOST_REFUSED + 2
    assert log.rejections() == [
        Rejection(seq, "UnknownNodeError", str(expected)) for seq in range(2, log.last_seq() + 1, 2)
    ]
    assert runtime.engine.verify().ok


def test_a_page_of_rejections_reads_each_row_once(log: CountingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph)
    runtime.append_all([Events().add_edges(1, 999)] * ENTRIES)
    while runtime.step():
        pass
    decoded = []

    class Noting(Row):
        def decode(self) -> object:  # type: ignore[override]
            decoded.append(self.seq)
            return super().decode()

    monkeypatch.setattr(livegnn.log.sqlite.reader, "Row", Noting)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(runtime))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/v1/rejections?limit=500&after=100")

    found = asyncio.run(ask()).json()["rejections"]
    assert [one["seq"] for one in found] == list(range(101, 601))
    assert all(one["events"] == [{"event": "add_edge", "src": 1, "dst": 999}] for one in found)
    assert len(decoded) == 1


class Picky(View):
    """Refuses batches that set features."""

    name = "picky"

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        graph.attach(self)

    def prepare(self, change: GraphDelta) -> None:
        if any(chunk.kind == "set_features" for chunk in change.events.chunks):
            raise InputError("no features, please")


def test_a_view_that_refuses_an_entry_of_a_run_is_asked_one_by_one(log: CountingLog) -> None:
    graph = make_graph()
    runtime = Runtime(log, graph, Picky(graph))
    features = Events().set_features(3, np.zeros((1, graph.features([3]).shape[1])))
    runtime.append_all([Events().add_edges(1, 999), features, Events().add_edges(1, 2)])
    while runtime.step():
        pass
    assert [(one.seq, one.error) for one in log.rejections()] == [(1, "UnknownNodeError"), (2, "InputError")]
    assert 2 in graph.neighbors(1, direction="out").ids


def test_a_row_is_cut_into_entries_as_into_parts() -> None:
    rng = np.random.default_rng(4)
    events = Events()
    for at in range(40):
        ids = np.arange(int(rng.integers(1, 5)))
        events = events.add_nodes(ids) if at % 3 else events.remove_edges(ids, ids)
    events = Events.concatenate([events])
    for _ in range(20):
        ends = np.unique([*rng.integers(1, len(events) + 1, 12), len(events)]).tolist()
        expected = [events.between(*pair) for pair in itertools.pairwise([0, *ends])]
        assert list(cut(events, ends)) == expected
        write = Write(7, np.array(ends) + 7, events)
        assert [(one.seq - 7, one.events) for one in write.entries()] == list(
            zip(ends, expected, strict=True)
        )
