"""How convolutions with attention become steps: each in-edge counts by how well its two ends go together.

A softmax over a node's in-edges is the coefficient ``exp(logits)``, summed as the context and divided by it
(NeutronRT, table II, row GAT). A self-loop that the convolution adds is no edge of the graph: it is the
node's own message, the same computation with the node's own row at both ends. Linear maps come before the
rows go to the edges, so that they are computed once a node.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters import operations
from livegnn.model.adapters.arguments import (
    AGGREGATIONS,
    Arguments,
    both_ends,
    check_convolution,
    edge_features,
    source_and_target,
    write_bias,
    write_linear,
)
from livegnn.model.adapters.operations import node_rows
from livegnn.model.adapters.tape import Rows, Tape, Weight
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType


@dataclass
class Features:
    """Linear maps of an edge's features, and of those of the self-loop that every node gets.

    edges: one row per edge. loops: one row per node, or the same for all, or None if no loops are added.
    """

    edges: Rows
    loops: Rows | Weight | None


def gat_conv(tape: Tape, layer: pyg.GATConv, path: str, given: Arguments) -> Rows:
    """GATConv. A logit is a sum of one number of each end (and of the edge): only these go to the edges."""
    edge_type = _attention_edges(layer, given)
    source, target = source_and_target(tape, given["x"])
    source_map, source_path = _first_of(layer, path, "lin", "lin_src")
    target_map, target_path = _first_of(layer, path, "lin", "lin_dst")
    value = write_linear(tape, source_map, source_path, source, "lin_src")
    heads = layer.heads
    # Each head by itself: a matrix takes the other heads times 0, which of an infinity is no number.
    att = Weight(f"{path}.att_src", layer.att_src.reshape(-1))
    to_source = tape.write("scale_shift", value, name="att_src", weights={"scale": att})
    to_source = _sum_channels(tape, to_source, heads, "att_src")
    to_target = None
    if target is not None:  # the linear map of a target is read for its logits alone
        by_head = _by_head(layer.att_dst, heads) @ target_map.weight.double()
        weight = Weight(f"{path}.att_dst.{target_path.rpartition('.')[2]}", by_head.float())
        to_target = tape.write("linear", target, name="att_dst", weights={"weight": weight})
    features = None
    if layer.lin_edge is not None:
        by_head = _by_head(layer.att_edge, heads) @ layer.lin_edge.weight.double()
        weight = Weight(f"{path}.att_edge.lin_edge", by_head.float())
        features = _features(tape, layer, weight, "att_edge", given, edge_type)

    def logits(ends: list[Rows], feature: Rows | Weight | None, name: str) -> Rows:
        total = _plus(tape, ends[0], ends[1] if len(ends) > 1 else None, f"sum{name}")
        total = _plus(tape, total, feature, f"sum{name}")
        slope = float(layer.negative_slope)
        return tape.write("leaky_relu", total, name=f"logits{name}", attrs={"slope": slope})

    ends = [tape.source(to_source, edge_type, "att_src.source")]
    if to_target is not None:
        ends.append(tape.target(to_target, edge_type, "att_dst.target"))
    edge_logits = logits(ends, None if features is None else features.edges, "")
    own_logits = None
    if layer.add_self_loops:
        ends = [to_source] if to_target is None else [to_source, to_target]
        own_logits = logits(ends, None if features is None else features.loops, ".loop")
    out = _softmax_sum(tape, value, edge_logits, own_logits, edge_type)
    out = _join_heads(tape, out, heads, layer.concat)
    return _residual_and_bias(tape, layer, path, target, out)


def gatv2_conv(tape: Tape, layer: pyg.GATv2Conv, path: str, given: Arguments) -> Rows:
    """GATv2Conv: the sum of both ends, and of the edge, goes through a leaky ReLU before the attention."""
    edge_type = _attention_edges(layer, given)
    source, target = both_ends(tape, given["x"])
    value = write_linear(tape, layer.lin_l, f"{path}.lin_l", source, "lin_l")
    asks = value
    if target.name != source.name or not layer.share_weights:
        asks = write_linear(tape, layer.lin_r, f"{path}.lin_r", target, "lin_r")
    features = None
    if layer.lin_edge is not None:
        weight = Weight(f"{path}.lin_edge.weight", layer.lin_edge.weight)
        features = _features(tape, layer, weight, "lin_edge", given, edge_type)
    elif given.get("edge_attr") is not None:
        raise ModelError("must be called without edge_attr, as its edge_dim is None")

    def logits(one: Rows, other: Rows, feature: Rows | Weight | None, name: str) -> Rows:
        total = _plus(tape, _plus(tape, one, other, f"sum{name}"), feature, f"sum{name}")
        slope = float(layer.negative_slope)
        total = tape.write("leaky_relu", total, name=f"sum{name}", attrs={"slope": slope})
        weight = Weight(f"{path}.att", layer.att.reshape(-1))
        total = tape.write("scale_shift", total, name=f"att{name}", weights={"scale": weight})
        return _sum_channels(tape, total, layer.heads, f"logits{name}")

    edge_logits = logits(
        tape.source(value, edge_type, "lin_l.source"),
        tape.target(asks, edge_type, "lin_r.target"),
        None if features is None else features.edges,
        "",
    )
    own_logits = None
    if layer.add_self_loops:
        own_logits = logits(value, asks, None if features is None else features.loops, ".loop")
    out = _softmax_sum(tape, value, edge_logits, own_logits, edge_type)
    out = _join_heads(tape, out, layer.heads, layer.concat)
    return _residual_and_bias(tape, layer, path, target, out)


def transformer_conv(tape: Tape, layer: pyg.TransformerConv, path: str, given: Arguments) -> Rows:
    """TransformerConv: the product of the target's query with the source's key, and the source's value."""
    edge_type = _attention_edges(layer, given)
    source, target = both_ends(tape, given["x"])
    query = write_linear(tape, layer.lin_query, f"{path}.lin_query", target, "lin_query")
    key = write_linear(tape, layer.lin_key, f"{path}.lin_key", source, "lin_key")
    value = write_linear(tape, layer.lin_value, f"{path}.lin_value", source, "lin_value")
    keys = tape.source(key, edge_type, "lin_key.source")
    features = edge_features(given)
    if (features is None) != (layer.lin_edge is None):
        needs = "with edge_attr" if features is None else "without edge_attr, as its edge_dim is None"
        raise ModelError(f"must be called {needs}")
    if features is not None:
        features = write_linear(tape, layer.lin_edge, f"{path}.lin_edge", features, "lin_edge")
        keys = tape.write("add", keys, features, name="keys")
        value = tape.write("add", tape.source(value, edge_type, "lin_value.source"), features, name="values")
    logits = tape.write(
        "multiply", tape.target(query, edge_type, "lin_query.target"), keys, name="query_times_key"
    )
    logits = _sum_channels(tape, logits, layer.heads, "logits")
    attrs = {"value": 1 / math.sqrt(layer.out_channels)}
    logits = tape.write("scale", logits, name="logits", attrs=attrs)
    out = _softmax_sum(tape, value, logits, None, edge_type)
    out = _join_heads(tape, out, layer.heads, layer.concat)
    if not layer.root_weight:
        return out
    root = write_linear(tape, layer.lin_skip, f"{path}.lin_skip", target, "lin_skip")
    if layer.lin_beta is None:
        return tape.write("add", out, root)
    # beta root + (1 - beta) out, each part by itself: out + beta (root - out) would leave the rounding of a
    # large out in a small result. 1 - sigmoid(z) is sigmoid(-z).
    difference = tape.write("add", out, operations.negative(tape, root), name="out_minus_root")
    all_three = tape.write("concat", out, root, difference, name="out_and_root")
    logit = write_linear(tape, layer.lin_beta, f"{path}.lin_beta", all_three, "lin_beta")
    beta = tape.write("sigmoid", logit, name="beta")
    rest = tape.write("sigmoid", operations.negative(tape, logit), name="rest")
    return tape.write(
        "add",
        tape.write("scale_heads", root, beta, name="beta_part"),
        tape.write("scale_heads", out, rest, name="rest_part"),
    )


def agnn_conv(tape: Tape, layer: pyg.AGNNConv, path: str, given: Arguments) -> Rows:
    """AGNNConv: the cosine of both ends, times beta."""
    edge_type = _attention_edges(layer, given)
    x = node_rows(given["x"])
    tape.consumed.append(x.name)
    normal = operations.normalize(tape, x)

    def logits(one: Rows, other: Rows, name: str) -> Rows:
        product = tape.write("multiply", one, other, name=f"product{name}")
        cosine = _sum_channels(tape, product, 1, f"cosine{name}")
        return tape.write("scale", cosine, name=f"logits{name}", attrs={"value": float(layer.beta)})

    edge_logits = logits(tape.source(normal, edge_type), tape.target(normal, edge_type), "")
    own_logits = logits(normal, normal, ".loop") if layer.add_self_loops else None
    return _softmax_sum(tape, x, edge_logits, own_logits, edge_type)


def _attention_edges(layer: pyg.MessagePassing, given: Arguments) -> EdgeType:
    """The type of the edges that a layer is called with; checks what all these layers have."""
    edge_type = check_convolution(layer, given)
    if layer.aggr not in ("add", "sum"):
        raise ModelError(f"aggr must be 'add' with attention, got {layer.aggr!r}")
    if getattr(layer, "add_self_loops", False) and edge_type[0] != edge_type[2]:
        raise ModelError(
            f"add_self_loops=True needs edges between nodes of one type, got {edge_type[0]!r} to "
            f"{edge_type[2]!r}: train it with add_self_loops=False"
        )
    return edge_type


def _first_of(layer: nn.Module, path: str, *names: str) -> tuple[pyg.Linear, str]:
    """The first of these layers that there is, and where: a GATConv made for pairs has two, else one."""
    name = next(name for name in names if getattr(layer, name, None) is not None)
    return getattr(layer, name), f"{path}.{name}"


def _by_head(att: torch.Tensor, heads: int) -> torch.Tensor:
    """[1, heads, channels] as a matrix [heads, heads * channels] that gives each head's product."""
    return torch.block_diag(*att.reshape(heads, 1, -1).double().unbind())


def _plus(tape: Tape, total: Rows, part: Rows | Weight | None, name: str) -> Rows:
    if part is None:
        return total
    if isinstance(part, Weight):
        return tape.write("scale_shift", total, name=name, weights={"shift": part})
    return tape.write("add", total, part, name=name)


def _sum_channels(tape: Tape, x: Rows, heads: int, name: str) -> Rows:
    return tape.write("sum_channels", x, name=name, attrs={"heads": heads})


def _features(
    tape: Tape,
    layer: pyg.GATConv | pyg.GATv2Conv,
    weight: Weight,
    name: str,
    given: Arguments,
    edge_type: EdgeType,
) -> Features | None:
    """The features of edges and of added self-loops, through `weight`; None if the layer gets none."""
    given_features = edge_features(given)
    if given_features is None:
        return None
    edges = tape.write("linear", given_features, name=name, weights={"weight": weight})
    if not layer.add_self_loops:
        return Features(edges, None)
    fill = layer.fill_value
    if isinstance(fill, str):
        if fill not in AGGREGATIONS:
            raise ModelError(f"fill_value must be a number or one of {', '.join(map(repr, AGGREGATIONS))}")
        aggregate, context, combine = AGGREGATIONS[fill]
        operators = Propagate(edge_type, (), context, combine, aggregate, skip_loops=True)
        loops = tape.propagate(given_features, operators)
        return Features(edges, tape.write("linear", loops, name=f"{name}.loop", weights={"weight": weight}))
    row = torch.as_tensor(1.0 if fill is None else fill).double().reshape(-1)
    shift = weight.tensor.double() @ row.expand(weight.tensor.shape[-1])
    return Features(edges, Weight(f"{weight.name}.loop", shift.float()))


def _softmax_sum(tape: Tape, value: Rows, logits: Rows, own_logits: Rows | None, edge_type: EdgeType) -> Rows:
    """The sum of the values, weighted by the softmax over a node's in-edges and, with own logits, itself.

    The self-loops of the graph then give way to the node's own message, as in PyG.
    """
    coefficient = tape.write("exp", logits, name="coefficient")
    if own_logits is None:
        operators = Propagate(edge_type, ("coefficient",), "sum", "divide")
        return tape.propagate(value, operators, coefficient)
    own = tape.write("exp", own_logits, name="coefficient.loop")
    operators = Propagate(edge_type, ("coefficient",), "sum", "divide", skip_loops=True, own_message=True)
    return tape.propagate(value, operators, coefficient, value, own)


def _join_heads(tape: Tape, out: Rows, heads: int, concat: bool) -> Rows:
    """The heads side by side, or their mean."""
    if concat or heads == 1:
        return out
    out = tape.write("sum_heads", out, name="sum_heads", attrs={"heads": heads})
    return tape.write("scale", out, name="mean", attrs={"value": 1 / heads})


def _residual_and_bias(
    tape: Tape, layer: pyg.GATConv | pyg.GATv2Conv, path: str, target: Rows | None, out: Rows
) -> Rows:
    residual = getattr(layer, "res", None)
    if residual is not None and target is not None:
        out = tape.write("add", out, write_linear(tape, residual, f"{path}.res", target, "res"))
    return write_bias(tape, layer.bias, path, out)
