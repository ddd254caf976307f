"""The changes that one client has chosen, against a slow oracle."""

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from livegnn.runtime import Change
from livegnn.server.chosen_changes import ChosenChanges, KeptChange

IDS = st.integers(0, 5)
VALUES = st.sampled_from([0.0, 0.5, 1.0, -1.0, 1.5, math.inf, math.nan])
ROWS = st.dictionaries(IDS, st.tuples(VALUES, VALUES))
BATCHES = st.lists(st.tuples(ROWS, st.sets(IDS), st.booleans()), max_size=8)


def moved(before: tuple[float, float] | None, now: tuple[float, float], threshold: float | None) -> bool:
    if before is None or threshold is None:
        return True
    return any(not abs(new - old) <= threshold for old, new in zip(before, now, strict=True))


@given(
    wanted=st.sets(IDS), text=st.booleans(), threshold=st.sampled_from([None, 0.0, 0.5, 1.0]), batches=BATCHES
)
@example(
    wanted={1, 3},
    text=False,
    threshold=None,
    batches=[({3: (0.0, 0.0), 1: (1.0, 0.0), 0: (0.0, 1.0)}, set(), False)],
)
def test_only_chosen_nodes_that_have_moved_are_received(
    wanted: set[int], text: bool, threshold: float | None, batches: list
) -> None:
    def name(id: int) -> int | str:
        return f"n{id}" if text else id

    def listed(ids: list[int]) -> np.ndarray:
        return np.array([name(id) for id in ids], np.str_ if text else np.int64)

    chosen = ChosenChanges([name(id) for id in wanted], threshold)
    received: dict[int, tuple[float, float]] = {}
    for seq, (rows, removed, forget) in enumerate(batches):
        removed = removed - set(rows)
        if forget:
            chosen.forget()
            received.clear()
        predictions = np.array(list(rows.values()), np.float32).reshape(len(rows), 2)
        told = Change(seq, listed(list(rows)), predictions, 3, 0.5, listed(sorted(removed)))
        got = chosen.select(KeptChange(told))
        for id in removed:
            received.pop(id, None)
        expected = [id for id in rows if id in wanted and moved(received.get(id), rows[id], threshold)]
        received |= {id: rows[id] for id in expected}
        left = [name(id) for id in sorted(removed & wanted)]
        if not expected and not left:
            assert got is None
            continue
        assert got is not None
        assert (got.seq, got.affected, got.seconds) == (seq, 3, 0.5)
        assert got.ids.tolist() == [name(id) for id in expected]
        assert got.removed.tolist() == left
        assert np.array_equal(
            got.predictions, [rows[id] for id in expected] if expected else np.empty((0, 2)), True
        )
