"""Layers that cannot be followed, rewritten by a proposer (`livegnn.model.proposal`).

A proposal becomes steps only if it passes verification and computes what the layer does, on small graphs.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.tape import EdgeRows, Edges, EdgeWeights, Rows, Tape
from livegnn.model.model import Model
from livegnn.model.proposal import ConvolutionRequest, Proposer, propose
from livegnn.types import FloatArray, IntArray

_METHODS = ("forward", "edge_update", "message", "aggregate", "update")


@dataclass(frozen=True)
class Proposals:
    """Who proposes, and whether source code that it answers with may be executed, which nothing confines."""

    proposer: Proposer
    allow_code: bool = False


def import_proposed(
    tape: Tape,
    layer: pyg.MessagePassing,
    path: str,
    given: Mapping[str, object],
    proposals: Proposals,
) -> Rows:
    """Asks for the operators of a layer. given: what it is called with, on the tape.

    Raises `ModelError` if the layer reads anything but the rows of nodes of one value and the edges' weight
    and features, or if no proposal passes.
    """
    rows = {value.name: value for value in _values(given) if _is_node_rows(value)}
    if len(rows) != 1:
        raise ModelError(f"a layer can be proposed for one value of nodes, got {len(rows)}")
    (h,) = rows.values()
    features = {value.name: value for value in _values(given) if isinstance(value, EdgeRows)}
    if len(features) > 1 or not set(features) <= set(tape.inputs):
        raise ModelError("a layer can be proposed for the edge_attr of the module's own input alone")
    edge_type = next((value.edge_type for value in given.values() if isinstance(value, Edges)), None)
    if edge_type is None or {edge_type[0], edge_type[2]} != {h.place}:
        raise ModelError("a layer can be proposed for edges of the graph between nodes of one type")
    weights = [value.column().name for value in given.values() if isinstance(value, EdgeWeights)]
    channels = tape.width(h)
    edge_features = sum(tape.width(value) or 0 for value in features.values())
    if channels is None or (features and not edge_features):
        raise ModelError("say how wide x and edge_attr are, with in_channels=... and edge_channels=...")

    def reference(
        x: FloatArray, edge_index: IntArray, weight: FloatArray | None, edge_attr: FloatArray | None
    ) -> FloatArray:
        count = np.asarray(edge_index).shape[1]
        arrays: dict[type, object] = {
            Rows: torch.from_numpy(np.asarray(x, np.float32)),
            Edges: torch.from_numpy(np.asarray(edge_index, np.int64)),
            EdgeWeights: torch.ones(count) if weight is None else torch.from_numpy(np.ravel(weight)),
            EdgeRows: None if edge_attr is None else torch.from_numpy(edge_attr),
        }
        with torch.no_grad():
            found = layer(**{name: _filled(value, arrays) for name, value in given.items()})
        if not isinstance(found, Tensor):
            raise ModelError(f"the layer must return one tensor, got {type(found).__name__}")
        array: FloatArray = found.numpy()
        return array

    edges = np.array([[0, 1], [1, 0]])
    out_channels = reference(
        np.zeros((2, channels), np.float32), edges, None, np.zeros((2, edge_features), np.float32)
    ).shape[-1]
    request = ConvolutionRequest(
        name=path,
        source=_source(layer),
        in_channels=channels,
        out_channels=int(out_channels),
        parameters={
            name: tensor.detach().float().numpy()
            for name, tensor in (*layer.named_parameters(), *layer.named_buffers())
        },
        edge_features=edge_features,
    )
    convolution = propose(request, proposals.proposer, reference, allow_code=proposals.allow_code)
    model = Model.from_convolutions(
        [convolution], channels, edge_type=edge_type, edge_features=edge_features, verify=False
    )
    tape.consumed.append(h.name)
    names = dict(zip(("x", "weight", "edge_attr"), ([h.name], weights, [*features]), strict=True))
    for name in (*model.inputs, *model.edge_inputs):
        if not names[name]:
            raise ModelError(f"the proposal reads the edges' {name}, which the layer is not given")
    return _splice(tape, model, {name: found[0] for name, found in names.items() if found}, h, path)


def _splice(tape: Tape, model: Model, values: Mapping[str, str], h: Rows, path: str) -> Rows:
    """Adds the steps of a model of one layer, which reads `h`. values: on the tape, by the inputs' names."""
    names = dict(values)
    taken = {step.output for step in tape.steps}
    for step in model.steps:
        name = f"{path}.{step.output}"
        while name in taken:
            name += "_"
        names[step.output] = name
        attrs = dict(step.attrs)
        if step.op == "call":
            function = model.functions[step.text("function")]
            attrs["function"] = names[step.output]
            tape.functions[names[step.output]] = function
        inputs = tuple(names[name] for name in step.inputs)
        tape.steps.append(replace(step, inputs=inputs, output=names[step.output], attrs=attrs))
    return tape.named(names[model.output], h)


def _is_node_rows(value: object) -> bool:
    return isinstance(value, Rows) and not isinstance(value, EdgeRows)


def _values(given: object) -> list[Rows]:
    if isinstance(given, Mapping):
        given = tuple(given.values())
    if isinstance(given, tuple | list):
        return [found for part in given for found in _values(part)]
    return [given] if isinstance(given, Rows) else []


def _filled(value: object, arrays: Mapping[type, object]) -> object:
    """Tensors in the place of what is on the tape."""
    if isinstance(value, tuple | list):
        return type(value)(_filled(part, arrays) for part in value)
    return arrays.get(type(value), value)


def _source(layer: pyg.MessagePassing) -> str:
    """The text of the layer's own methods; PyG's ``MessagePassing`` is known."""
    found = []
    for name in _METHODS:
        method = getattr(type(layer), name, None)
        if method is None or method is getattr(pyg.MessagePassing, name, None):
            continue
        try:
            found.append(inspect.getsource(method))
        except (OSError, TypeError):
            found.append(f"# {name}: its source is not at hand")
    return "\n".join(found)
