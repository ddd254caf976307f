"""Divides a movement among the events that caused it, one after the other in the order of the log."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np

from livegnn.errors import TimeoutExpired
from livegnn.events import Chunk
from livegnn.graph import Graph
from livegnn.inference.explanation import EventShare
from livegnn.inference.receptive_field import ReceptiveField
from livegnn.types import DoubleArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64


class Moment(Protocol):
    """The inputs of a value at one moment."""

    def equals(self, other: Self) -> bool:
        """Whether the value has the same bits at both moments."""


_M = TypeVar("_M", bound=Moment)


class Movement(NamedTuple, Generic[_M]):
    """A value at two moments, and the shares of the events between them that moved it."""

    before: _M
    now: _M
    value_before: "Float64[DoubleArray, 'channels']"
    value_now: "Float64[DoubleArray, 'channels']"
    shares: list[EventShare]


def share_among_events(
    graph: Graph,
    field: ReceptiveField,
    since: int,
    seq: int,
    *,
    read: Callable[[], _M],
    compute: Callable[[_M], DoubleArray],
    timeout: float | None,
) -> Movement[_M]:
    """Replays the events of a field, and computes the value after each that changes what it is computed from.

    since, seq: the movement is that of the events after `since`, up to `seq`. read: the moment that the
    replay has reached. compute: the value of a moment. timeout: seconds, or None.

    Raises `TimeoutExpired`.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    field.go_back()
    shares: list[EventShare] = []
    before = now = read()
    past = moved = compute(now)
    for number, event in field.replay():
        moment = read()
        if moment.equals(now):
            continue
        if time.monotonic() > deadline:
            raise TimeoutExpired(
                f"the prediction was to be explained in time, got as far as event {number} of {seq}: ask for "
                "fewer events, with a later since, or give it a longer timeout"
            )
        now, last = moment, moved
        moved = compute(now)
        if number <= since:  # the batch began before
            before, past = now, moved
        elif not np.array_equal(moved, last):
            shares.append(_describe(graph, number, event, moved - last))
    return Movement(before, now, past, moved, shares)


def user_id(graph: Graph, number: "Int64[IntArray, '1']") -> int | str:
    """The id of a node, by its number, [1]."""
    id: int | str = graph.to_user_ids(number)[0].item()
    return id


def _describe(graph: Graph, seq: int, event: Chunk, share: DoubleArray) -> EventShare:
    ids = [event.ids] if event.dst is None else [event.ids, event.dst]
    return EventShare(
        seq,
        event.kind.removesuffix("s") if event.kind != "set_features" else event.kind,
        event.type,
        tuple(user_id(graph, cast("IntArray", numbers)) for numbers in ids),
        share,
    )
