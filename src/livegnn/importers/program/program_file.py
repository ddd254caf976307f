"""Reads a program that ``torch.export.save`` wrote, without running code from the file.

``torch.export.load`` unpickles example inputs, weights of tensor subclasses and the user's objects, and looks
up operators, expressions of sizes and containers by names in the file. This module refuses a file that would
run code before torch reads it. Torch then reads a new archive of the checked parts, so the check holds even
if the two would read a damaged archive differently. Needs torch.
"""

import io
import json
import logging
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import torch
from torch.export import ExportedProgram

from livegnn.arguments import as_path
from livegnn.errors import FileFormatError

_OF_PYTHON = "add|sub|mul|truediv|floordiv|mod|neg|pos|pow|abs|lt|le|gt|ge|eq|ne|and_|or_|not_|getitem"
_TARGET = re.compile(
    r"torch\.ops\.(aten|higher_order)\.\w+(\.\w+)?|torch\.sym_[a-z]+|math\.[a-z]\w*|"
    rf"_operator\.({_OF_PYTHON})"
)
_SYMBOL = re.compile(r"Symbol\('[a-z]+\d+'(, \w+=(True|False))*\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
# fmt: off
_FUNCTIONS = frozenset(
    {
        "FloorDiv", "CleanDiv", "CeilDiv", "ModularIndexing", "Mod", "PythonMod", "Max", "Min", "Eq", "Ne",
        "Ge", "Gt", "Le", "Lt", "And", "Or", "Not", "Abs", "True", "False", "Add", "Mul", "Integer",
        "Rational", "Equality", "Unequality", "GreaterThan", "LessThan", "StrictGreaterThan",
        "StrictLessThan", "true", "false", "Pow", "PowByNatural", "FloatPow", "IntTrueDiv", "FloatTrueDiv",
        "TruncToInt", "TruncToFloat", "RoundToInt", "ToFloat", "FloorToInt", "CeilToInt", "Piecewise",
        "Where", "Identity", "int_oo", "oo", "floor", "ceiling",
    }
)
# fmt: on
"""The functions that an expression of sizes may use."""
_CONTAINERS = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})


def load_program(path: str | PathLike[str]) -> ExportedProgram:
    """Reads a program. Raises `FileFormatError` if the file holds none, is damaged, or would run code."""
    path = as_path(path, "path")
    content = path.read_bytes()
    checked = _check(path, content)
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            return torch.export.load(checked)
    except Exception as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise FileFormatError(
            f"{path}: torch {torch.__version__} cannot load it ({said}): it is damaged, or of a version of "
            "torch that this one does not read; save it again with this version"
        ) from error


def _check(path: Path, content: bytes) -> io.BytesIO:
    """A new archive with the checked parts. Raises `FileFormatError`."""
    if not content:
        raise FileFormatError(f"{path} is empty: save the program again with torch.export.save")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            listed = archive.infolist()
            if listed and min(one.header_offset for one in listed) > 0:  # the list is an inner file's
                raise FileFormatError(
                    f"{path} is damaged, or is not a program of torch.export: the list at its end does not "
                    "match its beginning, as in a file whose end is cut off; save the program again with "
                    "torch.export.save"
                )
            if any(one.compress_type != zipfile.ZIP_STORED for one in listed):
                raise FileFormatError(
                    f"{path} is a compressed archive, which torch.export.save does not write"
                )
            names = [one.filename for one in listed]
            _check_kind(path, names)
            parts = {name: archive.read(name) for name in dict.fromkeys(names)}
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileFormatError(
            f"{path} must be a file that torch.export.save wrote, it is damaged or of another kind ({error})"
        ) from error
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, _checked(path, name, part))
    made.seek(0)
    return made


def _check_kind(path: Path, names: list[str]) -> None:
    if any(name.endswith(("models/model.json", "serialized_exported_program.json")) for name in names):
        return
    what = "another archive"
    if any(name.endswith("data.pkl") for name in names):
        what = "a file of torch.save or TorchScript"
    elif any("aotinductor" in name for name in names):
        what = "a package of compiled code"
    raise FileFormatError(
        f"{path} must hold a program of torch.export, got {what}: export the module with "
        "torch.export.export, and save the program with torch.export.save"
    )


def _checked(path: Path, name: str, part: bytes) -> bytes:
    """A part of the archive in a form that torch may read. Raises `FileFormatError`."""
    if name.endswith(".pt") and part:
        try:
            torch.load(io.BytesIO(part), map_location="cpu", weights_only=True)
        except Exception as error:
            raise FileFormatError(
                f"{path}: {name} is damaged or holds objects that code would have to be run for: export "
                "and save it again, called with tensors alone"
            ) from error
    if not name.endswith(".json") or "/extra/" in name:
        return part
    try:
        content = json.loads(part)
        _check_json(path, content)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path}: {name} is damaged: {error}") from error
    return json.dumps(content).encode()


def _check_json(path: Path, content: object) -> None:
    """Raises `FileFormatError` if the content names code to run, or a device, at any place."""
    for key, value in _walk(content):
        refused = None
        if key == "use_pickle" and value:
            refused = "it holds a pickled tensor"
        elif key == "path_name" and str(value).startswith(("custom_obj", "opaque_obj")):
            refused = "it holds a pickled object"
        elif key == "target" and isinstance(value, str) and not _TARGET.fullmatch(value):
            refused = f"it calls {value}, which is none of torch's own operators"
        elif key == "expr_str" and not _is_size(str(value)):
            refused = f"it has a size {str(value)[:80]!r}"
        elif key in ("in_spec", "out_spec") and value and not _is_plain(str(value)):
            refused = "it is called with, or returns, containers other than tuples, lists and dicts"
        elif key == "device" and isinstance(value, dict) and value.get("type") not in (None, "cpu"):
            raise FileFormatError(
                f"{path} was exported on {value.get('type')}: export module.cpu(), called with tensors on "
                "the CPU"
            )
        if refused:
            raise FileFormatError(
                f"{path} is not loaded: {refused}; give what torch.export.export returned, if you trust it, "
                "instead of the file"
            )
    if isinstance(content, dict) and content.get("guards_code"):
        content["guards_code"] = []  # Python code that checks the inputs of a call


def _walk(content: object) -> Iterator[tuple[str, object]]:
    stack = [content]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield from one.items()
            stack += one.values()
        elif isinstance(one, list):
            stack += one


def _is_size(expression: str) -> bool:
    """Whether it has only symbols, whole numbers and allowed functions; torch evaluates it as Python."""
    left = _SYMBOL.sub("0", expression)
    return re.fullmatch(r"[\w\s(),+*/<>=-]*", left) is not None and _FUNCTIONS.issuperset(_WORD.findall(left))


def _is_plain(spec: str) -> bool:
    """Whether a tree of arguments has only containers for which torch imports nothing."""
    return "__enum__" not in spec and all(
        value in _CONTAINERS for key, value in _walk(json.loads(spec)) if key == "type"
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppresses logging: torch logs the errors that it then raises."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
