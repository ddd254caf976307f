"""Parts that follow the engines of other tests are compared with them, and a difference is found."""

import numpy as np
import pytest

import parts_beside
from livegnn import Engine, Events
from streams import WIDTH, make_graph, make_model, make_stream


def test_engines_of_a_test_are_followed_in_one_two_and_three_parts() -> None:
    with parts_beside.beside(0) as found:
        engines = [Engine(make_graph(), make_model(), threads=1) for _ in range(6)]
        assert [len(one.parts.parts) for one in found.following] == [1, 2, 3]
        for events in make_stream(10):
            engines[2].apply(events)
        assert [one.parts.seq == engines[2].seq for one in found.following] == [False, True, False]


def change_the_parts_alone(parts: int, alone: Events, after: Events) -> None:
    """alone: a batch that the engine does not see. after: one of both."""
    with parts_beside.beside(parts) as found:
        engine = Engine(make_graph(), make_model(), threads=1)
        found.following[0].parts.apply(alone, seq=0)
        engine.apply(after)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_difference_fails_the_test(parts: int) -> None:
    three, four = (Events().set_features([node], np.ones((1, WIDTH))) for node in (3, 4))
    with pytest.raises(AssertionError, match="predictions of parts"):
        change_the_parts_alone(parts, three, four)


def test_a_batch_that_only_the_parts_apply_fails_the_test() -> None:
    row = np.ones((1, WIDTH))
    with pytest.raises(AssertionError, match="must refuse"):
        change_the_parts_alone(2, Events().add_nodes([99], row), Events().set_features([99], row))


def test_a_reason_that_is_not_listed_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="mode='eager'"), parts_beside.follow_test("test_engine.py"):
        Engine(make_graph(), make_model(), threads=1, mode="lazy")
