"""Requests and answers of the Open Inference Protocol, version 2, as KServe and Triton speak it.

All processes use this codec. It loads no framework, because functions must start fast.

The input is a tensor `ids`, INT64, or BYTES if ids are text. Each output of the model is a tensor FP32 with a
row for each id. A tensor is JSON, or bytes behind the JSON (the binary tensor extension); the header
`inference-header-content-length` then has the length of the JSON.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

import numpy as np

from livegnn.errors import InputError
from livegnn.http.refusals import UnknownPath
from livegnn.http.strict_json import read_json
from livegnn.types import FloatArray, IntArray
from livegnn.wording import quoted

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64

LENGTH: Final = "inference-header-content-length"
BINARY: Final = "application/octet-stream"
ONLY_MODEL: Final = "engine"
"""The name of a model that has no other."""

MODEL_PATH: Final = "/v2/models/{name}"
VERSION_PATH: Final = MODEL_PATH + "/versions/{version}"

_PATHS: Final = re.compile(
    r"/v2(?:(?P<health>/health/(?:live|ready))|/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?"
    r"(?P<action>/ready|/infer)?)?\Z"
)
_INPUT: Final = "ids"
_ENDS: Final = ("sources", "targets")
_COLUMNS: Final = ("edge_attr", "edge_weight")
_DIGITS: Final = 20
_LENGTH_BYTES: Final = 4  # before each text of a binary tensor, little-endian
_LARGEST_SEQ: Final = 2**63 - 1
_LONGEST_WAIT: Final = 300_000_000  # microseconds
_KINDS: Final = {"INT64": int, "BYTES": str}
_HALF: Final = re.compile("[\ud800-\udfff]")
_NONE: Final[dict[str, object]] = {}

_T = TypeVar("_T")


class Target(NamedTuple):
    """An address below /v2. route: its template. name, version: of the model that it names, if it does."""

    route: str
    name: str | None
    version: str | None

    @property
    def method(self) -> str:
        """The method that it is for."""
        return "POST" if self.route.endswith("/infer") else "GET"


def find_target(path: str, *, below: bool = False) -> Target | None:
    """The address at a path; None if there is none. below: whether something may stand before /v2."""
    found = _PATHS.search(path) if below else _PATHS.match(path)
    if found is None:
        return None
    health, name, version, action = found.group("health", "name", "version", "action")
    model = "" if name is None else MODEL_PATH if version is None else VERSION_PATH
    return Target((model or "/v2") + (health or "") + (action or ""), name, version)


ROUTES: Final = (
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    *(model + action for model in (MODEL_PATH, VERSION_PATH) for action in ("", "/ready", "/infer")),
)
"""The templates of all addresses."""


class AnswerForm(NamedTuple):
    """The form of an answer. id: of the request; the answer repeats it. outputs: name -> whether as bytes;
    None for all of them, as `binary` says."""

    id: str | None = None
    outputs: Mapping[str, bool] | None = None
    binary: bool = False

    def names(self, known: Sequence[str]) -> list[str]:
        """The names of the outputs that are sent. known: those of the model. Raises InputError for others."""
        names = list(known if self.outputs is None else self.outputs)
        for name in names:
            if name not in known:
                said = ", ".join(map(repr, known))
                raise InputError(f"output must be one of the model's, {said}, got {quoted(name)}")
        return names

    def is_binary(self, name: str) -> bool:
        """Whether an output is sent as bytes."""
        return self.binary if self.outputs is None else self.outputs[name]


class InferRequest(NamedTuple):
    """ids: integers, or texts. min_seq: the least event that the answer must show. timeout: in seconds."""

    ids: Sequence[int | str]
    form: AnswerForm
    min_seq: int
    timeout: float


class PairsRequest(NamedTuple):
    """A request for scores of the pairs sources[i] -> targets[i]. edge_attr [n, width], edge_weight [n]: the
    columns of the pairs, None if they are left out. The rest: as of `InferRequest`."""

    sources: Sequence[int | str]
    targets: Sequence[int | str]
    edge_attr: "Float32[FloatArray, 'n width'] | None"
    edge_weight: "Float32[FloatArray, 'n'] | None"
    form: AnswerForm
    min_seq: int
    timeout: float


class _Asked(NamedTuple):
    """A request without its tensors. inputs: as the JSON has them. rest: the bytes behind the JSON."""

    inputs: list[object]
    names: list[object]
    rest: bytes
    form: AnswerForm
    min_seq: int
    timeout: float


def read_infer(body: bytes, header_length: str | None, largest: int) -> InferRequest:
    """The request in a body. header_length: the header of that name, None if the body is JSON alone. largest:
    bytes that a body may have, of which this one has no more.

    Raises InputError.
    """
    asked = _read_asked(body, header_length, largest)
    if asked.names != [_INPUT]:
        raise InputError(f"inputs must be one tensor 'ids', got {quoted(asked.names)}")
    ids = _read_ids(asked.inputs[0], asked.rest, _INPUT)
    return InferRequest(ids, asked.form, asked.min_seq, asked.timeout)


def read_pairs(body: bytes, header_length: str | None, largest: int) -> PairsRequest:
    """The request for scores of pairs in a body, as `read_infer` has it. Raises InputError."""
    asked = _read_asked(body, header_length, largest)
    names = asked.names
    if len(set(names)) < len(names) or not {*_ENDS} <= {*names} <= {*_ENDS, *_COLUMNS}:
        raise InputError(
            f"inputs must be the tensors {', '.join(_ENDS)} and, where they are read, {', '.join(_COLUMNS)}, "
            f"each once, got {quoted(names)}"
        )
    tensors = dict(zip(names, zip(asked.inputs, _divide(asked.inputs, asked.rest), strict=True), strict=True))
    sources, targets = (_read_ids(*tensors[name], name) for name in _ENDS)
    attr, weight = (_read_rows(*tensors[name], name) if name in tensors else None for name in _COLUMNS)
    if weight is not None:
        if weight.shape[1] != 1:
            raise InputError(f"the shape of edge_weight must be [n] or [n, 1], got {list(weight.shape)}")
        weight = weight.reshape(-1)
    return PairsRequest(sources, targets, attr, weight, asked.form, asked.min_seq, asked.timeout)


def _read_asked(body: bytes, header_length: str | None, largest: int) -> _Asked:
    length = _json_length(header_length, len(body))
    content = read_json(body[:length], largest)
    asked = _object(content, "the body", ("id", "parameters", "inputs", "outputs"))
    parameters = _object(
        asked.get("parameters", _NONE), "parameters", ("min_seq", "timeout", "binary_data_output")
    )
    min_seq = _number(parameters, "min_seq", 0, 0, _LARGEST_SEQ)
    timeout = _number(parameters, "timeout", 10_000_000, 1, _LONGEST_WAIT)
    binary = bool(_typed(parameters, "binary_data_output", bool, "true or false"))
    form = AnswerForm(_read_id(asked), _read_outputs(asked, binary=binary), binary)
    inputs = _list(asked.get("inputs"), "inputs")
    names = [_name(one, "inputs") for one in inputs]
    return _Asked(inputs, names, body[length:], form, min_seq, timeout / 1e6)


def _divide(inputs: Sequence[object], rest: bytes) -> Iterator[bytes]:
    """The bytes behind the JSON that belong to each tensor; to the last one all that are left."""
    at = 0
    for place, tensor in enumerate(inputs, 1):
        parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        end = at + size if type(size) is int and size >= 0 else at
        yield rest[at:] if place == len(inputs) else rest[at:end]
        at = min(end, len(rest))


def _json_length(header: str | None, size: int) -> int:
    if header is None:
        return size
    digits = header.isascii() and header.isdigit() and len(header) < _DIGITS
    if not (digits and int(header) <= size):
        raise InputError(f"{LENGTH} must be at most {size}, the bytes of the body, got {quoted(header)}")
    return int(header)


def _object(value: object, what: str, known: Sequence[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"{what} must be an object, got {quoted(value)}")
    if unknown := [name for name in value if name not in known]:
        raise InputError(f"{what} may have the fields {', '.join(known)}, got {quoted(unknown[0])}")
    return value


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise InputError(f"{what} must be a list, got {quoted(value)}")
    return value


def _name(value: object, what: str) -> object:
    if not isinstance(value, dict) or type(value.get("name")) is not str:
        raise InputError(f"{what} must be a list of objects with a text 'name', got {quoted(value)} in it")
    return value["name"]


def _typed(fields: Mapping[str, object], name: str, kind: type[_T], what: str) -> _T | None:
    """The value of a field; None if it is left out."""
    if name not in fields:
        return None
    value = fields[name]
    if type(value) is not kind:  # true and false are integers to Python
        raise InputError(f"{name} must be {what}, got {quoted(value)}")
    return value


def _number(fields: Mapping[str, object], name: str, default: int, least: int, most: int) -> int:
    what = f"an integer from {least} to {most}"
    value = _typed(fields, name, int, what)
    if value is not None and not least <= value <= most:
        raise InputError(f"{name} must be {what}, got {quoted(value)}")
    return default if value is None else value


def _read_id(asked: Mapping[str, object]) -> str | None:
    found = asked.get("id")
    if found is not None and (not isinstance(found, str) or _HALF.search(found)):
        raise InputError(f"id must be a text without halves of surrogate pairs, got {quoted(found)}")
    return found


def _read_outputs(asked: Mapping[str, object], *, binary: bool) -> dict[str, bool] | None:
    given = asked.get("outputs")
    if given is None:
        return None
    outputs: dict[str, bool] = {}
    for one in _list(given, "outputs"):
        name = str(_name(one, "outputs"))
        fields = _object(one, f"the output {quoted(name)}", ("name", "parameters"))
        parameters = _object(
            fields.get("parameters", _NONE), f"parameters of the output {quoted(name)}", ("binary_data",)
        )
        as_bytes = _typed(parameters, "binary_data", bool, "true or false")
        if name in outputs:
            raise InputError(f"outputs must name each output once, got {quoted(name)} twice")
        outputs[name] = binary if as_bytes is None else as_bytes
    return outputs or None


def _read_tensor(
    given: object, rest: bytes, name: str, datatypes: Sequence[str]
) -> tuple[str, list[object] | None, object]:
    """The type of a tensor, its data if they are JSON, and its shape. rest: its bytes, if they are not."""
    tensor = _object(given, f"the tensor {name!r}", ("name", "shape", "datatype", "parameters", "data"))
    datatype = tensor.get("datatype")
    if not isinstance(datatype, str) or datatype not in datatypes:
        raise InputError(f"the datatype of {name} must be {' or '.join(datatypes)}, got {quoted(datatype)}")
    parameters = _object(tensor.get("parameters", _NONE), f"parameters of {name}", ("binary_data_size",))
    size = _typed(parameters, "binary_data_size", int, "a number of bytes")
    data = tensor.get("data")
    if (size is None) == (data is None):
        raise InputError(f"{name} must have data, or the parameter binary_data_size, and not both")
    if data is not None:
        if rest:
            raise InputError(
                f"the body must end with the JSON, as no tensor is behind it, got {len(rest)} bytes"
            )
        return datatype, _list(data, "data"), tensor.get("shape")
    if size != len(rest):
        raise InputError(
            f"binary_data_size must be {len(rest)}, the bytes behind the JSON, got {quoted(size)}"
        )
    return datatype, None, tensor.get("shape")


def _read_ids(given: object, rest: bytes, name: str) -> Sequence[int | str]:
    datatype, data, shape = _read_tensor(given, rest, name, tuple(_KINDS))
    if data is not None:
        ids = _listed(data, datatype, name)
    else:
        ids = _integers(rest, name) if datatype == "INT64" else list(_texts(rest, name))
    _check_shape(shape, len(ids), name)
    return cast("list[int | str]", ids)


def _read_rows(given: object, rest: bytes, name: str) -> "Float32[FloatArray, 'n width']":
    """Rows of numbers, all of one width."""
    _, data, shape = _read_tensor(given, rest, name, ("FP32",))
    if data is None:
        if len(rest) % 4:
            raise InputError(f"{name} must have 4 bytes for each FP32, got {len(rest)} bytes")
        numbers: FloatArray = np.frombuffer(rest, "<f4").astype(np.float32)
    else:
        flat = [one for part in data for one in (part if isinstance(part, list) else (part,))]
        if not set(map(type, flat)) <= {int, float}:
            wrong = next(one for one in flat if type(one) not in (int, float))
            raise InputError(f"{name} must be FP32, numbers in JSON, got {quoted(wrong)}")
        try:
            with np.errstate(over="ignore"):  # what is infinite then is refused with its pair
                numbers = np.array(flat, np.float64).astype(np.float32)
        except OverflowError:
            raise InputError(f"{name} must be FP32, got an integer of more than 308 digits") from None
    sizes = cast("list[int]", shape)
    whole = isinstance(shape, list) and len(shape) in (1, 2) and all(type(one) is int for one in shape)
    if not whole or min(sizes) < 0 or math.prod(sizes) != len(numbers):
        raise InputError(
            f"the shape of {name} must be [n] or [n, width], of {len(numbers)} numbers, got {quoted(shape)}"
        )
    return numbers.reshape((*sizes, 1)[:2])


def _check_shape(shape: object, count: int, name: str) -> None:
    # A shape is (n), or (n, 1) as clients write whose models take batches.
    whole = isinstance(shape, list) and all(type(one) is int for one in shape)
    if not whole or shape not in ([count], [count, 1]):
        raise InputError(f"the shape of {name} must be [{count}], as many as its data, got {quoted(shape)}")


def _listed(data: list[object], datatype: str, name: str) -> list[object]:
    rows = [part for part in data if isinstance(part, list) and len(part) == 1]
    ids: list[object] = data if len(rows) < len(data) else [one for (one,) in rows]
    kind = _KINDS[datatype]
    if not set(map(type, ids)) <= {kind}:
        wrong = next(one for one in ids if type(one) is not kind)
        raise InputError(f"{name} must be {datatype}, {kind.__name__} in JSON, got {quoted(wrong)}")
    return ids


def _integers(data: bytes, name: str) -> list[object]:
    if len(data) % 8:
        raise InputError(f"{name} must have 8 bytes for each INT64, got {len(data)} bytes")
    return list(np.frombuffer(data, "<i8").tolist())


def _texts(data: bytes, name: str) -> Iterator[str]:
    at = 0
    while at < len(data):
        begin = at + _LENGTH_BYTES
        end = begin + int.from_bytes(data[at:begin], "little")
        if end > len(data):
            raise InputError(
                f"{name} must have a length and as many bytes for each text, got fewer at the end"
            )
        try:
            yield data[begin:end].decode()
        except UnicodeDecodeError:
            raise InputError(f"{name} must be UTF-8, got {quoted(data[begin:end])}") from None
        at = end


class InferMessage(NamedTuple):
    """A request or an answer. body: JSON, and the bytes of tensors behind it. json_length: of the JSON, if
    there are such tensors."""

    body: bytes
    json_length: int | None

    def headers(self) -> dict[str, str]:
        """The headers for its reader."""
        return headers_of(self.json_length)


def headers_of(json_length: int | None) -> dict[str, str]:
    """The headers of a message. json_length: of the JSON, if bytes of tensors are behind it."""
    if json_length is None:
        return {"content-type": "application/json"}
    return {"content-type": BINARY, LENGTH: str(json_length)}


def write_infer(
    form: AnswerForm,
    model: str,
    version: str,
    seq: int,
    values: "Mapping[str, Float32[FloatArray, 'n out']]",
) -> InferMessage:
    """The answer with `values`, output -> rows."""
    import orjson

    outputs, parts = [], []
    for name, rows in values.items():
        tensor: dict[str, object] = {"name": name, "datatype": "FP32", "shape": list(rows.shape)}
        if form.is_binary(name):
            parts.append(rows.astype("<f4", copy=False).tobytes())
            tensor["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            tensor["data"] = np.ascontiguousarray(rows).reshape(-1)
        outputs.append(tensor)
    content = {"model_name": model, "model_version": version, "parameters": {"seq": seq}, "outputs": outputs}
    if form.id is not None:
        content["id"] = form.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return InferMessage(b"".join([head, *parts]), len(head) if parts else None)


class Predicted(NamedTuple):
    """The content of an answer. values: output -> rows."""

    model: str
    version: str
    seq: int
    values: "Mapping[str, Float32[FloatArray, 'n out']]"


def write_request(
    ids: "Int64[IntArray, 'n']", outputs: Iterable[str] | None, min_seq: int, timeout: float
) -> InferMessage:
    """A request for predictions as bytes. outputs: their names, None for all. timeout: in seconds."""
    data = ids.astype("<i8", copy=False).tobytes()
    tensor = {
        "name": _INPUT,
        "shape": [len(ids)],
        "datatype": "INT64",
        "parameters": {"binary_data_size": len(data)},
    }
    waits = min(max(int(timeout * 1e6), 1), _LONGEST_WAIT)
    content: dict[str, object] = {
        "parameters": {"min_seq": min_seq, "timeout": waits, "binary_data_output": True},
        "inputs": [tensor],
    }
    if outputs is not None:
        content["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(content).encode()
    return InferMessage(head + data, len(head))


def read_answer(body: bytes, json_length: int) -> Predicted:
    """The answer to a request of `write_request`. Raises ValueError, KeyError or TypeError for anything
    else."""
    head, at = json.loads(body[:json_length]), json_length
    values = {}
    for tensor in head["outputs"]:
        end = at + tensor["parameters"]["binary_data_size"]
        rows = np.frombuffer(body[at:end], "<f4") if end > at else np.empty(0, "<f4")
        values[tensor["name"]] = rows.reshape(tensor["shape"])
        at = end
    return Predicted(head["model_name"], head["model_version"], head["parameters"]["seq"], values)


def check_model(name: str, version: str | None, digest: str) -> None:
    """Raises UnknownPath unless a process has this model, whose only one has this digest. version: None for
    any."""
    if name != ONLY_MODEL:
        raise UnknownPath(f"there is no model {quoted(name)}: there are {ONLY_MODEL}")
    if version not in (None, digest):
        raise UnknownPath(f"the version of {name} is {digest}, got {quoted(version)}")


def describe_server(version: str) -> dict[str, object]:
    """The content of the answer at /v2."""
    return {"name": "livegnn", "version": version, "extensions": ["binary_tensor_data"]}


def describe_model(
    name: str, version: str, outputs: Mapping[str, int], *, text_ids: bool
) -> dict[str, object]:
    """The content of the answer at the path of a model. outputs: name -> channels, -1 if they are unknown."""
    return {
        "name": name,
        "versions": [version],
        "platform": "livegnn",
        "inputs": [{"name": _INPUT, "datatype": "BYTES" if text_ids else "INT64", "shape": [-1]}],
        "outputs": [
            {"name": output, "datatype": "FP32", "shape": [-1, width]} for output, width in outputs.items()
        ],
    }


def describe_edge_output(
    name: str, version: str, output: str, width: int, columns: Mapping[str, int], *, text_ids: bool
) -> dict[str, object]:
    """The same of an edge output. name: of the two. columns: those of a pair that it reads -> channels."""
    described = describe_model(name, version, {output: width}, text_ids=text_ids)
    kind = "BYTES" if text_ids else "INT64"
    ends = [{"name": end, "datatype": kind, "shape": [-1]} for end in _ENDS]
    rows = [{"name": one, "datatype": "FP32", "shape": [-1, channels]} for one, channels in columns.items()]
    return described | {"inputs": [*ends, *rows]}
