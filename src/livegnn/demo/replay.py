"""Replays the ratings after the cut-off as an ordinary HTTP client, at a speed that may change."""

import json
from collections.abc import Callable
from http.client import HTTPConnection
from threading import Condition, Thread

from livegnn.demo.meter import Meter
from livegnn.demo.ratings import Ratings
from livegnn.demo.standing import Standings
from livegnn.errors import LiveGNNError
from livegnn.events import Events

LARGEST_GROUP = 64
"""The largest number of ratings in one request."""


class ReplayError(LiveGNNError):
    """The server did not accept an event of the replay."""


def due(credit: float, speed: float | None, seconds: float, left: int) -> tuple[int, float]:
    """The number of ratings to send now, and the remaining credit.

    `credit` (in ratings) grows with `speed` (ratings a second, None: no limit) over the `seconds` since the
    last call, up to the ratings of a quarter of a second: a replay that fell behind does not catch up.
    """
    if speed is None:
        return min(LARGEST_GROUP, left), 0.0
    credit = min(credit + speed * seconds, max(1.0, speed / 4))
    count = min(int(credit), LARGEST_GROUP, left)
    return count, credit - count


class Replay:
    """Sends the ratings from the cut-off on to the server and waits until each request is applied.

    `speed` is in ratings a second, None for as fast as possible. `clock` returns seconds.
    """

    def __init__(
        self,
        ratings: Ratings,
        standings: Standings,
        meter: Meter,
        address: tuple[str, int],
        *,
        speed: float | None,
        clock: Callable[[], float],
    ) -> None:
        self._ratings, self._standings, self._meter = ratings, standings, meter
        self._address, self._clock = address, clock
        self._speed, self._paused, self._stopped = speed, False, False
        self._credit, self._last = 0.0, clock()
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="replay", daemon=True)
        self.error: Exception | None = None
        self.position = ratings.cutoff
        """The number of ratings sent so far, including those before the cut-off."""
        self.date = float(ratings.time[ratings.cutoff - 1])
        """The time of the last rating sent, in unix seconds."""

    @property
    def speed(self) -> float | None:
        return self._speed

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def set_speed(self, speed: float | None) -> None:
        with self._changed:
            self._speed = speed
            self._changed.notify()

    def set_paused(self, paused: bool) -> None:
        with self._changed:
            self._paused = paused
            self._changed.notify()

    def stop(self) -> None:
        """Send nothing more, and return when the current request is answered."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self.join()

    def join(self, timeout: float | None = None) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        connection = HTTPConnection(*self._address, timeout=60)
        try:
            while (count := self._next()) > 0:
                self._send(connection, count)
        except (LiveGNNError, OSError) as error:
            self.error = error
        finally:
            connection.close()

    def _next(self) -> int:
        """Wait until ratings are due, and return how many; 0 at the end."""
        left = len(self._ratings) - self.position
        with self._changed:
            while left and not self._stopped:
                now = self._clock()
                if self._paused:
                    self._changed.wait()
                    self._last = self._clock()
                    continue
                count, self._credit = due(self._credit, self._speed, now - self._last, left)
                self._last = now
                if count:
                    return count
                assert self._speed is not None  # without a limit, ratings are always due
                self._changed.wait((1 - self._credit) / self._speed)
        return 0

    def _send(self, connection: HTTPConnection, count: int) -> None:
        ratings, start = self._ratings, self.position
        events = Events.concatenate(
            [
                self._standings.events(
                    int(ratings.src[i]), int(ratings.dst[i]), float(ratings.rating[i]), float(ratings.time[i])
                )
                for i in range(start, start + count)
            ]
        )
        self.date = float(ratings.time[start + count - 1])
        body = events.to_json_lines()
        begun = self._clock()
        connection.request(
            "POST", "/v1/events?wait=true", body=body, headers={"content-type": "application/x-ndjson"}
        )
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ReplayError(
                f"the server must accept the events of the replay, but answered {answer.status}: "
                f"{json.dumps(text.decode(errors='replace'))}"
            )
        self.position = start + count
        self._meter.sent(count, len(events), self._clock() - begun)
