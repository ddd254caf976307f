"""After any sequence of events an engine that keeps less equals the oracle, and the engine that keeps all."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from test_engine import LiveGraph

from gate import draws, some
from livegnn import Engine, Graph
from mirror import assert_close, predictions
from modules import CONVOLUTIONS

SEQUENCES = draws(3, 40)
"""How many random sequences each convolution goes through with each setting."""


class ThriftyGraph(LiveGraph):
    """A live graph beside an engine that keeps all, which says the same to the bit."""

    plain: Engine

    def apply(self, operations: list[tuple[Any, ...]]) -> None:
        if not hasattr(self, "plain"):
            self.plain = Engine(Graph.from_state(self.graph.state()), self.model, threads=1)
        super().apply(operations)
        update = self.plain.apply(self.waiting[-1])
        assert predictions(self.plain) == predictions(self.engine)
        assert update.seq == self.engine.seq


def run(machine: type[LiveGraph], kind: str, **chosen: Any) -> None:
    run_state_machine_as_test(
        lambda: machine(kind, **chosen),
        settings=settings(
            max_examples=SEQUENCES, stateful_step_count=12, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_any_sequence_of_events_with_aggregates_alone(kind: str) -> None:
    run(ThriftyGraph, kind, keep="aggregates")


@pytest.mark.parametrize("kind", ["gcn", "sage mean", "sage max"])
def test_any_sequence_of_events_with_mapped_state(kind: str, tmp_path: Path) -> None:
    run(ThriftyGraph, kind, state_dir=tmp_path)


class SparseGraph(LiveGraph):
    """A live graph beside an engine that keeps all, which says the same but for rounding."""

    plain: Engine

    def apply(self, operations: list[tuple[Any, ...]]) -> None:
        if not hasattr(self, "plain"):
            self.plain = Engine(Graph.from_state(self.graph.state()), self.model, threads=1)
        super().apply(operations)
        self.plain.apply(self.waiting[-1])
        features = self.engine.embeddings(0)
        for layer in range(len(self.model.layers)):
            got, expected = self.engine.embeddings(layer), self.plain.embeddings(layer)
            assert_close(got, expected, features, f"layer {layer}, residents alone")


@pytest.mark.parametrize(("degree", "kind"), some(product([1, 2, 4], CONVOLUTIONS)))
def test_any_sequence_of_events_with_residents_alone(kind: str, degree: int) -> None:
    run(SparseGraph, kind, keep_degree=degree)
