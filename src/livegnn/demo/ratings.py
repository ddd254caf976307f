"""The ratings of the demo: how members of Bitcoin OTC rated each other, in order of time."""

from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import numpy as np

from livegnn.types import DoubleArray, FloatArray, IntArray

CUTOFF_SHARE = 0.65
"""The share of the ratings, in order of time, that the model was trained on; the demo replays the others."""

RATING_SCALE = 10.0
"""The best rating. The weight of an edge is its rating divided by this, so weights are from -1 to 1."""


@dataclass(frozen=True)
class Ratings:
    """Ratings by time: `src[i]` gave `dst[i]` the mark `rating[i]`, -10 to 10, at `time[i]` (unix s)."""

    src: IntArray
    dst: IntArray
    rating: FloatArray
    time: DoubleArray
    cutoff: int
    """The number of ratings before the cut-off."""

    def __len__(self) -> int:
        return len(self.src)

    @cached_property
    def weight(self) -> FloatArray:
        """The weight of each rating's edge, -1 to 1."""
        return self.rating / np.float32(RATING_SCALE)

    def first(self, count: int) -> "Ratings":
        """Only the first `count` ratings, with the same cut-off."""
        return Ratings(
            self.src[:count], self.dst[:count], self.rating[:count], self.time[:count], self.cutoff
        )


def load() -> Ratings:
    """Read the ratings that the package ships."""
    with (files("livegnn.demo") / "data" / "bitcoin_otc.npz").open("rb") as file, np.load(file) as arrays:
        return Ratings(
            src=arrays["src"].astype(np.int64),
            dst=arrays["dst"].astype(np.int64),
            rating=arrays["rating"].astype(np.float32),
            time=arrays["time"].astype(np.float64),
            cutoff=int(len(arrays["time"]) * CUTOFF_SHARE),
        )
