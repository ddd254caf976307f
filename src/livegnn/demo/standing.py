"""A member's standing: the features that the demo's model reads, all known when a rating arrives."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import log1p

import numpy as np

from livegnn.demo.ratings import RATING_SCALE
from livegnn.events import Events
from livegnn.types import FloatArray

FEATURES: tuple[str, ...] = (
    "received",  # log(1 + ratings received) / 2
    "received mean",  # their mean, as if there were one more rating of 0; / 5
    "received negative share",  # as if there were two more positive ratings; * 2
    "received negative",  # log(1 + negative ratings received)
    "received lately",  # exponential mean of the ratings received, with weight 0.15 for the last; / 5
    "received just now",  # the same, with weight 0.5 for the last; / 5
    "received worst",  # the worst rating, 0 if none was negative; / 10
    "received gap",  # log(1 + days between the last two) / 4
    "given",  # from here on the same for the ratings given
    "given mean",
    "given negative share",
    "given negative",
)

_DAY = 86_400.0


@dataclass(slots=True)
class _Tally:
    received: int = 0
    received_sum: float = 0.0
    received_negative: int = 0
    lately: float = 0.0
    just_now: float = 0.0
    worst: float = 0.0
    gap: float = 0.0
    last_time: float = 0.0
    given: int = 0
    given_sum: float = 0.0
    given_negative: int = 0

    def receive(self, rating: float, time: float) -> None:
        if self.received:
            self.gap = log1p((time - self.last_time) / _DAY) / 4
        self.last_time = time
        self.received += 1
        self.received_sum += rating
        self.received_negative += rating < 0
        self.lately += 0.15 * (rating - self.lately)
        self.just_now += 0.5 * (rating - self.just_now)
        self.worst = min(self.worst, rating)

    def give(self, rating: float) -> None:
        self.given += 1
        self.given_sum += rating
        self.given_negative += rating < 0

    def row(self) -> tuple[float, ...]:
        return (
            log1p(self.received) / 2,
            self.received_sum / (self.received + 1) / 5,
            self.received_negative / (self.received + 2) * 2,
            log1p(self.received_negative),
            self.lately / 5,
            self.just_now / 5,
            self.worst / 10,
            self.gap,
            log1p(self.given) / 2,
            self.given_sum / (self.given + 1) / 5,
            self.given_negative / (self.given + 2) * 2,
            log1p(self.given_negative),
        )


class Standings:
    """The current standing of every member. `record` takes constant time."""

    def __init__(self) -> None:
        self._tallies: dict[int, _Tally] = {}

    def __contains__(self, member: int) -> bool:
        return member in self._tallies

    def record(self, rater: int, ratee: int, rating: float, time: float) -> None:
        """Add one rating; `time` is in seconds, not before the time of the last recorded rating."""
        self._tallies.setdefault(rater, _Tally()).give(rating)
        self._tallies.setdefault(ratee, _Tally()).receive(rating, time)

    def features(self, members: Sequence[int]) -> FloatArray:
        """The features of members, float32[len(members), len(FEATURES)]; 0 for an unknown member."""
        stranger = _Tally()
        rows = [self._tallies.get(member, stranger).row() for member in members]
        return np.array(rows, np.float32).reshape(len(members), len(FEATURES))

    def events(self, rater: int, ratee: int, rating: float, time: float) -> Events:
        """Add one rating and return its changes: new nodes, the edge, the features of both members."""
        newcomers = [member for member in (rater, ratee) if member not in self]
        self.record(rater, ratee, rating, time)
        events = Events()
        if newcomers:
            events.add_nodes(newcomers)
        events.add_edges(rater, ratee, weight=rating / RATING_SCALE)
        return events.set_features([rater, ratee], self.features([rater, ratee]))

    def without(
        self, rater: int, ratee: int, rating: float, received: Iterable[tuple[float, float]]
    ) -> FloatArray:
        """The features of rater and ratee without this rating: float32[2, len(FEATURES)].

        `received` are the other ratings that the ratee received, as (rating, time) in order of time.
        """
        giver, receiver = self._tallies[rater], self._tallies[ratee]
        giver = replace(
            giver,
            given=giver.given - 1,
            given_sum=giver.given_sum - rating,
            given_negative=giver.given_negative - (rating < 0),
        )
        other = _Tally(
            given=receiver.given, given_sum=receiver.given_sum, given_negative=receiver.given_negative
        )
        for value, time in received:
            other.receive(value, time)
        return np.array([giver.row(), other.row()], np.float32)
