"""The lines by which a leader and the process of a part begin, in this order:

part   ─► leader   its terms
leader ─► part     its orders
part   ─► leader   where it listens, or why it cannot begin
leader ─► part     the plan of all
"""

import base64
from typing import Final, Literal

from pydantic import BaseModel, JsonValue

import livegnn
import livegnn._core as _core
from livegnn.channels.errors import ChannelRefusedError
from livegnn.channels.health import Patience
from livegnn.channels.plan import Peer
from livegnn.channels.terms import check_same
from livegnn.errors import FileFormatError, InputError
from livegnn.network import Model
from livegnn.partitions.leaders import LEADER, WORKER, SharedMemory
from livegnn.partitions.places import FrontOrders, PartPlace
from livegnn.partitions.processes import PartProcess
from livegnn.placement import Owners
from livegnn.temporary_directory import TemporaryDirectory

CHANNELS: Final = ("reads", "samples", "batches")
"""From a part to its leader, in the order in which the leader waits for them."""


def own_terms() -> dict[str, str]:
    """The properties of this process that all others must have too, or results would differ in bits."""
    return {"version": livegnn.__version__, "instruction_set": _core.instruction_set}


def encode_model(model: Model) -> str:
    """The file of a model, in Base64."""
    with TemporaryDirectory() as folder:
        path = folder / "model.lgnn"
        model.save(path)
        return base64.b64encode(path.read_bytes()).decode()


def decode_model(content: str) -> Model:
    """The reverse. Raises FileFormatError."""
    with TemporaryDirectory() as folder:
        path = folder / "model.lgnn"
        path.write_bytes(base64.b64decode(content))
        return Model.load(path)


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
    model: a file, in Base64. saved: the file of names of a set, with which the part begins; None if it is
    empty. text_ids: of the graph, though the table has none; numbers: a file with those of the texts of
    `saved`. files: where the leader sends these files and that of the part, whose names are `fetched`; None
    if this machine sees them. shares_memory: with the leader and the others, instead of channels for batches.
    interface: the IP address at which it listens for the others; None if all are on one machine. fronts: if
    it answers some. patience: the fields of a `Patience`.
    """

    number: int
    parts: int
    rules: list[Rule]
    table: JsonValue
    model: str
    saved: str | None = None
    text_ids: bool = False
    numbers: str | None = None
    threads: int | None
    shares_memory: bool
    non_finite: Literal["refuse", "allow"]
    interface: str | None = None
    files: Peer | None = None
    fetched: list[str] = []
    fronts: FrontOrders | None = None
    patience: dict[str, float]


class Hello(BaseModel):
    """The first line of a part. key: the public key with which it fetches files."""

    terms: dict[str, str]
    key: str | None


class Begun(BaseModel):
    """The answer to orders. failed: why it cannot begin with its file. refused: why it cannot listen. Else it
    does at `addresses`, by the number of the one that connects. key: the public key there. keys: those of its
    `CHANNELS`. front: where it answers fronts, if it does. Secret keys stay in the process.
    """

    failed: str | None = None
    refused: str | None = None
    addresses: dict[int, str] = {}
    key: str | None = None
    keys: list[str | None] = []
    front: PartPlace | None = None


class Plan(BaseModel):
    """The places of the others. leader: for each of the `CHANNELS`, but batches over memory, where the
    leader listens. peers: where other workers do; without an address those that connect to this one.
    memory: instead of batches and peers.
    """

    leader: list[Peer]
    peers: dict[int, Peer] = {}
    memory: SharedMemory | None = None


def hear_hello(number: int, process: PartProcess, patience: Patience) -> str | None:
    """The key of a part. Raises `ChannelRefusedError` if it has other terms than this process."""
    hello = Hello.model_validate_json(process.hear(patience.hello_seconds))
    try:
        check_same(LEADER, own_terms(), WORKER, hello.terms)
    except ChannelRefusedError as error:
        raise ChannelRefusedError(
            f"part {number}, to its leader worker {WORKER}, cannot begin: {error}"
        ) from error
    return hello.key


def hear_begun(process: PartProcess) -> Begun:
    """The answer of a worker to its orders. Raises `FileFormatError` if it cannot begin with its file,
    `InputError` if its machine does not have its address."""
    begun = Begun.model_validate_json(process.hear())
    if begun.failed is not None:
        raise FileFormatError(begun.failed)
    if begun.refused is not None:
        raise InputError(begun.refused)
    return begun
