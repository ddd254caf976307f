"""How functions and methods of tensors, and the layers that are nothing but these, become steps."""

import copy
import operator
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from livegnn.errors import ModelError
from livegnn.model.adapters.tape import EdgeRows, EdgeWeights, Rows, Tape, Weight


def rows(value: object) -> Rows:
    """The value, if it has one row per node, or per edge; else raises `ModelError`."""
    if not isinstance(value, Rows):
        raise ModelError(f"must be applied to a tensor with one row per node, got {_in_words(value)}")
    return value


def node_rows(value: object) -> Rows:
    """The value, if it has one row per node; else raises `ModelError`."""
    if isinstance(value, EdgeRows):
        raise ModelError("must be applied to a tensor with one row per node, got one with a row per edge")
    return rows(value)


# The parameters have the names that torch gives them; a parameter of no consequence is there to be accepted.


def relu(tape: Tape, x: object) -> Rows:
    return tape.write("relu", rows(x))


def leaky_relu(tape: Tape, x: object, negative_slope: float | int = 0.01) -> Rows:
    return tape.write("leaky_relu", rows(x), attrs={"slope": float(negative_slope)})


def elu(tape: Tape, x: object, alpha: float | int = 1.0) -> Rows:
    return tape.write("elu", rows(x), attrs={"alpha": float(alpha)})


def gelu(tape: Tape, x: object, approximate: str = "none") -> Rows:
    return tape.write("gelu", rows(x), attrs={"approximate": approximate})


def silu(tape: Tape, x: object) -> Rows:
    return tape.write("multiply", rows(x), tape.write("sigmoid", rows(x), name="sigmoid"))


def sigmoid(tape: Tape, x: object) -> Rows:
    return tape.write("sigmoid", rows(x))


def tanh(tape: Tape, x: object) -> Rows:
    return tape.write("tanh", rows(x))


def softmax(
    tape: Tape, x: object, dim: int | None = None, _stacklevel: int = 3, dtype: object = None
) -> Rows:
    _check_default(dtype=dtype)
    _check_dim(dim)
    return tape.write("softmax", rows(x))


def log_softmax(
    tape: Tape, x: object, dim: int | None = None, _stacklevel: int = 3, dtype: object = None
) -> Rows:
    _check_default(dtype=dtype)
    _check_dim(dim)
    return tape.write("log_softmax", rows(x))


def dropout(tape: Tape, x: object, p: float | int = 0.5, training: bool = True) -> Rows:
    if training and p > 0:
        raise ModelError("drops at random in evaluation mode too: call it with training=self.training")
    return rows(x)


def normalize(
    tape: Tape, x: object, p: float | int = 2.0, dim: int = 1, eps: float = 1e-12, out: object = None
) -> Rows:
    _check_default(out=out)
    _check_dim(dim)
    if p != 2:
        raise ModelError(f"p must be 2, got {p}")
    return tape.write("l2_normalize", rows(x), attrs={"eps": float(eps)})


def linear(tape: Tape, x: object, weight: object, bias: object = None) -> Rows:
    if not isinstance(weight, Weight) or not isinstance(bias, Weight | None):
        raise ModelError("the weight and the bias must be parameters of the module")
    return tape.write("linear", rows(x), weights={"weight": weight, "bias": bias})


def matmul(tape: Tape, x: object, weight: object) -> Rows:
    if not isinstance(weight, Weight) or weight.tensor.ndim != 2:
        raise ModelError(f"must multiply rows by a matrix of the module, got {_in_words(weight)}")
    return tape.write("linear", rows(x), weights={"weight": Weight(f"{weight.name}.T", weight.tensor.T)})


def add(tape: Tape, a: object, b: object, alpha: float | int = 1) -> Rows:
    if alpha != 1:
        b = multiply(tape, b, alpha)
    if not isinstance(a, Rows):
        a, b = b, a
    if isinstance(b, Rows):
        return tape.write("add", rows(a), b)
    return tape.write("scale_shift", rows(a), weights={"shift": _per_channel(tape, b)})


def subtract(tape: Tape, a: object, b: object, alpha: float | int = 1) -> Rows:
    if isinstance(b, Rows):
        return add(tape, multiply(tape, b, -alpha), a)
    shift = _per_channel(tape, b)
    return add(tape, a, Weight(f"{shift.name}.negative", -alpha * shift.tensor))


def multiply(tape: Tape, a: object, b: object) -> Rows:
    if not isinstance(a, Rows):
        a, b = b, a
    if isinstance(b, Rows):
        return tape.write("multiply", rows(a), b)
    factor = _per_channel(tape, b)
    if factor.tensor.ndim == 0:
        return tape.write("scale", rows(a), attrs={"value": float(factor.tensor)})
    return tape.write("scale_shift", rows(a), weights={"scale": factor})


def divide(tape: Tape, a: object, b: object) -> Rows:
    if isinstance(b, Rows):
        raise ModelError("cannot divide by a tensor with one row per node")
    divisor = _per_channel(tape, b)
    return multiply(tape, a, Weight(f"{divisor.name}.inverse", 1 / divisor.tensor))


def negative(tape: Tape, x: object) -> Rows:
    return tape.write("scale", rows(x), attrs={"value": -1.0})


def maximum(tape: Tape, a: object, b: object) -> Rows:
    return tape.write("maximum", rows(a), rows(b))


def minimum(tape: Tape, a: object, b: object) -> Rows:
    return negative(tape, tape.write("maximum", negative(tape, a), negative(tape, b), name="negated"))


def concat(tape: Tape, tensors: Sequence[object], dim: int = 0) -> Rows:
    _check_dim(dim)
    parts = [rows(part) for part in tensors]
    return tape.write("concat", *parts) if len(parts) > 1 else parts[0]


def keep(tape: Tape, x: object) -> Rows:
    return rows(x)


def unsqueeze(tape: Tape, x: object, dim: int) -> Rows:
    if not isinstance(x, EdgeWeights) or dim not in (1, -1):
        raise ModelError(
            f"must make a column of the edge weights, with dim=-1, got dim={dim} of {_in_words(x)}"
        )
    return x.column()


def view(tape: Tape, x: object, *shape: object) -> Rows:
    if not isinstance(x, EdgeWeights) or shape not in ((-1, 1), ((-1, 1),)):
        raise ModelError(f"must make a column of the edge weights, (-1, 1), got {shape} of {_in_words(x)}")
    return x.column()


def clone(tape: Tape, x: object) -> Rows:
    return copy.copy(rows(x))


Operation = Callable[..., Rows]

FUNCTIONS: dict[object, Operation] = {
    **dict.fromkeys((F.relu, torch.relu), relu),
    F.leaky_relu: leaky_relu,
    F.elu: elu,
    F.gelu: gelu,
    F.silu: silu,
    **dict.fromkeys((F.sigmoid, torch.sigmoid), sigmoid),
    **dict.fromkeys((F.tanh, torch.tanh), tanh),
    **dict.fromkeys((F.softmax, torch.softmax), softmax),
    **dict.fromkeys((F.log_softmax, torch.log_softmax), log_softmax),
    **dict.fromkeys((F.dropout, F.alpha_dropout), dropout),
    F.normalize: normalize,
    F.linear: linear,
    **dict.fromkeys((operator.matmul, torch.matmul, torch.mm), matmul),
    **dict.fromkeys((operator.add, torch.add), add),
    **dict.fromkeys((operator.sub, torch.sub), subtract),
    **dict.fromkeys((operator.mul, torch.mul), multiply),
    **dict.fromkeys((operator.truediv, torch.div), divide),
    **dict.fromkeys((operator.neg, torch.neg), negative),
    **dict.fromkeys((torch.maximum, torch.max), maximum),
    **dict.fromkeys((torch.minimum, torch.min), minimum),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), concat),
    torch.clone: clone,
    torch.unsqueeze: unsqueeze,
}

IN_PLACE_FUNCTIONS: dict[object, Operation] = {
    operator.iadd: add,
    operator.isub: subtract,
    operator.imul: multiply,
    operator.itruediv: divide,
    torch.relu_: relu,
    torch.sigmoid_: sigmoid,
    torch.tanh_: tanh,
}

METHODS: dict[str, Operation] = {
    "relu": relu,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "div": divide,
    "neg": negative,
    "matmul": matmul,
    "mm": matmul,
    "maximum": maximum,
    "minimum": minimum,
    "clone": clone,
    "unsqueeze": unsqueeze,
    "view": view,
    "reshape": view,
    "contiguous": keep,
    "detach": keep,
    "float": keep,
}
"""A method of the same name with an underscore works in place."""


def _check_dim(dim: int | None) -> None:
    if dim not in (1, -1):
        raise ModelError(
            f"must work along a node's channels, dim=-1, got dim={dim}: other dims couple all nodes"
        )


def _check_default(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ModelError(f"must be called without {name}, got {value!r}")


def _per_channel(tape: Tape, value: object) -> Weight:
    """A number, or a parameter with one number or one per channel."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Weight(f"{tape.place}.number", torch.tensor(float(value)))
    if isinstance(value, Weight):
        shape = value.tensor.shape
        if value.tensor.numel() == 1:
            return Weight(f"{tape.place}.number", value.tensor.reshape(()))
        if len(shape) == 1 or (len(shape) == 2 and shape[0] == 1):
            return Weight(value.name, value.tensor.reshape(-1))
        raise ModelError(f"{value.name!r} must hold one number or one per channel, got shape {tuple(shape)}")
    raise ModelError(f"must combine rows with rows, a number or a parameter, got {_in_words(value)}")


def _in_words(value: object) -> str:
    if isinstance(value, Weight):
        return f"the parameter {value.name!r} of shape {tuple(value.tensor.shape)}"
    return repr(value) if isinstance(value, int | float | str | None) else f"{type(value).__name__}"
