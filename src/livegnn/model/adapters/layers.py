"""How the layers of torch and PyG become steps: convolutions, norms, linear layers, jumping knowledge."""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters import operations
from livegnn.model.adapters.operations import rows
from livegnn.model.adapters.tape import Edges, EdgeWeights, Rows, Tape, Weight
from livegnn.model.propagation import Aggregate, Combine, MessageFactor, NeighborContext, Propagate
from livegnn.types import EdgeType

Arguments = Mapping[str, object]
"""The arguments of a layer's call, by the names of its ``forward``."""

_AGGREGATES: Mapping[object, tuple[Aggregate, NeighborContext, Combine]] = {
    "add": ("sum", "none", "identity"),
    "sum": ("sum", "none", "identity"),
    "mean": ("sum", "count", "divide"),
    "max": ("max", "none", "identity"),
    "min": ("min", "none", "identity"),
}


def gcn_conv(tape: Tape, layer: pyg.GCNConv, path: str, given: Arguments) -> Rows:
    """GCNConv: NeutronRT, table II, row GCN; the degrees are sums of weights if it is called with weights."""
    edge_type = check_convolution(layer, given)
    weighted = _weighted(given)
    x = rows(given["x"])
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
    h = _linear(tape, layer.lin, f"{path}.lin", x, "lin")
    out = tape.propagate(h, Propagate(edge_type, factors, context, combine, aggregate, self_loops))
    if layer.bias is None:
        return out
    return tape.write("scale_shift", out, weights={"shift": Weight(f"{path}.bias", layer.bias)})


def sage_conv(tape: Tape, layer: pyg.SAGEConv, path: str, given: Arguments) -> Rows:
    """SAGEConv: NeutronRT, table II, row GraphSAGE, with the target's own row added (``root_weight``)."""
    edge_type = check_convolution(layer, given)
    source, target = source_and_target(tape, given["x"])
    if layer.project:
        source = tape.write("relu", _linear(tape, layer.lin, f"{path}.lin", source, "lin"), name="project")
    aggregate, context, combine = aggregation(layer)
    out = tape.propagate(source, Propagate(edge_type, (), context, combine, aggregate))
    out = _linear(tape, layer.lin_l, f"{path}.lin_l", out, "lin_l")
    if layer.root_weight and target is not None:
        root = _linear(tape, layer.lin_r, f"{path}.lin_r", target, "lin_r")
        out = tape.write("add", out, root)
    return operations.normalize(tape, out) if layer.normalize else out


def graph_conv(tape: Tape, layer: pyg.GraphConv, path: str, given: Arguments) -> Rows:
    """GraphConv: the sum, mean, min or max of (weighted) neighbours, and the target's own row."""
    edge_type = check_convolution(layer, given)
    weighted = _weighted(given)
    source, target = source_and_target(tape, given["x"])
    aggregate, context, combine = aggregation(layer)
    factors: tuple[MessageFactor, ...] = ("weight",) if weighted else ()
    out = tape.propagate(source, Propagate(edge_type, factors, context, combine, aggregate))
    out = _linear(tape, layer.lin_rel, f"{path}.lin_rel", out, "lin_rel")
    if target is None:
        return out
    return tape.write("add", out, _linear(tape, layer.lin_root, f"{path}.lin_root", target, "lin_root"))


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
    return _linear(tape, layer, path, rows(_first(given)), "")


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


def _linear(tape: Tape, layer: nn.Linear | pyg.Linear, path: str, x: Rows, name: str) -> Rows:
    bias = None if layer.bias is None else Weight(f"{path}.bias", layer.bias)
    return tape.write(
        "linear", x, name=name, weights={"weight": Weight(f"{path}.weight", layer.weight), "bias": bias}
    )


def _layer_norm(tape: Tape, layer: nn.LayerNorm | pyg.LayerNorm, path: str, given: Arguments) -> Rows:
    weight = None if layer.weight is None else Weight(f"{path}.weight", layer.weight)
    bias = None if layer.bias is None else Weight(f"{path}.bias", layer.bias)
    attrs = {"eps": float(layer.eps)}
    return tape.write(
        "layer_norm", rows(_first(given)), weights={"weight": weight, "bias": bias}, attrs=attrs
    )


def check_convolution(layer: pyg.MessagePassing, given: Arguments) -> EdgeType:
    """The edge type along which a convolution works. Raises `ModelError` if it cannot be called like that."""
    check_edges(layer, given)
    edges, x = given["edge_index"], given["x"]
    assert isinstance(edges, Edges)
    ends = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    source_type, _, target_type = edges.edge_type
    for end, what, node_type in zip(ends, ("source", "target"), (source_type, target_type), strict=True):
        if end is None and source_type != target_type:
            raise ModelError(
                f"is given no rows of {node_type!r} nodes for the {what}s of {edges.edge_type}: give it the "
                "pair (x_source, x_target), and keep rows of every node type from layer to layer"
            )
        if isinstance(end, Rows) and end.node_type != node_type:
            raise ModelError(
                f"must be given {node_type!r} rows for the {what}s of {edges.edge_type}, got those of "
                f"{end.node_type!r} nodes"
            )
    return edges.edge_type


def check_edges(layer: pyg.MessagePassing, given: Arguments) -> None:
    """Raises `ModelError` unless the layer is given edges of the graph, and sends along them."""
    if given["edge_index"] is None:
        raise ModelError("is given no edges: name their type in metadata")
    if not isinstance(given["edge_index"], Edges):
        raise ModelError("must be given the edge_index of the module's own input, not one computed from it")
    if given.get("size") is not None:
        raise ModelError(f"must be called without size, got {given['size']}")
    if layer.flow != "source_to_target":
        raise ModelError(
            f"flow must be 'source_to_target', got {layer.flow!r}: swap the rows of edge_index instead"
        )


def _weighted(given: Arguments) -> bool:
    weight = given.get("edge_weight")
    if weight is not None and not isinstance(weight, EdgeWeights):
        raise ModelError("must be given the edge_weight of the module's own input, not one computed from it")
    edges = given["edge_index"]
    if weight is not None and isinstance(edges, Edges) and weight.edge_types != edges.edge_types:
        raise ModelError(f"must be given weights of the same edges, got those of {weight.edge_types}")
    return weight is not None


def aggregation(layer: pyg.MessagePassing) -> tuple[Aggregate, NeighborContext, Combine]:
    """How the messages are aggregated. Raises `ModelError` for any way but the sum, mean, min and max."""
    found = _AGGREGATES.get(layer.aggr if isinstance(layer.aggr, str) else None)
    if found is None:
        raise ModelError(f"aggr must be one of {', '.join(map(repr, _AGGREGATES))}; got {layer.aggr!r}")
    return found


def source_and_target(tape: Tape, x: object) -> tuple[Rows, Rows | None]:
    """One tensor for both ends of an edge, or PyG's pair (source, target), whose second may be None."""
    source, target = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
    tape.consumed.append(rows(source).name)
    if isinstance(target, Rows) and target.node_type != rows(source).node_type:
        tape.consumed.append(target.name)
    return rows(source), None if target is None else rows(target)
