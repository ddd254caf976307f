"""Networks of every importable convolution, on data of any magnitude, are what PyG in float64 says.

`make wild` runs a hundred thousand such cases. `tests/wild.py --first NUMBER --networks 1 --stream 0` runs
one again.
"""

from __future__ import annotations

import numpy as np
import pytest

from gate import draws, share
from wild import KINDS, STEEP, STEEP_FROM, Case

EACH = draws(1, 3)
"""Cases of each kind, always the same ones."""

HIDDEN_BY_UNITS = (3172, 3327, 3519, 26315)
"""Cases whose last batches bring columns back: rows were judged in units that had become too large. In the
last, what is left in a channel is the message of one edge."""


@pytest.mark.parametrize("kind", share(KINDS, 0, 5))
def test_every_prediction_is_exact_when_the_stream_is_over(kind):
    place = list(KINDS).index(kind)
    for number in range(place, EACH * len(KINDS), len(KINDS)):
        case = Case(number)
        assert case.kind == kind
        found = case.run()
        assert found.ok, f"case {number}: {case.name}: {found}"


@pytest.mark.parametrize("kind", STEEP)
def test_what_a_steep_function_magnifies_is_exact_too(kind):
    place = next(n for n in range(STEEP_FROM, STEEP_FROM + len(STEEP)) if Case(n).kind == kind)
    for number in range(place, place + draws(1, 30) * len(STEEP), len(STEEP)):
        case = Case(number)
        assert case.kind == kind
        found = case.run()
        assert found.ok, f"case {number}: {case.name}: {found}"


@pytest.mark.parametrize("number", HIDDEN_BY_UNITS)
def test_a_stream_that_ends_with_units_too_large_leaves_nothing_hidden(number):
    case = Case(number)
    found = case.run()
    assert found.part < 0.5, f"case {number}: {case.name}: {found}"


def test_a_case_is_a_function_of_its_number():
    first, second = (Case(27) for _ in range(2))
    other = Case(27, 1)
    batches = [[events.to_bytes() for events in case.batches()] for case in (first, second)]
    assert batches[0] == batches[1]
    assert [events.to_bytes() for events in other.batches()] != batches[0]
    assert other.module is first.module
    assert Case(28).home.tobytes() != first.home.tobytes()


def test_streams_are_wild():
    """Spikes reach far beyond their columns, columns far beyond each other, and most of it comes back."""
    spikes, ratios, back = [], [], []
    for number in range(40):
        case = Case(number)
        size = np.abs(case.columns).max(axis=0)
        ratios.append(size.max() / size.min())
        for events in case.batches():
            changes = [chunk.x for chunk in events.chunks if chunk.kind == "set_features"]
            spikes += [float((np.abs(rows) / size).max()) for rows in changes]
        back.append(bool((case.x == case.home).all()))
    assert np.median(ratios) > 1e4
    assert max(spikes) > 1e6
    assert np.mean(np.array(spikes) > 1e3) > 0.1
    assert 0.5 < np.mean(back) < 1
