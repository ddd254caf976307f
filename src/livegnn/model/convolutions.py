"""Convolutions that PyG has no module for, as steps to build a `Model` from (NeutronRT, table II).

Each function returns the steps and the tensors of one convolution; a model can contain several, with other
steps between them. Names begin with the name of the convolution, so that they do not collide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from livegnn.arguments import check_bool
from livegnn.errors import ModelError
from livegnn.network.propagation import Propagate
from livegnn.network.steps import Step
from livegnn.types import DEFAULT_EDGE_TYPE, EdgeType, FloatArray


@dataclass(frozen=True)
class ConvolutionSteps:
    """A convolution as a part of a model.

    steps, tensors: to add to the model's. output: the value that the convolution writes last.
    """

    steps: tuple[Step, ...]
    tensors: Mapping[str, FloatArray]
    output: str


def comm_net(
    name: str,
    x: str,
    own: FloatArray,
    neighbors: FloatArray,
    *,
    bias: FloatArray | None = None,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
) -> ConvolutionSteps:
    """CommNet (row CommNet): ``h'_v = own @ h_v + neighbors @ sum of h_u + bias``.

    name: of the output. x: the value that it reads, rows of the nodes at both ends. own, neighbors:
    float32 [out, in]. bias: float32 [out]. Raises `ModelError` if a weight is not a matrix.
    """
    _check_matrices(own=own, neighbors=neighbors)
    tensors = {f"{name}.own": own, f"{name}.neighbors": neighbors}
    weights = {"weight": f"{name}.own"}
    if bias is not None:
        tensors[f"{name}.bias"] = bias
        weights["bias"] = f"{name}.bias"
    linear, sum_ = {"weight": f"{name}.neighbors"}, Propagate(edge_type).to_attrs()
    if neighbors.shape[0] < neighbors.shape[1]:  # sum the narrower rows
        around = (
            Step("linear", (x,), f"{name}.message", linear),
            Step("propagate", (f"{name}.message",), f"{name}.around", attrs=sum_),
        )
    else:
        around = (
            Step("propagate", (x,), f"{name}.sum", attrs=sum_),
            Step("linear", (f"{name}.sum",), f"{name}.around", linear),
        )
    steps = (
        *around,
        Step("linear", (x,), f"{name}.self", weights),
        Step("add", (f"{name}.self", f"{name}.around"), name),
    )
    return ConvolutionSteps(steps, tensors, name)


def pin_sage(
    name: str,
    x: str,
    message: FloatArray,
    update: FloatArray,
    *,
    message_bias: FloatArray | None = None,
    update_bias: FloatArray | None = None,
    weighted: bool = True,
    divide_by: Literal["count", "sum"] = "count",
    normalize: bool = True,
    edge_type: EdgeType = DEFAULT_EDGE_TYPE,
) -> ConvolutionSteps:
    """PinSAGE (row PinSAGE): the mean of ``alpha_uv * relu(message @ h_u + message_bias)``, joined with h_v.

    The output is ``relu(update @ [h_v, mean] + update_bias)``, of length 1 if `normalize` is set.

    name: of the output. x: the value that it reads, rows of the nodes at both ends. message: float32
    [hidden, in]. update: float32 [out, in + hidden]. message_bias: float32 [hidden]. update_bias: float32
    [out]. weighted: alpha_uv is the edge's weight, else 1. divide_by: the ``"count"`` of in-edges, as in the
    table, or the ``"sum"`` of their weights.
    Raises `ModelError` if a weight is not a matrix.
    """
    weighted, normalize = check_bool(weighted, "weighted"), check_bool(normalize, "normalize")
    _check_matrices(message=message, update=update)
    tensors = {f"{name}.message.weight": message, f"{name}.update.weight": update}
    biases = {"message": message_bias, "update": update_bias}
    tensors |= {f"{name}.{part}.bias": bias for part, bias in biases.items() if bias is not None}

    def weights(part: str) -> dict[str, str]:
        roles = ("weight", "bias") if biases[part] is not None else ("weight",)
        return {role: f"{name}.{part}.{role}" for role in roles}

    mean = Propagate(edge_type, ("weight",) if weighted else (), divide_by if weighted else "count", "divide")
    last = f"{name}.relu" if normalize else name
    steps = [
        Step("linear", (x,), f"{name}.linear", weights("message")),
        Step("relu", (f"{name}.linear",), f"{name}.message"),
        Step("propagate", (f"{name}.message",), f"{name}.mean", attrs=mean.to_attrs()),
        Step("concat", (x, f"{name}.mean"), f"{name}.joined"),
        Step("linear", (f"{name}.joined",), f"{name}.update", weights("update")),
        Step("relu", (f"{name}.update",), last),
    ]
    if normalize:
        steps.append(Step("l2_normalize", (last,), name, attrs={"eps": 1e-12}))
    return ConvolutionSteps(tuple(steps), tensors, name)


def _check_matrices(**given: FloatArray) -> None:
    for role, array in given.items():
        if getattr(array, "ndim", None) != 2:
            raise ModelError(f"{role} must be a matrix [out, in], got shape {getattr(array, 'shape', None)}")
