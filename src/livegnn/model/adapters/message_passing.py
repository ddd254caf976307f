"""Convolutions that no importer knows, taken apart by running them: a user's own subclass of PyG's
``MessagePassing``, for instance.

The layer's ``forward`` runs on a small graph with `Traced` tensors. What it does row by row becomes steps.
Its ``propagate`` becomes a gather of the rows that ``message`` asks for (``x_j`` of the source, ``x_i`` of
the target), the steps of ``message``, one propagate step, and the steps of ``update``. What PyG
itself has for edges (softmax, degrees, self-loops) is recognised: `livegnn.model.adapters.edge_functions`.

While a layer runs, functions of PyG are replaced in the modules where it finds them; called with ordinary
tensors, by another thread say, the replacements do what the originals do. One layer runs at a time.
"""

import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch_geometric.utils
from torch import Tensor, nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import AGGREGATIONS
from livegnn.model.adapters.edge_functions import NODES, REPLACEMENTS, aggregate, domain_of, if_traced
from livegnn.model.adapters.tape import EDGE_ATTR, EdgeRows, Edges, EdgeWeights, Rows, Tape, X
from livegnn.model.adapters.torch_functions import Recorder
from livegnn.model.adapters.traced import (
    ADVICE,
    Domain,
    EdgeIndex,
    EdgeValue,
    End,
    NodeValue,
    Symbol,
    Traced,
    Writer,
    plain,
)
from livegnn.types import EdgeType

_EDGES = 23
_RUNNING = threading.RLock()

Convolve = Callable[[nn.Module, str, tuple[object, ...], dict[str, object]], Rows]
"""Imports a layer that has an importer."""


def decompose(
    tape: Tape,
    layer: pyg.MessagePassing,
    path: str,
    given: Mapping[str, object],
    importers: Mapping[type, object],
    convolve: Convolve,
) -> Rows:
    """Imports a convolution by running it. given: what it is called with, on the tape.

    importers: the layers that are imported whole where they are part of this one, with convolve.
    Raises `ModelError` if it does something that has no counterpart in a model.
    """
    with _RUNNING, torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sample = _Sample(tape, given, _edge_type(given))
        sample.find_widths(layer)
        rows = next(value for value in _flat(given) if isinstance(value, Rows) and not _on_edges(value))
        width = tape.width(rows)
        assert width is not None
        parameters = {
            id(tensor): f"{path}.{name}"
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        }
        operations = Recorder(Writer(tape, sample.edge_type, parameters, rows, width))
        run = _Run(operations, sample, path, importers, convolve)
        read = [value for value in _flat(given) if isinstance(value, Rows) and not _on_edges(value)]
        tape.consumed += {value.place: value.name for value in reversed(read)}.values()
        return run.layer(layer, given)


def _edge_type(given: Mapping[str, object]) -> EdgeType:
    for value in given.values():
        if isinstance(value, Edges):
            return value.edge_type
    raise ModelError("must be given the edge_index of the module's own input, not one computed from it")


def _flat(value: object) -> list[object]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [found for part in value for found in _flat(part)]
    return [value]


def _on_edges(value: Rows) -> bool:
    return isinstance(value, EdgeRows)


class _Sample:
    """A small graph without loops, and numbers for what a layer is called with."""

    def __init__(self, tape: Tape, given: Mapping[str, object], edge_type: EdgeType) -> None:
        self.tape = tape
        self.given = given
        self.edge_type = edge_type
        chosen = torch.randperm(NODES * (NODES - 1))[:_EDGES]
        source = chosen % NODES
        self.edge_index = torch.stack([source, (source + 1 + chosen // NODES) % NODES])

    def numbers(self, value: object) -> object:
        """Ordinary tensors in the place of what is on the tape."""
        if isinstance(value, tuple | list):
            return type(value)(map(self.numbers, value))
        if isinstance(value, Edges):
            return self.edge_index
        if isinstance(value, EdgeWeights):
            return torch.rand(_EDGES) + 0.5
        if isinstance(value, Rows):
            width = self.tape.width(value)
            assert width is not None
            return torch.randn(_EDGES if _on_edges(value) else NODES, width)
        return value

    def find_widths(self, layer: pyg.MessagePassing) -> None:
        """Tries which widths of the module's inputs, if nobody said them, the layer can be called with."""
        rows = [value for value in _flat(self.given) if isinstance(value, Rows)]
        columns = {name: source.column for name, source in self.tape.inputs.items()}
        unknown = dict.fromkeys(
            name
            for value in rows
            if self.tape.width(value) is None
            for name in self.tape.unknown_inputs(value)
        )
        if not unknown:
            return
        sizes = _sizes(layer)
        first = {X: _first_size(layer, "in_channels"), EDGE_ATTR: _first_size(layer, "edge_dim")}
        tries = [[size for size in (first[columns[name]], *sizes) if size] for name in unknown]
        error: Exception | None = None
        for i in range(math.prod(map(len, tries))):
            for name, some in zip(unknown, tries, strict=True):
                self.tape.widths[name] = some[i % len(some)]
                i //= len(some)
            state = dict(vars(layer))
            try:
                layer.forward(**{name: self.numbers(value) for name, value in self.given.items()})
                return
            except Exception as caught:
                error = error or caught
            finally:
                vars(layer).clear()
                vars(layer).update(state)
        for name in unknown:
            self.tape.widths.pop(name, None)
        parameters = " and ".join(
            dict.fromkeys(
                "in_channels=..." if columns[name] == X else "edge_channels=..." for name in unknown
            )
        )
        if EDGE_ATTR in inspect.signature(layer.forward).parameters and EDGE_ATTR not in self.given:
            parameters += ", and edge_channels=... if it is to be called with edge_attr"
        where = " and ".join(unknown)
        if error is None:
            raise ModelError(f"it does not tell how wide {where} is: say so with {parameters}")
        raise ModelError(
            f"it cannot be called: {type(error).__name__}: {error}; if that is for the width of {where}, say "
            f"it with {parameters}"
        )


def _first_size(layer: nn.Module, name: str) -> int | None:
    size = getattr(layer, name, None)
    size = size[0] if isinstance(size, tuple | list) and size else size
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _sizes(layer: nn.Module) -> list[int]:
    """Widths that a layer's input could have, the likeliest first; few enough to try pairs of them."""
    linear = [part.weight.shape[-1] for part in layer.modules() if isinstance(part, nn.Linear | pyg.Linear)]
    others = [size for tensor in layer.parameters() for size in tensor.shape]
    sizes = dict.fromkeys(
        [*linear, *others, *(size // 2 for size in linear), *(size // 3 for size in linear)]
    )
    return [size for size in sizes if size > 1][:40]


@dataclass
class _Run:
    """One layer, as it runs. path: where it is in the module."""

    operations: Recorder
    sample: _Sample
    path: str
    importers: Mapping[type, object]
    convolve: Convolve

    def layer(self, layer: pyg.MessagePassing, given: Mapping[str, object]) -> Rows:
        traced = {name: self._trace(value) for name, value in given.items()}
        with self._replaced(layer):
            try:
                output = layer.forward(**traced)
            except ModelError:
                raise
            except Exception as error:
                raise ModelError(
                    f"its {self.operations.doing} cannot be followed: {type(error).__name__}: {error}; "
                    f"{ADVICE}"
                ) from error
        if not isinstance(output, Traced):
            made = "a tensor that does not depend on its input" if isinstance(output, Tensor) else output
            raise ModelError(f"must return one tensor with a row per node, got {made}")
        value = self.operations.rows(output)
        if not isinstance(value, NodeValue) or output.plain.ndim != 2 or len(output.plain) != NODES:
            raise ModelError(
                f"must return [nodes, channels], got shape {tuple(output.plain.shape)} of rows of "
                f"{'nodes' if isinstance(value, NodeValue) else 'edges'}"
            )
        return value.rows

    def _trace(self, value: object) -> object:
        if isinstance(value, tuple | list):
            return type(value)(map(self._trace, value))
        domain = Domain(self.sample.edge_type)
        symbol: Symbol
        if isinstance(value, Edges):
            symbol = EdgeIndex(domain)
        elif isinstance(value, EdgeWeights):
            symbol = EdgeValue(domain, value.column(), None)
        elif isinstance(value, Rows):
            symbol = EdgeValue(domain, value, None) if _on_edges(value) else NodeValue(value)
        else:
            return value
        numbers = self.sample.numbers(value)
        assert isinstance(numbers, Tensor)
        return self.operations.make(numbers, symbol)

    @contextmanager
    def _replaced(self, layer: pyg.MessagePassing) -> Iterator[None]:
        """Replaces what the layer and its parts call, and puts everything back."""
        states = [(part, dict(vars(part))) for part in layer.modules()]
        scopes = {id(scope): scope for part in layer.modules() for scope in _scopes(part)}
        scopes[id(vars(torch_geometric.utils))] = vars(torch_geometric.utils)
        changed = []
        try:
            for part in layer.modules():
                if part is not layer and type(part) in self.importers:
                    if isinstance(part, pyg.MessagePassing):
                        vars(part)["forward"] = self._whole(layer, part)
                elif isinstance(part, pyg.MessagePassing):
                    _check(part)
                    propagate = Propagation(self.operations, part)
                    vars(part)["propagate"] = propagate.propagate
                    vars(part)["edge_updater"] = propagate.update_edges
            for scope in scopes.values():
                for name, value in [*scope.items()]:
                    replaced = REPLACEMENTS.get(value) if inspect.isfunction(value) else None
                    if replaced is not None and inspect.isfunction(value):
                        changed.append((scope, name, value))
                        scope[name] = if_traced(replaced, value)
            yield
        finally:
            for scope, name, value in changed:
                scope[name] = value
            for part, state in states:
                vars(part).clear()
                vars(part).update(state)

    def _whole(self, layer: nn.Module, part: nn.Module) -> Callable[..., Traced]:
        """The forward of a part that has an importer."""
        name = next(name for name, module in layer.named_modules() if module is part)
        forward = type(part).forward

        def call(*args: object, **kwargs: object) -> Traced:
            rows = self.convolve(
                part, f"{self.path}.{name}", tuple(map(self._untrace, args)), _values(kwargs, self._untrace)
            )
            numbers = forward(part, *map(plain, args), **_values(kwargs, plain))
            return self.operations.make(numbers, NodeValue(rows))

        return call

    def _untrace(self, value: object) -> object:
        if isinstance(value, tuple | list):
            return type(value)(map(self._untrace, value))
        if not isinstance(value, Traced):
            return value
        if isinstance(value.symbol, EdgeIndex) and value.symbol.domain == Domain(self.sample.edge_type):
            return next(given for given in self.sample.given.values() if isinstance(given, Edges))
        rows = self.operations.rows(value)
        if isinstance(rows, EdgeValue) and self.sample.tape.is_weight(rows.edges):
            return EdgeWeights((self.sample.edge_type,), (rows.edges.name,))
        return rows.rows if isinstance(rows, NodeValue) else rows.edges


def _values(given: Mapping[str, object], change: Callable[[object], object]) -> dict[str, object]:
    return {name: change(value) for name, value in given.items()}


def _scopes(part: nn.Module) -> list[dict[str, object]]:
    """The names that the methods of a module find functions by."""
    modules = {kind.__module__ for kind in type(part).__mro__}
    modules |= {
        method.__module__
        for kind in type(part).__mro__
        for method in vars(kind).values()
        if inspect.isfunction(method)
    }
    kept = {name for name in modules if name and not name.startswith(("torch.", "builtins", "typing"))}
    return [vars(sys.modules[name]) for name in sorted(kept) if name in sys.modules]


def _check(layer: pyg.MessagePassing) -> None:
    if layer.flow != "source_to_target":
        raise ModelError(
            f"flow must be 'source_to_target', got {layer.flow!r}: swap the rows of edge_index instead"
        )
    if type(layer).aggregate is not pyg.MessagePassing.aggregate:
        raise ModelError(f"it has an aggregate of its own; {ADVICE}")
    if layer.aggr is not None and layer.aggr not in list(AGGREGATIONS):
        raise ModelError(
            f"aggr must be one of {', '.join(map(repr, AGGREGATIONS))}; got {layer.aggr!r}; {ADVICE}"
        )


class Propagation:
    """What a layer's ``propagate`` and ``edge_updater`` do on traced tensors."""

    def __init__(self, operations: Recorder, layer: pyg.MessagePassing) -> None:
        self._operations = operations
        self._layer = layer

    def propagate(self, edge_index: object, size: object = None, **kwargs: object) -> object:
        self._check_size(size)
        message = self._call("message", edge_index, kwargs)
        if not isinstance(message, Traced):
            raise ModelError(f"its message must depend on rows of nodes or edges, got {message!r}")
        domain = domain_of(edge_index)
        out = aggregate(self._operations, message, domain, str(self._layer.aggr))
        return self._call("update", edge_index, kwargs, out)

    def update_edges(self, edge_index: object, size: object = None, **kwargs: object) -> object:
        self._check_size(size)
        return self._call("edge_update", edge_index, kwargs)

    def _check_size(self, size: object) -> None:
        if size is not None and not (isinstance(size, tuple | list) and set(size) <= {None, NODES}):
            raise ModelError(f"propagate must be called without size, got {size}")

    def _call(self, name: str, edge_index: object, kwargs: Mapping[str, object], *first: object) -> object:
        method = getattr(self._layer, name)
        parameters = [*inspect.signature(method).parameters.values()][len(first) :]
        found = {}
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            given, value = self._argument(parameter.name, edge_index, kwargs)
            if given:
                found[parameter.name] = value
            elif parameter.default is parameter.empty:
                raise ModelError(f"its {name} takes {parameter.name}, which propagate is not given")
        before, self._operations.doing = self._operations.doing, name
        try:
            return method(*first, **found)
        finally:
            self._operations.doing = before

    def _argument(self, name: str, edge_index: object, kwargs: Mapping[str, object]) -> tuple[bool, object]:
        """Whether there is such an argument, and what it is."""
        domain = domain_of(edge_index)
        ends = {"index": 1, "edge_index_i": 1, "edge_index_j": 0}
        if name in ends:
            assert isinstance(edge_index, Tensor)
            return True, edge_index[ends[name]]
        if name == "edge_index":
            return True, edge_index
        if name in ("ptr", "adj_t"):
            return True, None
        if name in ("size_i", "size_j", "dim_size"):
            return True, NODES
        if name == "size":
            return True, [NODES, NODES]
        if name[-2:] in ("_i", "_j"):
            if name[:-2] not in kwargs:
                return False, None
            value, side = kwargs[name[:-2]], 0 if name.endswith("_j") else 1
            end: End = "source" if side == 0 else "target"
            if isinstance(value, tuple | list):
                value = value[side]
            if value is None:
                return True, None
            if not isinstance(value, Traced):
                raise ModelError(f"{name} must be rows of nodes that depend on the input, got {type(value)}")
            if self._layer.node_dim % value.plain.ndim != 0:
                raise ModelError(
                    f"{name[:-2]} has shape {tuple(value.plain.shape)}: make the layer with node_dim=0"
                )
            rows = self._operations.rows(value)
            if not isinstance(rows, NodeValue):
                raise ModelError(f"{name[:-2]} must have a row for every node, got rows of edges")
            assert isinstance(edge_index, Traced)
            symbol = self._operations.writer.gather(rows, domain, end)
            return True, self._operations.make(value.plain[edge_index.plain[side]], symbol)
        return name in kwargs, kwargs.get(name)
