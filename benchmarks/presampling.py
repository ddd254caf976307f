"""Reservoirs with subscriptions, native: how many appended edges one core takes into a two-hop query
[25, 10] and publishes into memory, and how many published records a cache takes. One sampling worker and one
serving worker, random edges over one type of nodes, 2^14 at a time, no lists kept: the sampling worker alone,
then with a cache that takes each batch on the same core; then the sampling worker with lists.

What it must cost
-----------------
An edge reads five or more cache lines at random (docs/internals/presampling.md), and writes two records of
16 bytes and 8 a neighbour in a row. The column `floor` is these lines at the rate that is measured at the
beginning, and nothing for arithmetic. Of an average degree of 250, most edges come into no cell and read a
row alone.

Seconds are those of the thread on its core.
"""

from __future__ import annotations

from contestants import load
from report import Report, arguments

FAN_OUTS = [25, 10]
SHAPES = ((10_000_000, 3), (2_000_000, 25), (200_000, 250))
LINES = {3: 5.0, 25: 8.0, 250: 2.5}  # at random, for an edge
AIM = 5e6  # edges a second
RECORDS = 1.5e6  # from worker to cache


def main() -> None:
    options = arguments(__doc__).parse_args()
    native = load()
    report = Report("sampling ahead, one core")
    lines, _ = native.memory_rates(64 if options.quick else 1024)
    for nodes, degree in SHAPES:
        count = nodes // 50 if options.quick else nodes
        shape = f"{count:,} nodes of degree {degree}"
        edges, *_, alone = native.presampling_rates(count, degree, FAN_OUTS, False, False, 1 << 14, 7)[:4]
        floor = lines / LINES[degree]
        report.add(f"edges, {shape}", edges / alone, "/s", higher_is_better=True, aim=AIM, floor=floor)
        edges, records, sent, sampling, caching, worker, cache = native.presampling_rates(
            count, degree, FAN_OUTS, False, True, 1 << 14, 7
        )
        beside = edges / sampling
        report.add(f"edges between batches into a cache, {shape}", beside, "/s", higher_is_better=True)
        both = records / (sampling + caching)
        report.add(f"records into a cache, {shape}", both, "/s", higher_is_better=True, aim=RECORDS)
        report.add(f"bytes published an edge, {shape}", sent / edges, "bytes")
        report.add(f"bytes of the worker a node, {shape}", worker / count, "bytes")
        report.add(f"bytes of the cache a node, {shape}", cache / count, "bytes")
        edges, *_, kept = native.presampling_rates(count // 10, degree, FAN_OUTS, True, False, 1 << 14, 7)[:4]
        report.add(f"edges with lists, a tenth of {shape}", edges / kept, "/s", higher_is_better=True)
    report.finish(options.json)


if __name__ == "__main__":
    main()
