"""Keys of clients: the requests that each admits, and the file that holds their hashes.

A key is 32 random bytes, written as ``lgk_`` and 43 characters of base64url. It is shown once, when it is
created. The file holds its SHA-256: 256 random bits need no slow hash. docs/security.md describes the file.

Thread safety: a `KeyFile` may be read from any thread. Processes that change the file wait for each other. A
look at the file may take long, as on a stalled network mount, so it has a thread of its own.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
import threading
import time
import weakref
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, get_args

from livegnn.arguments import as_path
from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError
from livegnn.wording import quoted

Scope: TypeAlias = Literal["read", "write", "admin"]
SCOPES: Final = cast("tuple[Scope, ...]", get_args(Scope))

PREFIX: Final = "lgk_"
"""Scanners for secrets find a key by it."""
_logger = logging.getLogger(__name__)
_VERSION: Final = 1
_LIMITED: Final = 2
"""The version of a file in which a key has limits."""
_MOST: Final = 10**15
_MOST_BYTES: Final = 16 * 2**20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_EVERY: Final = 0.5
"""Seconds between two looks at the file."""


@dataclass(frozen=True)
class KeyLimits:
    """requests: a second. bytes: of request bodies a second. feeds: open at once. None: no limit. Raises
    InputError.
    """

    requests: int | None = None
    bytes: int | None = None
    feeds: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
                raise InputError(f"{name} must be an integer from 1 to {_MOST:,}, got {quoted(value)}")

    def given(self) -> "dict[str, int]":
        """Those that there are."""
        return {name: value for name, value in vars(self).items() if value is not None}


NO_LIMITS: Final = KeyLimits()


@dataclass(frozen=True)
class Key:
    """sha256: of the key's text, 64 hexadecimal digits. scopes: what it admits; "admin" admits everything.
    created: the time in UTC, as ISO 8601 writes it. limits: of all clients with this key together.
    """

    name: str
    sha256: str
    scopes: tuple[Scope, ...]
    created: str
    limits: KeyLimits = NO_LIMITS

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.sha256, str) or not _DIGEST.fullmatch(self.sha256):
            raise InputError(f"sha256 must be 64 hexadecimal digits, got {quoted(self.sha256)}")
        check_scopes(self.scopes)
        if not isinstance(self.created, str):
            raise InputError(f"created must be a time as ISO 8601 writes it, got {quoted(self.created)}")

    def admits(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


def check_name(name: object) -> None:
    """Raises `InputError` unless it can name a key."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(
            "a key's name must be 1 to 64 letters, digits, '.', '_' or '-' and begin with a letter or "
            f"digit, got {quoted(name)}"
        )


def check_scopes(scopes: object) -> None:
    """Raises `InputError` unless it is some of "read", "write" and "admin", each once."""
    known = isinstance(scopes, tuple | list) and all(scope in SCOPES for scope in scopes)
    if (
        not known
        or not scopes
        or len(set(cast("tuple[str, ...]", scopes))) < len(cast("tuple[str, ...]", scopes))
    ):
        raise InputError(f"scopes must be some of {', '.join(SCOPES)}, each once, got {quoted(scopes)}")


class KeyFile:
    """The keys in a file, which is read again when it has changed.

    If the file can no longer be read, or is damaged, the keys stay as they were, so that a mistake in it does
    not lock clients out; `problem` then names the mistake.
    """

    def __init__(self, path: Path | str) -> None:
        """Raises `FileFormatError` if the file is damaged, `OSError` if it cannot be read."""
        self.path = as_path(path, "keys")
        self.problem: str | None = None
        self._looking = threading.Lock()
        self._seen = self._look()
        self._keys = _by_digest(read_keys(self.path))
        if self.path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            _logger.warning("%s can be read by other users of this machine: chmod 600 it", self.path)
        threading.Thread(target=_follow, args=(weakref.ref(self),), name="livegnn-keys", daemon=True).start()

    @property
    def keys(self) -> list[Key]:
        """The keys as they are in the file now."""
        self.refresh()
        return [key for _, key in self._keys.values()]

    def find(self, text: bytes) -> Key | None:
        """The key that a client sent; None if there is no such key."""
        digest = hashlib.sha256(text).digest()
        found = self._keys.get(digest)
        # The time of the look-up depends on the digest, from which the key cannot be computed. That two
        # digests are equal is found in constant time.
        return found[1] if found is not None and hmac.compare_digest(found[0], digest) else None

    def _look(self) -> tuple[int, ...]:
        status = self.path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def refresh(self) -> None:
        """Reads the file again if it has changed."""
        with self._looking:
            try:
                seen = self._look()
                if seen != self._seen:
                    self._keys = _by_digest(read_keys(self.path))
                    self._seen = seen
                self.problem = None
            except (OSError, FileFormatError) as error:
                problem = str(error)
                if problem != self.problem:
                    _logger.warning("the keys stay as they were read before: %s", problem)
                self.problem = problem


def _follow(file: "weakref.ref[KeyFile]") -> None:
    while (keys := file()) is not None:
        keys.refresh()
        del keys
        time.sleep(_EVERY)


def read_keys(path: Path) -> list[Key]:
    """The keys of a file. Raises `FileFormatError` if it is damaged, `OSError` if it cannot be read."""
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would keep its reader
        raise FileFormatError(f"{path} does not hold keys: it must be a regular file")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        if len(content) > _MOST_BYTES:
            raise InputError(f"it must have at most {_MOST_BYTES:,} bytes")
        held = json.loads(content)
        if (
            not isinstance(held, dict)
            or held.get("format") != "livegnn-keys"
            or not isinstance(held.get("keys"), list)
        ):
            raise InputError("it must be a file of `livegnn key create`")
        if type(held.get("version")) is not int or held["version"] not in (_VERSION, _LIMITED):
            raise InputError(
                f"its version must be {_VERSION} or {_LIMITED}, got {quoted(held.get('version'))}"
            )
        keys = [_key_of(record) for record in held["keys"]]
        if held["version"] == _VERSION and any("limits" in record for record in held["keys"]):
            raise InputError(f"keys with limits need version {_LIMITED}, got {_VERSION}")
        _by_digest(keys)
    except (ValueError, RecursionError, InputError) as error:
        raise FileFormatError(f"{path} does not hold keys: {error}") from None
    return keys


def _key_of(record: object) -> Key:
    fields = {"name", "sha256", "scopes", "created"}
    if not isinstance(record, dict) or set(record) - {"limits"} != fields:
        raise InputError(f"a key must have {', '.join(sorted(fields))}, got {quoted(record)}")
    limits = record.get("limits", {})
    if not isinstance(record["scopes"], list) or not isinstance(limits, dict):
        raise InputError(f"scopes must be a list, and limits an object, got {quoted(record)}")
    if unknown := limits.keys() - vars(NO_LIMITS).keys():
        raise InputError(f"limits may be {', '.join(vars(NO_LIMITS))}, got {quoted(unknown.pop())}")
    own = KeyLimits(**limits) if limits else NO_LIMITS
    return Key(record["name"], record["sha256"], tuple(record["scopes"]), record["created"], own)


def _record_of(key: Key) -> dict[str, object]:
    record = {name: value for name, value in vars(key).items() if name != "limits"}
    limits = key.limits.given()
    return {**record, "scopes": list(key.scopes), **({"limits": limits} if limits else {})}


def _by_digest(keys: Iterable[Key]) -> dict[bytes, tuple[bytes, Key]]:
    keys = list(keys)
    for field in ("name", "sha256"):
        seen = [getattr(key, field) for key in keys]
        if len(set(seen)) < len(seen):
            raise FileFormatError(f"two keys have the same {field}: remove one of them")
    digests = ((bytes.fromhex(key.sha256), key) for key in keys)
    return {digest: (digest, key) for digest, key in digests}


def create_key(
    path: Path,
    name: str,
    scopes: Iterable[Scope],
    limits: KeyLimits = NO_LIMITS,
) -> str:
    """Adds a key to a file, which is created if it is missing, and returns the text of the key.

    Raises `InputError` if the name is taken.
    """
    check_name(name)
    check_scopes(tuple(scopes))
    text = PREFIX + urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    key = Key(name, hashlib.sha256(text.encode()).hexdigest(), tuple(scopes), now, limits)
    with _changed(path, create=True) as keys:
        if any(other.name == name for other in keys):
            raise InputError(
                f"{path} has a key {name!r} already: choose another name, or revoke that key first"
            )
        keys.append(key)
    return text


def revoke_key(path: Path, name: str) -> None:
    """Removes a key from a file. Running servers refuse it within a second.

    Raises `InputError` if there is no such key.
    """
    with _changed(path, create=False) as keys:
        left = [key for key in keys if key.name != name]
        if len(left) == len(keys):
            known = ", ".join(key.name for key in keys) or "none"
            raise InputError(f"{path} has no key {quoted(name)}, it has {known}")
        keys[:] = left


@contextmanager
def _changed(path: Path, *, create: bool) -> Iterator[list[Key]]:
    """The keys of a file, written back at the end of the block. No other process changes them meanwhile."""
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = [] if create and not path.exists() else read_keys(path)
        yield keys
        limited = any(key.limits.given() for key in keys)
        held = {
            "format": "livegnn-keys",
            "version": _LIMITED if limited else _VERSION,
            "keys": [_record_of(key) for key in keys],
        }
        with replace_file(path, private=True) as stream:
            stream.write(json.dumps(held, indent=1).encode() + b"\n")
        path.chmod(0o600)  # an older file keeps its permissions
    finally:
        os.close(lock)
