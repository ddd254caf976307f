"""The lines by which a leader starts the process of a part: its orders, and then the plan of all."""

from typing import Literal

from pydantic import BaseModel, JsonValue

from livegnn.channels.plan import Peer
from livegnn.placement import Owners


class Rule(BaseModel):
    """The fields of `Owners`, without a table."""

    rule: Literal["modulo", "jump", "fennel"]
    parts: int
    moved: dict[int, int]

    @classmethod
    def of(cls, owners: Owners) -> "Rule":
        """Requires: no table."""
        assert owners.rule != "table"
        return cls(rule=owners.rule, parts=owners.workers, moved=dict(owners.moved))

    def owners(self) -> Owners:
        """The owners that follow the rule."""
        return Owners(self.rule, self.parts, moved=self.moved)


class Orders(BaseModel):
    """The part of a process. parts: how many there are. rules: by node type. table: a `Schema` in JSON.
    model: a file. saved: the directory of a checkpoint of event `seq`, with which the part begins; None if
    it is empty."""

    number: int
    parts: int
    rules: list[Rule]
    table: JsonValue
    model: str
    saved: str | None = None
    seq: int = 0
    threads: int | None
    non_finite: Literal["refuse", "allow"]


class Plan(BaseModel):
    """The places of the others. terms: of all channels. batches, reads, samples: where the leader
    listens. peers: where other workers do, None for those that connect to this one. patience: the fields of a
    `Patience`."""

    terms: dict[str, str]
    batches: str
    reads: str
    samples: str
    peers: dict[int, str | None]
    patience: dict[str, float]

    def find_peers(self) -> dict[int, Peer]:
        """The other workers."""
        return {number: Peer(address=address) for number, address in self.peers.items()}
