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
    return conv


def before_by_place(conv: nn.Module) -> nn.Module:
    """Does nothing where it is given no arguments by place, as code that checks how many there are."""
    conv.register_forward_pre_hook(lambda module, given: (2 * given[0], *given[1:]))
    conv.register_forward_hook(lambda module, given, result: result + given[0][:, :1])
    return conv


def own_call_by_place(conv: nn.Module) -> nn.Module:
    class Shifted(type(conv)):
        def __call__(self, *args):
            return super().__call__(args[0] - 1, *args[1:])

    conv.__class__ = Shifted
    return conv


def hooks_of_a_layer(conv: nn.Module) -> nn.Module:
    return Placed(before(conv))


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
    """Calls a layer with arguments by their places."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)


BY_PLACE = (before, before_by_place, after, own_call, own_call_by_place, own_arguments, hooks_of_a_layer)


def call(module: nn.Module, *, by_name: bool) -> np.ndarray:
    given = {"x": torch.from_numpy(X), "edge_index": torch.from_numpy(np.stack([SOURCE, TARGET]))}
    order = ("edge_index", "x") if type(module).__name__ == "Reordered" else ("x", "edge_index")
    result = module(**given) if by_name else module(*(given[name] for name in order))
    return result.detach().numpy()


@pytest.mark.parametrize("change", [*BY_PLACE, before_with_keywords])
def test_a_model_computes_what_a_call_of_its_module_does(change):
    torch.manual_seed(0)
    module = change(pyg.SAGEConv(3, 2)).eval()
    model = Model.from_pyg(module)
    got = Engine(Graph.from_edges(SOURCE, TARGET, x=X), model).predict(np.arange(4))
    expected = call(module, by_name=change not in BY_PLACE)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def if_placed(conv: nn.Module) -> nn.Module:
    conv.register_forward_hook(lambda module, given, result: result * 2 if given else -result)
    return conv


def scaled_if_placed(conv: nn.Module) -> nn.Module:
    def scale(module, given):
        return (2 * given[0], *given[1:]) if given else None

    conv.register_forward_pre_hook(scale)
    return conv


def own_call_if_placed(conv: nn.Module) -> nn.Module:
    class Scaled(type(conv)):
        def __call__(self, *args, **kwargs):
            return (2 if args else 3) * super().__call__(*args, **kwargs)

    conv.__class__ = Scaled
    return conv


@pytest.mark.parametrize("change", [if_placed, scaled_if_placed, own_call_if_placed])
def test_a_module_that_says_something_else_when_called_by_name_is_refused(change):
    module = change(pyg.SAGEConv(3, 2)).eval()
    assert not np.allclose(call(module, by_name=True), call(module, by_name=False))
    with pytest.raises(ModelError, match=r"^(SAGEConv|Scaled)\.forward: its own hooks") as refused:
        Model.from_pyg(module)
    assert "let them take arguments in both ways" in str(refused.value)


def test_hooks_of_a_wrapper_are_refused():
    wrapped = nn.DataParallel(pyg.SAGEConv(3, 2))
    wrapped.register_forward_hook(lambda module, given, result: 2 * result)
    with pytest.raises(ModelError, match=r"DataParallel has hooks.*on the module that it wraps"):
        Model.from_pyg(wrapped)
