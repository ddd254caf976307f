"""Requests and answers of the Open Inference Protocol, version 2, as KServe and Triton speak it.

The input is a tensor `ids`, INT64, or BYTES if ids are text. Each output of the model is a tensor FP32 with a
row for each id. A tensor is JSON, or bytes behind the JSON (the binary tensor extension); the header
`inference-header-content-length` then has the length of the JSON.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, cast

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from livegnn.errors import InputError
from livegnn.server.bodies import Limits, parse
from livegnn.server.query import LARGEST_SEQ
from livegnn.types import FloatArray
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Float32

LENGTH: Final = "inference-header-content-length"
BINARY: Final = "application/octet-stream"
_INPUT: Final = "ids"
_DIGITS: Final = 20
_LENGTH_BYTES: Final = 4  # before each text of a binary tensor, little-endian


class TensorParameters(BaseModel):
    """binary_data_size: bytes of the tensor behind the JSON."""

    model_config = ConfigDict(extra="forbid")
    binary_data_size: StrictInt | None = None


class OutputParameters(BaseModel):
    """binary_data: whether the output is sent as bytes; None as `binary_data_output` of the request says."""

    model_config = ConfigDict(extra="forbid")
    binary_data: StrictBool | None = None


class Tensor(BaseModel):
    """An input: JSON in `data`, or bytes behind the JSON, `binary_data_size` in `parameters` of them."""

    model_config = ConfigDict(extra="forbid")
    name: StrictStr
    shape: list[StrictInt]
    datatype: Literal["INT64", "BYTES"]
    parameters: TensorParameters = TensorParameters()
    data: list[object] | None = None


class AskedOutput(BaseModel):
    """An output by its name."""

    model_config = ConfigDict(extra="forbid")
    name: StrictStr
    parameters: OutputParameters = OutputParameters()


class RequestParameters(BaseModel):
    """min_seq: answer when this event is visible. timeout: the longest wait in microseconds, as Triton has
    it."""

    model_config = ConfigDict(extra="forbid")
    min_seq: Annotated[int, Field(ge=0, le=LARGEST_SEQ, strict=True)] = 0
    timeout: Annotated[int, Field(gt=0, le=300_000_000, strict=True)] = 10_000_000
    binary_data_output: StrictBool = False


class InferBody(BaseModel):
    """The JSON of a request. Without `outputs` all are sent."""

    model_config = ConfigDict(extra="forbid")
    id: StrictStr | None = None
    parameters: RequestParameters = RequestParameters()
    inputs: list[Tensor]
    outputs: list[AskedOutput] | None = None


class InferRequest(NamedTuple):
    """ids: integers, or texts. outputs: name -> whether as bytes; None for all of them, as `binary` says."""

    id: str | None
    ids: Sequence[int | str]
    outputs: dict[str, bool] | None
    binary: bool
    min_seq: int
    timeout: float


def read_infer(body: bytes, header_length: str | None, limits: Limits) -> InferRequest:
    """The request in a body. header_length: the header of that name, None if the body is JSON alone.

    Raises InputError, or RequestValidationError for parts of the JSON.
    """
    length = len(body)
    if header_length is not None:
        digits = header_length.isascii() and header_length.isdigit() and len(header_length) < _DIGITS
        if not (digits and int(header_length) <= len(body)):
            raise InputError(
                f"{LENGTH} must be at most {len(body)}, the bytes of the body, got {quoted(header_length)}"
            )
        length = int(header_length)
    asked = parse(InferBody, body[:length], "application/json", limits.objects)
    if [tensor.name for tensor in asked.inputs] != [_INPUT]:
        raise InputError(f"inputs must be one tensor 'ids', got {quoted([one.name for one in asked.inputs])}")
    ids = _read_tensor(asked.inputs[0], body[length:])
    binary = asked.parameters.binary_data_output
    names = [output.name for output in asked.outputs or ()]
    if len(set(names)) < len(names):
        raise InputError(f"outputs must name each output once, got {quoted(names)}")
    outputs = {
        output.name: binary if output.parameters.binary_data is None else output.parameters.binary_data
        for output in asked.outputs or ()
    }
    return InferRequest(
        asked.id, ids, outputs or None, binary, asked.parameters.min_seq, asked.parameters.timeout / 1e6
    )


def _read_tensor(tensor: Tensor, rest: bytes) -> Sequence[int | str]:
    size = tensor.parameters.binary_data_size
    if (size is None) == (tensor.data is None):
        raise InputError("ids must have data, or the parameter binary_data_size, and not both")
    if tensor.data is not None:
        if rest:
            raise InputError(
                f"the body must end with the JSON, as no tensor is behind it, got {len(rest)} bytes"
            )
        rows = [part for part in tensor.data if isinstance(part, list) and len(part) == 1]
        ids: list[object] = tensor.data if len(rows) < len(tensor.data) else [one for (one,) in rows]
        kind = int if tensor.datatype == "INT64" else str
        wrong = next((one for one in ids if type(one) is not kind), None)
        if wrong is not None:
            raise InputError(f"ids must be {tensor.datatype}, {kind.__name__} in JSON, got {quoted(wrong)}")
    else:
        if size != len(rest):
            raise InputError(
                f"binary_data_size must be {len(rest)}, the bytes behind the JSON, got {quoted(size)}"
            )
        ids = _integers(rest) if tensor.datatype == "INT64" else list(_texts(rest))
    # A shape is (n), or (n, 1) as clients write whose models take batches.
    if tensor.shape not in ([len(ids)], [len(ids), 1]):
        raise InputError(
            f"the shape of ids must be [{len(ids)}], as many as its data, got {quoted(tensor.shape)}"
        )
    return cast("list[int | str]", ids)


def _integers(data: bytes) -> list[object]:
    if len(data) % 8:
        raise InputError(f"ids must have 8 bytes for each INT64, got {len(data)} bytes")
    return list(np.frombuffer(data, "<i8").tolist())


def _texts(data: bytes) -> Iterator[str]:
    at = 0
    while at < len(data):
        begin = at + _LENGTH_BYTES
        end = begin + int.from_bytes(data[at:begin], "little")
        if end > len(data):
            raise InputError("ids must have a length and as many bytes for each text, got fewer at the end")
        try:
            yield data[begin:end].decode()
        except UnicodeDecodeError:
            raise InputError(f"ids must be UTF-8, got {quoted(data[begin:end])}") from None
        at = end


class InferAnswer(NamedTuple):
    """body: JSON, and the bytes of tensors behind it. headers: what its reader must know."""

    body: bytes
    headers: dict[str, str]


def write_infer(
    request: InferRequest,
    model: str,
    version: str,
    seq: int,
    values: "dict[str, Float32[FloatArray, 'n out']]",
) -> InferAnswer:
    """The answer with `values`, output -> rows."""
    outputs, parts = [], []
    for name, rows in values.items():
        tensor: dict[str, object] = {"name": name, "datatype": "FP32", "shape": list(rows.shape)}
        if request.binary if request.outputs is None else request.outputs[name]:
            parts.append(rows.astype("<f4", copy=False).tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = np.ascontiguousarray(rows).reshape(-1)
        outputs.append(tensor)
    content = {"model_name": model, "model_version": version, "parameters": {"seq": seq}, "outputs": outputs}
    if request.id is not None:
        content["id"] = request.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    if not parts:
        return InferAnswer(head, {"content-type": "application/json"})
    return InferAnswer(b"".join([head, *parts]), {"content-type": BINARY, LENGTH: str(len(head))})
