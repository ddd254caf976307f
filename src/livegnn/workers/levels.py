"""How far all sampling workers are, as far as one of them knows.

Level 0 is what a worker has taken. Level h + 1 is the least of its own level h and of those that the others
have told. So all effects, of what is up to level h, that pass from worker to worker at most h times were
taken. An effect passes at most once for each hop: a sample refers to its neighbours, whose samples refer to
theirs, and the last ones to features. The last level is a watermark.
"""

from collections.abc import Iterable, Sequence


class Levels:
    """Of events by their numbers, or of changes of the plan by theirs. Thread safety: none."""

    def __init__(self, others: Iterable[int], hops: int, taken: int = 0) -> None:
        self.of = {other: [taken] * (hops + 1) for other in others}
        self._hops = hops

    def after(self, taken: int) -> list[int]:
        """The levels of a worker that has taken this much."""
        levels = [taken]
        for passes in range(self._hops):
            levels.append(min([levels[passes], *(told[passes] for told in self.of.values())]))
        return levels

    def to_json(self) -> "list[list[int | list[int]]]":
        """For a checkpoint."""
        return [[other, list(told)] for other, told in self.of.items()]

    def load(self, given: "Sequence[tuple[int, list[int]]]") -> None:
        """What `to_json` returned."""
        self.of = {other: list(told) for other, told in given}
