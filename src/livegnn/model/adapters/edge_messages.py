"""How convolutions become steps whose messages are made of the edge's features, without any attention.

NeutronRT, table II: G-GCN (`res_gated_graph_conv`) and MoNet (`gmm_conv`).
"""

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters import operations
from livegnn.model.adapters.arguments import (
    Arguments,
    aggregation,
    both_ends,
    check_convolution,
    edge_features,
    needed_features,
    source_and_target,
    write_bias,
    write_linear,
)
from livegnn.model.adapters.tape import Rows, Tape, Weight
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType


def gine_conv(tape: Tape, layer: pyg.GINEConv, path: str, given: Arguments) -> Rows:
    """GINEConv: GINConv, with the features of the edge added to the source's row, and a ReLU."""
    edge_type = check_convolution(layer, given)
    source, target = source_and_target(tape, given["x"])
    features = needed_features(given)
    if layer.lin is not None:
        features = write_linear(tape, layer.lin, f"{path}.lin", features, "lin")
    message = tape.write("add", tape.source(source, edge_type), features, name="sum")
    message = tape.write("relu", message, name="message")
    out = _aggregate(tape, layer, message, edge_type)
    if target is not None:
        factor = 1.0 + float(layer.eps)
        own = tape.write("scale", target, name="own", attrs={"value": factor}) if factor != 1 else target
        out = tape.write("add", out, own, name="sum")
    return tape.call(layer.nn, f"{path}.nn", out)


def res_gated_graph_conv(tape: Tape, layer: pyg.ResGatedGraphConv, path: str, given: Arguments) -> Rows:
    """ResGatedGraphConv: a gate for each channel, from both ends, lets the source's value through.

    Its linear maps of a row and an edge's features side by side are sums of a map of each.
    """
    edge_type = check_convolution(layer, given)
    source, target = both_ends(tape, given["x"])
    features = edge_features(given)
    if (features is None) != (layer.edge_dim is None):
        needs = "with edge_attr" if features is None else "without edge_attr, as its edge_dim is None"
        raise ModelError(f"must be called {needs}")
    edge_dim = layer.edge_dim or 0

    def at_node(name: str, x: Rows) -> Rows:
        linear = getattr(layer, name)
        channels = linear.weight.shape[-1] - edge_dim
        weights = {
            "weight": Weight(f"{path}.{name}.weight", linear.weight[:, :channels]),
            "bias": None if linear.bias is None else Weight(f"{path}.{name}.bias", linear.bias),
        }
        return tape.write("linear", x, name=name, weights=weights)

    key, query, value = (
        at_node("lin_key", target),
        at_node("lin_query", source),
        at_node("lin_value", source),
    )
    key = tape.target(key, edge_type, "lin_key.target")
    gate = tape.write("add", key, tape.source(query, edge_type, "lin_query.source"), name="gate")
    value = tape.source(value, edge_type, "lin_value.source")
    if features is not None:
        of_edge = {
            name: getattr(layer, name).weight[:, -edge_dim:].double()
            for name in ("lin_key", "lin_query", "lin_value")
        }
        weight = Weight(f"{path}.gate.edge", (of_edge["lin_key"] + of_edge["lin_query"]).float())
        to_gate = tape.write("linear", features, name="gate.edge", weights={"weight": weight})
        gate = tape.write("add", gate, to_gate, name="gate")
        weight = Weight(f"{path}.lin_value.edge", of_edge["lin_value"].float())
        to_value = tape.write("linear", features, name="lin_value.edge", weights={"weight": weight})
        value = tape.write("add", value, to_value, name="value")
    gate = _activate(tape, layer.act, f"{path}.act", gate)
    out = _aggregate(tape, layer, tape.write("multiply", gate, value, name="message"), edge_type)
    if layer.lin_skip is not None:
        out = tape.write(
            "add", out, write_linear(tape, layer.lin_skip, f"{path}.lin_skip", target, "lin_skip")
        )
    return write_bias(tape, layer.bias, path, out)


def gmm_conv(tape: Tape, layer: pyg.GMMConv, path: str, given: Arguments) -> Rows:
    """GMMConv (MoNet): Gaussians of the edge's features weight the source's rows, one kernel each."""
    edge_type = check_convolution(layer, given)
    source, target = source_and_target(tape, given["x"])
    features = needed_features(given)
    kernels = layer.kernel_size
    gaussians = _gaussians(tape, layer, path, features)
    if layer.separate_gaussians:
        out = _separate(tape, layer, path, source, gaussians, edge_type)
    else:
        value = operations.matmul(tape, source, Weight(f"{path}.g", layer.g))
        if aggregation(layer)[:2] == ("sum", "none"):
            out = tape.propagate(value, Propagate(edge_type, ("coefficient",)), gaussians)
            out = _sum_heads(tape, out, kernels, "kernels")
        else:
            value = tape.source(value, edge_type)
            message = tape.write("scale_heads", value, gaussians, name="kernels")
            out = _aggregate(tape, layer, _sum_heads(tape, message, kernels, "message"), edge_type)
    root = getattr(layer, "root", None)
    if root is not None and target is not None:
        out = tape.write("add", out, write_linear(tape, root, f"{path}.root", target, "root"))
    return write_bias(tape, layer.bias, path, out)


def _gaussians(tape: Tape, layer: pyg.GMMConv, path: str, features: Rows) -> Rows:
    """``exp(-0.5 * sum((e - mu)^2 / (1e-15 + sigma^2)))`` for each of the Gaussians.

    (e - mu) / sqrt(2 * (1e-15 + sigma^2)), number by number. The difference comes first: of an e and a mu
    that are large beside sigma it is exact, which that of their quotients is not.
    """
    mu = layer.mu.reshape(-1, layer.dim)
    factor = torch.rsqrt(2 * (1e-15 + layer.sigma.double().reshape(-1) ** 2))
    weights = {
        "weight": Weight(f"{path}.repeated", torch.eye(layer.dim).repeat(len(mu), 1)),
        "bias": Weight(f"{path}.mu.negative", -mu.reshape(-1)),
    }
    distance = tape.write("linear", features, name="distance", weights=weights)
    inverse = {"scale": Weight(f"{path}.sigma.inverse", factor.float())}
    distance = tape.write("scale_shift", distance, name="distance", weights=inverse)
    square = tape.write("multiply", distance, distance, name="square")
    total = tape.write("sum_channels", square, name="exponent", attrs={"heads": len(mu)})
    return tape.write("exp", operations.negative(tape, total), name="gaussian")


def _separate(
    tape: Tape, layer: pyg.GMMConv, path: str, source: Rows, gaussians: Rows, edge_type: EdgeType
) -> Rows:
    """Gaussians for each pair of an input and an output channel: a matrix of weights for every edge."""
    inputs, outputs = layer.rel_in_channels, layer.out_channels
    weight = Weight(f"{path}.g", layer.g.reshape(-1))
    weighted = tape.write("scale_shift", gaussians, name="kernels", weights={"scale": weight})
    matrix = tape.write("sum_channels", weighted, name="matrix", attrs={"heads": inputs * outputs})
    product = tape.write("scale_heads", matrix, tape.source(source, edge_type), name="product")
    return _aggregate(tape, layer, _sum_heads(tape, product, inputs, "message"), edge_type)


def _aggregate(tape: Tape, layer: pyg.MessagePassing, message: Rows, edge_type: EdgeType) -> Rows:
    aggregate, context, combine = aggregation(layer)
    return tape.propagate(message, Propagate(edge_type, (), context, combine, aggregate))


def _sum_heads(tape: Tape, x: Rows, heads: int, name: str) -> Rows:
    return tape.write("sum_heads", x, name=name, attrs={"heads": heads})


def _activate(tape: Tape, act: object, path: str, x: Rows) -> Rows:
    """A layer's activation, which may be a module or a function."""
    if isinstance(act, nn.Module):
        return tape.call(act, path, x)
    operation = operations.FUNCTIONS.get(act)
    if operation is None:
        raise ModelError(f"act must be an activation that can be imported, got {act!r}")
    return operation(tape, x)
