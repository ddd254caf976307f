"""Refuses PyG data without a column that a module looks for, if the column would change the prediction.

A module whose argument is PyG data may work without a column, as in ``data.get("w")`` or ``if "t" in data``.
Without data from the caller, the columns are unknown. A call on a small graph shows the columns that the
module looks for, and further calls show the effect of rows there.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch_geometric.data import Data, HeteroData

from livegnn.errors import ModelError
from livegnn.importers.arguments.arguments import ModuleArguments
from livegnn.importers.arguments.left_out import LEFT_OUT, Calls, Trial, rows_like
from livegnn.importers.arguments.names import NAMES
from livegnn.importers.program.export import Given, Record, keyed, leaves
from livegnn.importers.settings import schema_of
from livegnn.network.call_settings import CallSettings

Column: TypeAlias = tuple[object, str]
"""The type of nodes or edges, None if there is one of each, and a name."""
Fields: TypeAlias = Mapping[Column, object]
Channels: TypeAlias = tuple[int, ...] | None
"""The channels of rows, None if they are the channels of other rows."""
Shape: TypeAlias = tuple[Channels, torch.dtype]
_OF_PYG = frozenset(("adj", "adj_t", "face", "num_edges"))
"""Names that PyG itself looks for in its data, such as for the number of nodes."""
_ROUNDS = 3
"""The number of calls with the columns that a module has looked for: some look for one after the other."""


def refuse_unasked_columns(module: nn.Module, settings: CallSettings, found: ModuleArguments) -> None:
    """Raises `ModelError` if a column that the data lack, and that the module looks for, would change the
    prediction. Data from the caller are not checked: their columns are known.
    """
    held = next(((name, one) for name, one in found.arguments.items() if isinstance(one, Record)), None)
    if held is None or hasattr(schema_of(settings), "stores"):
        return
    calls = Calls(module, settings, found)
    named = calls.named_in_code()

    def ask(fields: Fields) -> list[Column]:
        asked: dict[Column, None] = {}
        noting = _NotingRecord(fields, asked, named)
        calls.call(_trial_with(calls, held[0], noting, ()))
        return [
            (key, name)
            for key, name in asked
            if (key, name) not in fields
            and NAMES.get(name) not in calls.said
            and not (name in LEFT_OUT or name in _OF_PYG or name.startswith("_"))
        ]

    asked = ask(held[1].fields)
    for column in asked:
        _refuse_if_they_tell(calls, held, [column], calls.shapes())
        _refuse_if_edges_tell(calls, held, column)
    _refuse_if_more_tell(calls, held, asked, ask)


def _refuse_if_they_tell(
    calls: Calls, held: tuple[str, Record], columns: Sequence[Column], shapes: Iterable[Shape]
) -> None:
    argument, record = held
    for (what, of_edges), (channels, dtype) in product((("nodes", False), ("edges", True)), shapes):
        fields = _with_rows(record.fields, columns, channels, dtype, of_edges=of_edges)
        if fields is not None:
            trial = _trial_with(calls, argument, Record(fields), [name for _, name in columns])
            if calls.predicts_otherwise(calls.call(trial)[0]):
                raise ModelError(_refusal(calls, argument, columns, f"rows of {what}"))


def _refuse_if_edges_tell(calls: Calls, held: tuple[str, Record], column: Column) -> None:
    """A second list of edges beside the first."""
    argument, record = held
    key, name = column
    first = _rows_beside(record, key, of_edges=True)
    if first is not None:
        edges = replace(first, name=name if key is None else f"{name}:{key}", ends=True)
        trial = _trial_with(calls, argument, Record({**record.fields, column: edges}), ())
        if calls.differs(calls.call(trial)[0]):
            raise ModelError(_refusal(calls, argument, [column], "edges"))


def _refuse_if_more_tell(
    calls: Calls, held: tuple[str, Record], asked: Sequence[Column], ask: Callable[[Fields], list[Column]]
) -> None:
    """Refuses columns of nodes that a module reads only together, and columns that it then looks for."""
    columns, floats = list(asked), [one for one in calls.shapes() if one[1] is torch.float32]
    for _ in range(_ROUNDS):
        if len(columns) > 1:
            _refuse_if_they_tell(calls, held, columns, floats)
        fields = _with_rows(held[1].fields, columns, (), torch.float32, of_edges=False)
        more = [] if fields is None else ask(fields)
        if not more:
            return
        columns += more


def _with_rows(
    fields: Fields, columns: Iterable[Column], channels: Channels, dtype: torch.dtype, *, of_edges: bool
) -> Fields | None:
    """Returns the fields with rows in these columns too; None if a type has no rows of nodes, or of edges."""
    more: dict[Column, object] = {}
    for key, name in columns:
        like = _rows_beside(Record(fields), key, of_edges=of_edges)
        if like is None:
            return None
        more[key, name] = rows_like(like, name if key is None else f"{name}:{key}", channels, dtype)
    return {**fields, **more}


def _trial_with(calls: Calls, argument: str, record: Record, drawn: Sequence[str]) -> Trial:
    found = replace(calls.found, arguments={**calls.found.arguments, argument: record})
    return Trial(found, argument, of_edges=False, drawn=drawn)


def _rows_beside(record: Record, key: object, *, of_edges: bool) -> Given | None:
    """Rows of the same type as a column may have, of nodes or of edges; None if there are none."""
    for (kind, _), rows in record.fields.items():
        for one in leaves(rows) if kind == key else ():
            if (one.atom.source is not None) == of_edges and not one.count:
                return replace(one, ends=False)
    return None


def _refusal(calls: Calls, argument: str, columns: Sequence[Column], what: str) -> str:
    key, _ = columns[0]
    place = argument if key is None else f"{argument}[{key!r}]"
    names = " and ".join(dict.fromkeys(repr(name) for _, name in columns))
    return (
        f"{calls.name} looks for {names} in {place}, but no data were given, where {what} make "
        f"another prediction: give data, as in Model.from_pyg(module, data), with {names} if the module is "
        "called so, else without"
    )


# -- data that note the missing columns that are looked for


class _Names(list[str]):
    """The names of columns; notes missing names that are looked for.

    compared: the names in the module's code. An iteration over all names looks for each of these.
    """

    def __init__(self, held: Iterable[str], note: Callable[[str], None], compared: Sequence[str]) -> None:
        super().__init__(held)
        self.note, self.compared = note, compared

    def __iter__(self) -> Iterator[str]:
        for name in self.compared:
            if not super().__contains__(name):
                self.note(name)
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        there = super().__contains__(name)
        if not there and isinstance(name, str):
            self.note(name)
        return there


class _Columns(dict[str, object]):
    """The columns of one type; notes missing columns that are looked for."""

    def __init__(
        self, held: Mapping[str, object], note: Callable[[str], None], compared: Sequence[str]
    ) -> None:
        super().__init__(held)
        self.note, self.compared = note, compared

    def __missing__(self, name: str) -> object:
        self.note(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        there = super().__contains__(name)
        if not there and isinstance(name, str):
            self.note(name)
        return there

    def get(self, name: str, default: Any = None) -> Any:
        there = name in self
        return self[name] if there else default

    def __deepcopy__(self, memo: dict[int, object]) -> "_Columns":
        return _Columns(copy.deepcopy(dict(self), memo), self.note, self.compared)


class _NotingData(Data):
    def keys(self) -> list[str]:
        columns = self._store._mapping
        return _Names(super().keys(), columns.note, columns.compared)

    def __iter__(self) -> Iterator[tuple[str, object]]:
        iter(self.keys())
        yield from super().__iter__()


class _NotingHeteroData(HeteroData):
    def keys(self) -> list[str]:
        """Returns names of columns of any type; a missing name that is looked for is noted for each type."""
        noting = [store._mapping for store in (*self.node_stores, *self.edge_stores)]

        def note(name: str) -> None:
            for one in noting:
                one.note(name)

        return _Names(super().keys(), note, noting[0].compared if noting else ())


@dataclass(frozen=True)
class _NotingRecord(Record):
    """PyG data that note the missing columns that are looked for.

    compared: names in the module's code; it may compare each with all names of columns.
    """

    asked: dict[Column, None]
    compared: Sequence[str]

    def to_data(self) -> object:
        data: Any = super().to_data()
        plain = type(data) is Data
        object.__setattr__(data, "__class__", _NotingData if plain else _NotingHeteroData)
        for store in (data._store,) if plain else (*data.node_stores, *data.edge_stores):
            note = partial(self._note, None if plain else store._key)
            vars(store)["_mapping"] = _Columns(store._mapping, note, self.compared)
        return data

    def _note(self, key: object, name: str) -> None:
        self.asked[key, name] = None


pytree.register_pytree_node(
    _NotingRecord,
    lambda one: (list(one.fields.values()), (tuple(one.fields), one.asked, one.compared)),
    lambda values, held: _NotingRecord(dict(zip(held[0], values, strict=True)), *held[1:]),
    flatten_with_keys_fn=lambda one: (keyed(one.fields), (tuple(one.fields), one.asked, one.compared)),
)
