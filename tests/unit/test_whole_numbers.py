"""Whole numbers that float32 would round, such as times in seconds, are refused where a module takes them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg
from torch_geometric.data import Data

from livegnn import Engine, Graph, Model, ModelError

SOURCE, TARGET = np.array([0, 1, 2]), np.array([1, 2, 0])
BEGIN = 1_700_000_001
TIMES = np.array([[BEGIN], [BEGIN + 60], [BEGIN + 90]])


class Ages(nn.Module):
    """Reads times as they are, whole. begin: what it subtracts."""

    def __init__(self, begin: int) -> None:
        super().__init__()
        self.conv, self.begin = pyg.SAGEConv(1, 2), begin

    def forward(self, t, edge_index):
        return self.conv((t - self.begin).float() / 60, edge_index)


def test_data_with_whole_numbers_that_would_be_rounded_are_refused():
    data = Data(
        t=torch.from_numpy(TIMES), edge_index=torch.from_numpy(np.stack([SOURCE, TARGET])), num_nodes=3
    )
    with pytest.raises(ModelError, match=rf"Ages\.forward takes whole numbers, and t has .*{BEGIN}"):
        Model.from_pyg(Ages(BEGIN), data)
    data.t = data.t - BEGIN
    module = Ages(0).eval()
    model = Model.from_pyg(module, data)
    got = Engine(Graph.from_edges(SOURCE, TARGET, x=data.t.numpy()), model).predict(np.arange(3))
    expected = module(data.t, data.edge_index).detach()
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match=rf"the whole number -?{BEGIN} meets rows of a graph"):
        Model.from_pyg(Ages(BEGIN), data)
