"""Convolutions that no importer knows, taken apart by running them: a user's own subclass of PyG's
``MessagePassing``, for instance.

The layer's ``forward`` runs on a small graph with `Traced` tensors. What it does row by row becomes steps. Its
``propagate`` becomes a gather of the rows that ``message`` asks for (``x_j`` of the source, ``x_i`` of the
target), the steps of ``message``, one propagate step, and the steps of ``update``. PyG's own functions for
edges (`_REPLACED`) are recognised by what they are: a softmax over in-edges is the coefficient ``exp(logits)``
divided by its sum; self-loops that a layer adds are every node's own message.

While a layer runs, functions of PyG are replaced in the modules where it finds them; called with ordinary
tensors, by another thread say, the replacements do what the originals do. One layer runs at a time.
"""

import inspect
import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
import torch_geometric.utils
from torch import Tensor, nn
from torch_geometric import nn as pyg
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils.num_nodes import maybe_num_nodes

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import AGGREGATIONS
from livegnn.model.adapters.edge_operations import Operations
from livegnn.model.adapters.tape import EDGE_ATTR, EdgeRows, Edges, EdgeWeights, Rows, Tape, X
from livegnn.model.adapters.traced import (
    ADVICE,
    Degree,
    Domain,
    EdgeIndex,
    EdgeValue,
    EndIndex,
    GcnNorm,
    NodeValue,
    Softmax,
    Symbol,
    Traced,
    Writer,
    plain,
    traced_in,
)
from livegnn.model.propagation import Aggregate, Combine, MessageFactor, NeighborContext, Propagate
from livegnn.types import EdgeType

_NODES, _EDGES = 11, 23
_RUNNING = threading.Lock()

Convolve = Callable[[nn.Module, str, tuple[object, ...], dict[str, object]], Rows]
"""Imports a layer that has an importer."""


def decompose(
    tape: Tape,
    layer: pyg.MessagePassing,
    path: str,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    importers: Mapping[type, object],
    convolve: Convolve,
) -> Rows:
    """Imports a convolution by running it. args, kwargs: what it is called with, on the tape.

    importers: the layers that are imported whole where they are part of this one, with convolve.
    Raises `ModelError` if it does something that has no counterpart in a model.
    """
    given = _bound(layer, args, kwargs)
    with _RUNNING, torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sample = _Sample(tape, given, _edge_type(tape, given))
        sample.find_widths(layer)
        rows = next(value for value in _flat(given) if isinstance(value, Rows) and not _on_edges(value))
        width = tape.width(rows)
        assert width is not None
        parameters = {
            id(tensor): f"{path}.{name}"
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        }
        operations = Operations(Writer(tape, sample.edge_type, parameters, rows, width))
        run = _Run(operations, sample, path, importers, convolve)
        tape.consumed += [
            value.name for value in _flat(given) if isinstance(value, Rows) and not _on_edges(value)
        ][:1]
        return run.layer(layer, given)


def _bound(
    layer: pyg.MessagePassing, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    bound = inspect.signature(type(layer).forward).bind(layer, *args, **kwargs)
    return {name: value for name, value in bound.arguments.items() if name != "self"}


def _edge_type(tape: Tape, given: Mapping[str, object]) -> EdgeType:
    if not any(isinstance(value, Edges) for value in given.values()):
        raise ModelError("must be given the edge_index of the module's own input, not one computed from it")
    return tape.edge_type


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
        chosen = torch.randperm(_NODES * (_NODES - 1))[:_EDGES]
        source = chosen % _NODES
        self.edge_index = torch.stack([source, (source + 1 + chosen // _NODES) % _NODES])

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
            return torch.randn(_EDGES if _on_edges(value) else _NODES, width)
        return value

    def find_widths(self, layer: pyg.MessagePassing) -> None:
        """Tries which widths of the module's inputs, if nobody said them, the layer can be called with."""
        rows = [value for value in _flat(self.given) if isinstance(value, Rows)]
        unknown = dict.fromkeys(
            name
            for value in rows
            if self.tape.width(value) is None
            for name in [EDGE_ATTR if _on_edges(value) else X]
        )
        if not unknown:
            return
        sizes = _sizes(layer)
        first = {X: _first_size(layer, "in_channels"), EDGE_ATTR: _first_size(layer, "edge_dim")}
        tries = [[size for size in (first[name], *sizes) if size] for name in unknown]
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
                error = caught
            finally:
                vars(layer).clear()
                vars(layer).update(state)
        for name in unknown:
            self.tape.widths.pop(name, None)
        parameters = " and ".join("in_channels=..." if name == X else "edge_channels=..." for name in unknown)
        raise ModelError(
            f"it does not tell how wide {' and '.join(unknown)} is: say so with {parameters}"
            + (f" (it fails with {error})" if error is not None else "")
        )


def _first_size(layer: nn.Module, name: str) -> int | None:
    size = getattr(layer, name, None)
    size = size[0] if isinstance(size, tuple | list) and size else size
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def _sizes(layer: nn.Module) -> list[int]:
    """Widths that a layer's input could have, the likeliest first; few enough to try pairs of them."""
    linear = [part.weight.shape[-1] for part in layer.modules() if isinstance(part, nn.Linear | pyg.Linear)]
    others = [size for tensor in layer.parameters() for size in tensor.shape]
    sizes = dict.fromkeys([*linear, *others, *(size // 2 for size in linear), *(size // 3 for size in linear)])
    return [size for size in sizes if size > 1][:40]


@dataclass
class _Run:
    """One layer, as it runs. path: where it is in the module."""

    operations: Operations
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
                    f"its {self.operations.doing} cannot be followed: {type(error).__name__}: {error}; {ADVICE}"
                ) from error
        if not isinstance(output, Traced):
            made = "a tensor that does not depend on its input" if isinstance(output, Tensor) else output
            raise ModelError(f"must return one tensor with a row per node, got {made}")
        value = self.operations.rows(output)
        if not isinstance(value, NodeValue) or output.plain.ndim != 2 or len(output.plain) != _NODES:
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
                    replaced = _REPLACED.get(value) if inspect.isfunction(value) else None
                    if replaced is not None:
                        changed.append((scope, name, value))
                        scope[name] = _if_traced(replaced, value)
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

    def __init__(self, operations: Operations, layer: pyg.MessagePassing) -> None:
        self._operations = operations
        self._layer = layer

    def propagate(self, edge_index: object, size: object = None, **kwargs: object) -> object:
        self._check_size(size)
        message = self._call("message", edge_index, kwargs)
        if not isinstance(message, Traced):
            raise ModelError(f"its message must depend on rows of nodes or edges, got {message!r}")
        domain = _domain(edge_index)
        out = aggregate(self._operations, message, domain, str(self._layer.aggr))
        return self._call("update", edge_index, kwargs, out)

    def update_edges(self, edge_index: object, size: object = None, **kwargs: object) -> object:
        self._check_size(size)
        return self._call("edge_update", edge_index, kwargs)

    def _check_size(self, size: object) -> None:
        if size is not None and not (isinstance(size, tuple | list) and set(size) <= {None, _NODES}):
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
        domain = _domain(edge_index)
        ends = {"index": 1, "edge_index_i": 1, "edge_index_j": 0}
        if name in ends:
            assert isinstance(edge_index, Tensor)
            return True, edge_index[ends[name]]
        if name == "edge_index":
            return True, edge_index
        if name in ("ptr", "adj_t"):
            return True, None
        if name in ("size_i", "size_j", "dim_size"):
            return True, _NODES
        if name == "size":
            return True, [_NODES, _NODES]
        if name[-2:] in ("_i", "_j"):
            if name[:-2] not in kwargs:
                return False, None
            value, side = kwargs[name[:-2]], 0 if name.endswith("_j") else 1
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
            end = "source" if side == 0 else "target"
            assert isinstance(edge_index, Traced)
            symbol = self._operations.writer.gather(rows, domain, "source" if side == 0 else "target")
            return True, self._operations.make(value.plain[edge_index.plain[0 if end == "source" else 1]], symbol)
        return name in kwargs, kwargs.get(name)


def _domain(edge_index: object) -> Domain:
    if not isinstance(edge_index, Traced) or not isinstance(edge_index.symbol, EdgeIndex):
        raise ModelError("propagate must be given the layer's edge_index, with or without self-loops")
    return edge_index.symbol.domain


def aggregate(operations: Operations, message: Traced, domain: Domain, aggr: str) -> Traced:
    """Messages, brought together at the targets. aggr: a key of `AGGREGATIONS`."""
    if aggr not in AGGREGATIONS:
        raise ModelError(f"aggr must be one of {', '.join(map(repr, AGGREGATIONS))}; got {aggr!r}; {ADVICE}")
    symbol = message.symbol
    if isinstance(symbol, Softmax | GcnNorm):
        if symbol.value is None:
            raise ModelError("the message must be its coefficient times a value, got the coefficient alone")
        if aggr not in ("add", "sum"):
            raise ModelError(f"messages with normalised coefficients must be added, got aggr={aggr!r}")
        if symbol.domain != domain:
            raise ModelError("the message is of other edges than those that it is sent along")
        made = _softmax_sum(operations, symbol) if isinstance(symbol, Softmax) else _gcn(operations, symbol)
    else:
        made = _plain_aggregate(operations, symbol, domain, AGGREGATIONS[aggr])
    target = operations.writer
    assert isinstance(target, Writer)
    numbers = message.plain.new_zeros(_NODES, *message.plain.shape[1:])
    return operations.make(numbers, made)


def _plain_aggregate(
    operations: Operations,
    symbol: Symbol,
    domain: Domain,
    aggregation: tuple[Aggregate, NeighborContext, Combine],
) -> NodeValue:
    writer, (kind, context, combine) = operations.writer, aggregation
    if not isinstance(symbol, EdgeValue):
        symbol = operations.rows(symbol)  # type: ignore[assignment]
    if not isinstance(symbol, EdgeValue) or symbol.domain != domain:
        raise ModelError("a message must have a row for every edge that it is sent along")
    scale = symbol.scale
    value = replace(symbol, scale=None) if kind == "sum" else writer.multiplied_out(symbol)
    if domain.own and kind != "sum":
        raise ModelError(
            f"self-loops of the layer's own cannot be kept with aggr={kind!r}: add them to the graph instead"
        )
    of_source = writer.gathered(value, "source")
    inputs = [of_source or value.edges]
    if value.own is not None:
        inputs.append(value.own)
    factors: tuple[MessageFactor, ...] = ()
    if domain.own and context == "count":  # a mean, as a sum with coefficients of 1
        one = writer.gather(writer.constant(torch.ones(1)), domain, "source")
        assert one.own is not None and value.own is not None
        inputs = [inputs[0], one.edges, value.own, one.own]
        factors, context = ("coefficient",), "sum"
    operators = Propagate(
        domain.edge_type,
        factors,
        context,
        combine,
        kind,
        skip_loops=domain.skip_loops,
        own_message=domain.own,
    )
    made = writer.propagate(inputs, operators.to_attrs())
    if scale is None:
        return made
    scaled = writer.write("scale_heads", made, NodeValue(scale))
    assert isinstance(scaled, NodeValue)
    return scaled


def _softmax_sum(operations: Operations, softmax: Softmax) -> NodeValue:
    writer, domain = operations.writer, softmax.domain
    assert softmax.value is not None
    value = writer.multiplied_out(softmax.value)
    coefficient = writer.write("exp", softmax.logits)
    assert isinstance(coefficient, EdgeValue)
    inputs = [writer.gathered(value, "source") or value.edges, coefficient.edges]
    if value.own is not None and coefficient.own is not None:
        inputs += [value.own, coefficient.own]
    operators = Propagate(
        domain.edge_type,
        ("coefficient",),
        "sum",
        "divide",
        skip_loops=domain.skip_loops,
        own_message=domain.own,
    )
    return writer.propagate(inputs, operators.to_attrs())


def _gcn(operations: Operations, norm: GcnNorm) -> NodeValue:
    assert norm.value is not None
    rows = operations.writer.gathered(norm.value, "source")
    assert rows is not None
    factors: tuple[MessageFactor, ...] = ("weight", "source_rsqrt") if norm.weighted else ("source_rsqrt",)
    operators = Propagate(
        norm.domain.edge_type,
        factors,
        "sum" if norm.weighted else "count",
        "rsqrt",
        self_loops=norm.self_loops,
    )
    return operations.writer.propagate([rows], operators.to_attrs())


# -- functions of PyG, on traced tensors


def _operations(*values: object) -> Operations:
    calls = traced_in(values)[0].calls
    assert isinstance(calls, Operations)
    return calls


def _target(index: object) -> Domain:
    symbol = index.symbol if isinstance(index, Traced) else None
    if not isinstance(symbol, EndIndex) or symbol.end != "target":
        raise ModelError(
            f"it must work over the in-edges of the targets, edge_index[1], got {type(symbol).__name__}"
        )
    return symbol.domain


def _softmax(
    src: Tensor, index: object = None, ptr: object = None, num_nodes: object = None, dim: int = 0
) -> Traced:
    operations, domain = _operations(src, index), _target(index)
    if dim % src.ndim != 0:
        raise ModelError(f"it must work along the edges, dim=0, got dim={dim}")
    logits = operations.rows(src)
    if not isinstance(logits, EdgeValue) or logits.domain != domain:
        raise ModelError("it must be given one row for every edge")
    numbers = plain(src)
    assert isinstance(numbers, Tensor)
    return operations.make(numbers, Softmax(logits, math.prod(numbers.shape[1:])))


def _degree(index: Tensor, num_nodes: object = None, dtype: object = None) -> Traced:
    operations, domain = _operations(index), _target(index)
    return operations.make(torch.bincount(_plain(index), minlength=_NODES).float(), Degree(domain))


def _scatter(
    src: Tensor, index: Tensor, dim: int = 0, dim_size: object = None, reduce: str = "sum"
) -> Traced:
    operations, domain = _operations(src, index), _target(index)
    if dim % src.ndim != 0:
        raise ModelError(f"it must bring together rows of edges, dim=0, got dim={dim}")
    if not isinstance(src, Traced):
        if not bool((src == 1).all()) or src.ndim > 1 or reduce not in ("add", "sum"):
            raise ModelError("it must bring together rows that depend on the input, or ones")
        return _degree(index)
    return aggregate(operations, src, domain, reduce)


def _add_self_loops(
    edge_index: Tensor, edge_attr: Tensor | None = None, fill_value: object = None, num_nodes: object = None
) -> tuple[Traced, Traced | None]:
    operations, domain = _operations(edge_index), _domain(edge_index)
    if domain.own:
        raise ModelError("self-loops are added twice: remove_self_loops first")
    looped = replace(domain, own=True)
    loops = torch.arange(_NODES).expand(2, -1)
    made = operations.make(torch.cat([_plain(edge_index), loops], dim=1), EdgeIndex(looped))
    if edge_attr is None:
        return made, None
    value = operations.rows(edge_attr)
    if not isinstance(value, EdgeValue) or value.domain != domain:
        raise ModelError("edge_attr must have a row for every edge")
    numbers = _plain(edge_attr)
    shape = tuple(numbers.shape[1:])
    if isinstance(fill_value, str):
        if fill_value not in AGGREGATIONS:
            raise ModelError(f"fill_value must be a number or one of {', '.join(map(repr, AGGREGATIONS))}")
        own = _plain_aggregate(operations, value, domain, AGGREGATIONS[fill_value])
        filled = torch.ones(_NODES, *shape)
    elif traced_in(fill_value):
        raise ModelError("fill_value must be a number, a parameter or the name of an aggregation")
    else:
        row = torch.as_tensor(1.0 if fill_value is None else fill_value, dtype=torch.float32)
        row = row.reshape(shape) if row.numel() == math.prod(shape) else row.broadcast_to(shape)
        own = operations.writer.constant(row.reshape(-1).contiguous())
        filled = row.expand(_NODES, *shape)
    attributes = operations.make(torch.cat([numbers, filled]), EdgeValue(looped, value.edges, own.rows))
    return made, attributes


def _remove_self_loops(edge_index: Tensor, edge_attr: Tensor | None = None) -> tuple[Traced, Traced | None]:
    operations, domain = _operations(edge_index), _domain(edge_index)
    if domain.own:
        raise ModelError("it removes self-loops that the layer has added: remove_self_loops first, then add")
    skipped = replace(domain, skip_loops=True)
    made = operations.make(_plain(edge_index), EdgeIndex(skipped))
    if edge_attr is None:
        return made, None
    value = operations.rows(edge_attr)
    if not isinstance(value, EdgeValue) or value.domain != domain:
        raise ModelError("edge_attr must have a row for every edge")
    return made, operations.make(_plain(edge_attr), replace(value, domain=skipped))


def _add_remaining_self_loops(
    edge_index: Tensor, edge_attr: Tensor | None = None, fill_value: object = None, num_nodes: object = None
) -> tuple[Traced, Traced | None]:
    if edge_attr is not None:
        raise ModelError(
            "self-loops of the graph keep their own edge_attr: call remove_self_loops and add_self_loops, "
            "which give every loop the same"
        )
    edge_index, _ = _remove_self_loops(edge_index)
    return _add_self_loops(edge_index)


def _gcn_norm(
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    num_nodes: int | None = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: object = None,
) -> tuple[Traced, Traced]:
    operations, domain = _operations(edge_index), _domain(edge_index)
    weight = edge_weight.symbol if isinstance(edge_weight, Traced) else None
    if edge_weight is not None and not (
        isinstance(weight, EdgeValue) and weight.edges.name == EdgeWeights(domain.edge_type).column().name
    ):
        raise ModelError("it must be given the edge_weight of the module's own input")
    if domain != Domain(domain.edge_type):
        raise ModelError("it must be given the graph's edge_index as it is: it adds self-loops itself")
    if improved and add_self_loops and operations.writer.tape.weight_assumed and weight is not None:
        raise ModelError(
            "improved=True gives self-loops the weight 2 only if the module is called with edge weights: say "
            "whether it is, with edge_weight=True or edge_weight=False"
        )
    looped, norm = gcn_norm(
        _plain(edge_index),
        None if edge_weight is None else _plain(edge_weight),
        _NODES,
        improved,
        add_self_loops,
        flow,
        dtype,
    )
    made = Domain(domain.edge_type, skip_loops=add_self_loops, own=add_self_loops)
    loops = (2.0 if improved and weight is not None else 1.0) if add_self_loops else None
    return (
        operations.make(looped, EdgeIndex(made)),
        operations.make(norm, GcnNorm(made, weight is not None, loops)),
    )


def _num_nodes(edge_index: Tensor, num_nodes: int | None = None) -> int:
    return _NODES


def _plain(value: object) -> Tensor:
    found = plain(value)
    assert isinstance(found, Tensor)
    return found


_REPLACED: Mapping[Callable[..., object], Callable[..., object]] = {
    torch_geometric.utils.softmax: _softmax,
    torch_geometric.utils.degree: _degree,
    torch_geometric.utils.scatter: _scatter,
    torch_geometric.utils.add_self_loops: _add_self_loops,
    torch_geometric.utils.remove_self_loops: _remove_self_loops,
    torch_geometric.utils.add_remaining_self_loops: _add_remaining_self_loops,
    gcn_norm: _gcn_norm,
    maybe_num_nodes: _num_nodes,
}


def _if_traced(
    replacement: Callable[..., object], original: Callable[..., object]
) -> Callable[..., object]:
    """The replacement for traced tensors, the original for others."""

    def call(*args: object, **kwargs: object) -> object:
        if not traced_in((args, kwargs)):
            return original(*args, **kwargs)
        try:
            with torch._C.DisableTorchFunctionSubclass():
                return replacement(*args, **kwargs)
        except ModelError as error:
            name = getattr(original, "__name__", "")
            doing = _operations(args, kwargs).doing
            raise ModelError(f"the operation {name!r} in its {doing}: {error}; {ADVICE}") from None

    return call
