"""Predicts how much memory a request will take, before its features are fetched (FaaS-GNN, section 4.3).

A quadratic function of the counts of nodes and edges that each layer computes gives the peak in bytes. It is
fitted to real requests, whose peak is measured: the bytes that NumPy and the reader allocated at once, and
those of the native pass. Counts and bytes are logarithms, so that an error counts in proportion to the
request. The paper trains a network of two layers. On requests that neither was fitted to, its error was 0.3
and 1.9 %, that of the quadratic function 0.4 and 2.4 %; after 20 requests, 1.0 and 4.5 % against 0.6 and
3.7 %; on requests larger than all others, 1.5 and 17 % against 0.8 and 8 %.

The file is described in docs/serverless.md. Thread safety: a `MemoryModel` is immutable.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from livegnn.arguments import as_path
from livegnn.atomic_file import replace_file
from livegnn.errors import FileFormatError, InputError
from livegnn.types import DoubleArray, IntArray

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

VERSION = 2
_NO_CHECKSUM = "0" * 64
_RIDGE = 1e-5  # for each request: keeps weights small where counts depend on each other
_ARRAYS = ("mean", "scale", "weights")
_LEAST = 5  # requests to learn from


@dataclass(frozen=True)
class MemoryModel:
    """The peak memory of a request, from its counts.

    model: the digest of the model that the requests ran. limit: the peak of the largest one that is expected,
    in bytes, which suffices as a worker's limit. error: the mean relative error on requests that it was not
    fitted to. mean, scale: of log(1 + count), for each count. weights: for each count, then for the square of
    each. offset: the logarithm of the peak where all counts have their mean.
    """

    model: str
    limit: int
    error: float
    mean: "Float64[DoubleArray, 'counts']"
    scale: "Float64[DoubleArray, 'counts']"
    weights: "Float64[DoubleArray, '2*counts']"
    offset: float

    def predict(self, counts: "Int64[IntArray, 'counts']") -> int:
        """The peak in bytes of a request with these counts (`Neighborhood.counts`). Raises `InputError` if it
        learned from other counts."""
        if len(counts) != len(self.mean):
            raise InputError(
                f"the memory model must be of requests with {len(counts)} counts, got one of "
                f"{len(self.mean)}: profile the model on this snapshot"
            )
        scaled = (np.log1p(counts) - self.mean) / self.scale
        return int(np.exp(min(self.offset + float(self.weights @ np.append(scaled, scaled**2)), 60.0)))

    @classmethod
    def fit(
        cls,
        counts: "Int64[IntArray, 'requests counts']",
        peaks: "Int64[IntArray, 'requests']",
        *,
        model: str,
        limit: int,
        seed: int = 0,
    ) -> "MemoryModel":
        """Fits requests, of which a fifth is held out to say the error. counts: a row for each request.
        peaks: in bytes, above 0. model: its digest. limit: as in the class.

        Raises `InputError` for fewer than five requests.
        """
        if len(peaks) < _LEAST:
            raise InputError(f"a memory model learns from at least {_LEAST} requests, got {len(peaks)}")
        order = np.random.default_rng(seed).permutation(len(peaks))
        held = order[: len(order) // 5]
        fitted = _fit(counts[order[len(held) :]], peaks[order[len(held) :]])
        predicted = np.array([fitted.predict(each) for each in counts[held]])
        error = float(np.mean(np.abs(predicted - peaks[held]) / peaks[held]))
        return replace(_fit(counts, peaks), model=model, limit=limit, error=error)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file, as a whole or not at all. Raises `OSError`."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        content = {"version": VERSION, **vars(self), **arrays}
        with replace_file(as_path(path, "path")) as stream:
            blank = json.dumps({"sha256": _NO_CHECKSUM, "livegnn.memory": content}).encode()
            stream.write(blank.replace(_NO_CHECKSUM.encode(), hashlib.sha256(blank).hexdigest().encode(), 1))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "MemoryModel":
        """Reads a file. Raises `FileFormatError` if it is damaged, or of another kind or version."""
        path = as_path(path, "path")
        try:
            data = path.read_bytes()
            whole = json.loads(data)
            content, checksum = whole["livegnn.memory"], str(whole["sha256"])
            version = content["version"]
        except (ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{path} must be a file that MemoryModel.save wrote: {error!r}") from error
        if version != VERSION:
            raise FileFormatError(
                f"{path}: the file must be of version {VERSION}, got {version!r}: profile the model "
                "again, or update livegnn"
            )
        blank = data.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)
        if checksum != hashlib.sha256(blank).hexdigest():
            raise FileFormatError(f"{path}: the checksum does not fit the content: the file is damaged")
        arrays = {name: np.array(content[name], np.float64) for name in _ARRAYS}
        return cls(
            model=str(content["model"]),
            limit=int(content["limit"]),
            error=float(content["error"]),
            offset=float(content["offset"]),
            **arrays,
        )


class PeakMeter:
    """Measures the bytes that are allocated at once, beyond those before, while it is open.

    It sees allocations of Python and NumPy by itself, several times slower than without; others are reported
    to it (`note`). Other threads must allocate nothing meanwhile.
    """

    peak: int

    def __enter__(self) -> "PeakMeter":
        import tracemalloc  # only who measures needs it

        self._trace = tracemalloc
        self._began = not tracemalloc.is_tracing()
        if self._began:
            tracemalloc.start()
        self._before, _ = tracemalloc.get_traced_memory()
        self.start_over()
        return self

    def __exit__(self, *_: object) -> None:
        self.peak = max(self.peak, self._trace.get_traced_memory()[1] - self._before)
        if self._began:
            self._trace.stop()

    def start_over(self) -> None:
        """Forgets earlier peaks. Memory that is allocated still counts."""
        self._trace.reset_peak()
        self.peak = 0

    def note(self, outside: int) -> None:
        """Counts bytes that others have taken just now, beside what is allocated at this moment."""
        now, _ = self._trace.get_traced_memory()
        self.peak = max(self.peak, now - self._before + outside)


def _fit(counts: IntArray, peaks: IntArray) -> MemoryModel:
    """Ridge regression of the logarithm of the peak."""
    logs, log_peaks = np.log1p(counts), np.log(peaks)
    mean, scale = logs.mean(0), logs.std(0)
    scale[scale < 1e-9] = 1.0  # a count that is always the same says nothing
    x = (logs - mean) / scale
    x = np.hstack([x, x**2])
    center, offset = x.mean(0), float(log_peaks.mean())
    x -= center
    weights = np.linalg.solve(x.T @ x + _RIDGE * len(x) * np.eye(x.shape[1]), x.T @ (log_peaks - offset))
    return MemoryModel("", 0, 0.0, mean, scale, weights, offset - float(center @ weights))
