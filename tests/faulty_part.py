"""The process of a part that sends itself a signal in its second batch: `faulty_part.py MESSAGE SIGNAL`.

message: 1 is the first one after the order, in the lanes to all others; "outcome" that of the batch, which
the part shows by then.
"""

import signal
import sys

import livegnn._core as _core
from livegnn.partitions import worker
from livegnn.partitions.leaders import Order, SharedLeader
from livegnn.partitions.part import Outcome

MESSAGE, SIGNAL = sys.argv[1], int(sys.argv[2])
orders: list[Order] = []
wait_for_order, report = SharedLeader.wait_for_order, SharedLeader.report


def wait(leader: SharedLeader) -> Order:
    orders.append(wait_for_order(leader))
    if len(orders) == 2 and MESSAGE != "outcome":
        _core.signal_in_lanes(int(MESSAGE), SIGNAL)
    return orders[-1]


def tell(leader: SharedLeader, outcome: Outcome) -> None:
    if len(orders) == 2 and MESSAGE == "outcome":
        signal.raise_signal(SIGNAL)
    report(leader, outcome)


if __name__ == "__main__":
    SharedLeader.wait_for_order, SharedLeader.report = wait, tell  # type: ignore[method-assign]
    worker.main()
