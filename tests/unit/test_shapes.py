"""Public functions say the shapes of their arrays, and tests check that they are so."""

import ast
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import shapes
from livegnn.graph import Graph
from livegnn.sampling import Subgraph
from livegnn.sampling.request import given_ids
from livegnn.types import FloatArray, IntArray

SOURCE = Path(__file__).parents[2] / "src" / "livegnn"
HERE = types.ModuleType("here")
HERE.__dict__.update(FloatArray=FloatArray, IntArray=IntArray, Mapping=Mapping)
ROW, ROWS = np.zeros(3, np.float32), np.zeros((2, 3), np.float32)


def returns(value: object) -> "Float32[FloatArray, 'rows channels'] | None":  # noqa: F722, F821
    return value  # type: ignore[return-value]


def pairs(
    a: "Int64[IntArray, 'rows']",  # noqa: F821
    b: "Int64[IntArray, 'rows']",  # noqa: F821
) -> "Float32[FloatArray, 'rows _']":  # noqa: F722, F821
    return np.zeros((len(a), 3), np.float32)


def test_what_is_returned_is_checked() -> None:
    checked = shapes.checked(returns, HERE)
    assert checked(ROWS) is ROWS
    assert checked(None) is None
    for wrong in (ROW, ROWS.astype(np.float64), [1.0]):
        with pytest.raises(AssertionError, match="returns returns: expected"):
            checked(wrong)


def test_one_name_is_one_number_in_a_call() -> None:
    checked = shapes.checked(pairs, HERE)
    assert checked(np.arange(2), np.arange(2)).shape == (2, 3)
    assert checked(np.arange(4), b=np.arange(4)).shape == (4, 3)
    with pytest.raises(AssertionError, match="pairs, b: expected"):
        checked(np.arange(2), np.arange(3))


def test_not_every_call_is_checked() -> None:
    checked = shapes.checked(returns, HERE)
    for _ in range(shapes.ALL_UNTIL):
        checked(ROWS)
    failures = 0
    for _ in range(4 * shapes.ONE_IN):
        try:
            checked(ROW)
        except AssertionError:
            failures += 1
    assert failures == 4


def test_fields_are_checked() -> None:
    @dataclass(frozen=True)
    class Frame:
        x: "Mapping[str, Float32[FloatArray, '_ _']]"  # noqa: F722, F821

    class Pair(NamedTuple):
        row: "Int64[IntArray, 'edges']"  # noqa: F821
        col: "Int64[IntArray, 'edges']"  # noqa: F821

    for class_ in (Frame, Pair):
        shapes.install_in_class(class_, HERE)
    Frame({"a": ROWS})
    Pair(np.arange(2), np.arange(2))
    with pytest.raises(AssertionError, match=r"Frame\.x: expected"):
        Frame({"a": ROWS, "b": ROW})
    with pytest.raises(AssertionError, match=r"Pair\.col: expected"):
        Pair(np.arange(2), np.arange(3))


def test_tests_check_the_package() -> None:
    assert Graph.features.__wrapped__ is not None
    assert Subgraph.__init__.__wrapped__ is not None
    assert given_ids.__wrapped__ is not None


def annotations_of(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.expr]]:
    """Of what is public: functions, what they take and return, and the fields of classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            for field in child.body:
                if isinstance(field, ast.AnnAssign):
                    yield f"{within}{child.name}.{ast.unparse(field.target)}", field.annotation
            yield from annotations_of(child, f"{within}{child.name}.")
        elif isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            for argument in (*child.args.args, *child.args.kwonlyargs):
                if argument.annotation is not None:
                    yield f"{within}{child.name}, {argument.arg}", argument.annotation
            if child.returns is not None:
                yield f"{within}{child.name}", child.returns


BARE = re.compile(r"(?<!\[)\b(FloatArray\b|IntArray\b|DoubleArray\b|Ids\b|Keys\b|NDArray\[)")


def test_public_arrays_have_shapes() -> None:
    """An array is annotated with its dimensions, or is whatever array-like a user gives."""
    files = [path for room in shapes.ROOMS for path in (SOURCE / f"{room}.py", *(SOURCE / room).glob("*.py"))]
    bare = [
        f"{path.relative_to(SOURCE)}: {name}: {said}"
        for path in files
        if path.exists()
        for name, annotation in annotations_of(ast.parse(path.read_text(encoding="utf-8")))
        if BARE.search((said := ast.unparse(annotation)).replace("npt.", "")) and "Callable" not in said
    ]
    assert bare == []
