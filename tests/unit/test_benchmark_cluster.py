"""The simulation of benchmarks/cluster.py: exact predictions, all clocks read, and the rows that RC pulls."""

from __future__ import annotations

import numpy as np
import torch

import livegnn as lg
from cluster import NETWORKS, Recomputation, Simulation, ThreeLayers, events_of, owners_by_metis
from graphs import make, make_stream


def test_parts_that_run_in_turns_predict_as_one_engine():
    stream = make_stream(make("communities-tiny", symmetric=True), 90)
    graph, parts = stream.graph, 3
    torch.manual_seed(0)
    model = lg.Model.from_pyg(ThreeLayers(graph.num_features, graph.num_classes).eval())
    owners = owners_by_metis(stream, parts)
    assert np.bincount(owners, minlength=parts).max() < 1.06 * graph.num_nodes / parts
    whole, divided = Simulation(graph, model, None), Simulation(graph, model, owners)
    recomputation = Recomputation(stream)
    first = lg.Events().add_nodes(np.arange(graph.num_nodes), graph.x)
    first.add_edges(stream.start_src, stream.start_dst)
    whole.apply(first, trusted=True)
    divided.apply(first, trusted=True)
    for batch in stream.batches(15, 4):
        events = events_of(batch)
        one, many = whole.apply(events), divided.apply(events)
        recomputation.update(batch)
        ids = np.arange(graph.num_nodes)
        assert divided.predict(ids).tobytes() == whole.predict(ids).tobytes()
        assert len(one.segments[0]) == 1
        # A segment before each round, one before the vote, and the commit.
        assert [len(each) for each in many.segments] == [len(many.sent) + 2] * parts
        assert all(not np.trace(sent) for sent in many.sent)
        assert one.transfer(NETWORKS[0]) == 0 < many.transfer(NETWORKS[0]) < many.transfer(NETWORKS[1])
        assert recomputation.rows(batch, owners) == rows_pulled(recomputation, batch, owners)
    divided.close()


def rows_pulled(recomputation: Recomputation, batch, owners) -> int:
    """The same node by node."""
    lists = recomputation.lists

    def neighbors(node):
        return set(lists.neighbors(np.array([node]))[1].tolist())

    targets = {*batch.add_src, *batch.add_dst, *batch.remove_src, *batch.remove_dst}
    affected = {*targets, *batch.ids, *(far for node in batch.ids for far in neighbors(node))}
    pulled = 0
    for _ in range(2):
        affected = {*targets, *affected, *(far for node in affected for far in neighbors(node))}
        read = {(owners[node], near) for node in affected for near in neighbors(node)}
        pulled += sum(owners[near] != reader for reader, near in read)
    return pulled
