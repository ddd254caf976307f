"""RGATConv over edge types computes what PyG computes on numbered relations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.graph.snapshot import Snapshot
from livegnn.model import EdgeInput, Input, Model, reference
from livegnn.model.adapters.relational_attention import rgat_conv
from livegnn.model.adapters.tape import EdgeRows, Edges, Rows, Tape
from modules import fill

CHANNELS, EDGE_CHANNELS = 6, 3
RELATIONS = [("node", name, "node") for name in ("knows", "likes", "owes")]


def import_layer(layer: pyg.RGATConv, relations, features: bool) -> Model:
    tape = Tape("node", relations[0], False, lambda part, path, x: x)
    edge_inputs = {f"e{r}": EdgeInput(edge_type, EDGE_CHANNELS) for r, edge_type in enumerate(relations)}
    edge_rows = [EdgeRows(name, edges.edge_type) for name, edges in edge_inputs.items()]
    given = {"x": Rows("x"), "edge_index": Edges(), "edge_attr": edge_rows if features else None}
    out = rgat_conv(tape, layer, "conv", given, relations)
    assert tape.consumed == ["x"]
    widths = {"x": CHANNELS} | dict.fromkeys(edge_inputs, EDGE_CHANNELS)
    steps, tensors = tuple(tape.steps), tape._tensors(tape.steps, widths)
    inputs, layers = {"x": Input("node", CHANNELS)}, ("x", out.name)
    return Model(inputs, steps, tensors, out.name, layers, edge_inputs if features else {})


@given(
    seed=st.integers(0, 10_000),
    num_nodes=st.integers(1, 10),
    num_edges=st.integers(0, 20),
    num_relations=st.integers(1, 3),
    mechanism=st.sampled_from(["across-relation", "within-relation"]),
    mode=st.sampled_from(["additive-self-attention", "multiplicative-self-attention"]),
    heads=st.integers(1, 3),
    dim=st.integers(1, 2),
    concat=st.booleans(),
    features=st.booleans(),
    mod=st.sampled_from([None, "additive", "scaled", "f-scaled"]),
    bias=st.booleans(),
    shared=st.sampled_from([{}, {"num_bases": 2}, {"num_blocks": 2}]),
    slope=st.sampled_from([0.2, 0.5]),
)
def test_rgat_conv(
    seed,
    num_nodes,
    num_edges,
    num_relations,
    mechanism,
    mode,
    heads,
    dim,
    concat,
    features,
    mod,
    bias,
    shared,
    slope,
):
    layer = pyg.RGATConv(
        CHANNELS,
        4,
        num_relations,
        mod=mod,
        attention_mechanism=mechanism,
        attention_mode=mode,
        heads=heads,
        dim=1 if mode.startswith("additive") else dim,
        concat=concat,
        negative_slope=slope,
        edge_dim=EDGE_CHANNELS if features else None,
        bias=bias,
        **shared,
    )
    fill(layer, seed)
    relations = RELATIONS[:num_relations]
    model = import_layer(layer, relations, features)

    random = np.random.default_rng(seed)
    x = random.standard_normal((num_nodes, CHANNELS), dtype=np.float32)
    edges = [np.unique(random.integers(0, num_nodes, (2, num_edges)), axis=1) for _ in relations]
    attr = [random.standard_normal((e.shape[1], EDGE_CHANNELS), dtype=np.float32) for e in edges]
    snapshot = Snapshot(
        ids={"node": np.arange(num_nodes)},
        x={"node": x},
        edge_index=dict(zip(relations, edges, strict=True)),
        weight={r: np.ones(e.shape[1], dtype=np.float32) for r, e in zip(relations, edges, strict=True)},
        edge_attr=dict(zip(relations, attr, strict=True)),
    )
    numbers = np.concatenate([np.full(e.shape[1], r) for r, e in enumerate(edges)])
    with torch.no_grad():
        expected = layer.double()(
            torch.from_numpy(x).double(),
            torch.from_numpy(np.concatenate(edges, axis=1)),
            torch.from_numpy(numbers),
            torch.from_numpy(np.concatenate(attr)).double() if features else None,
        ).numpy()
    got = reference.compute(model, snapshot)[model.output]
    scale = max(1e-3, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * scale)


def test_a_softmax_across_relations_is_one_step():
    for mechanism, steps in (("across-relation", 1), ("within-relation", 3)):
        layer = pyg.RGATConv(CHANNELS, 4, 3, attention_mechanism=mechanism)
        model = import_layer(layer, RELATIONS, features=False)
        assert sum(step.op == "propagate" for step in model.steps) == steps
        assert model.edge_types == tuple(RELATIONS)


@pytest.mark.parametrize(
    ("settings", "features", "message"),
    [
        (
            {"mod": "f-additive"},
            False,
            "mod must be None, 'additive', 'scaled' or 'f-scaled', got 'f-additive'",
        ),
        ({"aggr": "mean"}, False, "aggr must be 'add' with attention, got 'mean'"),
        ({}, True, "without edge_attr, as its edge_dim is None"),
        ({"num_relations": 2}, False, "num_relations=2, so relations must be as many edge types, got 3"),
        ({"flow": "target_to_source"}, False, "flow must be 'source_to_target'"),
    ],
)
def test_what_cannot_be_imported_is_refused(settings, features, message):
    layer = pyg.RGATConv(CHANNELS, 4, **({"num_relations": 3} | settings))
    with pytest.raises(ModelError, match=message):
        import_layer(layer, RELATIONS, features)


def test_features_are_of_the_relations_edges():
    layer = pyg.RGATConv(CHANNELS, 4, 2, edge_dim=EDGE_CHANNELS)
    tape = Tape("node", RELATIONS[0], False, lambda part, path, x: x)
    given = {"x": Rows("x"), "edge_index": Edges()}
    for features, message in (
        (EdgeRows("e", RELATIONS[0]), "rows for each relation, got EdgeRows"),
        ([EdgeRows("e", RELATIONS[0])] * 2, "must be rows of the edges of"),
    ):
        with pytest.raises(ModelError, match=message):
            rgat_conv(tape, layer, "conv", given | {"edge_attr": features}, RELATIONS[:2])
