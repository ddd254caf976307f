"""What holds of everything that answers for predictions."""

from collections.abc import Sequence
from inspect import signature

import numpy as np
import pytest

from livegnn.errors import TimeoutExpired
from livegnn.inference.predictions import Predictions


def check_predictions(answers: Predictions, ids: Sequence[int], seq: int) -> None:
    """seq: the last event."""
    for name in ("predict", "predict_at_once"):
        ours, theirs = (signature(getattr(one, name)) for one in (type(answers), Predictions))
        assert [(it.name, it.kind, it.default) for it in ours.parameters.values()] == [
            (it.name, it.kind, it.default) for it in theirs.parameters.values()
        ]
    waited = answers.predict(ids, min_seq=seq)
    at_once = answers.predict_at_once(ids, min_seq=seq)
    assert at_once is not None
    assert waited.seq == at_once.seq == seq
    np.testing.assert_array_equal(waited.values, at_once.values)
    assert answers.predict_at_once(ids, min_seq=seq + 1) is None
    with pytest.raises(TimeoutExpired, match=f"event {seq + 1}"):
        answers.predict(ids, min_seq=seq + 1, timeout=0)
