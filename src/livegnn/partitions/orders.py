"""The lines by which a leader starts the process of a part: its orders, and then the plan of all."""

from typing import Literal

from pydantic import BaseModel, JsonValue

from livegnn.channels.plan import Peer
from livegnn.partitions.leaders import SharedMemory
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
    it is empty. shares_memory: with the leader and the others, instead of channels for batches.
    """

    number: int
    parts: int
    rules: list[Rule]
    table: JsonValue
    model: str
    saved: str | None = None
    seq: int = 0
    threads: int | None
    shares_memory: bool
    non_finite: Literal["refuse", "allow"]


class Plan(BaseModel):
    """The places of the others. terms: of all channels. reads, samples, batches: where the leader
    listens. peers: where other workers do, None for those that connect to this one. memory: instead of
    batches and peers. patience: the fields of a `Patience`.
    """

    terms: dict[str, str]
    reads: str
    samples: str
    batches: str | None = None
    peers: dict[int, str | None] = {}
    memory: SharedMemory | None = None
    patience: dict[str, float]

    def find_peers(self) -> dict[int, Peer]:
        """The other workers."""
        return {number: Peer(address=address) for number, address in self.peers.items()}
