"""Texts of times: a few are read as many are, and as Python reads them."""

from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn.tables.times import to_seconds

MANY = 500  # more than those that are read one by one


class Refused(Exception):
    """A text that is no time."""


def refuse(wrong: Any, expected: str) -> None:
    if np.asarray(wrong, dtype=bool).any():
        raise Refused


def seconds_of(text: str, count: int) -> float | None:
    """The text's seconds, read `count` times at once; None if it is refused."""
    try:
        found = to_seconds(pa.array([text] * count), "s", refuse)
    except Refused:
        return None
    assert (found == found[0]).all()
    return cast("float", found[0])


@st.composite
def near_times(draw: Any) -> str:
    """A text that is a time, or nearly one."""
    moment = draw(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)))
    day = f"{moment:%m-%d}" if draw(st.integers(0, 5)) else draw(st.sampled_from(["02-30", "13-01", "00-10"]))
    text = f"{moment.year:04}-{day}"
    if draw(st.booleans()):
        text = text.replace("-", "/")
    if draw(st.integers(0, 3)):
        text += draw(st.sampled_from("T  t")) + f"{moment:%H:%M}"
        if draw(st.integers(0, 3)):
            text += f":{moment:%S}"
            if digits := draw(st.integers(0, 10)):
                text += "." + draw(st.text("0123456789", min_size=digits, max_size=digits))
        text += draw(
            st.sampled_from(["", "", "Z", "z", "+01", "+0130", "-03:30", "+24:00", " UTC", "\n", "٣"])
        )
    return cast("str", text)


@given(near_times())
@example("2026-03-01\n")
@example("2026-03-01T10:00:00\n")
@example("٢٠٢٦-03-01")
@settings(max_examples=draws(300, 5000))
def test_few_are_read_as_many(text: str) -> None:
    assert seconds_of(text, 1) == seconds_of(text, MANY)


@given(st.datetimes(datetime(1677, 9, 22), datetime(2262, 4, 11)), st.sampled_from(["", "Z", "+05:30"]))
@settings(max_examples=draws(100, 1000))
def test_times_are_those_of_python(moment: datetime, zone: str) -> None:
    text = moment.isoformat() + zone
    expected = datetime.fromisoformat(text)
    expected = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    assert seconds_of(text, 3) == expected.timestamp()
