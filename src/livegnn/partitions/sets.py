"""Checkpoints of a divided graph: a *set* of files at one event, one for each part and one of names.

The file of names has what all parts share: nodes, features and owners. It is written last, so a set without
it is not complete. docs/checkpoint.md has the contents.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
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
from livegnn.inference import Engine
from livegnn.inference.engine_state import compact
from livegnn.partitions.beginning import Beginning
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import JSON, State

if TYPE_CHECKING:
    from livegnn.placement.owners import Rule

_NAMES: Final = re.compile(r"names-([0-9]{20})\.lgck")
_OF_NODES, _OF_OWNERS = "nodes/", "owners/"


class WritesFile(Protocol):
    """A part that can write its file."""

    def write(self, path: Path, mark: str) -> None:
        """Writes the file of the part in a set. mark: of the set. No batch may be applied meanwhile."""


def names_file(directory: Path, seq: int) -> Path:
    """The file of names of a set."""
    return directory / f"names-{seq:020}.lgck"


def part_file(directory: Path, seq: int, number: int) -> Path:
    """The file of a part in a set."""
    return directory / f"part-{number:02}-{seq:020}.lgck"


def write_set(directory: Path, names: Graph, rules: Sequence[Owners], parts: Sequence[WritesFile]) -> Path:
    """Writes the set of the current event into a directory, which is made if it is missing; returns the
    file of names. Sets of other events stay. No batch may be applied meanwhile. Raises as
    `checkpoint.write`.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    seq, mark = names.seq, secrets.token_hex(16)
    last = names_file(directory, seq)
    last.unlink(missing_ok=True)  # a set that is written again is not complete meanwhile
    for number, part in enumerate(parts):
        part.write(part_file(directory, seq, number), mark)
    described: list[JSON] = [
        {"rule": rule.rule, "moved": [[id, part] for id, part in rule.moved.items()]} for rule in rules
    ]
    about: dict[str, JSON] = {"set": mark, "parts": len(parts), "rules": described}
    saved = names.state()
    arrays = dict(saved.arrays)
    for index, name in enumerate(names.schema.node_types):
        arrays[_OF_OWNERS + name] = _core.owners_of(names.native, index)
    shared = State({**saved.meta, "kind": "names of a divided graph"}, arrays)
    checkpoint.write(last, {"graph": shared, "set": State(about, {})}, seq)
    return last


def write_part(path: Path, number: int, graph: Graph, engine: Engine, mark: str) -> None:
    """Writes the file of a part: its edges, and the rows that it computes or reads."""
    whole, rows = graph.state(), compact(engine.core, engine.state())
    edges = {name: one for name, one in whole.arrays.items() if not name.startswith(_OF_NODES)}
    described = State({**whole.meta, "kind": "part of a graph"}, edges)
    ends: JSON = _core.ends_of_edges(graph.native).tolist()
    about = State({"set": mark, "part": number, "ends": ends}, {})
    checkpoint.write(path, {"graph": described, "engine": rows, "set": about}, graph.seq)


class SavedSet:
    """A set in a directory. Raises `FileFormatError` if its file of names is damaged, `OSError` if there is
    none."""

    def __init__(self, directory: Path, seq: int) -> None:
        self.directory: Final = directory
        self._path = names_file(directory, seq)
        self.seq: Final = seq
        saved = checkpoint.read(self._path)
        self._state, about = _states(self._path, saved.states, "graph", "set")
        with _fits(self._path):
            if saved.seq != seq or self._state.meta.get("kind") != "names of a divided graph":
                raise ValueError(f"it must have names at event {seq}, got event {saved.seq}, or others")
            self.mark: Final = str(about.meta["set"])
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
        return cls(directory, max(found) if seq is None else seq)

    def restore_names(self) -> Graph:
        """A graph that owns no node and keeps no edge, but knows all nodes. Raises `FileFormatError`."""
        names = self._fill(make_part(self.schema, self._natives(), None, threads=1), self._state)
        if _core.places_nodes(names.native):
            paths = [part_file(self.directory, self.seq, number) for number in range(self.parts)]
            with _fits(self._path):
                ends = [checkpoint.read(path, states={"set"}).states["set"].meta["ends"] for path in paths]
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
        self, number: int, names: Graph | None = None, threads: int | None = None
    ) -> tuple[Graph, State]:
        """A part, and the state of its engine. names: a graph of the set, with which the part shares texts.
        Raises as `begin`."""
        path = part_file(self.directory, self.seq, number)
        try:
            saved = checkpoint.read(path)
        except OSError as error:
            raise FileFormatError(
                f"{self._path} needs {path}, got '{error.strerror}': put the file there, or use another set"
            ) from error
        graph, rows, about = _states(path, saved.states, "graph", "engine", "set")
        got = about.meta.get("set"), about.meta.get("part"), saved.seq, graph.meta.get("kind")
        if got != (self.mark, number, self.seq, "part of a graph"):
            raise FileFormatError(
                f"{path} must be part {number} of the set {self.mark} at event {self.seq}, to which "
                f"{self._path} belongs, got part {got[1]!r} of the set {got[0]!r} at event {got[2]}: it was "
                "written at another time"
            )
        nodes = {name: one for name, one in self._state.arrays.items() if name.startswith(_OF_NODES)}
        empty = make_part(self.schema, self._natives(), number, names=names, threads=threads)
        return self._fill(empty, State(graph.meta, {**nodes, **graph.arrays})), rows

    def _fill(self, graph: Graph, saved: State) -> Graph:
        """Fills an empty part with a state, and with the owners of nodes: of texts, they are those of the
        numbers that texts had when the parts began."""
        arrays = {name: one for name, one in saved.arrays.items() if not name.startswith(_OF_OWNERS)}
        with _fits(self._path):
            for index, name in enumerate(self.schema.node_types):
                owners = np.ascontiguousarray(self._state.arrays[_OF_OWNERS + name], np.uint16)
                _core.load_owners(graph.native, index, owners)
        state.restore(graph.core, State({**saved.meta, "kind": "graph"}, arrays))
        return graph

    def _natives(self) -> list[_core.Owners]:
        return [rule.native for rule in self.owners.values()]


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
