"""The peers of benchmarks/models.py: exact, as PyG's whole forward pass is; what they count as read."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from gate import EXPLORING
from graphs import make, make_stream
from models import (
    CONSTRAINED,
    KINDS,
    draw_groups,
    edges_only,
    events_of,
    make_engine,
    make_grouped_engine,
    typed,
)
from neighborhoods import (
    FEATURED,
    EmbeddingReuse,
    FullNeighborhood,
    GroupReuse,
    TwoLayers,
    edge_features,
    incremental_nodes,
    total,
)


@pytest.mark.parametrize(
    ("kind", "symmetric"),
    [
        (kind, bool(j))
        for i, kind in enumerate(KINDS)
        for j in range(2)
        if EXPLORING or (i + i // 3 + j) % 2 == 0
    ],
)
def test_both_peers_and_the_engine_equal_pyg(kind, symmetric):
    graph = make("tiny", symmetric=symmetric)
    stream = make_stream(graph, 90)
    torch.manual_seed(1)
    module = TwoLayers(kind, graph.num_features, 16, graph.num_classes).eval()
    given = (graph.x, stream.start_src, stream.start_dst, symmetric)
    full, reuse = (
        FullNeighborhood(copy.deepcopy(module), *given),
        EmbeddingReuse(copy.deepcopy(module), *given),
    )
    engine = make_engine(kind, module, stream, 1)
    alone = make_engine(kind, module, stream, 1)
    alone.native_engine.set_recompute(True)
    for batch in map(edges_only, stream.batches(15, 6)):
        reached, rows, read = full.apply(batch)
        again, reused, _ = reuse.apply(batch)
        for one in (engine, alone):
            one.apply(events_of(batch, kind))
        assert reached.tolist() == again.tolist()
        torch.testing.assert_close(reused, rows, rtol=1e-4, atol=1e-5)

        snapshot = engine.graph.snapshot()
        edge_index = next(iter(snapshot.edge_index.values()))
        attributes = ()
        if kind in FEATURED:
            attributes = (torch.from_numpy(edge_features(edge_index[0], edge_index[1])),)
        with torch.no_grad():
            expected = module(torch.from_numpy(graph.x), torch.from_numpy(edge_index), *attributes)
        torch.testing.assert_close(rows, expected[reached], rtol=1e-4, atol=1e-5)
        for one in (engine, alone):
            got = torch.from_numpy(one.predict(np.arange(graph.num_nodes)))
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)

        # Reusing more never reads more.
        assert engine.last_work.edges <= alone.last_work.edges <= total(read).edges
        assert incremental_nodes(full, batch, kind in CONSTRAINED) <= total(read).nodes


def test_the_means_of_groups_equal_those_of_affected_groups():
    graph = make("tiny")
    stream = make_stream(graph, 90)
    torch.manual_seed(1)
    module = TwoLayers("GraphSAGE", graph.num_features, 16, graph.num_classes).eval()
    groups = draw_groups(graph.num_nodes)
    reuse = EmbeddingReuse(copy.deepcopy(module), graph.x, stream.start_src, stream.start_dst, False)
    peer, engine = GroupReuse(reuse, groups), make_grouped_engine(module, stream, groups, 1)
    for batch in map(edges_only, stream.batches(15, 6)):
        affected, rows = peer.apply(batch)
        changed = engine.apply(typed(batch)).changed
        assert set(changed.tolist()) <= set(affected.tolist())
        torch.testing.assert_close(torch.from_numpy(engine.predict(affected)), rows, rtol=1e-4, atol=1e-5)
    assert len(affected)
