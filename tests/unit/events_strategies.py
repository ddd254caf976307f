"""Random events for the property tests of the forms they are written in."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from livegnn.events import Events

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TEXT_IDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
INTEGER_IDS = st.integers(0, 2**63 - 1)
WEIGHTS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TIMES = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def id_lists(draw: st.DrawFn, n: int) -> list[int] | list[str]:
    return draw(st.lists(draw(st.sampled_from([INTEGER_IDS, TEXT_IDS])), min_size=n, max_size=n))


@st.composite
def feature_rows(draw: st.DrawFn, n: int) -> np.ndarray:
    return draw(arrays.arrays(np.float32, (n, draw(st.integers(0, 3))), elements=WEIGHTS))


@st.composite
def event_lists(draw: st.DrawFn) -> Events:
    """A few chunks of every kind, with and without each column, of default and other types."""
    events = Events()
    for _ in range(draw(st.integers(0, 4))):
        n = draw(st.integers(1, 4))
        kind = draw(
            st.sampled_from(["add_edges", "remove_edges", "set_features", "add_nodes", "remove_nodes"])
        )
        ids = draw(id_lists(n))
        if kind in ("add_edges", "remove_edges"):
            edge_type = draw(st.none() | st.tuples(NAMES, NAMES, NAMES))
            if kind == "remove_edges":
                events.remove_edges(ids, draw(id_lists(n)), edge_type=edge_type)
                continue
            weight = draw(st.none() | arrays.arrays(np.float32, n, elements=WEIGHTS))
            time = draw(st.none() | arrays.arrays(np.float64, n, elements=TIMES))
            features = draw(st.none() | feature_rows(n))
            events.add_edges(
                ids, draw(id_lists(n)), weight=weight, time=time, edge_attr=features, edge_type=edge_type
            )
            continue
        node_type = draw(st.none() | NAMES)
        x = draw(feature_rows(n))
        time = draw(st.none() | arrays.arrays(np.float64, n, elements=TIMES))
        if kind == "set_features":
            events.set_features(ids, x, time=time, node_type=node_type)
        elif kind == "add_nodes":
            rows = draw(st.sampled_from([None, x]))
            events.add_nodes(ids, rows, time=None if rows is None else time, node_type=node_type)
        else:
            events.remove_nodes(ids, node_type=node_type)
    return events
