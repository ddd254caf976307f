"""What tests of the training loaders have in common."""

import numpy as np
import pytest

import livegnn as lg

# Newer Pythons warn of every fork beside threads, torch's included.
FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def ring(count: int = 10, **columns: object) -> lg.Graph:
    """0 -> 1 -> ... -> 0, with the id as feature."""
    src = np.arange(count)
    return lg.Graph.from_edges(src, (src + 1) % count, x=src[:, None].astype(np.float32), **columns)
