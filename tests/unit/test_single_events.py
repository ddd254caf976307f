"""What a batch of one event costs beside its work. Calls of functions are most of it, so they are counted."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import livegnn
from livegnn import Engine, Events
from streams import WIDTH, make_graph, make_model

OURS = str(Path(livegnn.__file__).parent)
MOST = 28

EVENTS: dict[str, Callable[[int], Events]] = {
    "features": lambda number: Events().set_features([number % 40], np.full((1, WIDTH), number % 7 + 1)),
    "edge": lambda number: Events().add_edges([number % 40], [(number + 1) % 40], weight=[number % 5 + 1.0]),
    "removal": lambda number: Events().remove_edges([number % 40], [(number + 1) % 40]),
}


def calls_of(call: Callable[[], object]) -> Counter[str]:
    """Our functions in Python that a call comes to, and how often."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", list(EVENTS))
def test_a_batch_of_one_event_calls_few_functions(kind: str) -> None:
    engine = Engine(make_graph(), make_model(), threads=1)
    make = EVENTS[kind]
    engine.apply(make(0))  # makes what is made once
    for number in range(1, 9):
        events = make(number)
        calls = calls_of(partial(engine.apply, events))
        assert calls.total() <= MOST, calls
