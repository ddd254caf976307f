"""How the layers of torch and PyG become steps: convolutions, norms, linear layers, jumping knowledge."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters import attention, edge_messages, operations, relational, relational_attention
from livegnn.model.adapters.arguments import (
    Arguments,
    aggregation,
    check_convolution,
    is_weighted,
    source_and_target,
    write_linear,
)
from livegnn.model.adapters.operations import node_rows, rows
from livegnn.model.adapters.tape import Rows, Tape, Weight
from livegnn.model.propagation import MessageFactor, Propagate


def gcn_conv(tape: Tape, layer: pyg.GCNConv, path: str, given: Arguments) -> Rows:
    """GCNConv: NeutronRT, table II, row GCN; the degrees are sums of weights if it is called with weights."""
    edge_type = check_convolution(layer, given)
    weighted = is_weighted(given)
    x = node_rows(given["x"])
    tape.consumed.append(x.name)
    factors: tuple[MessageFactor, ...] = ("weight",) if weighted else ()
    aggregate, context, combine = aggregation(layer)
    self_loops: float | None = None
    if layer.normalize:
        if context != "none":
            raise ModelError(f"aggr={layer.aggr!r} cannot be combined with normalize=True: use aggr='add'")
        factors, context, combine = (*factors, "source_rsqrt"), "sum" if weighted else "count", "rsqrt"
        if layer.add_self_loops:
            self_loops = 2.0 if layer.improved and weighted else 1.0
            if layer.improved and weighted and tape.weight_assumed:
                raise ModelError(
                    "improved=True gives self-loops the weight 2 only if the module is called with edge "
                    "weights: say whether it is, with edge_weight=True or edge_weight=False"
                )
    h = write_linear(tape, layer.lin, f"{path}.lin", x, "lin")
    out = tape.propagate(h, Propagate(edge_type, factors, context, combine, aggregate, self_loops))
    if layer.bias is None:
        return out
    return tape.write("scale_shift", out, weights={"shift": Weight(f"{path}.bias", layer.bias)})


def sage_conv(tape: Tape, layer: pyg.SAGEConv, path: str, given: Arguments) -> Rows:
    """SAGEConv: NeutronRT, table II, row GraphSAGE, with the target's own row added (``root_weight``)."""
    edge_type = check_convolution(layer, given)
    source, target = source_and_target(tape, given["x"])
    if layer.project:
        source = tape.write(
            "relu", write_linear(tape, layer.lin, f"{path}.lin", source, "lin"), name="project"
        )
    aggregate, context, combine = aggregation(layer)
    out = tape.propagate(source, Propagate(edge_type, (), context, combine, aggregate))
    out = write_linear(tape, layer.lin_l, f"{path}.lin_l", out, "lin_l")
    if layer.root_weight and target is not None:
        root = write_linear(tape, layer.lin_r, f"{path}.lin_r", target, "lin_r")
        out = tape.write("add", out, root)
    return operations.normalize(tape, out) if layer.normalize else out


def graph_conv(tape: Tape, layer: pyg.GraphConv, path: str, given: Arguments) -> Rows:
    """GraphConv: the sum, mean, min or max of (weighted) neighbours, and the target's own row."""
    edge_type = check_convolution(layer, given)
    weighted = is_weighted(given)
    source, target = source_and_target(tape, given["x"])
    aggregate, context, combine = aggregation(layer)
    factors: tuple[MessageFactor, ...] = ("weight",) if weighted else ()
    out = tape.propagate(source, Propagate(edge_type, factors, context, combine, aggregate))
    out = write_linear(tape, layer.lin_rel, f"{path}.lin_rel", out, "lin_rel")
    if target is None:
        return out
    return tape.write("add", out, write_linear(tape, layer.lin_root, f"{path}.lin_root", target, "lin_root"))


def gin_conv(tape: Tape, layer: pyg.GINConv, path: str, given: Arguments) -> Rows:
    """GINConv: the sum of the neighbours and (1 + eps) times the target's own row, through its network."""
    edge_type = check_convolution(layer, given)
    source, target = source_and_target(tape, given["x"])
    aggregate, context, combine = aggregation(layer)
    out = tape.propagate(source, Propagate(edge_type, (), context, combine, aggregate))
    if target is not None:
        factor = 1.0 + float(layer.eps)
        own = tape.write("scale", target, name="own", attrs={"value": factor}) if factor != 1 else target
        out = tape.write("add", out, own, name="sum")
    return tape.call(layer.nn, f"{path}.nn", out)


def linear(tape: Tape, layer: nn.Linear | pyg.Linear, path: str, given: Arguments) -> Rows:
    return write_linear(tape, layer, path, rows(_first(given)), "")


def batch_norm(tape: Tape, layer: nn.BatchNorm1d, path: str, given: Arguments) -> Rows:
    """Batch norm in evaluation mode: a scale and a shift per channel, from the running statistics."""
    if layer.running_mean is None or layer.running_var is None:
        raise ModelError(
            "has no running statistics, so it normalises over all nodes at once: train it with "
            "track_running_stats=True"
        )
    scale = 1 / torch.sqrt(layer.running_var.double() + layer.eps)
    if layer.weight is not None:
        scale = scale * layer.weight.double()
    shift = -layer.running_mean.double() * scale
    if layer.bias is not None:
        shift = shift + layer.bias.double()
    weights = {
        "scale": Weight(f"{path}.scale", scale.float()),
        "shift": Weight(f"{path}.shift", shift.float()),
    }
    return tape.write("scale_shift", rows(_first(given)), weights=weights)


def pyg_batch_norm(tape: Tape, layer: pyg.BatchNorm, path: str, given: Arguments) -> Rows:
    return batch_norm(tape, layer.module, path, given)


def layer_norm(tape: Tape, layer: nn.LayerNorm, path: str, given: Arguments) -> Rows:
    if len(layer.normalized_shape) != 1:
        shape = tuple(layer.normalized_shape)
        raise ModelError(f"must normalise over a node's channels alone, got normalized_shape={shape}")
    return _layer_norm(tape, layer, path, given)


def pyg_layer_norm(tape: Tape, layer: pyg.LayerNorm, path: str, given: Arguments) -> Rows:
    if layer.mode != "node":
        raise ModelError(
            f"mode={layer.mode!r} normalises over all nodes at once, so any change would change every "
            "prediction: train it with mode='node'"
        )
    return _layer_norm(tape, layer, path, given)


def jumping_knowledge(tape: Tape, layer: pyg.JumpingKnowledge, path: str, given: Arguments) -> Rows:
    parts = given["xs"]
    if not isinstance(parts, list | tuple) or not parts:
        raise ModelError("must be given the list of the layers' outputs")
    if layer.mode == "cat":
        return operations.concat(tape, parts, dim=-1)
    if layer.mode == "max":
        out = rows(parts[0])
        for part in parts[1:]:
            out = tape.write("maximum", out, rows(part))
        return out
    raise ModelError(f"mode must be 'cat' or 'max', got {layer.mode!r}")


def prelu(tape: Tape, layer: nn.PReLU, path: str, given: Arguments) -> Rows:
    if layer.weight.numel() != 1:
        raise ModelError(f"must have one slope for all channels, got {layer.weight.numel()}")
    return operations.leaky_relu(tape, rows(_first(given)), float(layer.weight))


def identity(tape: Tape, layer: nn.Module, path: str, given: Arguments) -> Rows:
    return rows(_first(given))


def _activation(operation: Callable[..., Rows], *settings: str) -> Callable[..., Rows]:
    """An importer of a layer that is one operation. settings: the attributes that the operation takes."""

    def write(tape: Tape, layer: nn.Module, path: str, given: Arguments) -> Rows:
        x = rows(_first(given))
        out = operation(tape, x, *(getattr(layer, setting) for setting in settings))
        if getattr(layer, "inplace", False):
            x.name = out.name
            return x
        return out

    return write


LAYERS: Mapping[type, Callable[..., Rows]] = {
    pyg.GCNConv: gcn_conv,
    pyg.SAGEConv: sage_conv,
    pyg.GraphConv: graph_conv,
    pyg.GINConv: gin_conv,
    pyg.GINEConv: edge_messages.gine_conv,
    pyg.GATConv: attention.gat_conv,
    pyg.GATv2Conv: attention.gatv2_conv,
    pyg.TransformerConv: attention.transformer_conv,
    pyg.AGNNConv: attention.agnn_conv,
    pyg.ResGatedGraphConv: edge_messages.res_gated_graph_conv,
    pyg.GMMConv: edge_messages.gmm_conv,
    pyg.RGCNConv: relational.rgcn_conv,
    pyg.FastRGCNConv: relational.rgcn_conv,
    pyg.RGATConv: relational_attention.rgat_conv,
    pyg.Linear: linear,
    pyg.BatchNorm: pyg_batch_norm,
    pyg.LayerNorm: pyg_layer_norm,
    pyg.JumpingKnowledge: jumping_knowledge,
    nn.Linear: linear,
    nn.BatchNorm1d: batch_norm,
    nn.LayerNorm: layer_norm,
    nn.ReLU: _activation(operations.relu),
    nn.LeakyReLU: _activation(operations.leaky_relu, "negative_slope"),
    nn.PReLU: prelu,
    nn.ELU: _activation(operations.elu, "alpha"),
    nn.GELU: _activation(operations.gelu, "approximate"),
    nn.SiLU: _activation(operations.silu),
    nn.Sigmoid: _activation(operations.sigmoid),
    nn.Tanh: _activation(operations.tanh),
    nn.Softmax: _activation(operations.softmax, "dim"),
    nn.LogSoftmax: _activation(operations.log_softmax, "dim"),
    nn.Identity: identity,
    nn.Dropout: identity,
    nn.AlphaDropout: identity,
}
"""Keyed by the very class: a subclass may compute something else."""

CONVOLUTIONS = tuple(layer.__name__ for layer in LAYERS if issubclass(layer, pyg.MessagePassing))


def _first(given: Arguments) -> object:
    first, *others = given.values()
    if any(other is not None for other in others):
        raise ModelError("must be called with one tensor and nothing else")
    return first


def _layer_norm(tape: Tape, layer: nn.LayerNorm | pyg.LayerNorm, path: str, given: Arguments) -> Rows:
    weight = None if layer.weight is None else Weight(f"{path}.weight", layer.weight)
    bias = None if layer.bias is None else Weight(f"{path}.bias", layer.bias)
    attrs = {"eps": float(layer.eps)}
    return tape.write(
        "layer_norm", rows(_first(given)), weights={"weight": weight, "bias": bias}, attrs=attrs
    )
