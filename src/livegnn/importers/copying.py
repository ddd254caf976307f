"""A module's copy, which tracing may call and change, so that the module itself stays as it is."""

import copy
import types
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from livegnn.errors import ModelError


def copy_module(module: nn.Module) -> nn.Module:
    """On the CPU, in evaluation mode, and without what layers have kept of a graph.

    Functions that stand in the place of methods, and hooks, are copied with the modules, lists and dicts that
    they have hold of: they would call the module itself, or put into its lists what is being traced.
    """
    memo: dict[int, object] = {}
    for part in module.modules():
        for value in vars(part).values():  # of weight_norm and pruning, which make a weight of parameters
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                memo[id(value)] = value.detach().clone()
    try:
        copied = copy.deepcopy(module, memo)
    except Exception as error:
        raise ModelError(f"{type(module).__name__} cannot be copied: {error}") from error
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
        part.training = False  # whatever its own train() does
    return copied


def _with_own_cells(
    function: types.FunctionType | types.MethodType, memo: dict[int, object]
) -> types.FunctionType | types.MethodType:
    """A function whose closure has hold of copies."""
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
    except Exception:  # what cannot be copied is no module's
        return cell


@contextmanager
def keeping_random() -> Iterator[None]:
    """Leaves NumPy's and torch's random numbers as they were, of which modules may draw some.

    Not Python's: PyG's Sequential names the code that it makes by one, and would give two modules one name.
    """
    numpy = np.random.get_state()  # noqa: NPY002  what others draw from
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy)  # noqa: NPY002
