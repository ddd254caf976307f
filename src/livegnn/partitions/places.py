"""The file by which fronts find the parts of a served graph. Its server replaces it when it has other parts.

It has the addresses and public keys of the parts. Between machines it also has the pair of keys of all
fronts, so it is for its owner alone.
"""

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

import livegnn
from livegnn.atomic_file import replace_file
from livegnn.channels.admission import Keys
from livegnn.errors import FileFormatError, LiveGNNError

if TYPE_CHECKING:
    from livegnn.channels.health import Patience
    from livegnn.network import Model

_logger = logging.getLogger(__name__)


class PartPlace(BaseModel):
    """The place at which a part answers fronts. key: its public key; None on one machine."""

    model_config = ConfigDict(extra="forbid")
    address: str
    key: str | None


class ServedOutput(BaseModel):
    """An output of the model. node_type: of its nodes. width: the channels of a row."""

    model_config = ConfigDict(extra="forbid")
    node_type: str
    width: int


class FrontKeys(BaseModel):
    """The keys of all fronts."""

    model_config = ConfigDict(extra="forbid")
    public: str
    secret: str


class FrontOrders(BaseModel):
    """Has a part answer fronts. key: the public key of all fronts; None on one machine."""

    key: str | None


class Places(BaseModel):
    """The content of the file. parts: by number. outputs: by name, the first one first. version: of LiveGNN.
    silent_seconds: after which a part that does not answer is lost."""

    model_config = ConfigDict(extra="forbid")
    version: str
    parts: list[PartPlace]
    keys: FrontKeys | None
    outputs: dict[str, ServedOutput]
    silent_seconds: float

    def write(self, path: Path) -> None:
        """Replaces the file. Raises OSError, and InputError if `path` is not a regular file."""
        with replace_file(path, private=True) as stream:
            stream.write(json.dumps(self.model_dump(), indent=1).encode())


class Found(NamedTuple):
    """A file that was read. stamp: differs from that of the file's next content."""

    stamp: tuple[int, ...]
    places: Places


def read_places(path: Path, known: tuple[int, ...] | None) -> Found | None:
    """The content of the file; None if it is the one with the stamp `known`. Raises OSError, and
    `FileFormatError`."""
    with path.open("rb") as stream:
        state = os.fstat(stream.fileno())
        stamp = state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size
        if stamp == known:
            return None
        content = stream.read()
    try:
        return Found(stamp, Places.model_validate_json(content))
    except ValidationError as error:
        raise FileFormatError(
            f"{path} must have the places of parts, as their server writes them: {error}"
        ) from error


class PlacesFile:
    """The file of one set of processes, as their leader writes it, which never talks to a front. over_tcp:
    whether fronts reach the parts over encrypted links; then all share one pair of keys. Thread safety: none.
    """

    def __init__(self, path: Path, *, over_tcp: bool) -> None:
        self._path = path
        self._keys: Final = Keys.create() if over_tcp else None
        self.orders: Final = FrontOrders(key=None if self._keys is None else self._keys.public)
        """Of each part."""
        self.parts: list[PartPlace] = []
        """The places of all parts."""
        self._outputs: dict[str, ServedOutput] = {}
        self._silent_seconds = 0.0
        self._announced = self._failed = False

    def describe(self, model: "Model", patience: "Patience") -> None:
        """Notes what else fronts need. model: in the graph's names."""
        self._silent_seconds = patience.silent_seconds
        self._outputs = {
            name: ServedOutput(node_type=model.node_type(value), width=model.width(value))
            for name, value in model.outputs.items()
        }

    def announce(self) -> None:
        """Writes the file, unless it is there. A failure is logged."""
        if self._announced:
            return
        places = Places(
            version=livegnn.__version__,
            parts=self.parts,
            keys=None if self._keys is None else FrontKeys(**self._keys._asdict()),
            outputs=self._outputs,
            silent_seconds=self._silent_seconds,
        )
        try:
            places.write(self._path)
        except (OSError, LiveGNNError):
            if not self._failed:
                _logger.exception("fronts do not find the parts: %s cannot be written", self._path)
            self._failed = True
        else:
            self._announced = True

    def follow(self, before: "PlacesFile") -> None:
        """Has the next `announce` replace the file of the parts before, which then do not remove it."""
        before._announced = False

    def withdraw(self) -> None:
        """Removes the file, if it is that of these parts."""
        if self._announced:
            self._announced = False
            with suppress(OSError):
                self._path.unlink()
