"""Traces a graph again, and runs only the operators that may become others.

Most operators of a program need no decomposition. They stay as they are, with the results that the first
trace put into their nodes, so that a second trace takes half of the time.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, track_tensor_tree
from torch.utils import _pytree as pytree

_INDEX = torch.ops.aten.index.Tensor


class Retracing(fx.Interpreter):
    """Runs a graph while `make_fx` traces it, on the tensors that its placeholders have in their nodes.

    table: the operators that are decomposed, as `make_fx` has them.
    """

    def __init__(self, module: fx.GraphModule, table: Mapping[object, Callable[..., object]]) -> None:
        super().__init__(module)
        self._staying = {node for node in module.graph.nodes if _stays(node, table)}
        if any(node.meta.get("unbacked_bindings") for node in set(module.graph.nodes) - self._staying):
            self._staying.clear()  # a run makes new symbols of sizes, and later nodes have the old ones
        self._result: object = None

    def run_node(self, node: fx.Node) -> Any:
        self._result = node.meta["val"] if node in self._staying else None
        return super().run_node(node)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mode, result = get_proxy_mode(), self._result
        if mode is None or result is None:
            return super().call_function(target, args, kwargs)
        args, kwargs = pytree.tree_map(mode.tracer.unwrap_proxy, (args, kwargs))
        name = target.overloadpacket.__name__
        proxy = mode.tracer.create_proxy("call_function", target, args, kwargs, name=name)
        return track_tensor_tree(result, proxy, constant=None, tracer=mode.tracer)


def _stays(node: fx.Node, table: Mapping[object, Callable[..., object]]) -> bool:
    """Returns whether the second trace has the same operator for the node."""
    operator = node.target
    if not isinstance(operator, OpOverload) or not isinstance(node.meta.get("val"), FakeTensor):
        return False
    if operator is _INDEX and _is_mask_among(node.args[1]):
        return True  # no decomposition has rows that a mask chooses
    own = [key for key in operator.py_kernels if "Autograd" in str(key)]
    return (
        operator not in table
        and not own
        and not operator._can_decompose()
        and not operator._schema.is_mutable
    )


def _is_mask_among(indices: Any) -> bool:
    return any(isinstance(one, fx.Node) and one.meta["val"].dtype == torch.bool for one in indices)
