"""What a batch of one event costs beside its work. Calls of functions are most of it, so they are counted."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import livegnn
from livegnn import Engine, Events, Graph
from livegnn.inference.supposed_scores import MostOfRequest
from scored_edges import WIDTH as SCORED_WIDTH
from scored_edges import make_scorer
from streams import WIDTH, make_graph, make_model

OURS = str(Path(livegnn.__file__).parent)
MOST, MOST_SUPPOSED, MOST_ANSWERED = 28, 47, 6

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


def test_a_what_if_with_a_score_calls_few_functions() -> None:
    graph = Graph.from_edges(
        [0, 1], [1, 2], x=np.ones((3, SCORED_WIDTH)), weight=[1, 1], edge_attr=np.ones((2, 2))
    )
    engine, (src, dst) = Engine(graph, make_scorer(), threads=1), np.array([2, 0])
    attr, weight = np.ones(2, np.float32), np.ones(1, np.float32)
    events = Events().add_edges(src, dst, edge_attr=attr, weight=weight)

    def suppose() -> None:
        engine.what_if(events).score(src, dst, edge_attr=attr, edge_weight=weight, output="risk")

    suppose()
    calls = calls_of(suppose)
    assert calls.total() <= MOST_SUPPOSED, calls
    event = {"event": "add_edge", "src": 2, "dst": 0, "edge_attr": [1, 1], "weight": 1}
    body = {"sources": [2], "targets": [0], "edge_attr": [[1, 1]], "edge_weight": [1], "output": "risk"}
    request = json.dumps({**body, "events": [event]}).encode()

    def answer() -> None:
        assert engine.answer_scores_at_once(request, 0, MostOfRequest(4096, 100)) is not None

    answer()
    assert calls_of(answer).total() <= MOST_ANSWERED
