"""A mapping: the nodes and edges that the rows of one table give, written down once for every way in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast, get_args

from livegnn.arguments import check_bool
from livegnn.errors import InputError
from livegnn.events.chunk import to_edge_type, to_node_type
from livegnn.tables.conditions import Condition, parse_conditions
from livegnn.tables.csv_form import CsvForm
from livegnn.types import EdgeType, NodeType
from livegnn.wording import kind_of, quoted

TimeUnit: TypeAlias = Literal["ns", "us", "ms", "s", "min", "h", "D"]
SKIP: Final = "skip"
KEEP: Final = "keep"
ColumnNames: TypeAlias = "str | Sequence[str] | None"


@dataclass(frozen=True)
class NodeRows:
    """The node that a row gives.

    id: the column of its id. x: the columns of its features, one number each, or one column of lists; without
    it the features are not changed, and those of a new node are zeros. time: the column of their time, of a
    type whose features have times; time_unit: as of `EdgeRows`. where: conditions that a row must
    meet, by column: a value, a list of values, or `at_least`, `at_most` and `not_null`. nulls: by column,
    "skip" (a row with a null there gives no node), a value in place of the null or, of a feature, "keep": it
    is `livegnn.MISSING`, which a model replaces; a null in another column is an error. texts: those of `x`
    that are texts: the features are their codes (`livegnn.texts.text_code`). removes: whether the node is
    removed when its row is deleted or no longer names it. unique: whether each row of a table gives another
    node; by default if `removes`.
    """

    id: str
    node_type: NodeType | None = None
    x: ColumnNames = None
    where: Mapping[str, object] = field(default_factory=dict)
    nulls: Mapping[str, object] = field(default_factory=dict)
    removes: bool = False
    unique: bool | None = field(default=None, repr=False)  # how a table is checked, not what its rows mean
    time: str | None = field(default=None, repr=False)  # the digests of loaded files have no place for these
    time_unit: TimeUnit | None = field(default=None, repr=False)
    texts: ColumnNames = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_name(self.id, "id")
        to_node_type(self.node_type)
        if self.time is not None:
            _check_name(self.time, "time")
            if self.x is None:
                raise InputError(f"time is that of the features, x, got {self.time!r} without x")
        _check_unit(self.time, self.time_unit)
        _check_entry(self, _names(self.x, "x"))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say which node it is."""
        return (self.id,)

    @property
    def is_unique(self) -> bool:
        """Whether each row of a table gives another node."""
        return self.removes if self.unique is None else self.unique

    @property
    def values(self) -> tuple[str, ...]:
        """The other columns, of which a row has a value."""
        return (*([] if self.time is None else [self.time]), *self.features)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of the features."""
        return _names(self.x, "x")

    @property
    def codes(self) -> frozenset[str]:
        """The columns of the features that are codes of texts."""
        return frozenset(_names(self.texts, "texts"))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """`where`, read."""
        return parse_conditions(self.where)


@dataclass(frozen=True)
class EdgeRows:
    """The edge that a row gives.

    src, dst: the columns of its ends. weight, time, key, edge_attr: columns as of `Events.add_edges`;
    edge_attr is one column of lists, or columns of one number each. time_unit: the unit of a time that is a
    number; all times become seconds since 1970. where, nulls, texts: as of `NodeRows`. removes: whether the
    edge is removed when its row is deleted or no longer names it. unique: whether each row of a table gives
    another edge; by default if there is a `key`.
    """

    src: str
    dst: str
    edge_type: EdgeType | None = None
    weight: str | None = None
    time: str | None = None
    time_unit: TimeUnit | None = None
    key: str | None = None
    edge_attr: ColumnNames = None
    where: Mapping[str, object] = field(default_factory=dict)
    nulls: Mapping[str, object] = field(default_factory=dict)
    removes: bool = True
    unique: bool | None = field(default=None, repr=False)  # how a table is checked, not what its rows mean
    texts: ColumnNames = field(default=None, repr=False)  # the digests of loaded files have no place for it

    def __post_init__(self) -> None:
        for name in ("src", "dst"):
            _check_name(getattr(self, name), name)
        for name in ("weight", "time", "key"):
            if getattr(self, name) is not None:
                _check_name(getattr(self, name), name)
        if self.edge_type is not None:
            object.__setattr__(self, "edge_type", to_edge_type(self.edge_type))
        _check_unit(self.time, self.time_unit)
        _check_entry(self, _names(self.edge_attr, "edge_attr"))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that say which edge it is."""
        return (self.src, self.dst) if self.key is None else (self.src, self.dst, self.key)

    @property
    def is_unique(self) -> bool:
        """Whether each row of a table gives another edge."""
        return self.key is not None if self.unique is None else self.unique

    @property
    def values(self) -> tuple[str, ...]:
        """The other columns, of which a row has a value."""
        return tuple(one for one in (self.weight, self.time, *self.features) if one is not None)

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of the features."""
        return _names(self.edge_attr, "edge_attr")

    @property
    def codes(self) -> frozenset[str]:
        """The columns of the features that are codes of texts."""
        return frozenset(_names(self.texts, "texts"))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """`where`, read."""
        return parse_conditions(self.where)


@dataclass(frozen=True)
class TableMapping:
    """All that a row of a table gives: a click gives a user, an item and an edge between them.

    csv: the form of a CSV file of the table, if that is not a header and rows with commas.
    """

    nodes: Sequence[NodeRows] = ()
    edges: Sequence[EdgeRows] = ()
    csv: CsvForm | None = field(
        default=None, repr=False
    )  # as the digests of loaded files have no place for it

    def __post_init__(self) -> None:
        for name, type_ in (("nodes", NodeRows), ("edges", EdgeRows)):
            given = getattr(self, name)
            if not isinstance(given, (list, tuple)) or not all(isinstance(one, type_) for one in given):
                raise InputError(f"{name} must be a list of {type_.__name__}, got {quoted(given)}")
            object.__setattr__(self, name, tuple(given))
        if self.csv is not None and not isinstance(self.csv, CsvForm):
            raise InputError(f"csv must be a CsvForm, got {kind_of(self.csv)}")
        if not self.nodes and not self.edges:
            raise InputError("a mapping must have nodes or edges that its rows give, got none")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        entries: tuple[NodeRows | EdgeRows, ...] = (*self.nodes, *self.edges)
        names = [name for one in entries for name in (*one.keys, *one.values, *map(_column, one.conditions))]
        return tuple(dict.fromkeys(names))


def _column(condition: Condition) -> str:
    return condition.column


def _names(columns: ColumnNames, what: str) -> tuple[str, ...]:
    if columns is None:
        return ()
    if isinstance(columns, str):
        return (columns,)
    if isinstance(columns, (list, tuple)) and columns and all(isinstance(one, str) for one in columns):
        return tuple(columns)
    raise InputError(
        f"{what} must be the name of a column of lists, or a list of names, got {quoted(columns)}"
    )


def _check_name(value: object, what: str) -> None:
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be the name of a column, got {quoted(value)}")


def _check_unit(time: str | None, unit: object) -> None:
    """Raises InputError for another unit than those of `TimeUnit`, and for one without a column of times."""
    if unit is not None and unit not in get_args(TimeUnit):
        raise InputError(f"time_unit must be 'ns', 'us', 'ms', 's', 'min', 'h' or 'D', got {quoted(unit)}")
    if unit is not None and time is None:
        raise InputError(f"time_unit needs a column of times, time, got {unit!r} without one")


def _check_entry(entry: NodeRows | EdgeRows, features: tuple[str, ...]) -> None:
    """Checks what entries of both kinds have."""
    object.__setattr__(entry, "removes", check_bool(entry.removes, "removes"))
    if entry.unique is not None:
        object.__setattr__(entry, "unique", check_bool(entry.unique, "unique"))
    if len(set(features)) < len(features):
        raise InputError(f"the columns of features must be different ones, got {quoted(list(features))}")
    unknown = [name for name in _names(entry.texts, "texts") if name not in features]
    if unknown:
        raise InputError(
            f"texts must be columns of the features, {', '.join(features) or 'none'}, got "
            f"{quoted(unknown[0])}"
        )
    parse_conditions(entry.where)
    if not isinstance(entry.nulls, Mapping):
        raise InputError(
            f'nulls must be a table from columns to "skip" or a value, got {kind_of(entry.nulls)}'
        )
    known = (*entry.keys, *entry.values)
    for column, rule in entry.nulls.items():
        if column not in known:
            raise InputError(
                f"nulls must name columns of its entry, {', '.join(known)}, got {quoted(column)}"
            )
        is_text = column in entry.keys or column in _names(entry.texts, "texts")
        _check_rule(column, rule, is_feature=column in features, is_text=is_text)


def _check_rule(column: str, rule: object, *, is_feature: bool, is_text: bool) -> None:
    number = type(rule) in (int, float) and abs(cast("float", rule)) < float("inf")
    if rule == SKIP or (rule == KEEP and is_feature) or (is_text and isinstance(rule, str) and rule):
        return
    if number and not (is_feature and is_text):
        return
    kinds = '"skip", "keep"' if is_feature else '"skip"'
    values = "text" if is_feature and is_text else "a finite number or text" if is_text else "a finite number"
    raise InputError(f"nulls of {column!r} must be {kinds} or {values}, got {quoted(rule)}")
