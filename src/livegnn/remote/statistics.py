"""Counts of a predictor's work, and its times.

Thread safety: that of the predictor.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Account:
    """Counts of a predictor's work. Times in seconds; `change_seconds` are part of `cache_seconds`, which are
    not part of the others."""

    requests: int = 0
    nodes: int = 0
    edges: int = 0
    features_read: int = 0
    features_reused: int = 0
    feature_bytes_fetched: int = 0
    evicted: int = 0
    predicted_too_low: int = 0
    snapshots: int = 0
    sample_seconds: float = 0.0
    fetch_seconds: float = 0.0
    cache_seconds: float = 0.0
    change_seconds: float = 0.0
    memory_seconds: float = 0.0
    infer_seconds: float = 0.0

    @contextmanager
    def timed(self, *names: str) -> Iterator[None]:
        """Adds the time for which it is open to some of the times."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            for name in names:
                setattr(self, name, getattr(self, name) + took)
