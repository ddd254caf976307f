"""The mapping of a table of labels: which columns say whose label a row is, its value, and its time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from livegnn.errors import InputError
from livegnn.tables.conditions import Condition, parse_conditions
from livegnn.tables.csv_form import CsvForm
from livegnn.tables.mapping import TimeUnit
from livegnn.wording import quoted

Kind: TypeAlias = Literal["class", "number"]
Scores: TypeAlias = Literal["probabilities", "logits", "ranks"]
_CHOICES: Final = {"kind": Kind, "scores": Scores}


@dataclass(frozen=True)
class LabelMapping:
    """The label that a row gives.

    id: the column of the node's id. label: of the label, a class (a number from 0, a truth value, or a text
    of `classes`) or a number; a null takes an earlier label back. time: the column of the time that the label
    is about; without it, the label is about the newest prediction. time_unit, where, csv: as of `EdgeRows`
    and `TableMapping`. kind: "class" or "number". classes: the texts of classes 0, 1 and so on. scores: the
    kind of predictions, where labels are classes: "probabilities", "logits", or "ranks", of which only the
    order counts.
    """

    id: str
    label: str
    time: str | None = None
    time_unit: TimeUnit | None = None
    where: Mapping[str, object] = field(default_factory=dict)
    kind: Kind = "class"
    classes: Sequence[str] = ()
    scores: Scores = "probabilities"
    csv: CsvForm | None = None

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("label", self.label), ("time", self.time)):
            if not (isinstance(value, str) and value) and not (name == "time" and value is None):
                raise InputError(f"{name} must be the name of a column, got {quoted(value)}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in get_args(choices):
                known = ", ".join(map(repr, get_args(choices)))
                raise InputError(f"{name} must be one of {known}, got {quoted(getattr(self, name))}")
        units = get_args(TimeUnit)
        if self.time_unit is not None and (self.time is None or self.time_unit not in units):
            raise InputError(
                f"time_unit must be one of {', '.join(units)}, of a column of time, got {self.time_unit!r}"
            )
        names = self.classes
        if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
            raise InputError(f"classes must be a list of texts, got {quoted(names)}")
        if names and (len(set(names)) < max(2, len(names)) or self.kind == "number"):
            raise InputError(
                f"classes must be two different texts or more, of kind 'class', got {quoted(names)}"
            )
        object.__setattr__(self, "classes", tuple(names))
        parse_conditions(self.where)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """`where`, read."""
        return parse_conditions(self.where)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        named = [self.id, self.label, *([] if self.time is None else [self.time])]
        return tuple(dict.fromkeys([*named, *(one.column for one in self.conditions)]))
