"""The rounds of a part's batches, over a channel to the workers of the other parts."""

from collections.abc import Sequence
from typing import Final

from livegnn.channels.channel import Channel, Round
from livegnn.partitions.letters import to_bytes, to_sections


class ChannelRounds:
    """A function of the frames that a part sends in a round, in bytes by part, to those of the others.

    Thread safety: none.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel: Final = channel
        self._turn = self._number = self._seq = 0

    def begin(self, turn: int, seq: int) -> None:
        """The next round is the first of this turn, a batch up to event `seq`."""
        self._turn, self._number, self._seq = turn, 0, seq

    def __call__(self, frames: Sequence[bytes]) -> list[bytes]:
        round = Round(self._turn, 0, self._number, self._seq)
        self._number += 1
        own = self.channel.number
        sent = {part: to_sections(frame) for part, frame in enumerate(frames) if part != own}
        received = self.channel.swap(round, sent)
        return [b"" if part == own else to_bytes(received[part]) for part in range(len(frames))]

    def give_up(self, reason: str) -> None:
        """Ends the turn for all parts."""
        self.channel.abort(self._turn, reason)
