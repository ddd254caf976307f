"""Copies a module, so that tracing can call and change the copy and the module stays unchanged."""

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from livegnn.errors import ModelError


def copy_module(module: nn.Module) -> nn.Module:
    """A copy on the CPU, in evaluation mode, and without the graphs that layers have cached.

    Functions that replace methods, and hooks, are copied together with the modules, lists and dicts in their
    closures. Otherwise they would call the original module, or put traced values into its lists.
    """
    memo: dict[int, object] = {}
    for part in module.modules():
        for value in vars(part).values():  # weight_norm and pruning compute a weight from parameters
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                memo[id(value)] = value.detach().clone()
    try:
        copied = copy.deepcopy(module, memo)
    except Exception as error:
        advice = ": detach() what it keeps of its training" if "graph leaves" in str(error) else ""
        raise ModelError(f"{type(module).__name__} cannot be copied{advice} ({error})") from error
    for part in copied.modules():
        for name, value in list(vars(part).items()):
            if name.startswith("_cached_"):
                vars(part)[name] = None
            elif isinstance(value, types.FunctionType | types.MethodType):
                vars(part)[name] = _with_own_cells(value, memo)
            elif name.endswith("_hooks") and isinstance(value, dict):
                for key, hook in value.items():
                    if isinstance(hook, types.FunctionType | types.MethodType):
                        value[key] = _with_own_cells(hook, memo)
    copied = copied.cpu().eval().requires_grad_(False)
    for part in copied.modules():
        part.training = False  # its own train() may not do so
    return copied


def _with_own_cells(
    function: types.FunctionType | types.MethodType, memo: dict[int, object]
) -> types.FunctionType | types.MethodType:
    """The function with copies of the objects in its closure."""
    if isinstance(function, types.MethodType):
        inner = function.__func__
        if not isinstance(inner, types.FunctionType):
            return function
        return types.MethodType(_with_own_cells(inner, memo), function.__self__)
    if not function.__closure__:
        return function
    made = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(_own_cell(cell, memo) for cell in function.__closure__),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made


def _own_cell(cell: types.CellType, memo: dict[int, object]) -> types.CellType:
    try:
        held = cell.cell_contents
    except ValueError:  # it is empty
        return cell
    of_module = isinstance(getattr(held, "__self__", None), nn.Module)
    if not isinstance(held, nn.Module | list | dict | set) and not of_module:
        return cell
    try:
        return types.CellType(copy.deepcopy(held, memo))
    except Exception:  # an object that cannot be copied does not belong to a module
        return cell


@contextmanager
def keeping_random() -> Iterator[None]:
    """Restores the random states of NumPy and torch, since modules may draw random numbers.

    Not Python's: PyG's Sequential uses one in the name of its generated code, and two modules would get the
    same name.
    """
    numpy = np.random.get_state()  # noqa: NPY002  the global state, which others use
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
