"""A number that rounds to a finite float32 is taken whichever way it arrives, as this float32; others are
refused everywhere.

The border is exact: float64 has 2^29 numbers between the largest float32 and the first that rounds to
infinity.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from gate import draws
from livegnn import EdgeSchema, Events, Graph, InputError, Schema
from livegnn.types import JSON

LARGEST = float(np.finfo(np.float32).max)
BORDER = 2**128 - 2**103  # between the largest float32 and 2^128; what is as far from both rounds to infinity
HALF = 2**74  # half of the distance of two numbers of float64 there
WIDTH = {"set_features": "x", "add_node": "x", "add_edge": "edge_attr"}


def record_of(event: str, name: str, value: float) -> dict[str, JSON]:
    ends = {"src": 1, "dst": 2} if event == "add_edge" else {"id": 1}
    return {"event": event, **ends, name: value if name == "weight" else [0.0, value]}


def of_lines(record: dict[str, JSON]) -> Events:
    return Events.from_json_lines(orjson_or_digits(record) + "\n")


def orjson_or_digits(record: dict[str, JSON]) -> str:
    """JSON with all digits of an integer, which orjson does not write."""
    name = next(name for name in ("weight", "x", "edge_attr") if name in record)
    text = str(record[name])
    rest = orjson.dumps({key: other for key, other in record.items() if key != name}).decode()
    return f'{rest[:-1]},"{name}":{text}}}'


def of_arrow(record: dict[str, JSON]) -> Events:
    columns = {name: [value] for name, value in record.items()}
    kinds = {"weight": pa.float64(), "x": pa.list_(pa.float64()), "edge_attr": pa.list_(pa.float64())}
    arrays = {name: pa.array(values, kinds.get(name)) for name, values in columns.items()}
    return Events.from_arrow(pa.table(arrays))


def of_python(convert: Callable[[list[JSON]], ArrayLike]) -> Callable[[dict[str, JSON]], Events]:
    def build(record: dict[str, JSON]) -> Events:
        if record["event"] == "add_edge":
            named = {name: convert([record[name]]) for name in ("weight", "edge_attr") if name in record}
            return Events().add_edges([1], [2], **named)
        row = convert([record["x"]])
        if record["event"] == "set_features":
            return Events().set_features([1], row)
        return Events().add_nodes([1], row)

    return build


WAYS: dict[str, Callable[[dict[str, JSON]], Events]] = {
    "JSON lines": of_lines,
    "records": lambda record: Events.from_records([record]),
    "Arrow": of_arrow,
    "lists": of_python(lambda values: values),
    "arrays": of_python(lambda values: np.array(values, np.float64)),
}

near = st.integers(-40, 40).map(lambda steps: float(BORDER) + steps * 2.0**75)
near_largest = st.integers(-40, 40).map(lambda steps: LARGEST + steps * 2.0**75)
whole = st.integers(-3, 3).map(lambda steps: BORDER - HALF + steps)


@pytest.mark.parametrize("way", WAYS)
@given(
    size=near | near_largest | whole,
    negative=st.booleans(),
    place=st.sampled_from([*WIDTH.items(), ("add_edge", "weight")]),
)
@example(3.4028235e38, False, ("set_features", "x"))  # as NumPy prints the largest float32
@example(BORDER - HALF - 1, False, ("set_features", "x"))
@example(BORDER - HALF, True, ("add_edge", "weight"))
@example(10**400, False, ("add_edge", "edge_attr"))
@example(2**100, True, ("add_edge", "weight"))
@settings(max_examples=draws(15, 1000), deadline=None)
def test_what_rounds_to_a_finite_float32_is_taken(
    way: str, size: float, negative: bool, place: tuple[str, str]
) -> None:
    value, (event, name) = -size if negative else size, place
    if way in ("Arrow", "arrays"):  # columns of float64
        if abs(value) > BORDER * 2:
            return
        value = float(value)
    rounded = nearest(value)
    if not math.isfinite(rounded):
        with pytest.raises(InputError):
            WAYS[way](record_of(event, name, value)).check()
        return
    events = WAYS[way](record_of(event, name, value))
    events.check()
    chunk = events.chunks[0]
    column = chunk.weight if name == "weight" else chunk.x
    assert column is not None
    assert column.reshape(-1)[-1] == np.float32(rounded)
    assert Events.from_json_lines(events.to_json_lines()) == events


def nearest(value: float) -> float:
    """The float32 nearest to the float64 nearest to a number, in exact arithmetic."""
    try:
        exact = Fraction(float(value))
    except OverflowError:
        return math.inf
    if abs(exact) >= BORDER:
        return math.inf
    spacing = 2**104  # of float32 from 2^127 on
    if abs(exact) < 2**127:
        return float(np.float32(value))
    return float(math.copysign(round(abs(exact) / spacing) * spacing, value))


def test_the_default_features_of_a_type_have_the_same_border() -> None:
    def made(value: float) -> np.ndarray:
        edges = {("node", "to", "node"): EdgeSchema()}
        graph = Graph(Schema({"node": 1}, edges, auto_add={"node": (value,)}))
        graph.apply(Events().add_edges([1], [2]))
        return graph.features([1])

    for sign in (1, -1):
        for size in (3.4028235e38, BORDER - HALF - 1, math.nextafter(float(BORDER), 0)):
            assert made(sign * size).tolist() == [[sign * LARGEST]]
        for size in (float(BORDER), BORDER - HALF):
            with pytest.raises(InputError, match="finite numbers for node type"):
                made(sign * size)
