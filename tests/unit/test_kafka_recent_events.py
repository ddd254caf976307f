"""The newest events in memory are those of a list of all."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from livegnn import Events
from livegnn.log import Write
from livegnn.log.kafka import ordering
from livegnn.log.kafka.history import Order
from livegnn.log.kafka.ordering import RecentEvents, Taken, select_writes


@given(st.lists(st.lists(st.integers(1, 4), max_size=3), max_size=30), st.integers(0, 40), st.integers(0, 40))
def test_what_is_found_is_what_a_list_of_entries_has(
    orders: list[list[int]], after: int, length: int
) -> None:
    """Orders of no events at all as well."""
    kept, ordering._KEPT_EVENTS = ordering._KEPT_EVENTS, 10
    try:
        one, seq, ends = RecentEvents(), 0, [0]
        for counts in orders:
            begin, writes = seq, []
            for count in counts:
                events = Events().add_edges(range(seq, seq + count), range(count))
                writes.append(Write(seq, np.array([seq + count]), events))
                seq += count
                ends.append(seq)
            one.add(Taken(Order(begin, seq, [], [], [], [], {}, ""), writes, [], ""))
        after = max([end for end in ends if end <= after])
        found = one.find(after, after + length)
        if found is None:
            assert not orders or seq - after > 10
            return
        read = select_writes(found, after, after + length, None)
        assert [write.seq for write in read] == [end for end in ends if after < end <= after + length]
    finally:
        ordering._KEPT_EVENTS = kept
