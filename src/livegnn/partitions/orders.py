"""The lines by which a leader starts the process of a part: its orders, and then the plan of all."""

from typing import Literal

from pydantic import BaseModel, JsonValue

from livegnn.channels.plan import Peer


class Orders(BaseModel):
    """The part of a process. rule, parts, moved: of `Owners`. table: a `Schema` in JSON. model: a file."""

    number: int
    rule: Literal["modulo", "jump"]
    parts: int
    moved: dict[int, int]
    table: JsonValue
    model: str
    threads: int | None
    non_finite: Literal["refuse", "allow"]


class Plan(BaseModel):
    """The places of the others. terms: of all channels. batches, reads: where the leader listens.
    peers: where other workers do, None for those that connect to this one. patience: the fields of a
    `Patience`."""

    terms: dict[str, str]
    batches: str
    reads: str
    peers: dict[int, str | None]
    patience: dict[str, float]

    def find_peers(self) -> dict[int, Peer]:
        """The other workers."""
        return {number: Peer(address=address) for number, address in self.peers.items()}
