"""Pauses between tries that fail, or that find nothing: each longer than the previous one, up to a limit."""

from collections.abc import Iterator
from typing import Final, NamedTuple

_ENOUGH: Final = 64  # pauses that grew: the longest is reached, and a larger power may be no number


class Backoff(NamedTuple):
    """The first pause and the longest, in seconds. factor: of each pause to the previous one."""

    first: float
    longest: float
    factor: float = 2.0

    def after(self, failures: int) -> float:
        """The pause after this number of failures in a row, 0 after none."""
        if failures < 1:
            return 0.0
        return min(self.longest, self.first * self.factor ** min(failures - 1, _ENOUGH))

    def pauses(self) -> Iterator[float]:
        """The pauses after one failure, after two, and so on, without end."""
        pause = self.first
        while True:
            yield pause
            pause = min(self.longest, pause * self.factor)
