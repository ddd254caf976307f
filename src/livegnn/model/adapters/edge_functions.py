"""What brings messages together, and PyG's functions on edges, on traced tensors.

A softmax over in-edges is the coefficient ``exp(logits)``, divided by its sum. A loop that a layer adds is
the node's own message. `REPLACEMENTS` are called in the place of PyG's functions while a layer runs.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
import torch_geometric.utils
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils.num_nodes import maybe_num_nodes

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import AGGREGATIONS, Aggregation
from livegnn.model.adapters.edge_operations import Operations
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
    plain,
    traced_in,
)
from livegnn.model.propagation import MessageFactor, Propagate

NODES = 11
"""Of the small graph that layers run on."""


def domain_of(edge_index: object) -> Domain:
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
    numbers = message.plain.new_zeros(NODES, *message.plain.shape[1:])
    return operations.make(numbers, made)


def _plain_aggregate(
    operations: Operations,
    symbol: Symbol,
    domain: Domain,
    aggregation: Aggregation,
) -> NodeValue:
    writer, (kind, context, combine) = operations.writer, aggregation
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
        assert one.own is not None
        assert value.own is not None
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
    return operations.make(numbers, Softmax(logits))


def _degree(index: Tensor, num_nodes: object = None, dtype: object = None) -> Traced:
    operations, domain = _operations(index), _target(index)
    return operations.make(torch.bincount(_plain(index), minlength=NODES).float(), Degree(domain))


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
    operations, domain = _operations(edge_index), domain_of(edge_index)
    if domain.own:
        raise ModelError("self-loops are added twice: remove_self_loops first")
    if num_nodes is None:
        raise ModelError(
            "it must be called with num_nodes=x.size(0): without it, nodes after the last that has an edge "
            "get no loop"
        )
    looped = replace(domain, own=True)
    loops = torch.arange(NODES).expand(2, -1)
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
        filled = torch.ones(NODES, *shape)
    elif traced_in(fill_value):
        raise ModelError("fill_value must be a number, a parameter or the name of an aggregation")
    else:
        row = torch.as_tensor(1.0 if fill_value is None else fill_value, dtype=torch.float32)
        row = row.reshape(shape) if row.numel() == math.prod(shape) else row.broadcast_to(shape)
        own = operations.writer.constant(row.reshape(-1).contiguous())
        filled = row.expand(NODES, *shape)
    attributes = operations.make(torch.cat([numbers, filled]), EdgeValue(looped, value.edges, own.rows))
    return made, attributes


def _remove_self_loops(edge_index: Tensor, edge_attr: Tensor | None = None) -> tuple[Traced, Traced | None]:
    operations, domain = _operations(edge_index), domain_of(edge_index)
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
    return _add_self_loops(edge_index, num_nodes=num_nodes)


def _gcn_norm(
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    num_nodes: int | None = None,
    improved: bool = False,
    add_self_loops: bool = True,
    flow: str = "source_to_target",
    dtype: object = None,
) -> tuple[Traced, Traced]:
    operations, domain = _operations(edge_index), domain_of(edge_index)
    weight = edge_weight.symbol if isinstance(edge_weight, Traced) else None
    if edge_weight is not None and not (
        isinstance(weight, EdgeValue) and operations.writer.tape.is_weight(weight.edges)
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
        NODES,
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
    return NODES


def _plain(value: object) -> Tensor:
    found = plain(value)
    assert isinstance(found, Tensor)
    return found


REPLACEMENTS: Mapping[Callable[..., object], Callable[..., object]] = {
    torch_geometric.utils.softmax: _softmax,
    torch_geometric.utils.degree: _degree,
    torch_geometric.utils.scatter: _scatter,
    torch_geometric.utils.add_self_loops: _add_self_loops,
    torch_geometric.utils.remove_self_loops: _remove_self_loops,
    torch_geometric.utils.add_remaining_self_loops: _add_remaining_self_loops,
    gcn_norm: _gcn_norm,
    maybe_num_nodes: _num_nodes,
}


def if_traced(replacement: Callable[..., object], original: Callable[..., object]) -> Callable[..., object]:
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
