"""Keys that occur twice in an object of JSON are found, whatever stands around them, and no others."""

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from livegnn.events.repeated_keys import repeated_key

# An object is a list of pairs here, as it is written.
TEXTS = st.text(st.sampled_from('ab:\\"\u00e9,{} '), max_size=3)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.just(0.5), TEXTS)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(st.tuples(TEXTS, inner), max_size=4).map(tuple)
    ),
    max_leaves=12,
)
Value = object


def write(value: Value, colon: str, escaped: bool) -> str:
    if isinstance(value, tuple):
        pairs = (write(key, colon, escaped) + colon + write(part, colon, escaped) for key, part in value)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(write(part, colon, escaped) for part in value) + "]"
    text = orjson.dumps(value).decode()
    return text.replace(":", "\\u003a") if escaped and isinstance(value, str) else text


def repeated(value: Value) -> set[str]:
    """All keys that an object has twice."""
    if isinstance(value, list):
        return set().union(*map(repeated, value))
    if not isinstance(value, tuple):
        return set()
    keys = [key for key, _ in value]
    return {key for key in keys if keys.count(key) > 1}.union(*(repeated(part) for _, part in value))


@given(VALUES, st.sampled_from([":", " : "]), st.booleans())
@example((("a", 1), ("a", 2)), ":", False)
@example((("a", 1), ("a", ":")), ":", False)
@example((("a", ":"), ("a", 2)), ":", True)
@example((("a", 2), ("a", 2), ("b", ":")), ":", True)
@example((("events", [(("id", "x:y"), ("id", 1))]),), ":", False)
@example((("events", [0, (("id", 1), ("id", 1))]),), ":", False)
@example([(("a", 1), ("a", 1))], ":", False)
def test_repeated_keys_are_found(value: Value, colon: str, escaped: bool) -> None:
    text = write(value, colon, escaped).encode()
    found = repeated_key(text, orjson.loads(text))
    expected = repeated(value)
    assert (found in expected) if expected else found is None


@pytest.mark.parametrize("depth", [300, 1000])
def test_lists_in_lists_are_passed_on(depth: int) -> None:
    text = b'{"a": "\\u003a", "b": ' + b"[" * depth + b"]" * depth + b"}"
    assert repeated_key(text, orjson.loads(text)) is None
