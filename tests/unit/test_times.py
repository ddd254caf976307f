"""Times that do not become another time: each entry refuses what events refuse, and rounds nothing."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

import livegnn as lg
from livegnn import arguments
from livegnn.errors import InputError
from livegnn.query import Query
from livegnn.sampling import sample_neighbors, sample_query, sample_subgraph
from livegnn.server.bodies import parse_records
from livegnn.training import LinkLoader, NodeLoader

SECOND = 10**9
NOW = 1_700_000_000 * SECOND + 123  # nanoseconds, between two numbers of float64


def timed() -> lg.Graph:
    """1 -> 0 at time 100; edges live for a year."""
    return lg.Graph.from_edges([1, 0], [0, 1], time=[100, 100], num_nodes=2, time_to_live=3e7)


def as_pyg(time: object) -> Data:
    data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[1], [0]]))
    data.edge_time = time if isinstance(time, torch.Tensor) else np.asarray([time])
    return data


def as_hetero(time: object) -> HeteroData:
    data = HeteroData(node={"x": torch.zeros(3, 1)})
    data["node", "to", "node"].edge_index = torch.tensor([[1], [0]])
    data["node", "to", "node"].time = time if isinstance(time, torch.Tensor) else np.asarray([time])
    return data


RECORD = {"event": "add_edge", "src": 1, "dst": 0}
QUERY = Query("node").hop(("node", "to", "node"), 1)

# Whatever takes a time takes it for one seed, or one edge.
ENTRIES: dict[str, Callable[[object], object]] = {
    "Events.add_edges": lambda t: lg.Events().add_edges([1], [0], time=[t]).check(),
    "Events.add_edges of one": lambda t: lg.Events().add_edges(1, 0, time=t).check(),
    "Events.from_records": lambda t: lg.Events.from_records([{**RECORD, "time": t}]).check(),
    "Graph.from_edges": lambda t: lg.Graph.from_edges([1], [0], time=[t]),
    "Graph.from_pyg, edge_time": lambda t: lg.Graph.from_pyg(as_pyg(t)),
    "Graph.from_pyg, time of a type": lambda t: lg.Graph.from_pyg(as_hetero(t)),
    "Graph.expired": lambda t: timed().expired(t),
    "sample_neighbors": lambda t: sample_neighbors(timed(), [0], 1, until=t),
    "sample_neighbors of each": lambda t: sample_neighbors(timed(), [0], 1, until=[t]),
    "sample_subgraph": lambda t: sample_subgraph(timed(), [0], [1], until=t),
    "sample_subgraph of each": lambda t: sample_subgraph(timed(), [0], [1], until=[t], disjoint=True),
    "sample_subgraph by type": lambda t: sample_subgraph(
        timed(), {"node": [0]}, [1], until={"node": [t]}, disjoint=True
    ),
    "sample_query": lambda t: sample_query(timed(), [0], QUERY, until=t),
    "NodeLoader": lambda t: list(NodeLoader(timed(), [1], [0], input_time=[t])),
    "LinkLoader": lambda t: list(LinkLoader(timed(), [1], [[1], [0]], edge_label_time=[t])),
}  # fmt: skip

NOT_TIMES = {
    "a date": np.datetime64("2024-01-01"),
    "a date of Python": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    "a duration": np.timedelta64(5, "s"),
    "a duration of Python": dt.timedelta(seconds=5),
    "a boolean": True,
    "a boolean of NumPy": np.True_,
    "text": "100",
    "bytes": b"100",
    "complex": 1j,
    "a fraction": Fraction(1, 3),
    "a decimal": Decimal(1),
    "NaN": float("nan"),
    "nanoseconds": NOW,
    "nanoseconds of NumPy": np.int64(NOW),
    "a number past 2^63": np.uint64(2**63 + 1),
    "an integer past 2^64": 2**64 + 1,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("kind", NOT_TIMES)
def test_what_is_no_time_is_refused_at_each_entry(entry, kind):
    with pytest.raises(InputError):
        ENTRIES[entry](NOT_TIMES[kind])


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize(
    "time",
    [
        100, 100.5, np.float32(100), np.int8(100), np.uint64(100), 2**53, -(2**53), NOW - NOW % 256, 2**62,
        np.uint64(2**63), 1e300,
    ],
)  # fmt: skip
def test_what_float64_holds_is_taken_at_each_entry(entry, time):
    if entry == "Events.from_records" and isinstance(time, np.generic):
        time = time.item()  # records are JSON
    ENTRIES[entry](time)


@pytest.mark.parametrize("entry", [name for name in ENTRIES if "from_pyg" in name])
@pytest.mark.parametrize("time", [torch.tensor([True]), torch.tensor([NOW]), torch.tensor([1j])])
def test_tensors_that_are_no_times_are_refused(entry, time):
    with pytest.raises(InputError):
        ENTRIES[entry](time)


def in_json(time: str) -> lg.Events:
    return lg.Events.from_json_lines(f'{{"event": "add_edge", "src": 1, "dst": 0, "time": {time}}}')


def in_body(time: str) -> lg.Events:
    body = f'{{"events": [{{"event": "add_edge", "src": 1, "dst": 0, "time": {time}}}]}}'.encode()
    return lg.Events.from_records(parse_records(body, "application/json", 2**20))


def in_arrow(time: pa.Array) -> lg.Events:
    return lg.Events.from_arrow(pa.table({"event": ["add_edge"], "src": [1], "dst": [0], "time": time}))


@pytest.mark.parametrize("entry", [in_json, in_body])
@pytest.mark.parametrize(
    "time",
    [
        "true", '"100"', "[100]", str(NOW), f"-{NOW}", str(2**64 + 1), str(-(2**63) - 1), str(10**40),
        "1e400",
    ],
)  # fmt: skip
def test_what_is_no_time_in_json_is_refused(entry, time):
    with pytest.raises(InputError):
        entry(time).check()


@pytest.mark.parametrize(
    "time",
    [
        pa.array([NOW]), pa.array([-NOW]), pa.array([2**63 + 1], pa.uint64()), pa.array([True]),
        pa.array(["100"]), pa.array([100], pa.timestamp("s")), pa.array([100], pa.date32()),
        pa.array([5], pa.duration("s")), pa.array([Decimal(1)]), pa.array([float("nan")]),
    ],
    ids=lambda time: str(time.type),
)  # fmt: skip
def test_what_is_no_time_in_arrow_is_refused(time):
    with pytest.raises(InputError):
        in_arrow(time).check()


@pytest.mark.parametrize("time", [100, 2**53, -(2**53), NOW - NOW % 256, 2**62])
def test_whole_times_in_json_and_arrow_are_exact(time):
    entries = (
        in_json(str(time)),
        in_body(str(time)),
        in_arrow(pa.array([time])),
        in_arrow(pa.array([1.0 * time])),
    )
    for events in entries:
        assert events.chunks[0].time.tolist() == [time]


@pytest.mark.parametrize("time", [2**63, 2**64, -(2**64), 2**200])
def test_integers_of_more_than_64_bits_in_json_are_exact(time):
    for entry in (in_json, in_body):
        for text in (str(time), str(float(time))):
            assert entry(text).chunks[0].time.tolist() == [time]


@given(st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=4))
@example([2**53 + 1])
@example([2**63 - 1])
@example([-(2**63)])
@example([2**64 - 1])
@example([2**54 - 1, 0])
def test_whole_numbers_are_exact_or_refused(times):
    exact = all(int(float(time)) == time for time in times)
    for given_times in (times, tuple(times), np.array(times, dtype=object), [*times, 0.5]):
        if exact:
            assert [int(t) for t in arguments.as_times(given_times)[: len(times)].tolist()] == times
        else:
            with pytest.raises(InputError, match=r"float64 holds exactly|must be numbers"):
                arguments.as_times(given_times)


def test_a_seed_sees_no_later_edge_and_a_late_event_overwrites_nothing():
    """Nanoseconds, which float64 rounded to 256 of them: an edge 100 of them later was seen."""
    with pytest.raises(InputError, match=f"got {NOW}: count in a larger unit, microseconds"):
        lg.Graph.from_edges([1], [0], time=[NOW])
    micro = NOW // 1000
    graph = lg.Graph.from_edges([1, 2], [0, 0], time=[micro, micro + 1], weight=[1, 1])
    (batch,) = NodeLoader(graph, [-1], [0], input_time=[micro])
    assert batch.n_id.tolist() == [0, 1]
    graph.apply(lg.Events().add_edges(2, 0, weight=9, time=micro))
    assert sorted(graph.neighbors(0).weight.tolist()) == [1, 1]


def test_a_refusal_of_a_date_says_what_to_write():
    dates = np.array(["2024-01-01", "2024-01-02"], "datetime64[D]")
    with pytest.raises(InputError, match="say in which unit dates are"):
        lg.Events().add_edges([0, 1], [1, 0], time=dates)
    seconds = np.asarray(dates, "datetime64[s]").astype(np.int64)
    assert lg.Events().add_edges([0, 1], [1, 0], time=seconds).chunks[0].time.tolist() == seconds.tolist()
