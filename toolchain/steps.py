"""Runs a command that installs or builds, shows its steps as they begin, and says in one line why it failed.

    python toolchain/steps.py LOG TITLE COMMAND...

All that the command writes is kept in LOG. On a terminal the steps are one line that changes; elsewhere they
are lines, fewer than sixty. pip shows what it builds with -v alone, and how far a download is with
--progress-bar raw. The status is the command's. Ctrl-C ends the command with all that it started. While one
writes LOG, another that would is refused: what the two commands make is the same.

LIVEGNN_STEPS_AT_ONCE is the number of these programs that run side by side, 1 unless set. Each of several
writes lines of its own, and compiles with its part of the memory.
"""

import fcntl
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple, TextIO

import resources
from failures import find_reason, reason


class Step(NamedTuple):
    kind: str
    text: str
    done: int = 0  # of `total`, where the command counts
    total: int = 0


class Steps:
    """Finds the steps in the lines of pip, scikit-build-core, CMake and ninja."""

    def __init__(self) -> None:
        self._download = ""

    def read(self, line: str) -> Step | None:
        """The step that `line` begins, or None."""
        line = line.strip()
        if found := re.match(r"\[(\d+)/(\d+)\] (.+)", line):
            done, total = int(found[1]), int(found[2])
            return Step("compile", f"[{done}/{total}] {_source(found[3])}", done, total) if done else None
        if found := re.match(r"Progress (\d+) of (\d+)$", line):
            done, total = int(found[1]), int(found[2])
            return Step("progress", f"{self._download}, {100 * done // max(total, 1)} %", done, total)
        if found := re.match(r"(?:Collecting|Processing) (\S+)", line):
            return Step("collect", f"collecting {_package(found[1])}")
        if found := re.match(r"Downloading (\S+)(?: \((.+)\))?", line):
            self._download = f"downloading {_package(found[1])}" + (f" ({found[2]})" if found[2] else "")
            return Step("download", self._download)
        if found := re.match(r"Installing collected packages: (.+)", line):
            names = found[1].split(", ")
            return Step("install", f"installing {f'{len(names)} packages' if names[1:] else names[0]}")
        if found := re.match(r"Building wheel for (\S+) .*: started", line):
            return Step("build", f"building {found[1]}")
        if line.startswith(("*** Configuring CMake", "-- The CXX compiler")):
            return Step("configure", "configuring")
        if "Retrying (Retry(" in line:
            return Step("wait", "no package index answers yet, trying again")
        return None


class Screen:
    """Shows steps on a terminal as one line that changes, elsewhere as few lines."""

    def __init__(self, stream: TextIO, title: str, *, alone: bool = True) -> None:
        self._stream = stream
        self._title = title
        self._begun = time.monotonic()
        self._text = ""
        self._terminal = alone and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._thinning = Thinning()

    def show(self, step: Step) -> None:
        if step.text == self._text:
            return
        self._text = step.text
        if self._terminal:
            self.tick()
        elif self._thinning.keeps(step):
            self.say(step.text)

    def tick(self) -> None:
        """Shows how long it has taken by now."""
        if not self._terminal:
            return
        seconds = int(time.monotonic() - self._begun)
        text = f"{self._title} ({seconds} s) {self._text}"
        columns = shutil.get_terminal_size().columns
        self._stream.write(f"\r{text[: columns - 1]}\x1b[K")
        self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        text = f"{self._title}: {text}"
        self._stream.write(f"\r{text}\x1b[K\n" if self._terminal else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        self.say(f"done in {time.monotonic() - self._begun:.0f} s")


class Thinning:
    """Which steps become lines of their own: of a long row every tenth or twelfth."""

    _EVERY_PACKAGE = 10
    _PARTS = 12  # of a build
    _DOWNLOADS = 15  # large ones
    _OTHERS = 10

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._part = -1

    def keeps(self, step: Step) -> bool:
        count = self._seen[step.kind] = self._seen.get(step.kind, 0) + 1
        if step.kind == "progress":
            return False
        if step.kind == "compile":
            part = step.done * self._PARTS // step.total
            if part == self._part:
                return False
            self._part = part
            return True
        if step.kind == "collect":
            # The more there are, the fewer of them: 1, 11, ..., 91, then each hundredth.
            return count % (self._EVERY_PACKAGE if count < 100 else 100) == 1
        if step.kind == "download":
            if re.search(r"\(\d{2,}(\.\d+)? MB|GB\)", step.text):
                large = self._seen["large"] = self._seen.get("large", 0) + 1
                return large <= self._DOWNLOADS
            return False
        return count == 1 or (step.kind != "wait" and count <= self._OTHERS)


class Child:
    """The command. What ends this program ends it, and all that it started."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.stopped_by = 0
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        # A group of its own: a signal to this program alone reaches compilers too.
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if self.stopped_by:
            self._stop(self.stopped_by)

    def lines(self) -> Iterator[str | None]:
        """What it writes, until it ends; None when it has written nothing for a second."""
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(output, selectors.EVENT_READ)
            left = b""
            while True:
                if not ready.select(timeout=1):
                    yield None
                    continue
                read = os.read(output, 2**16)
                if not read:
                    break
                *lines, left = re.split(rb"[\r\n]", left + read)
                yield from (line.decode("utf-8", "replace") for line in lines)
            if left:
                yield left.decode("utf-8", "replace")

    def wait(self) -> int:
        """Its status, as a shell would give it."""
        assert self._process is not None
        status = self._process.wait()
        return status if status >= 0 else 128 - status

    def end(self) -> None:
        self._pass_on(signal.SIGKILL)
        self.wait()

    def _stop(self, number: int, frame: object = None) -> None:
        # Of Ctrl-C alone pip takes its temporary folders with it.
        self._pass_on(signal.SIGKILL if self.stopped_by and frame is not None else signal.SIGINT)
        self.stopped_by = number

    def _pass_on(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):  # all have ended
                os.killpg(self._process.pid, number)


def run(log: Path, title: str, command: Sequence[str]) -> int:
    beside = int(os.environ.get("LIVEGNN_STEPS_AT_ONCE", "1"))
    screen = Screen(sys.stdout, title, alone=beside == 1)
    cores = resources.count_cores()
    at_once = resources.compilers_at_once(resources.read_memory(), cores, beside)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "NINJA_STATUS": "[%f/%t] ", "NO_COLOR": "1"}
    narrowed = at_once < cores and "CMAKE_BUILD_PARALLEL_LEVEL" not in environment
    environment.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(at_once))
    screen.show(Step("start", f"its whole output is in {log}"))
    steps = Steps()
    child = None
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        # Opened as it is: what another has written there stays until that one has ended.
        with log.open("a", encoding="utf-8", errors="replace") as kept:
            if not _own(log, kept):
                screen.say(
                    f"failed: another make in this folder is at this step ({log}): "
                    "wait until it has ended, or use a copy of the sources"
                )
                return 1
            child = Child(command, environment)
            for line in child.lines():
                if line is None:
                    screen.tick()
                    continue
                kept.write(f"{line}\n")
                kept.flush()
                step = steps.read(line)
                if step is None:
                    continue
                if step.kind in ("build", "compile") and narrowed:
                    narrowed = False
                    screen.say(
                        f"there is memory for {at_once} of {cores} compilers at once, each takes up to "
                        f"{resources.shown(resources.COMPILER_BYTES)} (CMAKE_BUILD_PARALLEL_LEVEL=... "
                        "sets another number)"
                    )
                screen.show(step)
            status = child.wait()
    except OSError as error:  # the command is not there, or what it writes cannot be kept
        if child is not None:
            child.end()
        screen.say(f"failed: {reason([str(error)])}")
        return 127 if child is None else 1
    if child.stopped_by:
        screen.say("stopped")
        return 128 + child.stopped_by
    if status:
        screen.say(f"failed: {find_reason(log)} (its whole output: {log})")
    else:
        screen.end()
    return status


def _own(path: Path, log: TextIO) -> bool:
    """Empties the log and holds it until it is closed; False if another program holds it."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    if path.is_file():  # rather than a device
        log.truncate(0)
    return True


def _package(named: str) -> str:
    """A requirement as it is; of a file's path, the package and its version."""
    name = named.rstrip("/").rpartition("/")[2]
    if name in (".", "") or not name.endswith((".whl", ".gz", ".zip")):
        return "the sources here" if named.startswith((".", "/")) else named
    return "-".join(name.split("-")[:2])


def _source(edge: str) -> str:
    """What ninja says of an edge, in short: the source that is compiled, or what is linked."""
    if found := re.match(r"Building \w+ object (?:cpp/)?CMakeFiles/(.+?)\.dir/(.+)\.o(bj)?$", edge):
        target, path = found[1], found[2]
        if unity := re.match(r"Unity/unity_(\d+)_", path):
            return f"{target}, part {unity[1]}"
        return path if path.startswith("cpp/") else path.rpartition("/")[2]
    if found := re.match(r"Linking \w+ (?:\w+ )?(?:library|module|executable) (\S+)", edge):
        return f"linking {found[1]}"
    return edge


def main(arguments: list[str]) -> int:
    # In whatever locale: a letter that it lacks becomes a question mark.
    assert isinstance(sys.stdout, TextIOWrapper)
    sys.stdout.reconfigure(errors="replace")
    log, title, *command = arguments
    return run(Path(log), title, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
