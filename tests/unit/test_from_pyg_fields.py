"""Fields of PyG's data: taken, left out as what no prediction depends on, or refused by name."""

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_torch_csr_tensor

import livegnn as lg
from livegnn.errors import InputError

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
TYPE = ("node", "to", "node")


def data(**fields: object) -> Data:
    """Five nodes, four edges."""
    return Data(x=torch.arange(5.0)[:, None], edge_index=EDGES, **fields)


def hetero(part: str, **fields: object) -> HeteroData:
    of = HeteroData(node={"x": torch.arange(5.0)[:, None]})
    of[TYPE].edge_index = EDGES
    store = of if part == "graph" else of["node"] if part == "nodes" else of[TYPE]
    for name, value in fields.items():
        store[name] = value
    return of


USUAL = {
    "y": torch.arange(5), "train_mask": torch.ones(5, dtype=torch.bool), "val_mask": torch.ones(5, 3) > 0,
    "stopping_mask": torch.ones(5) > 0, "train_idx": torch.arange(2), "train_y": torch.arange(2),
    "edge_label": torch.ones(4), "edge_label_index": EDGES, "edge_label_time": torch.ones(4),
    "pos_edge_label_index": EDGES, "neg_edge_label": torch.ones(2), "n_id": torch.arange(5),
    "e_id": torch.arange(4),
    "input_id": torch.arange(2), "batch_size": 2, "num_sampled_nodes": [2, 3], "name": "karate",
    "names": ["a", "b", "c", "d", "e"], "num_classes": 3, "mapping": {"a": 1}, "nothing": None,
}  # fmt: skip
NOT_TAKEN = {
    "edge_type": torch.tensor([0, 1, 0, 1]),
    "node_type": torch.tensor([0, 1, 0, 1, 0]),
    "pos": torch.zeros(5, 3),
    "z": torch.arange(5),
    "batch": torch.zeros(5, dtype=torch.long),
    "node_year": np.arange(5),
    "u": torch.zeros(1, 4),
    "edge_length": torch.ones(4),
    "face": torch.zeros(3, 1, dtype=torch.long),
    "adj_t": to_torch_csr_tensor(EDGES),
    "rows": [1, 2, 3],
    "other": Data(),
}


@pytest.mark.parametrize("name", USUAL)
@pytest.mark.parametrize("part", ["data", "nodes", "edges", "graph"])
def test_labels_masks_and_notes_are_left_out(part, name):
    given = data(**{name: USUAL[name]}) if part == "data" else hetero(part, **{name: USUAL[name]})
    graph = lg.Graph.from_pyg(given)
    assert (graph.num_nodes(), graph.num_edges()) == (5, 4)
    assert (name in given) or USUAL[name] is None, "the data are the caller's"


@pytest.mark.parametrize("name", NOT_TAKEN)
@pytest.mark.parametrize("part", ["data", "nodes", "edges", "graph"])
def test_what_a_prediction_may_depend_on_is_named(part, name):
    given = data(**{name: NOT_TAKEN[name]}) if part == "data" else hetero(part, **{name: NOT_TAKEN[name]})
    with pytest.raises(InputError, match=rf"^'{name}'.* is not taken .*leave_out=\['{name}'\]"):
        lg.Graph.from_pyg(given)
    assert lg.Graph.from_pyg(given, leave_out=[name]).num_edges() == 4
    assert any(name in store for store in given.stores)
    for store in given.stores:
        store.pop(name, None)
    assert lg.Graph.from_pyg(given).num_edges() == 4


def test_times_are_those_of_edges_or_refused():
    for given in (data(edge_time=torch.arange(4)), data(time=torch.arange(4)),
                  hetero("edges", time=torch.arange(4)),
                  hetero("edges", edge_time=torch.arange(4))):  # fmt: skip
        assert lg.Graph.from_pyg(given).neighbors(3).time.tolist() == [2]
    for given in (
        data(time=torch.arange(5)),
        hetero("nodes", time=torch.arange(5)),
        data(time=torch.arange(7)),
    ):
        with pytest.raises(
            InputError, match=r"nodes have no times of their own; times of the edges .* edge_time"
        ):
            lg.Graph.from_pyg(given)
        assert lg.Graph.from_pyg(given, leave_out=["time"]).neighbors(3).time is None
    with pytest.raises(InputError, match="must not both be there"):
        lg.Graph.from_pyg(data(time=torch.arange(4), edge_time=torch.arange(4)))
    as_many = Data(x=torch.zeros(4, 1), edge_index=EDGES, time=torch.arange(4))
    with pytest.raises(InputError, match="taken from edge_time"):
        lg.Graph.from_pyg(as_many)
    as_many.edge_time = as_many.time
    del as_many.time
    assert lg.Graph.from_pyg(as_many).neighbors(3).time.tolist() == [2]


def test_what_refusals_say_works():
    relations = data(edge_type=torch.tensor([0, 1, 0, 1])).to_heterogeneous(
        edge_type=torch.tensor([0, 1, 0, 1])
    )
    assert len(lg.Graph.from_pyg(relations).schema.edge_types) == 2
    kinds = torch.tensor([0, 1, 0, 1, 0])
    typed = data().to_heterogeneous(node_type=kinds, edge_type=torch.tensor([0, 1, 0, 1]))
    assert len(lg.Graph.from_pyg(typed).schema.node_types) == 2
    sparse = T.ToSparseTensor(layout=torch.sparse_csr)(data())
    with pytest.raises(InputError, match="edges are taken from edge_index"):
        lg.Graph.from_pyg(sparse)


def test_leave_out_names_fields_of_the_data():
    with pytest.raises(InputError, match="leave_out must name fields of the data, got 'poss'"):
        lg.Graph.from_pyg(data(pos=torch.zeros(5, 2)), leave_out=["poss"])
    with pytest.raises(InputError, match="leave_out must be a list of names"):
        lg.Graph.from_pyg(data(), leave_out="pos")
    plain = lg.Graph.from_pyg(data(edge_weight=torch.ones(4)), leave_out=["edge_weight"])
    assert not plain.schema.edge_types[TYPE].weighted


def test_a_batch_of_pygs_loader_makes_a_graph():
    batch = data(y=torch.arange(5), n_id=torch.arange(5), e_id=torch.arange(4), input_id=torch.arange(2),
                 batch_size=2,
                 num_sampled_nodes=[2, 3], num_sampled_edges=[4])  # fmt: skip
    assert lg.Graph.from_pyg(batch).num_nodes() == 5


def test_sums_of_weights_count_on_or_are_refused():
    """At 2^24 a count in float32 stood still, without a word."""
    graph = lg.Graph.from_edges([0], [1], weight=[2**24 - 1], parallel="sum")
    graph.apply(lg.Events().add_edges(0, 1))
    assert graph.neighbors(1).weight.tolist() == [2**24]
    for weight in (None, 1, 3, 0.5):
        with pytest.raises(
            InputError, match=r"multiple of 2, and add them as one, for the edge 0 -> 1 of type"
        ):
            graph.apply(lg.Events().add_edges(0, 1, weight=weight))
    graph.apply(lg.Events().add_edges(0, 1, weight=2))
    assert graph.neighbors(1).weight.tolist() == [2**24 + 2]
    with pytest.raises(InputError, match="must not be lost in rounding"):
        lg.Graph.from_edges([0, 0], [1, 1], weight=[2**24, 1], parallel="sum")
