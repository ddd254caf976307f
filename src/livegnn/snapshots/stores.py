"""The stores that hold objects: what `obstore` reaches, with one error for each kind of failure.

A store does each operation once; `Objects` repeats it, and joins ranges. Throttles and injectors of faults
have the same face and stand in between. Thread safety: any thread may call.
"""

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from livegnn.errors import (
    InputError,
    ObjectExistsError,
    ObjectMissingError,
    SnapshotError,
    StoreUnavailableError,
    shortened,
)

if TYPE_CHECKING:
    from obstore import WritableFile
    from obstore.store import ObjectStore

Buffer: TypeAlias = "bytes | bytearray | memoryview"

Fetched: TypeAlias = int | StoreUnavailableError
"""For one range: the number of bytes that were read, or why the store did not answer."""

PART = 8 << 20
"""Bytes of one part of an upload, and of a range that is read in parts."""

_PARTS_AT_ONCE = 2
_SLOW = 0.5  # seconds after which a refusal is one by its time
_IN_MEMORY: "dict[str, ObjectStore]" = {}
_REFUSED = re.compile(  # of those with status 400 some would pass, as RequestTimeout
    r"code: 40(?:[134] .*<Code>(?!NoSuchKey<)|0 .*<Code>(?=Invalid|Authorization|Expired|Illegal))"
    r"(\w+)</Code><Message>([^<]*)</Message>",
    re.DOTALL,
)
_PLAIN = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)  # paths that files have as they are
_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file", "memory")


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a listing; `modified` by the clock of the store."""

    path: str
    size: int
    modified: datetime


def open_store(url: str, *, timeout: float = 10.0, **options: str) -> "Store":
    """A store by its URL: `s3://BUCKET/PREFIX`, `gs://`, `az://`, `file:///FOLDER`, a folder's path, or
    `memory://NAME`, which all of one process share.

    timeout: seconds for one request. options: what `obstore` takes for this kind of store (`endpoint`,
    `region`, `access_key_id`, ...); it also reads the usual environment variables. Raises `InputError` for a
    URL or an option that it does not know.
    """
    try:
        import_module("obstore")
    except ModuleNotFoundError:
        raise InputError(
            "snapshots in object storage need obstore, which is not installed: "
            "pip install 'livegnn[serverless]'"
        ) from None
    if not isinstance(url, str):
        raise InputError(f"the URL of a store must be text, got {url!r}")
    scheme, colon, rest = url.partition("://")
    if url and not colon:
        scheme, url = "file", Path(url).absolute().as_uri()
    if scheme not in _SCHEMES:
        raise InputError(
            "the URL of a store must begin with s3://, gs://, az://, file:// or memory://, or be the path "
            f"of a folder, got {url!r}"
        )
    if scheme == "memory":
        return _open_in_memory(url, rest)
    if scheme == "file":
        return _open_folder(url, options)
    return _open_by_url(url, timeout, options)


def _open_folder(url: str, options: dict[str, str]) -> "Store":
    where = urlsplit(url)
    folder = Path(unquote(where.path))
    if options:
        raise InputError(f"a folder takes no options, got {', '.join(options)}")
    if where.netloc not in ("", "localhost") or not folder.is_absolute():
        raise InputError(f"the URL of a folder must be file:///FOLDER, from the root on, got {url!r}")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"a store must be a folder, got the file {folder}")
    return _Folder(url, folder)


def _open_in_memory(url: str, name: str) -> "Store":
    from obstore.store import MemoryStore

    store = _IN_MEMORY.setdefault(name, MemoryStore())
    return Store(url, store, store)


def _open_by_url(url: str, timeout: float, options: dict[str, str]) -> "Store":
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    try:
        client = {"timeout": timedelta(seconds=timeout), "connect_timeout": timedelta(seconds=timeout)}
        settings = dict(options)
        # These options replace those of the environment. A user who names an endpoint without TLS wants none.
        allowed = settings.pop("allow_http", os.environ.get("AWS_ALLOW_HTTP", ""))
        named = ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
        endpoints = (settings.get("endpoint", ""), *(os.environ.get(name, "") for name in named))
        if allowed.lower() in ("1", "true") or any(endpoint.startswith("http://") for endpoint in endpoints):
            client["allow_http"] = True  # type: ignore[assignment]
        # Reads are repeated by `Objects`, which also sees what is truncated; parts of uploads by obstore.
        reads, writes = (
            from_url(
                url,
                client_options=client,  # type: ignore[call-overload]
                retry_config={
                    "max_retries": retries,
                    "retry_timeout": timedelta(seconds=6 * timeout),
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=50),
                        "max_backoff": timedelta(seconds=2),
                        "base": 2,
                    },
                },
                **settings,
            )
            for retries in (0, 8)
        )
    except (BaseError, ValueError, TypeError) as error:
        named_options = f" with the options {', '.join(sorted(options))}" if options else ""
        raise InputError(
            f"{url!r}{named_options} opens no store, as s3://BUCKET/PREFIX does: {_first_words(error)}"
        ) from error
    return Store(url, reads, writes)


class Store:
    """Objects by path, in a store of `obstore`. All methods raise `ObjectMissingError`, `ObjectExistsError`,
    `StoreUnavailableError`, which may pass, or `SnapshotError` for lasting errors, such as a key that is
    refused.

    url: of the store, for messages. reads, writes: the same store, without and with attempts of its own.
    """

    def __init__(self, url: str, reads: "ObjectStore", writes: "ObjectStore") -> None:
        self.url = url
        self._reads = reads
        self._writes = writes

    def _open(self, *, write: bool = False) -> "ObjectStore":
        """The store to read from, or to write one small object into."""
        return self._reads

    def get(self, path: str) -> Buffer:
        """A whole object."""
        import obstore

        with _translating(self.url, path):
            return memoryview(obstore.get(self._open(), path).bytes())

    def get_ranges(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        """Fills each of `into` with the bytes from its start on. One request for each, all at a time. Returns
        of each how many bytes there were, fewer than asked for where the object ends, or why the store did
        not answer this one."""
        if len(starts) == 1:
            return [self._get_one(path, starts[0], into[0])]
        began = time.monotonic()
        try:
            return self._get_together(path, starts, into)
        except StoreUnavailableError as error:
            if time.monotonic() - began > _SLOW:  # another attempt would take as long
                return [error] * len(starts)
        # For one of them, and obstore does not say for which.
        import asyncio  # costs 30 ms, which are for a store that fails

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._get_apart(path, starts, into))
        return [self._get_one(path, *pair) for pair in zip(starts, into, strict=True)]  # a loop runs here

    def _get_one(self, path: str, start: int, into: memoryview) -> Fetched:
        import obstore

        try:
            with _translating(self.url, path):
                data = obstore.get_range(self._open(), path, start=start, length=len(into))
        except StoreUnavailableError as error:
            return error
        return _fill(into, memoryview(data))

    def _get_together(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        """Several at a time, all or none."""
        import obstore

        lengths = [len(part) for part in into]
        with _translating(self.url, path):
            parts = obstore.get_ranges(self._open(), path, starts=starts, lengths=lengths, coalesce=0)
        return [_fill(buffer, memoryview(part)) for buffer, part in zip(into, parts, strict=True)]

    async def _get_apart(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        """Several at a time, each by itself."""
        import asyncio

        import obstore

        async def get(start: int, buffer: memoryview) -> Fetched:
            try:
                with _translating(self.url, path):
                    data = await obstore.get_range_async(self._open(), path, start=start, length=len(buffer))
            except StoreUnavailableError as error:
                return error
            return _fill(buffer, memoryview(data))

        return await asyncio.gather(*map(get, starts, into))

    def put(self, path: str, data: Buffer, *, create: bool) -> None:
        """Writes an object, all of it or nothing; create: only where there is none."""
        import obstore

        # An attempt whose answer is lost must be distinguished from another writer, so `Objects` repeats it.
        with _translating(self.url, path):
            mode: Literal["create", "overwrite"] = "create" if create else "overwrite"
            obstore.put(self._open(write=True), path, data, mode=mode, use_multipart=False)

    def upload(self, path: str) -> "Upload":
        """Begins a large object."""
        import obstore

        with _translating(self.url, path):
            self._open(write=True)
            writer = obstore.open_writer(self._writes, path, buffer_size=PART, max_concurrency=_PARTS_AT_ONCE)
        return Upload(self.url, path, writer)

    def list(self, prefix: str, after: str = "") -> list[ObjectInfo]:
        """The objects below a folder whose paths are after `after`, in the order of their paths."""
        import obstore

        with _translating(self.url, prefix):
            listed = [
                ObjectInfo(item["path"], item["size"], item["last_modified"])
                for chunk in obstore.list(self._open(), prefix, offset=after or None)
                for item in chunk
            ]
        return sorted(listed, key=lambda item: item.path)

    def size(self, path: str) -> int:
        """The bytes of an object."""
        import obstore

        with _translating(self.url, path):
            return obstore.head(self._open(), path)["size"]

    def delete(self, path: str) -> None:
        """Removes an object; one that is missing is none the less removed."""
        import obstore

        with suppress(ObjectMissingError), _translating(self.url, path):
            obstore.delete(self._open(), path)


class _Folder(Store):
    """A folder, which is made when something is written into it. Until then it is a store without objects."""

    def __init__(self, url: str, folder: Path) -> None:
        from obstore.store import MemoryStore

        nothing = MemoryStore()
        super().__init__(url, nothing, nothing)
        self._root = str(folder)
        self._folder: Path | None = folder
        self._opening = threading.Lock()

    def _open(self, *, write: bool = False) -> "ObjectStore":
        from obstore.store import LocalStore

        with self._opening:
            folder = self._folder
            if folder is not None and (write or folder.is_dir()):
                try:
                    self._reads = self._writes = LocalStore(folder, automatic_cleanup=True, mkdir=write)
                except OSError as error:
                    raise SnapshotError(f"the folder {folder} cannot be opened: {error}") from error
                self._folder = None
            return self._reads

    def get_ranges(self, path: str, starts: Sequence[int], into: Sequence[memoryview]) -> list[Fetched]:
        # obstore hands each range to a thread of its own, which takes twenty times as long as reading it.
        if not _PLAIN.fullmatch(path):
            return super().get_ranges(path, starts, into)
        with _translating(self.url, path):
            file = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return [_read_whole(file, *pair) for pair in zip(into, starts, strict=True)]
            finally:
                os.close(file)


def _fill(into: memoryview, data: memoryview) -> int:
    """Copies the bytes, and returns their number; copies none if there are more than requested."""
    if len(data) <= len(into):
        into[: len(data)] = data
    return len(data)


def _read_whole(file: int, into: memoryview, start: int) -> int:
    """Fills `into` with the bytes of a file from `start` on; returns their number. A file system may return
    less than requested, and more on a second call."""
    done = 0
    while done < len(into):
        count = os.preadv(file, [into[done:]], start + done)
        if not count:
            break
        done += count
    return done


class Upload:
    """An object that is written in parts. It is not visible before `finish`, and never after `abort`."""

    def __init__(self, url: str, path: str, writer: "WritableFile") -> None:
        self._where = url, path
        self._writer: WritableFile | None = writer
        self._closing = threading.Lock()

    def write(self, data: Buffer) -> None:
        assert self._writer is not None
        with _translating(*self._where):
            self._writer.write(data)

    def finish(self) -> None:
        assert self._writer is not None
        with _translating(*self._where):
            self._writer.close()
        self._writer = None

    def abort(self) -> None:
        self._writer = None  # parts that were never joined have no owner; a bucket's life cycle removes them


@contextmanager
def _translating(url: str, path: str) -> Iterator[None]:
    """Turns errors of obstore into those of this library."""
    try:
        yield
    except SnapshotError:
        raise
    except Exception as error:
        from obstore import exceptions

        where = f"{path} in {url}"
        refused = _REFUSED.search(str(error))
        if refused is not None:  # obstore takes some of these for errors that pass
            raise SnapshotError(
                f"the store refuses {where}: {refused[1]}, {refused[2]} Give the right bucket and keys"
            ) from error
        if isinstance(error, (FileNotFoundError, exceptions.NotFoundError)):
            raise ObjectMissingError(f"expected the object {where}, found none") from error
        if isinstance(error, (FileExistsError, exceptions.AlreadyExistsError, exceptions.PreconditionError)):
            raise ObjectExistsError(f"expected no object {where} yet, found one") from error
        said = shortened(_first_words(error))
        lasting = (
            PermissionError,
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.InvalidPathError,
            exceptions.UnknownConfigurationKeyError,
            exceptions.NotSupportedError,
        )
        if isinstance(error, lasting):
            raise SnapshotError(f"the store refuses {where}: {said}") from error
        if "No space left" in said:
            raise StoreUnavailableError(f"the store has no room for {where}: {said}") from error
        if "169.254.169.254" in said:  # obstore sends a request there if it has no keys
            said += ": no keys were given, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        if isinstance(error, (exceptions.BaseError, OSError)):
            raise StoreUnavailableError(f"the store does not answer for {where}: {said}") from error
        raise


def _first_words(error: Exception) -> str:
    """The first words of an error of obstore, before it shows the error of its program."""
    return " ".join(str(error).partition("Debug source:")[0].split())
