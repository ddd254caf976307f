"""Notes the tensors that a call of a module reads: parameters, buffers, and tables for numbers."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from livegnn.importers.program.export import MethodCall, calling


@dataclass(frozen=True)
class Watched:
    """A call of a module. result: its result, or the exception that it raised. unread: the parameters and
    buffers that nothing read, without counters of training steps. tables: the parameters and buffers in which
    numbers that are not row numbers were looked up.
    """

    result: object
    unread: frozenset[str]
    tables: frozenset[str]


def call_watched(module: nn.Module, method_call: MethodCall, more: Collection[str] = ()) -> Watched:
    """Calls a copy of a module on a small random graph, as `call_with` does, and notes the tensors it reads.

    more: the arguments, or columns, that it is not imported with; see `calling`.
    """
    with calling(module, method_call, more) as (copied, call):
        held = [
            *copied.named_parameters(remove_duplicate=False),
            *((name, one) for name, one in copied.named_buffers() if one.dim() or one.is_floating_point()),
        ]
        given = {one.name for one in method_call.parameters}
        result: object
        with _Watch() as watch:
            try:
                result = call()
            except Exception as error:
                result = error
        places = {name: one.untyped_storage().data_ptr() for name, one in held if one.numel()}
        return Watched(
            result,
            frozenset(name for name, at in places.items() if at not in watch.read and name not in given),
            frozenset(name for name, at in places.items() if at in watch.tables),
        )


class _Watch(TorchDispatchMode):
    """Notes the storages of all tensors that operators read, and in which they look up numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[int] = set()
        self.tables: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        for one in pytree.tree_leaves((args, kwargs)):
            if isinstance(one, torch.Tensor) and one.layout is torch.strided:
                self.read.add(one.untyped_storage().data_ptr())
        if func is torch.ops.aten.embedding.default:
            weight, numbers = cast("Sequence[torch.Tensor]", args[:2])
            if not torch.equal(numbers.reshape(-1), torch.arange(numbers.numel())):
                self.tables.add(weight.untyped_storage().data_ptr())
        return func(*args, **(kwargs or {}))
