"""A predictor as a function of bytes: what workers, and a handler in a cloud, run.

In one stage, ids become predictions. In two, ids become a subgraph as bytes, in one worker, and this becomes
predictions in another.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast, runtime_checkable

from livegnn.arguments import check_int
from livegnn.errors import InputError, SnapshotReplacedError, StoreUnavailableError, TimeoutExpired
from livegnn.functions.bodies import Answer, Asked, answer_error, answer_json, check_numbers
from livegnn.functions.messages import unpack
from livegnn.http.inference_protocol import ONLY_MODEL, check_model, describe_model, write_infer
from livegnn.remote.memory_limit import LEAST_ROOM, limit_memory, memory_of_machine

if TYPE_CHECKING:
    from jaxtyping import Float

    from livegnn.remote.shared_memory import SharedMemory
    from livegnn.types import FloatArray, Ids

Step: TypeAlias = Literal["predict", "sample", "infer"]
"""The work of a worker: all of it, or one of two halves."""

Setting: TypeAlias = "str | int | float | bool | Sequence[Setting] | Mapping[str, Setting] | None"

_log = logging.getLogger(__name__)
_FEW = 1000
_SOME_OUTPUT, _SOME_VERSION = "output", "1"  # of a predictor that does not know its model


class Predictor(Protocol):
    """Makes predictions. Belongs to one thread at a time."""

    def predict(self, ids: "Ids", *, memory_limit: int | None) -> "Float[FloatArray, 'ids channels']":
        """Predictions of nodes. memory_limit: bytes that it may take beside what it had when it was opened;
        None: as many as there are. Raises LiveGNNError, or MemoryError if they need more.
        """

    def describe(self) -> "Mapping[str, object]":
        """Its identity and its counts, as JSON; `seq` is the last event of earlier predictions."""


@runtime_checkable
class OfKnownWidth(Protocol):
    """A predictor that returns, before it predicts, the number of numbers in a prediction."""

    @property
    def width(self) -> int:
        """The channels of a prediction."""


@runtime_checkable
class OfModel(Protocol):
    """A predictor of one output of a model, whose digest `describe` has as `model`."""

    @property
    def output(self) -> str:
        """The name of the output."""

    @property
    def text_ids(self) -> bool:
        """Whether ids are texts."""


@runtime_checkable
class Reading(Protocol):
    """A predictor that returns how much it has read of a store."""

    @property
    def read_so_far(self) -> tuple[int, int]:
        """Requests to the store so far, and bytes read from it."""


@runtime_checkable
class Retrying(Protocol):
    """A predictor that returns how many of its requests to a store were sent again."""

    @property
    def retries_so_far(self) -> int:
        """The requests so far that were sent again."""


@runtime_checkable
class Refreshable(Protocol):
    """A predictor that can check for newer data at once."""

    def refresh(self) -> None:
        """Predicts on the newest data from now on."""


@runtime_checkable
class Checkable(Protocol):
    """A predictor that can make sure that its data can still be read."""

    def check(self) -> None:
        """Raises LiveGNNError if they cannot."""


@runtime_checkable
class Sharing(Protocol):
    """A predictor that can keep data in memory that workers share."""

    def share(self, memory: "SharedMemory") -> None:
        """Keeps it there from now on."""


@runtime_checkable
class Confined(Protocol):
    """A predictor that can keep to a limit of memory."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of a node, of the type that has the most."""

    def confine(self, room: int | None, cache: int | None) -> None:
        """From now on, room: bytes that a request and what is kept for the next may take, beside what is
        taken now; None: as many as there are. cache: of them, what may be kept at most; None: all."""


@runtime_checkable
class StagedPredictor(Predictor, Protocol):
    """A predictor that can also predict in two halves, in two workers."""

    def sample(self, ids: "Ids") -> bytes:
        """The subgraph that the predictions read."""

    def infer(
        self, subgraph: "bytes | memoryview", *, memory_limit: int | None
    ) -> "Float[FloatArray, 'ids channels']":
        """The predictions of the nodes for which `sample` gave this. Raises SnapshotReplacedError if it must
        be sampled again, and what `predict` raises.
        """


@dataclass(frozen=True)
class Function:
    """The program of a worker, as data: the worker opens it.

    factory: "module:name" of a callable that gives a Predictor. arguments: its arguments by name, JSON.
    memory: bytes that a worker may have resident; None for no limit. workers: the number of workers that
    share the memory of their machine. Raises InputError.
    """

    factory: str
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    stage: Step = "predict"
    memory: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        module, _, name = self.factory.partition(":")
        if not (module and name):
            raise InputError(f"the opener of a predictor must be 'module:name', got {self.factory!r}")
        if self.stage not in ("predict", "sample", "infer"):
            raise InputError(f"stage must be 'predict', 'sample' or 'infer', got {self.stage!r}")
        if self.memory is not None:
            check_int(self.memory, "memory", 1)
        check_int(self.workers, "workers", 1)

    def to_json(self) -> str:
        """The function as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Function":
        """The function that `to_json` has written."""
        return cls(**json.loads(text))

    def open(self) -> Predictor:
        """Opens the predictor, here."""
        module, _, name = self.factory.partition(":")
        factory: Callable[..., Predictor] = getattr(import_module(module), name)
        predictor = factory(**self.arguments)
        if self.stage != "predict" and not isinstance(predictor, StagedPredictor):
            raise InputError(f"{self.factory} must give a predictor with `sample` and `infer` for two stages")
        return predictor


def least_room(predictor: Predictor, stage: Step) -> int:
    """The bytes with which requests that read a thousand nodes are answered: their features in three arrays,
    and where there are two stages, what one sends to the other."""
    row_bytes = predictor.row_bytes if isinstance(predictor, Confined) else 0
    return LEAST_ROOM * (1 if stage == "predict" else 2) + 3 * _FEW * row_bytes


def limit(predictor: Predictor, function: Function) -> int | None:
    """Limits this process, in which a predictor has just been opened, to the memory of the function, and lets
    the predictor keep to it. Returns what requests may take, None without a limit. Raises InputError for a
    limit that is too small."""
    memory = function.memory
    room = None if memory is None else limit_memory(memory, least_room(predictor, function.stage))
    return confine(predictor, function, room)


def confine(predictor: Predictor, function: Function, room: int | None) -> int | None:
    """Lets a predictor keep to the room that a limit leaves it, if it can. Without a limit, the caches of all
    workers together take half of the memory that this process may have. Returns `room`."""
    if isinstance(predictor, Confined):
        if room is not None:
            predictor.confine(room, room * 3 // 4)
        elif (available := memory_of_machine()) is not None:
            predictor.confine(None, available // 2 // function.workers)
    return room


def join_memory(predictor: Predictor, fd: int) -> "SharedMemory | None":
    """Lets a predictor share the memory of a `MemoryFile`, if it can and the memory is to be had."""
    if not isinstance(predictor, Sharing):
        return None
    from livegnn.remote.shared_memory import SharedMemory

    try:
        memory = SharedMemory(fd)
    except OSError as error:
        _log.warning("a worker keeps features by itself: %s", error)
        return None
    predictor.share(memory)
    return memory


def answer(predictor: Predictor, stage: Step, message: bytes | memoryview, room: int | None = None) -> Answer:
    """The answer of a worker of a stage, errors included. message: of `livegnn.functions.messages`, and for
    "infer" the answer of "sample". room: bytes that it may use for it."""
    return _account(predictor, lambda: _work(predictor, stage, memoryview(message), room))


def answer_asked(predictor: Predictor, asked: Asked, room: int | None = None) -> Answer:
    """The answer to a request, errors included, where one process does everything."""
    return _account(predictor, lambda: _predict(predictor, asked, room))


def _account(predictor: Predictor, work: Callable[[], Answer]) -> Answer:
    before = _read_so_far(predictor)
    reply = _caught(work)
    requests, read, retries = (then - now for now, then in zip(before, _read_so_far(predictor), strict=True))
    return reply._replace(store_requests=requests, store_bytes=read, store_retries=retries)


def _read_so_far(predictor: Predictor) -> tuple[int, int, int]:
    """Requests to the store, bytes of it, and those requests that were sent again."""
    read = predictor.read_so_far if isinstance(predictor, Reading) else (0, 0)
    return *read, predictor.retries_so_far if isinstance(predictor, Retrying) else 0


def _caught(work: Callable[[], Answer]) -> Answer:
    try:
        return work()
    except Exception as error:
        reply = answer_error(error)
        if isinstance(error, StoreUnavailableError):  # as stores are now and then: no place in this program
            _log.warning("a request failed: %s", error)
        elif reply.status >= 500 and not isinstance(error, (TimeoutExpired, SnapshotReplacedError)):
            _log.exception("a request failed")
        return reply


def _work(predictor: Predictor, stage: Step, message: memoryview, room: int | None) -> Answer:
    asked, rest = unpack(message)
    if asked.checks and isinstance(predictor, Checkable):
        predictor.check()
    if stage == "predict" or asked.describes:
        return _predict(predictor, asked, room)
    staged = cast("StagedPredictor", predictor)
    if stage == "infer":
        return _write(predictor, asked, staged.infer(rest, memory_limit=room))
    _check(predictor, asked)
    subgraph = staged.sample(_to_ids(asked))
    _check_seq(predictor, asked)
    return Answer(200, b"".join([message, subgraph]))


def _predict(predictor: Predictor, asked: Asked, room: int | None) -> Answer:
    if asked.describes:
        return answer_json(_describe_model(predictor, asked))
    _check(predictor, asked)
    return _write(predictor, asked, predictor.predict(_to_ids(asked), memory_limit=room))


def _check(predictor: Predictor, asked: Asked) -> None:
    """Refuses, before it costs anything, a request that cannot be answered."""
    if asked.form is not None:
        check_model(ONLY_MODEL, asked.version, _version(predictor))
        asked.form.names([_output(predictor)])
    if isinstance(predictor, OfKnownWidth):
        check_numbers(len(asked.ids), predictor.width)
    # Others may find a newer snapshot when they predict, and at no other time.
    if asked.min_seq and isinstance(predictor, Refreshable):
        if _seq(predictor) < asked.min_seq:
            predictor.refresh()
        _check_seq(predictor, asked)


def _write(predictor: Predictor, asked: Asked, rows: "Float[FloatArray, 'ids channels']") -> Answer:
    import numpy as np
    import orjson

    check_numbers(*rows.shape)
    seq = _check_seq(predictor, asked)
    if asked.form is None:
        content = {"seq": seq, "ids": asked.ids, "predictions": rows}
        return Answer(200, orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))
    values = {_output(predictor): rows.astype(np.float32, copy=False)}
    body, json_length = write_infer(asked.form, ONLY_MODEL, _version(predictor), seq, values)
    return Answer(200, body, json_length=json_length)


def _describe_model(predictor: Predictor, asked: Asked) -> dict[str, object]:
    version = _version(predictor)
    check_model(ONLY_MODEL, asked.version, version)
    width = predictor.width if isinstance(predictor, OfKnownWidth) else -1
    text_ids = isinstance(predictor, OfModel) and predictor.text_ids
    return describe_model(ONLY_MODEL, version, {_output(predictor): width}, text_ids=text_ids)


def _output(predictor: Predictor) -> str:
    return predictor.output if isinstance(predictor, OfModel) else _SOME_OUTPUT


def _version(predictor: Predictor) -> str:
    return str(predictor.describe().get("model", _SOME_VERSION))


def _check_seq(predictor: Predictor, asked: Asked) -> int:
    seq = _seq(predictor)
    if seq < asked.min_seq:
        refused = predictor.describe().get("refused_snapshot")
        raise TimeoutExpired(
            f"expected a snapshot that shows event {asked.min_seq}, the newest one "
            f"{'that the model fits ' if refused else ''}shows event {seq}: "
            f"{refused or 'ask again when a newer one is written'}"
        )
    return seq


def _seq(predictor: Predictor) -> int:
    return cast("int", predictor.describe()["seq"])


def _to_ids(asked: Asked) -> "Ids":
    import numpy as np

    return np.array(asked.ids) if len(asked.ids) else np.empty(0, np.int64)
