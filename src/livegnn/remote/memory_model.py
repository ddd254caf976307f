"""Predicts how much memory a request will take, before its features are fetched (FaaS-GNN, section 4.3).

A network of two layers reads how many nodes and edges each layer computes, and says the peak in bytes. It is
trained on real requests, whose peak is measured: what NumPy and the reader allocated at once, and what the
native pass took. Counts and bytes are logarithms, because an error counts in proportion to the request.

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

VERSION = 1
_NO_CHECKSUM = "0" * 64
_HIDDEN = 16
_STEPS, _RATE = 3000, 0.02
_LEAST = 5  # requests to learn from


@dataclass(frozen=True)
class MemoryModel:
    """The peak memory of a request, from its counts.

    model: the digest of the model that the requests ran. limit: the peak of the largest one that is expected,
    in bytes, which suffices as a worker's limit. error: the mean relative error on requests that it
    was not trained on. mean, scale: of the inputs, [counts]. w1, b1: [16, counts], [16]. w2: [16]. offset,
    spread: of the logarithm of the peak; b2 is part of `offset`.
    """

    model: str
    limit: int
    error: float
    mean: "Float64[DoubleArray, 'counts']"
    scale: "Float64[DoubleArray, 'counts']"
    w1: "Float64[DoubleArray, '16 counts']"
    b1: "Float64[DoubleArray, '16']"
    w2: "Float64[DoubleArray, '16']"
    offset: float
    spread: float

    def predict(self, counts: "Int64[IntArray, 'counts']") -> int:
        """The peak in bytes of a request with these counts (`Neighborhood.counts`). Raises `InputError` if it
        learned from other counts."""
        if len(counts) != len(self.mean):
            raise InputError(
                f"the memory model must be of requests with {len(counts)} counts, got one of "
                f"{len(self.mean)}: profile the model on this snapshot"
            )
        given = (np.log1p(counts) - self.mean) / self.scale
        hidden = np.tanh(self.w1 @ given + self.b1)
        return int(np.exp(min(self.offset + self.spread * float(self.w2 @ hidden), 60.0)))

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
        """Trains on requests, of which a fifth is held out to say the error. counts: a row for each request.
        peaks: in bytes, above 0. model: its digest. limit: as in the class.

        Raises `InputError` for fewer than five requests.
        """
        if len(peaks) < _LEAST:
            raise InputError(f"a memory model learns from at least {_LEAST} requests, got {len(peaks)}")
        order = np.random.default_rng(seed).permutation(len(peaks))
        held = order[: len(order) // 5]
        trained = _fit(counts[order[len(held) :]], peaks[order[len(held) :]], seed)
        found = np.array([trained.predict(each) for each in counts[held]])
        error = float(np.mean(np.abs(found - peaks[held]) / peaks[held]))
        return replace(_fit(counts, peaks, seed), model=model, limit=limit, error=error)

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the file, as a whole or not at all. Raises `OSError`."""
        content = {
            "version": VERSION,
            "model": self.model,
            "limit": self.limit,
            "error": self.error,
            "offset": self.offset,
            "spread": self.spread,
            **{name: getattr(self, name).tolist() for name in ("mean", "scale", "w1", "b1", "w2")},
        }
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
                f"{path}: the file must be of version {VERSION}, got {version!r}: update livegnn"
            )
        blank = data.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)
        if checksum != hashlib.sha256(blank).hexdigest():
            raise FileFormatError(f"{path}: the checksum does not fit the content: the file is damaged")
        arrays = {name: np.array(content[name], np.float64) for name in ("mean", "scale", "w1", "b1", "w2")}
        return cls(
            model=str(content["model"]),
            limit=int(content["limit"]),
            error=float(content["error"]),
            offset=float(content["offset"]),
            spread=float(content["spread"]),
            **arrays,
        )


class PeakMeter:
    """Measures the bytes that are allocated at once, beyond those before, while it is open.

    What Python and NumPy allocate it sees by itself, several times slower than without; of what others have
    taken it is told (`note`). Other threads must allocate nothing meanwhile.
    """

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
        self._seen()
        if self._began:
            self._trace.stop()

    def start_over(self) -> None:
        """Forgets peaks so far. What is allocated still counts."""
        self._trace.reset_peak()
        self.peak = 0

    def note(self, outside: int) -> None:
        """Counts bytes that others have taken just now, beside what is allocated at this moment."""
        now, _ = self._trace.get_traced_memory()
        self.peak = max(self.peak, now - self._before + outside)

    def _seen(self) -> None:
        _, peak = self._trace.get_traced_memory()
        self.peak = max(self.peak, peak - self._before)


def _fit(counts: IntArray, peaks: IntArray, seed: int) -> MemoryModel:
    """Adam on the squared error of the logarithm, all requests at once; the rate falls to 0 in a cosine."""
    given, wanted = np.log1p(counts), np.log(peaks)
    mean, scale = given.mean(0), given.std(0)
    scale[scale < 1e-9] = 1.0  # a count that is always the same says nothing
    offset, spread = float(wanted.mean()), max(float(wanted.std()), 1e-9)
    x, y = (given - mean) / scale, (wanted - offset) / spread
    random = np.random.default_rng(seed)
    w1 = random.standard_normal((_HIDDEN, x.shape[1])) / np.sqrt(max(x.shape[1], 1))
    parameters = [w1, np.zeros(_HIDDEN), random.standard_normal(_HIDDEN) / np.sqrt(_HIDDEN), np.zeros(1)]
    first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
    for step in range(1, _STEPS + 1):
        hidden = np.tanh(x @ parameters[0].T + parameters[1])
        wrong = 2 * (hidden @ parameters[2] + parameters[3] - y) / len(y)
        back = np.outer(wrong, parameters[2]) * (1 - hidden**2)
        slopes = [back.T @ x, back.sum(0), hidden.T @ wrong, wrong.sum(keepdims=True)]
        rate = _RATE * 0.5 * (1 + np.cos(np.pi * step / _STEPS))
        for parameter, slope, m, v in zip(parameters, slopes, first, second, strict=True):
            m += 0.1 * (slope - m)
            v += 0.001 * (slope**2 - v)
            parameter -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    w1, b1, w2, b2 = parameters
    return MemoryModel("", 0, 0.0, mean, scale, w1, b1, w2, offset + spread * float(b2[0]), spread)
