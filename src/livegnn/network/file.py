"""Reads and writes a model as one file: safetensors, with the steps as JSON in its metadata. The format is
described in docs/model-file.md.

The checksum covers every byte of the file, including its header; it is computed with its own digits replaced
by zeros. Reading therefore gives either the model that was written or a `FileFormatError`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Literal, Protocol, TypeVar, cast

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from livegnn.arguments import as_path
from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, ModelError
from livegnn.network.steps import EdgeInput, Input, Step
from livegnn.query import Query
from livegnn.types import JSON, FloatArray

Made = TypeVar("Made")
VERSION = 1
_KEY = "livegnn.model"
_NO_CHECKSUM = "0" * 64


class Saved(Protocol):
    """The parts of a `Model` that a file holds; this module does not import `Model`."""

    @property
    def tensors(self) -> Mapping[str, FloatArray]: ...

    def to_json(self) -> dict[str, object]: ...


def encode(model: Saved) -> bytes:
    """The bytes of a model's file."""
    description = {"version": VERSION, "sha256": _NO_CHECKSUM, **model.to_json()}
    blank: bytes = save_tensors(dict(model.tensors), metadata={_KEY: json.dumps(description)})
    checksum = hashlib.sha256(blank).hexdigest()
    return blank.replace(_NO_CHECKSUM.encode(), checksum.encode(), 1)


def decode(data: bytes, make: Callable[..., Made]) -> Made:
    """The model in the bytes of a file. Raises `FileFormatError` if they are damaged or not a model file.

    make: makes the model, with the arguments of `Model`.
    """
    description = _read_description(data)
    version = description.get("version")
    if version != VERSION:
        raise FileFormatError(f"the model file must be of version {VERSION}, got {version!r}: update livegnn")
    _check_sum(data, description.get("sha256"))
    try:
        return _build(description, data, make)
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError, ModelError) as error:
        raise FileFormatError(f"the file holds no valid model: {error}") from error


def write(model: Saved, path: str | PathLike[str], *, private: bool = False) -> None:
    """Writes a model's file; a reader sees the whole old file or the whole new one.

    private: whether a new file is for its owner alone.

    Raises `InputError` if something other than a regular file is at `path`, `OSError` if writing fails.
    """
    with replace_file(as_path(path, "path"), private=private) as stream:
        stream.write(encode(model))


def read(path: str | PathLike[str], make: Callable[..., Made]) -> Made:
    """Reads a model's file. make: as for `decode`.

    Raises `FileFormatError` if it is damaged, or of another kind or version.
    """
    path = as_path(path, "path")
    data = path.read_bytes()
    try:
        return decode(data, make)
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from error.__cause__


def _read_description(data: bytes) -> Mapping[str, object]:
    if len(data) < 8:
        raise FileFormatError(
            f"a model file must hold at least 8 bytes, got {len(data)}: it is empty or truncated"
        )
    length = int.from_bytes(data[:8], "little")
    if length > len(data) - 8:
        _refuse_pickle(data)
        raise FileFormatError(
            f"the header must be {length:,} bytes, got {len(data) - 8:,}: it is truncated, or no model file"
        )
    try:
        header = json.loads(data[8 : 8 + length])
        description = json.loads(header["__metadata__"][_KEY])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        _refuse_pickle(data)
        raise FileFormatError(
            f"the header has no readable {_KEY!r}: damaged, or no model file, which Model.save writes"
        ) from error
    if not isinstance(description, dict):
        raise FileFormatError(f"{_KEY!r} must be a JSON object, got {type(description).__name__}: damaged")
    return description


def _refuse_pickle(data: bytes) -> None:
    """Raises `FileFormatError` if the bytes begin like a file of torch.save: a zip file or a pickle."""
    if data[:4] == b"PK\x03\x04" or (data[:1] == b"\x80" and data[1:2] in (b"\2", b"\3", b"\4", b"\5")):
        if b"/archive_format" in data[:200]:
            raise FileFormatError(
                "expected a file that Model.save wrote, got one that torch.export.save wrote: import it with "
                "Model.from_exported(path)"
            )
        raise FileFormatError(
            "expected a file that Model.save wrote, got one that torch.save (or pickle) wrote: load it into "
            "its module, module.load_state_dict(torch.load(path)), and import that, Model.from_pyg(module)"
        )


def _check_sum(data: bytes, checksum: object) -> None:
    expected = checksum if isinstance(checksum, str) else ""
    actual = (
        hashlib.sha256(data.replace(expected.encode(), _NO_CHECKSUM.encode(), 1)).hexdigest()
        if expected
        else "none"
    )
    if actual != expected:
        raise FileFormatError(
            f"the checksum must be {expected or 'there'}, got {actual}: the file is damaged, save it again"
        )


def _build(description: Mapping[str, object], data: bytes, make: Callable[..., Made]) -> Made:
    inputs, steps, layers = description["inputs"], description["steps"], description["layers"]
    edge_inputs = description.get("edge_inputs", {})
    outputs, query = description.get("outputs", {}), description.get("query")
    edge_outputs = description.get("edge_outputs", {})
    if not isinstance(inputs, dict) or not isinstance(edge_inputs, dict):
        raise ModelError("inputs and edge_inputs must be objects")
    if not isinstance(outputs, dict) or not isinstance(edge_outputs, dict):
        raise ModelError("outputs and edge_outputs must be objects")
    if not isinstance(steps, list) or not isinstance(layers, list):
        raise ModelError("steps and layers must be lists")
    return make(
        inputs={name: _input(**given) for name, given in inputs.items()},
        steps=tuple(Step(**{**step, "inputs": tuple(step["inputs"])}) for step in steps),
        tensors=load_tensors(data),
        output=str(description["output"]),
        layers=tuple(layers),
        edge_inputs={name: _edge_input(**given) for name, given in edge_inputs.items()},
        outputs=outputs,
        query=None if query is None else Query.from_json(cast("JSON", query)),
        edge_outputs=edge_outputs,
    )


def _input(node_type: str, width: int, columns: Sequence[str] = ()) -> Input:
    return Input(node_type, width, tuple(map(str, columns)))


def _edge_input(edge_type: Sequence[str], width: int, column: str, columns: Sequence[str] = ()) -> EdgeInput:
    source, relation, target = edge_type
    if column not in ("edge_attr", "features", "weight"):  # files of earlier builds say "features"
        raise ModelError(f"column must be 'edge_attr' or 'weight', got {column!r}")
    kind: Literal["edge_attr", "weight"] = "weight" if column == "weight" else "edge_attr"
    return EdgeInput((source, relation, target), width, kind, tuple(map(str, columns)))
