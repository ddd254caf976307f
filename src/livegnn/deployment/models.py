"""The models that were deployed into a running server, kept for its next start (see docs/deploying.md).

Invariants: `models.json` names only models whose files are whole: files are written before it, and removed
after it. The directory belongs to the log of the deployment as soon as it has a model, and is checked before
each change. Thread safety: everything may be called from any thread.
"""

import json
import threading
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError, LiveGNNError
from livegnn.inference import Mode
from livegnn.log.directories import OwnedDirectory
from livegnn.model import Model
from livegnn.types import JSON

_INDEX: Final = "models.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class _Index:
    """The contents of `models.json`. models: digests by name. modes: of their engines, where they are known.
    serving: None for the model of the deployment. log: the path of the deployment's log from here, in files
    of earlier versions. switches: how often another model began to answer."""

    models: Mapping[str, str] = field(default_factory=dict)
    serving: str | None = None
    previous: str | None = None
    log: str | None = None
    modes: Mapping[str, Mode | Sequence[Mode]] = field(default_factory=dict)
    switches: int = 0


class ModelDirectory:
    """Keeps models in a directory, which is made for the first one; a `ModelRegister` of a runtime.

    owned: the directory, of the log of the deployment. place: where that log is from the directory, by which
    earlier versions told it from others. Raises FileFormatError if what is there is damaged, InputError if
    another deployment's models are there, LogError if another process has them, OSError if it cannot be read.
    """

    def __init__(self, owned: OwnedDirectory, place: str) -> None:
        self.directory = owned.directory
        self._owned = owned
        self._lock = threading.Lock()
        self._index = self._read()
        if not owned.is_known() and self._index.log not in (None, place):
            raise InputError(
                f"{self.directory} must hold the models of this deployment, whose log is {place}, got those "
                f"of one with the log {self._index.log}: name another directory in [models]"
            )
        if owned.is_known() or self._index != _Index():
            owned.hold()

    def clean(self) -> None:
        """Removes files that a crashed process left half written, if the directory is the deployment's."""
        if not self._owned.is_known():
            return
        self._owned.hold()
        for left in self.directory.glob("*.partial"):
            left.unlink(missing_ok=True)

    @property
    def names(self) -> Collection[str]:
        """Those that are kept."""
        return self._index.models.keys()

    @property
    def serving(self) -> str | None:
        """The model that answered last, None if none was ever chosen."""
        return self._index.serving

    @property
    def previous(self) -> str | None:
        """The one that answered before it."""
        return self._index.previous

    @property
    def switches(self) -> int:
        """The number of times that another one began to answer."""
        return self._index.switches

    def load(self) -> dict[str, Model]:
        """All models that are kept, by name. Raises FileFormatError if one is damaged or another one."""
        models = {}
        for name, digest in self._index.models.items():
            path = self._path(name)
            try:
                models[name] = Model.load(path)
            except FileNotFoundError as error:
                raise FileFormatError(
                    f"{self.directory / _INDEX} names the model {name!r}, but there is no {path}: put the "
                    "file back"
                ) from error
            if models[name].digest != digest:
                raise FileFormatError(
                    f"{path} must hold the model that was deployed as {name!r}, got another one: put that "
                    "file back"
                )
        return models

    def mode_of(self, name: str) -> Mode | Sequence[Mode] | None:
        """The mode in which a model was deployed, None if it is not known."""
        return self._index.modes.get(name)

    def add(self, name: str, model: Model, mode: Mode | Sequence[Mode]) -> None:
        """Keeps a model. Raises ModelError if it cannot be saved, FileFormatError if the file of another one
        is missing, OSError."""
        with self._lock:
            self._owned.hold()
            self._refuse_missing()
            model.save(self._path(name), private=True)
            models = {**self._index.models, name: model.digest}
            self._write(replace(self._index, models=models, modes={**self._index.modes, name: mode}))

    def remove(self, name: str) -> None:
        """Forgets a model; does nothing if it is not kept."""
        with self._lock:
            if name not in self._index.models:
                return
            kept = {other: digest for other, digest in self._index.models.items() if other != name}
            previous = None if self._index.previous == name else self._index.previous
            modes = {other: mode for other, mode in self._index.modes.items() if other != name}
            self._write(replace(self._index, models=kept, modes=modes, previous=previous))
            self._owned.hold()
            self._path(name).unlink(missing_ok=True)

    def serve(self, name: str, previous: str | None) -> None:
        """Notes which model answers, and which did before. Raises FileFormatError as `add` does."""
        with self._lock:
            self._refuse_missing()
            switches = self._index.switches + 1
            self._write(replace(self._index, serving=name, previous=previous, switches=switches))

    def find_loss(self) -> str | None:
        """Why the next start would not find a model that is kept; None if it would find all.

        If the list of models was removed, it is written again.
        """
        with self._lock:
            lost = self._find_loss()
            if lost is None and self._index != _Index() and not (self.directory / _INDEX).is_file():
                try:
                    self._write(self._index)
                except (OSError, LiveGNNError) as error:
                    return str(error)
        return lost

    def _find_loss(self) -> str | None:
        missing = [name for name in self._index.models if not self._path(name).is_file()]
        if not missing:
            return None
        return (
            f"{', '.join(str(self._path(name)) for name in missing)} must be there for the next start, as "
            f"written, got nothing: put it back; or remove the model {missing[0]!r} and deploy it again"
        )

    def _refuse_missing(self) -> None:
        if (lost := self._find_loss()) is not None:
            raise FileFormatError(lost)

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.lgnn"

    def _write(self, index: _Index) -> None:
        self._owned.hold()
        content: dict[str, JSON] = {
            "version": _VERSION,
            "serving": index.serving,
            "previous": index.previous,
            "switches": index.switches,
            "models": dict(index.models),
            "modes": {
                name: mode if isinstance(mode, str) else list(mode) for name, mode in index.modes.items()
            },
        }
        with replace_file(self.directory / _INDEX, private=True) as file:
            file.write(json.dumps({**content, "crc32": _checksum(content)}, indent=1).encode())
        self._index = index

    def _read(self) -> _Index:
        path = self.directory / _INDEX
        try:
            content = json.loads(path.read_bytes())
            if not isinstance(content, dict):
                raise TypeError(f"a list of models, got {content!r:.40}")
            crc32 = content.pop("crc32")
            version, models = content["version"], content["models"]
            if version != _VERSION:
                raise FileFormatError(
                    f"{path} must be of version {_VERSION}, got {version!r}: update livegnn"
                )
            if crc32 != _checksum(content):
                raise ValueError("its checksum does not fit")
            modes = dict(content.get("modes", {}))  # files of earlier versions have none
            serving, previous = content["serving"], content["previous"]
            switches = int(content.get("switches", 0))
            return _Index(dict(models), serving, previous, content.get("log"), modes, switches)
        except FileNotFoundError:
            return _Index()
        except FileFormatError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise FileFormatError(
                f"{path} must be as livegnn wrote it, got something else: {error}. Put it back, or remove it "
                "to begin with the model of the deployment"
            ) from error


def _checksum(content: Mapping[str, JSON]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
