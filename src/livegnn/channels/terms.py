"""The terms of a link: properties that must be the same at both ends, or results would differ in bits.

Each end sends its terms in its hello, as a JSON object of texts, and compares the other's.
"""

import json
from collections.abc import Mapping
from typing import Final

from livegnn.channels.errors import ChannelError, ChannelRefusedError
from livegnn.errors import InputError, shortened
from livegnn.wording import format_count, quoted

MOST_BYTES: Final = 1 << 16
"""Of all terms, as JSON."""

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


def check_terms(terms: Mapping[str, str]) -> None:
    """Raises `InputError` if terms are not texts by texts, or are larger than a hello may be."""
    if not isinstance(terms, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in terms.items()
    ):
        raise InputError(f"terms must be a mapping of texts to texts, got {quoted(terms)}")
    size = len(to_note(terms))
    if size > MOST_BYTES:
        raise InputError(
            f"terms must have at most {MOST_BYTES:,} bytes as JSON, got {size:,}: give the digest of a long "
            "one"
        )


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
        raise ChannelError(f"the hello of worker {peer} must have an object of texts, got {quoted(note)}")
    return terms


def check_same(here: int, own: Mapping[str, str], there: int, others: Mapping[str, str]) -> None:
    """Raises `ChannelRefusedError` that names each term that differs, at both ends, and what to do."""
    differing = [name for name in sorted(own.keys() | others.keys()) if own.get(name) != others.get(name)]
    if differing:
        said = "; ".join(
            f"{quoted(name)[1:-1]} is {_both(own.get(name), others.get(name), here, there)}: "
            f"{ADVICE.get(name, 'start both with the same')}"
            for name in differing
        )
        raise ChannelRefusedError(
            shortened(f"workers must agree before they exchange rows, got two that differ: {said}")
        )


def _both(own: str | None, other: str | None, here: int, there: int) -> str:
    """The two values of a term that differ, each cut if it is long."""
    one, two = quoted(own), quoted(other)
    text = f"{one} at worker {here} and {two} at worker {there}"
    if one == two and own and other:
        pairs = enumerate(zip(own, other, strict=False))
        same = next((at for at, (a, b) in pairs if a != b), min(len(own), len(other)))
        text += f", which differ after {format_count(same, 'character')}"
    return text
