"""Servers as processes, and the load that they bear: wrk (https://github.com/wg/wrk) sends the requests."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_DONE = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("\\nfound %f %f %f %d\\n", summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""


@dataclass(frozen=True)
class Load:
    """Requests a second; the median and the 99th percentile of their time, in ms."""

    rate: float
    median: float
    p99: float


@dataclass(frozen=True)
class Server:
    """A process, and the address that it has printed."""

    address: str
    pid: int

    def memory(self, name: str) -> float:
        """A line of /proc/PID/status, in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024

    def reset_peak(self) -> None:
        """VmHWM counts from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="utf-8")


@contextmanager
def listening(words: Sequence[str]) -> Iterator[Server]:
    """A process whose first line ends with its address. Raises RuntimeError if it prints none."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    assert process.stdout is not None
    try:
        said = process.stdout.readline().split()
        if not said:
            raise RuntimeError(f"a process must say where it listens, and ended: {' '.join(words)}")
        yield Server(said[-1], process.pid)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def load(url: str, script: str, connections: int, seconds: int, folder: Path) -> Load:
    """The load that a server bears. script: of wrk, in Lua, which is written into `folder`.

    Raises RuntimeError if a request fails.
    """
    path = folder / "requests.lua"
    path.write_text(script + _DONE, encoding="utf-8")
    words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "-s", str(path), url]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rate, median, p99, errors = said.rpartition("found ")[2].split()
    if int(errors) or not float(rate):
        raise RuntimeError(f"{url}: {errors} errors\n{said}")
    return Load(float(rate), float(median), float(p99))
