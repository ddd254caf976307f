"""Checkpoints of a divided graph: a *set* of files at one event, one for each part and one of names.

The file of names has what all parts share: nodes, features and owners. It is written last, so a set without
it is not complete. In a runtime it is the checkpoint, and the description of the set is the section of the
engine. docs/checkpoint.md has the contents.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

import numpy as np

import livegnn._core as _core
import livegnn.checkpoint as checkpoint
from livegnn.arguments import as_path
from livegnn.errors import FileFormatError, InputError
from livegnn.graph import Graph, state
from livegnn.graph.division import make_part
from livegnn.graph.node_ids import NodeIds
from livegnn.inference import Engine
from livegnn.inference.engine_state import compact
from livegnn.partitions.beginning import Beginning
from livegnn.partitions.texts import number_ids
from livegnn.placement import Owners
from livegnn.runtime.checkpoint_files import list_beside
from livegnn.schema import Schema
from livegnn.types import JSON, State

if TYPE_CHECKING:
    from jaxtyping import Int64

    from livegnn.placement.owners import Rule
    from livegnn.types import IntArray

_NAMES: Final = re.compile(r"names-([0-9]{20})\.lgck")
_SEQ: Final = re.compile(r"-([0-9]{20})\.lgck$")
_OF_NODES: Final = "nodes/"
_OF_NUMBERS: Final = ("free", "x", "time")  # arrays of nodes that do not depend on the texts of ids
_ABOUT: Final = ("set", "engine")
"""The names of the section that describes a set: in a set alone, and in the checkpoint of a runtime."""


class WritesFile(Protocol):
    """A part that can write its file."""

    def write(self, path: Path, mark: str) -> None:
        """Writes the file of the part in a set. mark: of the set. No batch may be applied meanwhile."""


def names_file(directory: Path, seq: int) -> Path:
    """The file of names of a set."""
    return directory / f"names-{seq:020}.lgck"


def part_file(directory: Path, seq: int, number: int, label: str = "") -> Path:
    """The file of a part in a set. label: of a set that stands beside another one of the same event."""
    return directory / f"part-{number:02}-{label}{'-' if label else ''}{seq:020}.lgck"


def write_set(
    directory: Path, names: Graph, rules: Sequence[Owners], parts: Sequence[WritesFile], model: str
) -> Path:
    """Writes the set of the current event into a directory, which is made if it is missing; returns the
    file of names. Sets of other events stay; one of this event stays until the new one is whole. No batch may
    be applied meanwhile. Raises as `checkpoint.write`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    last = names_file(directory, names.seq)
    with replacing(last) as label:
        about = write_parts(directory, names.seq, rules, parts, model, label=label)
        checkpoint.write(last, {"graph": names.state(), "set": about}, names.seq)
    return last


@contextmanager
def replacing(path: Path) -> "Iterator[str]":
    """Keeps the set with the file of names `path` until another one is there: the body writes files of parts
    whose names have the label that it receives, and then the file of names. In the end the files of parts
    before are removed; if the body raises, the new ones.
    """
    before = {*list_beside(path)}
    try:
        yield secrets.token_hex(4) if before else ""
    except BaseException:
        for file in {*list_beside(path)} - before:
            file.unlink(missing_ok=True)
        raise
    for file in before:
        file.unlink(missing_ok=True)


def write_parts(
    directory: Path,
    seq: int,
    rules: Sequence[Owners],
    parts: Sequence[WritesFile],
    model: str,
    *,
    label: str = "",
) -> State:
    """Writes the files of all parts of a set at once, and returns the section that describes the set. model:
    the digest of the engines' model. label: in the names of the files, 8 hexadecimal digits. Raises as
    `write_set`.
    """
    mark = secrets.token_hex(16)
    with ThreadPoolExecutor(len(parts), "livegnn-writing") as threads:
        writing = [
            threads.submit(part.write, part_file(directory, seq, number, label), mark)
            for number, part in enumerate(parts)
        ]
    for one in writing:
        one.result()
    described: list[JSON] = [
        {"rule": rule.rule, "moved": [[id, part] for id, part in rule.moved.items()]} for rule in rules
    ]
    about: dict[str, JSON] = {"set": mark, "parts": len(parts), "rules": described, "model": model}
    if label:
        about["label"] = label
    return State(about, {})


def write_part(path: Path, number: int, graph: Graph, engine: Engine, mark: str) -> None:
    """Writes the file of a part: its edges, and the rows and features that it computes or reads."""
    whole, rows = graph.state(), compact(engine.core, engine.state())
    own = {name: one for name, one in whole.arrays.items() if _is_of_part(name)}
    described = State({**whole.meta, "kind": "part of a graph"}, own)
    ends: JSON = _core.ends_of_edges(graph.native).tolist()
    about = State({"set": mark, "part": number, "ends": ends}, {})
    checkpoint.write(path, {"graph": described, "engine": rows, "set": about}, graph.seq)


def _is_of_part(name: str) -> bool:
    """Whether an array of a graph is in the files of parts, which may have other contents."""
    return not name.startswith(_OF_NODES) or name.rsplit("/", 1)[1] in ("held", "x")


class SavedSet:
    """A set. path: its file of names, or the checkpoint of a runtime; the files of the parts are beside it.

    model: the digest of the engines' model. Raises `FileFormatError` if the file is damaged, `OSError` if
    there is none.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        saved = checkpoint.read(path, states={"graph", *_ABOUT})
        described = next((name for name in _ABOUT if name in saved.states), _ABOUT[0])
        self._state, about = _states(path, saved.states, "graph", described)
        self._about: Final = about
        self.seq: Final = saved.seq
        with _fits(path):
            named = _SEQ.search(path.name)
            if named is None or int(named[1]) != self.seq or self._state.meta.get("kind") != state.NAMES:
                raise ValueError(
                    f"it must have names at the event that its own name says, got event {self.seq} and "
                    f"{self._state.meta.get('kind')!r}"
                )
            self.mark: Final = str(about.meta["set"])
            self.model: Final = about.meta["model"]
            self.label: Final = str(about.meta.get("label", ""))
            self.parts: Final = cast("int", about.meta["parts"])
            self.schema: Final = Schema.from_json(self._state.meta.get("schema"))
            rules = cast("list[Mapping[str, JSON]]", about.meta["rules"])
            each = [_read_rule(rule, self.parts) for rule in rules]
            self.owners: Final = dict(zip(self.schema.node_types, each, strict=True))

    @classmethod
    def find(cls, directory: "Path | str", seq: int | None = None) -> Self:
        """The set of event `seq` in a directory, by default the newest. Raises `InputError` if there is
        none, and the errors of the constructor."""
        directory = as_path(directory, "directory")
        named = (_NAMES.fullmatch(path.name) for path in directory.glob("names-*.lgck"))
        found = {int(match[1]) for match in named if match is not None}
        if not found or (seq is not None and seq not in found):
            raise InputError(
                f"{directory} must have the checkpoint of a divided graph, got no file "
                f"{'names-*.lgck' if seq is None else names_file(directory, seq).name} there"
            )
        return cls(names_file(directory, max(found) if seq is None else seq))

    @property
    def files(self) -> list[Path]:
        """Those of the parts, by number."""
        return [part_file(self.path.parent, self.seq, number, self.label) for number in range(self.parts)]

    def copy_names(self, path: Path) -> None:
        """Writes a file of names that stands alone: that of a runtime may need older files."""
        checkpoint.write(path, {"graph": self._state, _ABOUT[0]: self._about}, self.seq)

    def restore_names(self, texts: Graph | None = None) -> Graph:
        """A graph that owns no node and keeps no edge, but knows all nodes. texts: a graph with which it
        shares the numbers of texts. Raises `FileFormatError`."""
        empty = make_part(self.schema, self._natives(), None, names=texts, threads=1)
        pin = empty.node_ids.pin()  # a shared table frees texts meanwhile
        try:
            names = self._fill(empty, self._state)
        finally:
            pin.let_go()
        if _core.places_nodes(names.native):
            with _fits(self.path):
                ends = [
                    checkpoint.read(path, states={"set"}).states["set"].meta["ends"] for path in self.files
                ]
                _core.set_ends_of_edges(names.native, np.sum(np.array(ends, np.int64), axis=0))
        return names

    def begin(self, threads: int | None) -> Beginning:
        """All parts of the set. Raises `FileFormatError` if a file is missing, damaged or of another set."""
        names = self.restore_names()
        graphs, states = zip(
            *(self.restore_part(number, names, threads) for number in range(self.parts)),
            strict=True,
        )
        return Beginning(names, graphs, states)

    def restore_part(
        self,
        number: int,
        names: Graph | None = None,
        threads: int | None = None,
        *,
        numbers: "Sequence[Int64[IntArray, '_']] | None" = None,
        ids: NodeIds | None = None,
    ) -> tuple[Graph, State]:
        """A part, and the state of its engine. names: a graph of the set, with which the part shares texts.
        numbers: instead, those of texts, by node type; the part knows them alone. ids: as of `make_part`.
        Raises as `begin`."""
        path = self.files[number]
        try:
            saved = checkpoint.read(path)
        except OSError as error:
            raise miss_file(self.path, path, error.strerror) from error
        graph, rows, about = _states(path, saved.states, "graph", "engine", "set")
        got = about.meta.get("set"), about.meta.get("part"), saved.seq, graph.meta.get("kind")
        if got != (self.mark, number, self.seq, "part of a graph"):
            raise FileFormatError(
                f"{path} must be part {number} of the set {self.mark} at event {self.seq}, to which "
                f"{self.path} belongs, got part {got[1]!r} of the set {got[0]!r} at event {got[2]}: it was "
                "written at another time"
            )
        nodes = {name: one for name, one in self._state.arrays.items() if name.startswith(_OF_NODES)}
        schema = self.schema
        if numbers is not None:
            schema = number_ids(schema)
            kept = {name: one for name, one in nodes.items() if name.rsplit("/", 1)[1] in _OF_NUMBERS}
            listed = zip(schema.node_types, numbers, strict=True)
            nodes = kept | {f"{_OF_NODES}{name}/ids": each for name, each in listed}
        empty = make_part(schema, self._natives(), number, names=names, ids=ids, threads=threads)
        return self._fill(empty, State(graph.meta, {**nodes, **graph.arrays})), rows

    def _fill(self, graph: Graph, saved: State) -> Graph:
        """Fills an empty part with a state, and with the owners of nodes: of texts, they are those of the
        numbers that texts had when the parts began."""
        arrays = {name: one for name, one in saved.arrays.items() if not name.startswith(state.OF_OWNERS)}
        with _fits(self.path):
            for index, name in enumerate(self.schema.node_types):
                owners = np.ascontiguousarray(self._state.arrays[state.OF_OWNERS + name], np.uint16)
                _core.load_owners(graph.native, index, owners)
        state.restore(graph.core, State({**saved.meta, "kind": "graph"}, arrays))
        return graph

    def _natives(self) -> list[_core.Owners]:
        return [rule.native for rule in self.owners.values()]


def miss_file(names: Path, part: Path, why: str | None) -> FileFormatError:
    """The error for a set that has no file of a part."""
    return FileFormatError(f"{names} needs {part}, got '{why}': put the file there, or use another set")


def _read_rule(rule: "Mapping[str, JSON]", parts: int) -> Owners:
    moved = cast("list[tuple[int, int]]", rule["moved"])
    return Owners(cast("Rule", rule["rule"]), parts, moved=dict(moved))


def _states(path: Path, states: Mapping[str, State], *names: str) -> list[State]:
    """States of a file of a set. Raises `FileFormatError` if one is missing."""
    for name in names:
        if name not in states:
            raise FileFormatError(
                f"{path} must have a section {name!r}, as each file of a divided graph, got {sorted(states)}"
            )
    return [states[name] for name in names]


@contextmanager
def _fits(path: Path) -> "Iterator[None]":
    try:
        yield
    except (InputError, KeyError, OSError, TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{path} does not fit together: {error}") from error
