"""Files of sets, sent in pieces over channels between machines that do not see the same files.

A piece is a turn of two rounds: the question, which has the name and the first byte, and the answer.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from livegnn.atomic_file import replace_file
from livegnn.channels.channel import Channel, Round
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener
from livegnn.partitions.leaders import LEADER, WORKER
from livegnn.partitions.letters import Letter, open_letter, seal
from livegnn.partitions.orders import own_terms
from livegnn.partitions.sets import SavedSet, miss_file
from livegnn.temporary_directory import TemporaryDirectory

if TYPE_CHECKING:
    from livegnn.channels.health import Patience

_PIECE: Final = 8 << 20
"""Bytes: memory of both ends, and the longest time for which a piece keeps other questions waiting."""


def read_piece(path: Path, begin: int) -> Letter:
    """The piece of a file that begins at a byte. Raises OSError."""
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(_PIECE)
        return Letter({"more": bool(file.peek(1))}, data)


def write_pieces(path: Path, ask: Callable[[int], Letter]) -> None:
    """Writes a file of pieces. ask: for the piece that begins at a byte. Raises as `replace_file`."""
    with replace_file(path) as file:
        begin, more = 0, True
        while more:
            piece = ask(begin)
            begin += file.write(piece.payload)
            more = cast("bool", piece.content["more"])


class SetSender:
    """Sends each part the file of names of a set, and its own. leader: the IP address of this machine.
    numbers: a file that all parts need too.

    Used in `with`, which ends its sockets. Raises `InputError` if the machine does not have the address.
    """

    def __init__(self, saved: SavedSet, leader: str, parts: int, numbers: Path | None = None) -> None:
        self._saved, self._shared = saved, [] if numbers is None else [numbers]
        self._ends = ExitStack()
        with ExitStack() as ends:
            folder = ends.enter_context(TemporaryDirectory())
            self._names = folder / saved.path.name
            saved.copy_names(self._names)
            self._listeners = [Listener(LEADER, {WORKER: leader}) for _ in range(parts)]
            for one in self._listeners:
                ends.callback(one.close)
            self._ends = ends.pop_all()

    def __enter__(self) -> "SetSender":
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def place_for(self, part: int) -> Peer:
        """The address from which a part fetches its files, and the key there."""
        listener = self._listeners[part]
        return Peer(address=listener.addresses[WORKER], key=listener.key)

    def names_for(self, part: int) -> list[str]:
        """The names of these files."""
        return [self._saved.path.name, self._saved.files[part].name, *(one.name for one in self._shared)]

    def send(self, keys: Sequence[str | None], patience: "Patience") -> None:
        """Returns when all parts have their files. keys: of the parts. Raises `ChannelError` if one is lost,
        and `FileFormatError` if there is no file for it."""
        with ThreadPoolExecutor(len(keys), "livegnn-sending") as threads:
            sent = [threads.submit(self._send, part, key, patience) for part, key in enumerate(keys)]
        for one in sent:
            one.result()

    def _send(self, part: int, key: str | None, patience: "Patience") -> None:
        path, own = self._saved.path, self._saved.files[part]
        if not own.exists():
            raise miss_file(path, own, "No such file or directory")
        channel = self._listeners[part].connect({WORKER: Peer(key=key)}, own_terms(), patience=patience)
        try:
            shared = {one.name: one for one in self._shared}
            _serve(channel, {path.name: self._names, own.name: own, **shared})
        finally:
            channel.close()


def _serve(channel: Channel, files: Mapping[str, Path]) -> None:
    """Answers a part for files, by name, until it needs no more."""
    turn = 0
    while True:
        turn += 1
        asked = open_letter(channel.swap(Round(turn, 0, 0), {})[WORKER]).content
        if "file" not in asked:
            return
        piece = read_piece(files[str(asked["file"])], cast("int", asked["begin"]))
        channel.swap(Round(turn, 0, 1), {WORKER: seal(piece)})


@contextmanager
def fetched_files(channel: Channel, names: Sequence[str]) -> Iterator[Path]:
    """A folder of this process alone with files of the leader. Raises ChannelError, OSError."""
    turn = 0

    def ask(question: Letter) -> None:
        nonlocal turn
        turn += 1
        channel.swap(Round(turn, 0, 0), {LEADER: seal(question)})

    def fetch(name: str, begin: int) -> Letter:
        ask(Letter({"file": name, "begin": begin}))
        return open_letter(channel.swap(Round(turn, 0, 1), {})[LEADER])

    with TemporaryDirectory() as folder:
        for name in names:
            write_pieces(folder / name, partial(fetch, name))
        ask(Letter({}))
        yield folder
