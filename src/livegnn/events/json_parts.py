"""The limit of lists and objects in JSON of a stranger: they cost far more than their bytes."""

from typing import Final

from livegnn.errors import TooLargeError

_BYTES: Final = 16  # of a part, where each says something


def check_parts(text: bytes, largest: int, place: str) -> None:
    """Raises TooLargeError for JSON of more lists and objects than one for each 16 of `largest` bytes.

    No other thread runs while they are made. Brackets in texts count as well: texts do not have that many.
    """
    most = largest // _BYTES
    if 2 * most < len(text) and (count := text.count(b"[") + text.count(b"{")) > most:
        raise TooLargeError(
            f"{place} must have at most {most:,} lists and objects, got {count:,}: send it in parts"
        )
