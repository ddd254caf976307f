"""Sampling workers that keep samples alone: exact where each edge is added once, and what they do not know
where one is removed or added again."""

import random
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import livegnn as lg
from livegnn.presampling import Presampler
from livegnn.workers import WorkerPlan
from worker_cluster import Cluster, as_sets, running

NODES = 12
PAYS = ("node", "pays", "node")
SCHEMA = lg.Schema({"node": 1}, {PAYS: lg.EdgeSchema(weighted=True, timed=True)})


@pytest.mark.parametrize("by", ["uniform", "weight", "latest"])
def test_samples_are_exact_where_each_edge_is_added_once(by: str, tmp_path: Path) -> None:
    rng = random.Random(7)
    query = lg.Query("node").hop(PAYS, 3, by=by).hop(PAYS, 2, by=by, direction="in")
    view = Presampler(lg.Graph(SCHEMA), query, seed=3)
    with running(tmp_path, view) as runtime, ExitStack() as opened:
        cluster = Cluster(tmp_path, WorkerPlan(SCHEMA, query, 2, 1, seed=3, keep_edges=False), rng)
        opened.callback(cluster.close)
        seq = runtime.append(lg.Events().add_nodes(np.arange(NODES), np.ones((NODES, 1))))
        edges = [(src, dst) for src in range(NODES) for dst in range(NODES)]
        rng.shuffle(edges)
        for begin in range(0, len(edges), 9):
            src, dst = np.array(edges[begin : begin + 9]).T
            weight = [rng.choice([-1.0, 0.0, 1e-20, 1.0, 3.0]) for _ in src]
            time = [rng.random() for _ in src]
            seq = runtime.append(lg.Events().add_edges(src, dst, weight=weight, time=time, edge_type=PAYS))
            cluster.go_on()
        runtime.wait(seq)
        cluster.settle()
        for node in range(NODES):
            assert as_sets(cluster.serving[0, 0].sample([node])) == as_sets(view.sample([node]))


def add(to: int, weight: float, time: float) -> lg.Events:
    return lg.Events().add_edges([0], [to], weight=[weight], time=[time], edge_type=PAYS)


@pytest.mark.parametrize(
    ("again", "exact", "found"),
    [
        (lg.Events().remove_edges([0], [1], edge_type=PAYS), [0, 2], [0]),
        (add(1, 1e-20, 6.0), [0, 2], [0, 1]),
        (add(1, 0.0, 6.0), [0, 2], [0]),
        (add(2, 1e28, 4.0), [0, 1], [0, 2]),  # late: the graph passes it over
    ],
    ids=["removed", "lighter", "of no weight", "late"],
)
def test_what_is_not_kept_is_not_known(
    again: lg.Events, exact: list[int], found: list[int], tmp_path: Path
) -> None:
    """Each row of the table in docs/workers.md: with whole lists, and without."""
    query = lg.Query("node").hop(PAYS, 1, by="weight")
    for keep_edges, expected in ((True, exact), (False, found)):
        folder = tmp_path / str(keep_edges)
        folder.mkdir()
        with running(folder, Presampler(lg.Graph(SCHEMA), query)) as runtime, ExitStack() as opened:
            cluster = Cluster(folder, WorkerPlan(SCHEMA, query, keep_edges=keep_edges), random.Random(1))
            opened.callback(cluster.close)
            for events in (
                lg.Events().add_nodes(np.arange(3), np.ones((3, 1))),
                add(1, 1e20, 5.0),
                add(2, 1.0, 5.0),
                again,
            ):
                runtime.wait(runtime.append(events))
            cluster.settle()
            assert sorted(cluster.serving[0, 0].sample([0]).node["node"].tolist()) == expected
