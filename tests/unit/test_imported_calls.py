"""An import takes what a call of the module computes, with its own hooks and its own ``__call__``."""

import numpy as np
import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn import Engine, Graph, Model, ModelError

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
SOURCE, TARGET = np.array([0, 1, 2, 3, 0]), np.array([2, 2, 3, 0, 1])


def before(conv: nn.Module) -> nn.Module:
    conv.register_forward_pre_hook(lambda module, given: (given[0] + 1, *given[1:]))
    return Placed(conv)


def before_with_keywords(conv: nn.Module) -> nn.Module:
    def more(module, given, keywords):
        return given, {**keywords, "x": 2 * keywords["x"]}

    conv.register_forward_pre_hook(more, with_kwargs=True)
    return conv


def after(conv: nn.Module) -> nn.Module:
    conv.register_forward_hook(lambda module, given, result: 3.5 * result)
    return conv


def own_call(conv: nn.Module) -> nn.Module:
    class Scaled(type(conv)):
        def __call__(self, *args, **kwargs):
            return super().__call__(*args, **kwargs) - 2

    conv.__class__ = Scaled
    return conv


def own_arguments(conv: nn.Module) -> nn.Module:
    class Reordered(type(conv)):
        def __call__(self, edge_index, x):
            return super().__call__(x, edge_index).abs()

    conv.__class__ = Reordered
    return conv


class Placed(nn.Module):
    """Calls a layer with arguments by their places, and has a hook of its own."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.register_forward_hook(
            lambda module, given, result: result + given[0][:, :1] if given else -result
        )

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


@pytest.mark.parametrize("change", [before, before_with_keywords, after, own_call, own_arguments])
def test_a_model_computes_what_a_call_of_its_module_does(change):
    torch.manual_seed(0)
    module = change(pyg.SAGEConv(3, 2)).eval()
    model = Model.from_pyg(module)
    expected = module(x=torch.from_numpy(X), edge_index=torch.from_numpy(np.stack([SOURCE, TARGET])))
    got = Engine(Graph.from_edges(SOURCE, TARGET, x=X), model).predict(np.arange(4))
    np.testing.assert_allclose(got, expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_hooks_of_a_wrapper_are_refused():
    wrapped = nn.DataParallel(pyg.SAGEConv(3, 2))
    wrapped.register_forward_hook(lambda module, given, result: 2 * result)
    with pytest.raises(ModelError, match=r"DataParallel has hooks.*on the module that it wraps"):
        Model.from_pyg(wrapped)
