"""The processes of parts, as their leader starts and ends them: on this machine, or on others by commands."""

import selectors
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Final, Protocol

from livegnn.errors import InputError, WorkerUnavailableError

WORKER_MODULE: Final = ("-m", "livegnn.partitions.worker")


class PartProcess(Protocol):
    """The process of a part. Thread safety: any thread may call `poll` and `kill`, one thread the others.

    pid: on its machine. interface: the IP address at which others reach its machine; None on this one.
    """

    pid: int

    @property
    def interface(self) -> str | None: ...

    def tell(self, line: str) -> None:
        """Sends a line to its standard input."""

    def hear(self, seconds: float | None = None) -> str:
        """The next line of its standard output. seconds: within which it begins, None for any time. Raises
        `WorkerUnavailableError` if there is none."""

    def poll(self) -> int | None:
        """The status with which it has ended; None while it runs."""

    def kill(self) -> object:
        """Ends it at once."""

    def end(self, seconds: float) -> None:
        """Waits until it has ended by itself, and kills it after this time."""


class Hosts(Protocol):
    """The machines of parts. leader: the IP address at which parts reach this process. shared: whether all
    see the same files at the same paths."""

    leader: str
    shared: bool

    def start(self, parts: int) -> Sequence[PartProcess]:
        """A process for each part. Raises `InputError` if there are too few places, and
        `WorkerUnavailableError` if one cannot be started; then none runs."""

    def find_move(self, processes: Sequence[PartProcess]) -> str | None:
        """Why processes should be on other machines; None if they should stay."""


class ChildProcess(subprocess.Popen[str]):
    """A process of this machine, or of another one by a command that passes its standard streams on.

    command: of a Python that has LiveGNN. file: a descriptor that it also has, with the same number. program:
    the arguments of Python.
    """

    def __init__(
        self,
        command: Sequence[str] = (),
        *,
        interface: str | None = None,
        file: int | None = None,
        program: Sequence[str] = WORKER_MODULE,
    ) -> None:
        super().__init__(
            [*(command or (sys.executable,)), *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=() if file is None else (file,),
            text=True,
        )
        self.interface = interface

    def tell(self, line: str) -> None:
        assert self.stdin is not None
        try:
            self.stdin.write(line + "\n")
            self.stdin.flush()
        except BrokenPipeError as error:
            raise self._silent() from error

    def hear(self, seconds: float | None = None) -> str:
        assert self.stdout is not None
        if seconds is not None and not _readable(self.stdout, seconds):
            raise WorkerUnavailableError(
                f"the process of a part must say its terms within {seconds:g} seconds, got nothing: check "
                "its command, its machine and the network"
            )
        if not (line := self.stdout.readline()):
            raise self._silent()
        return line

    def _silent(self) -> WorkerUnavailableError:
        return WorkerUnavailableError(
            f"the process of a part must say its addresses, and ended with {self.wait()}: the standard error "
            "has its messages"
        )

    def end(self, seconds: float) -> None:
        with self:  # closes its streams
            try:
                self.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass(frozen=True)
class Place:
    """The place of a part. interface: the IP address of its machine, at which other parts reach it.

    command: of a Python with the same version of LiveGNN on that machine, such as `("ssh", "host",
    "/opt/livegnn/bin/python")`; by default that of this process. Its standard input is private to the two
    processes, because the keys of all others are sent there.
    """

    interface: str
    command: Sequence[str] = ()


@dataclass(frozen=True)
class CommandHosts:
    """Machines of parts, each with a command. leader, shared: as of `Hosts`. Raises `InputError`."""

    leader: str
    places: Sequence[Place]
    shared: bool = True

    def __post_init__(self) -> None:
        for place in self.places:
            if isinstance(place.command, str):
                raise InputError(f"command must be a list of words, got the text {place.command!r}")

    def start(self, parts: int) -> "Sequence[ChildProcess]":
        if len(self.places) != parts:
            raise InputError(f"places must be {parts}, one for each part, got {len(self.places)}")
        with ExitStack() as started:
            processes = []
            for number, place in enumerate(self.places):
                try:
                    process = ChildProcess(place.command, interface=place.interface)
                except OSError as error:
                    raise WorkerUnavailableError(
                        f"the process of part {number} must start, got {error}: check its command"
                    ) from error
                started.callback(end_all, [process])
                processes.append(process)
            started.pop_all()
        return processes

    def find_move(self, processes: Sequence[PartProcess]) -> None:
        """None: a place stays."""


def _readable(stream: IO[str], seconds: float) -> bool:
    """Whether it can be read within this time. `select.select` would refuse files above 1,023."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        return bool(waiting.select(seconds))


def start_children(parts: int, file: int | None) -> "Sequence[ChildProcess]":
    """Processes of this machine. file: as of `ChildProcess`."""
    return [ChildProcess(file=file) for _ in range(parts)]


def end_all(processes: "Sequence[PartProcess]") -> None:
    """Kills them, and waits."""
    for process in processes:
        process.kill()
    for process in processes:
        process.end(0)
