"""Drift of columns: bins of any scale, held against counts in loops; samples of a runtime and their files."""

from datetime import date
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gate import draws
from livegnn import Engine, Events, Graph
from livegnn.errors import FileFormatError
from livegnn.log.sqlite import SqliteLog
from livegnn.quality.drift import compare, count, describe, largest_distance, stability_index
from livegnn.quality.report import read_rows
from livegnn.quality.samples import (
    DRIFT,
    Population,
    draw_populations,
    has_sample,
    update_drift,
    write_sample,
)
from livegnn.runtime import Runtime
from streams import WIDTH, make_graph, make_model

VALUES = st.lists(
    st.sampled_from([0.0, 1.0, 7.0, float("nan")]) | st.floats(width=32), min_size=1, max_size=50
)
DAYS = [date(2026, 3, day) for day in range(1, 6)]


@given(VALUES, VALUES)
@example([0.0] * 20, [1.0] * 5)
@settings(max_examples=draws(150, 10_000), deadline=None)
def test_counts_and_distances_as_defined(before: list[float], now: list[float]) -> None:
    reference = describe(np.array(before, np.float32))
    bounds = reference.bounds.tolist()
    assert bounds == sorted(set(bounds))
    counts = count(np.array(now, np.float32), reference.bounds)
    for values, found in ((before, reference.counts), (now, counts)):
        bins = [sum(bound < value for bound in bounds) for value in values if not np.isnan(value)]
        inside = [bins.count(at) for at in range(len(bounds) + 1)]
        assert found.tolist() == [*inside, sum(np.isnan(values))]
    old = [(each + 0.5) / sum(reference.counts + 0.5) for each in reference.counts]
    new = [(each + 0.5) / sum(counts + 0.5) for each in counts]
    index = sum((q - p) * np.log(q / p) for p, q in zip(old, new, strict=True))
    assert stability_index(reference.counts, counts) == pytest.approx(index)
    distance = max(
        abs(sum(counts[:end]) / len(now) - sum(reference.counts[:end]) / len(before))
        for end in range(len(counts) + 1)
    )
    assert largest_distance(reference.counts, counts) == pytest.approx(distance)


RANDOM = np.random.default_rng(1)
NORMAL = RANDOM.standard_normal(4000).astype(np.float32)


@pytest.mark.parametrize(
    ("scale", "mean"), [(1, 0), (1e-6, 0), (1e9, 0), (1, 1e4), (1e-3, 5e3), (1e30, -1e31)]
)
def test_columns_of_any_scale(scale: float, mean: float) -> None:
    """As much as the same column of another scale: little for the same distribution, much for another."""
    before, same, moved = (
        mean + scale * column for column in (NORMAL[:2000], NORMAL[2000:], NORMAL[2000:] + 1)
    )
    columns = np.stack([before, before], axis=1).astype(np.float32)
    found = list(compare(columns, np.stack([same, moved], axis=1).astype(np.float32), "feature", "user"))
    values = {(one.metric, one.part): one.value for one in found}
    assert values["feature_stability_index", "user 0"] < 0.02
    assert values["feature_largest_distance", "user 0"] < 0.05
    assert values["feature_stability_index", "user 1"] > 0.5
    assert values["feature_largest_distance", "user 1"] > 0.3


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([5.0] * 100, [4.0] * 100),  # a constant that moves down
        ([5.0] * 100, [6.0] * 100),
        ([0.0] * 95 + [1.0] * 5, [0.0] * 50 + [1.0] * 50),  # a flag
        ([0.0] * 100, [0.0] * 80 + [float("nan")] * 20),
        ([float("nan")] * 100, [1.0] * 100),
        ([*range(-45, 0), *[0.0] * 15, *range(1, 41)], [*range(-45, 0), *[-0.5] * 15, *range(1, 41)]),
        ([0.0] * 60 + list(range(1, 41)), [0.0] * 20 + list(range(1, 81))),
    ],
)
def test_values_that_many_rows_share(before: list[float], now: list[float]) -> None:
    reference = describe(np.array(before, np.float32))
    assert stability_index(reference.counts, count(np.array(now, np.float32), reference.bounds)) > 0.25
    assert stability_index(reference.counts, count(np.array(before, np.float32), reference.bounds)) == 0


def running(folder: Path, graph: Graph) -> Runtime:
    return Runtime(SqliteLog(folder / "events.db"), graph, Engine(graph, make_model(), threads=1))


@pytest.mark.parametrize("text", [False, True])
def test_a_sample_has_features_and_scores(tmp_path: Path, text: bool) -> None:
    runtime = running(tmp_path, make_graph(text=text))
    graph = runtime.graph
    features, scores = draw_populations(runtime, 10**6, np.random.default_rng(0))
    ids = graph.ids()
    assert (features.kind, features.of, scores.kind, scores.of) == ("feature", "node", "score", "engine")
    assert np.array_equal(features.values, graph.features(ids))
    assert np.array_equal(scores.values, runtime.predict(ids).values)
    features, scores = draw_populations(runtime, 5, np.random.default_rng(0))
    assert features.values.shape == (5, WIDTH)
    assert len(scores.values) == 5
    rows = set(map(bytes, graph.features(ids)))
    assert {bytes(row) for row in features.values} <= rows
    runtime.stop()
    runtime.log.close()


def test_an_empty_graph_has_no_sample(tmp_path: Path) -> None:
    runtime = running(tmp_path, make_graph())
    runtime.start()
    runtime.wait(runtime.append(Events().remove_nodes(runtime.graph.ids())))
    assert draw_populations(runtime, 5, np.random.default_rng(0)) == []
    runtime.stop()
    runtime.log.close()


def populations(day: int) -> list[Population]:
    rows = NORMAL[day * 200 : day * 200 + 200].reshape(-1, 2) + day
    return [Population("feature", "user", rows), *([Population("score", "new", rows[:, :1])] * (day > 1))]


def test_each_day_is_compared_with_the_reference(tmp_path: Path) -> None:
    for at, day in enumerate(DAYS):
        assert not has_sample(tmp_path, day)
        write_sample(tmp_path, day, populations(at))
        assert has_sample(tmp_path, day)
    rows = update_drift(tmp_path, None)
    assert sorted(read_rows(tmp_path, DRIFT)) == sorted(rows)
    index = {(row.day, row.model, row.part): row.value for row in rows if row.metric.endswith("_index")}
    assert index[DAYS[0], "", "user feature 0"] == index[DAYS[2], "new", "channel 0"] == 0
    assert (DAYS[1], "new", "channel 0") not in index
    for at, first, model, part in ((4, 0, "", "user feature 1"), (3, 2, "new", "channel 0")):
        column = int(part[-1])
        before, now = (populations(one)[-1 if model else 0].values for one in (first, at))
        expected = next(compare(before[:, column:], now[:, column:], "x", "y"))
        assert index[DAYS[at], model, part] == expected.value
    later = update_drift(tmp_path, DAYS[3])
    assert {row.day for row in later} == set(DAYS[3:])
    assert {row.value for row in later if row.day == DAYS[3]} == {0}


def test_a_damaged_sample_is_named(tmp_path: Path) -> None:
    write_sample(tmp_path, DAYS[0], populations(0))
    (path,) = tmp_path.rglob("*.parquet")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FileFormatError, match="a sample of features and scores"):
        update_drift(tmp_path, None)
