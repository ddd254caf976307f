"""The process of a part that sends itself a signal in its second batch: `faulty_part.py MESSAGE SIGNAL`.

message: 1 is the first one after the order, in the lanes to all others.
"""

import sys

import livegnn._core as _core
from livegnn.partitions import worker
from livegnn.partitions.leaders import Order, SharedLeader

orders: list[Order] = []
wait_for_order = SharedLeader.wait_for_order


def wait(leader: SharedLeader) -> Order:
    orders.append(wait_for_order(leader))
    if len(orders) == 2:
        _core.signal_in_lanes(int(sys.argv[1]), int(sys.argv[2]))
    return orders[-1]


if __name__ == "__main__":
    SharedLeader.wait_for_order = wait  # type: ignore[method-assign]
    worker.main()
