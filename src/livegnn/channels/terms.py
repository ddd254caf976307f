"""The terms of a link: properties that must be the same at both ends, or results would differ in bits.

Each end sends its terms in its hello, as a JSON object of texts, and compares the other's.
"""

import json
from collections.abc import Mapping
from typing import Final

from livegnn.channels.errors import ChannelError, ChannelRefusedError

ADVICE: Final = {
    "version": "install the same version of livegnn on all machines of the cluster",
    "instruction_set": "the processors differ, and so would the last bits of predictions: run all workers on "
    "machines with the same instruction set",
    "model": "give all workers the same model file",
    "schema": "start all workers from the same deployment file",
    "options": "give all workers the same options of the engine",
    "owners": "start all workers with the partition file of the plan",
    "workers": "start all workers with the same number of partitions",
}
"""The terms that are known, and how to make each the same."""


def to_note(terms: Mapping[str, str]) -> bytes:
    """The terms as the note of a hello."""
    return json.dumps(dict(terms), sort_keys=True, separators=(",", ":")).encode()


def from_note(note: bytes, peer: int) -> dict[str, str]:
    """The terms of a peer. Raises `ChannelError` for any other note."""
    try:
        terms = json.loads(note)
    except ValueError:
        terms = None
    if not isinstance(terms, dict) or not all(isinstance(one, str) for one in terms.values()):
        raise ChannelError(f"the hello of worker {peer} must have an object of texts, got {note[:100]!r}")
    return terms


def check_same(here: int, own: Mapping[str, str], there: int, others: Mapping[str, str]) -> None:
    """Raises `ChannelRefusedError` that names each term that differs, at both ends, and what to do."""
    differing = [name for name in sorted(own.keys() | others.keys()) if own.get(name) != others.get(name)]
    if differing:
        said = "; ".join(
            f"{name} is {own.get(name)!r} at worker {here} and {others.get(name)!r} at worker {there}: "
            f"{ADVICE.get(name, 'start both with the same')}"
            for name in differing
        )
        raise ChannelRefusedError(
            f"workers must agree before they exchange rows, got two that differ: {said}"
        )
