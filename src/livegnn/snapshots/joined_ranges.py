"""The requests to a store that read a set of byte ranges of an object, and the positions of the ranges in
their bytes.

    asked      ██  █   ███              ██
    requests  [██──█───███]            [██]      ── closer than the gap: read and thrown away

A request costs the store's latency, and a byte its share of the connection's bandwidth. So bytes between two
ranges are read too where they cost less than another request: fewer than latency times bandwidth.

Thread safety: functions of their arguments.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.types import IntArray


class JoinedRanges(NamedTuple):
    """Requests in ascending order, and parts of ranges in the order of the requests that read them: those of
    request i are the parts from `bounds[i]` up to `bounds[i + 1]`.

    starts, lengths: of the requests. parts: the bytes of each part. offsets: its beginning in the bytes of
    its request. places: its place among the wanted bytes.
    """

    starts: "Int64[IntArray, 'requests']"
    lengths: "Int64[IntArray, 'requests']"
    bounds: "Int64[IntArray, 'requests+1']"
    parts: "Int64[IntArray, 'parts']"
    offsets: "Int64[IntArray, 'parts']"
    places: "Int64[IntArray, 'parts']"


def join(
    starts: "Int64[IntArray, 'ranges']", lengths: "Int64[IntArray, 'ranges']", *, gap: int, part: int
) -> JoinedRanges:
    """The requests for these ranges, whose bytes are wanted one after the other in the given order.

    gap: ranges are joined between which lie no more bytes. part: a range of more bytes is several requests;
    ranges that are joined begin within as many bytes, so a request has less than twice as many. Ranges may
    overlap; bytes that are wanted twice in one request are read once.
    """
    starts, lengths, places = _split(starts, lengths, np.cumsum(lengths) - lengths, part)
    order = np.argsort(starts, kind="stable")
    begins, sizes = starts[order], lengths[order]
    ends = np.maximum.accumulate(begins + sizes)
    fresh = np.ones(len(begins), np.bool_)
    fresh[1:] = begins[1:] > ends[:-1] + gap
    # Ranges that begin in different parts of the joined bytes are different requests.
    first = np.flatnonzero(fresh)
    since = begins - np.repeat(begins[first], np.diff(np.append(first, len(begins))))
    fresh[1:] |= since[1:] // part != since[:-1] // part
    first = np.flatnonzero(fresh)
    bounds = np.append(first, len(begins))
    froms = begins[first]
    reach = np.maximum.reduceat(begins + sizes, first) if len(first) else ends
    return JoinedRanges(
        froms, reach - froms, bounds, sizes, begins - np.repeat(froms, np.diff(bounds)), places[order]
    )


def _split(
    starts: "IntArray", lengths: "IntArray", places: "IntArray", longest: int
) -> "tuple[IntArray, IntArray, IntArray]":
    """The same bytes as ranges of at most `longest` bytes; empty ranges are left out."""
    parts = -(-lengths // longest)
    if len(parts) and parts.min() == parts.max() == 1:
        return starts, lengths, places
    which = np.repeat(np.arange(len(parts)), parts)
    done = (np.arange(len(which)) - np.repeat(np.cumsum(parts) - parts, parts)) * longest
    return starts[which] + done, np.minimum(lengths[which] - done, longest), places[which] + done
