"""Lowers the normal form to the steps of a `Model`, in NeutronRT's operators.

A row-wise expression becomes row-wise steps (`row_steps`), on nodes or on edges. A reduction along edges
becomes a ``degree`` step if it is a count, and otherwise a propagate step: a plain sum or extremum for a
gathered row, one with coefficients for a softmax, and for anything else row-wise steps on edges whose rows
are summed. The mask selects the edges: all, all but loops, only loops, or any condition, which becomes a
factor of the message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce as fold
from math import prod
from typing import Any

import torch

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, edge_type_of, join, walk
from livegnn.importers.expressions.properties import flatten, inside, is_of_edges, strip
from livegnn.importers.rules.self_loops import is_weight
from livegnn.importers.rules.softmaxes import pieces_of
from livegnn.importers.writing.row_steps import RowSteps, Steps
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import EdgeInput, Input

_AGGREGATES = {"sum": "sum", "amax": "max", "amin": "min"}
REDUCED = "every row of the graph is reduced to one, so that any change of one changes all"
_APART = {
    "nodes": "use a norm over each row's channels (LayerNorm(mode='node'), BatchNorm) instead",
    "edges": (
        "reduce the edges of each node by themselves instead (scatter, torch_geometric.utils.softmax), or "
        "give what is fixed as an argument"
    ),
}
_COUNTED = (
    "the number of {0} is computed with, so that one more of them changes every prediction: write a fixed "
    "number, such as that of the graph that the module was trained on"
)
_LOWEST = -3.4e38
"""Used instead of minus infinity in logits and maxima, since rows must be finite."""


@dataclass(frozen=True)
class Columns:
    """The columns of each input among an atom's features, in the order in which the graph must have them."""

    places: Mapping[str, tuple[int, int]]
    width: int


@dataclass
class StepWriter:
    """Writes the steps of expressions, each once.

    columns: of the features of each atom. If no step can write a value, the error is stored and raised when
    the value is read, since some expressions are only markers of rules and are never read.
    """

    make: Expressions
    columns: Mapping[Atom, Columns]
    inputs: dict[str, Input] = field(default_factory=dict)
    edge_inputs: dict[str, EdgeInput] = field(default_factory=dict)
    _values: dict[Expression, str | ModelError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.steps = Steps(self.make)
        self.rows = RowSteps(self.steps, self.value)

    def write(self, outputs: Sequence[Expression]) -> list[str]:
        """Writes the steps of the outputs and returns the names of their values."""
        for one in walk(outputs):
            if one.value is None and one.kind != "id" and one not in self._values:
                try:
                    self._values[one] = self._write(one)
                except ModelError as error:
                    self._values[one] = error
        return [self.value(one) for one in outputs]

    def written(self, one: Expression) -> str | None:
        """The name of an expression's value, if a step has been written for it."""
        found = self._values.get(one)
        return found if isinstance(found, str) else None

    def output(self, one: Expression, name: str) -> str:
        """The name of a value that is an output, written by a step. name: wanted, if an input is copied."""
        value = self.value(one)
        if value in self.inputs or value in self.edge_inputs:
            self._forget_reads(one)
            value = self._values[one] = self.steps.write("scale", (value,), name, value=1.0)
        return value

    def _forget_reads(self, row: Expression) -> None:
        """Values of edges that read a row at their ends are written again for the next reader: an edge output
        reads outputs, so it reads the copy of an input."""
        for one in list(self._values):
            on_edge = walk([one], into=lambda part: part.op not in ("gather", "scatter"))
            if is_of_edges(one.atom) and any(part.op == "gather" and part.args[0] is row for part in on_edge):
                del self._values[one]

    def value(self, one: Expression) -> str:
        found = self._values[one] if one in self._values else self._write(one)
        self._values[one] = found
        if isinstance(found, ModelError):
            raise found
        return found

    def _write(self, one: Expression) -> str:
        if one.atom is None and one.op != "scatter":
            for arg in one.args:
                if arg.value is None:
                    self.value(arg)
        if one.op == "input":
            return self._input(one)
        if one.op == "gather":
            return self._gather(*one.args)
        if one.op == "scatter":
            return self._scatter(one)
        if one.op == "looped":
            return self._looped(one)
        if one.op == "attend":
            return self._attend(one)
        if one.op == "div":
            return self._mean(one) or self.rows.write(one)
        if one.op in ("eq", "ne") and one.args[0].kind == "id":
            raise self._refusal(one, "whether an edge is a loop is used as a number")
        return self.rows.write(one)

    def _refusal(self, one: Expression, why: str) -> ModelError:
        origin = self.make.origins.get(one)
        place = " ".join(part for part in (origin.module, origin.line) if part) if origin else ""
        return ModelError(f"{place}: {why}" if place else why)

    # Columns of the graph

    def _input(self, one: Expression) -> str:
        name, atom = str(one.attrs[0]), one.atom
        assert atom is not None
        width = prod(one.shape)
        if is_of_edges(atom) and is_weight(one):
            self.edge_inputs[name] = EdgeInput(edge_type_of(atom), 1, "weight")
            return name
        columns = self.columns[atom]
        start, stop = columns.places[name]
        if stop - start != width:
            raise ModelError(f"the input {name!r} has {stop - start} columns, got {width}")
        given = name if columns.width == width else next(iter(columns.places))
        if is_of_edges(atom):
            self.edge_inputs[given] = EdgeInput(edge_type_of(atom), columns.width)
        else:
            self.inputs[given] = Input(atom.name, columns.width)
        if columns.width == width:
            return given
        return self.steps.write("slice", (given,), name if name != given else "", start=start, stop=stop)

    def _gather(self, row: Expression, index: Expression) -> str:
        if index.op != "end" or index.atom is None:
            raise ModelError("rows are gathered by something else than an end of an edge")
        side = "target" if index.attrs[0] else "source"
        return self.steps.write(side, (self.value(row),), edge_type=edge_type_of(index.atom))

    # Reductions along edges

    def _scatter(self, one: Expression) -> str:
        if one.atom is None:
            counts = all(message.value is not None for message, _, _ in one.pieces)
            of_edges = any(is_of_edges(join((message, index))) for message, index, _ in one.pieces)
            rows = "edges" if of_edges else "nodes"
            raise self._refusal(one, _COUNTED.format(rows) if counts else f"{REDUCED}: {_APART[rows]}")
        reduce = str(one.attrs[0])
        if reduce == "last":
            return self._last(one)
        if reduce == "sum":
            sums = [self._sum(one, *piece) for piece in one.pieces]
            return fold(lambda total, part: self.steps.write("add", (total, part)), sums)
        return self._extremum(one)

    def _along(self, index: Expression, loops: str) -> dict[str, Any]:
        """The settings for the edges that carry messages, and their direction."""
        assert index.atom is not None
        settings = {
            "reverse": index.attrs[0] == 0,
            "skip_loops": loops == "skip",
            "only_loops": loops == "only",
        }
        return {"edge_type": edge_type_of(index.atom), **{name: yes for name, yes in settings.items() if yes}}

    def _mask(self, index: Expression, mask: Expression) -> tuple[str, Expression | None]:
        """The edges that a mask keeps: ``"all"``, ``"skip"`` loops, ``"only"`` loops; and the rest of its
        condition."""
        loops, rest = "all", None
        for part in flatten("and", mask):
            ids = part.op in ("eq", "ne") and part.args[0].kind == "id"
            if ids:
                loops = "only" if part.op == "eq" else "skip"
            elif not part.is_number(1):
                rest = part if rest is None else self.make.elementwise("and", rest, part)
        return loops, rest

    def _where(self, condition: Expression, message: Expression, otherwise: float) -> Expression:
        shaped = self.make.reshape(condition, (1,) * len(message.shape))
        return self.make.elementwise("where", shaped, message, self.make.constant(otherwise))

    def _sum(self, one: Expression, message: Expression, index: Expression, mask: Expression) -> str:
        if index.op != "end":
            raise self._refusal(one, "rows are summed by something else than an end of an edge")
        loops, condition = self._mask(index, mask)
        if condition is not None:
            message = self._where(condition, message, 0.0)
        if message.value is not None:
            return self._count(message, index, loops)
        if is_weight(message) and loops != "only":
            return self._degree("sum", index, loops)
        return self._propagate(one, message, index, loops, "sum")

    def _count(self, message: Expression, index: Expression, loops: str) -> str:
        number = self._degree("count", index, loops)
        if message.is_number(1) and prod(message.shape) == 1:
            return number
        assert message.value is not None
        wide = self.steps.write("repeat", (number,), times=prod(message.shape), inner=1)
        return self.steps.write("scale_shift", (wide,), tensors={"scale": message.value.reshape(-1)})

    def _degree(self, kind: str, index: Expression, loops: str, fill: float | None = None) -> str:
        if loops == "only":
            raise ModelError("loops are counted by themselves")
        degree = Degree(kind=kind, self_loops=fill, **self._along(index, loops))  # type: ignore[arg-type]
        return self.steps.write(
            "degree", (), "degree" if kind == "count" else "weights", attrs=degree.to_attrs()
        )

    def _propagate(
        self,
        one: Expression,
        message: Expression,
        index: Expression,
        loops: str,
        aggregate: str,
        fill: float | None = None,
    ) -> str:
        factors: tuple[str, ...] = ()
        plain = strip(message)
        if plain.op == "mul" and loops != "only":
            for weight, row in (plain.args, plain.args[::-1]):
                if is_weight(weight) and strip(row).op == "gather":
                    plain, factors = strip(row), ("weight",)
                    break
        if plain.op == "gather" and plain.args[1].op == "end" and plain.args[1] is not index:
            value = self.value(plain.args[0])
        else:
            value, factors = self.value(message), ()
        if fill is not None:
            loops = "all"
        operators = Propagate(
            message_local=factors,  # type: ignore[arg-type]
            aggregate=aggregate,  # type: ignore[arg-type]
            self_loops=fill,
            **self._along(index, loops),
        )
        return self.steps.write("propagate", (value,), self._name(one), attrs=operators.to_attrs())

    def _name(self, one: Expression) -> str:
        origin = self.make.origins.get(one)
        return (origin.module if origin else "") or "propagate"

    def _looped(self, one: Expression) -> str:
        fill, _, reduce = one.attrs
        message, index, _ = one.args
        assert isinstance(fill, float)
        if message.value is not None:
            return self._looped_count(message, index, fill)
        if is_weight(message):
            return self._degree("sum", index, "all", fill)
        return self._propagate(one, message, index, "skip", _AGGREGATES[str(reduce)], fill)

    def _looped_count(self, message: Expression, index: Expression, fill: float) -> str:
        if fill == 1:
            number = self._degree("count", index, "all", fill)
        else:
            others = self._degree("count", index, "skip")
            number = self.steps.write("scale_shift", (others,), tensors={"shift": torch.tensor([fill])})
        if message.is_number(1) and prod(message.shape) == 1:
            return number
        raise ModelError("constants are summed over edges and loops")

    def _last(self, one: Expression) -> str:
        """The value of a node's own loop; the base if it has none."""
        message, index, mask = one.pieces[0]
        loops, condition = self._mask(index, mask)
        if len(one.pieces) > 1 or loops != "only" or condition is not None:
            raise self._refusal(one, "of several edges the last one decides, and edges have no order")
        value = self._propagate(one, message, index, "only", "sum")
        every = self._degree("count", index, "all")
        others = self._degree("count", index, "skip")
        some = self.steps.write("less", (others, every))
        base = one.args[-1]
        if base.value is None:
            filling = self.rows.fit(base, one.shape, base)
        else:
            filling = self._constant(base.value, one, every)
        return self.steps.write("where", (some, value, filling))

    def _extremum(self, one: Expression) -> str:
        """The extremum over all pieces: a node's own row always counts, and messages if it has any edges."""
        aggregate = _AGGREGATES[str(one.attrs[0])]
        joined = "maximum" if aggregate == "max" else "minimum"
        found: str | None = None
        number: str | None = None
        for message, index, mask in sorted(one.pieces, key=lambda piece: piece[1].op != "rows"):
            if index.op == "rows":
                if not mask.is_number(1):
                    raise self._refusal(one, "an extremum over some nodes' own rows")
                found = self._own(one, message)
                continue
            loops, condition = self._mask(index, mask)
            if condition is not None:
                message = self._where(condition, message, _LOWEST if aggregate == "max" else -_LOWEST)
                ones = self._where(condition, self.make.constant(1.0), 0.0)
                arrived = self._propagate(one, ones, index, loops, "sum")
            else:
                arrived = self._degree("count", index, loops)
            extreme = self._extreme_of(one, message, index, loops, arrived)
            if condition is not None:
                some = self._positive(arrived)
                zero = self.steps.write("constant", (arrived,), value=0.0)
                extreme = self.steps.write("where", (some, extreme, zero))
            if found is None:
                found, number = extreme, arrived
                continue
            both = self.steps.write(joined, (found, extreme))
            if number is not None:
                both = self.steps.write("where", (self._positive(number), both, extreme))
                number = self.steps.write("add", (number, arrived))
            found = self.steps.write("where", (self._positive(arrived), both, found))
        assert found is not None
        return found

    def _own(self, one: Expression, message: Expression) -> str:
        """The nodes' own rows in an extremum, even if they are the same for all."""
        edges = next((index for _, index, _ in one.pieces if index.op == "end"), None)
        if message.value is None or edges is None:
            return self.value(message)
        return self._constant(message.value, one, self._degree("count", edges, "all"))

    def _constant(self, row: torch.Tensor, one: Expression, rows: str) -> str:
        """The same row for all. one: has its shape. rows: a value with as many rows."""
        return self.steps.write("constant", (rows,), tensors={"row": row.expand(one.shape).reshape(-1)})

    def _extreme_of(
        self, one: Expression, message: Expression, index: Expression, loops: str, arrived: str
    ) -> str:
        """The extremum of messages along edges; 0 without any. arrived: the number of messages."""
        if message.value is None:
            return self._propagate(one, message, index, loops, _AGGREGATES[str(one.attrs[0])])
        some, wide = self._positive(arrived), self._constant(message.value, one, arrived)
        return self.steps.write("where", (some, wide, self.steps.write("constant", (arrived,), value=0.0)))

    def _positive(self, number: str) -> str:
        zero = self.steps.write("constant", (number,), value=0.0)
        return self.steps.write("less", (zero, number))

    def _mean(self, one: Expression) -> str | None:
        """``sum / clamp(count, 1)`` over the same edges, as ``divide_degree``: without edges, both are 0."""
        total, under = strip(one.args[0]), inside(one.args[1])
        if under.op != "clamp" or under.attrs[1] is not None or float(str(under.attrs[0])) > 1:
            return None
        count = strip(under.args[0])
        if total.op != count.op or total.op not in ("scatter", "looped") or total.attrs != count.attrs:
            return None
        same = len(total.args) == len(count.args) == 3 and total.args[1:] == count.args[1:]
        if not same or not count.args[0].is_number(1) or total.attrs[0] not in ("sum", 1.0):
            return None
        return self.steps.write("divide_degree", (self.value(one.args[0]), self.value(count)))

    def _attend(self, one: Expression) -> str:
        inputs: list[str] = []
        own: list[str] = []
        along: list[dict[str, Any]] = []
        heads = {prod(logit.shape) for _, logit, _, _ in pieces_of(one)}
        if len(heads) > 1:
            raise self._refusal(one, "a softmax joins logits of different numbers of heads")
        for value, logit, index, mask in pieces_of(one):
            if index.op == "rows":
                own = [self.rows.fit(value, one.shape, logit), self._exponential(logit)]
                continue
            loops, condition = self._mask(index, mask)
            if condition is not None:
                logit = self._where(condition, logit, _LOWEST)
            row = strip(value)
            while row.op == "reshape":
                row = row.args[0]
            from_source = row.op == "gather" and row.args[1].op == "end" and row.args[1] is not index
            inputs.append(self.value(row.args[0]) if from_source else self._on_edges(value, logit, index))
            inputs.append(self._exponential(logit))
            along.append(self._along(index, loops))
        rest = [{k: v for k, v in each.items() if k != "edge_type"} for each in along]
        if any(each != rest[0] for each in rest[1:]):
            raise self._refusal(one, "a softmax joins edges of which only some leave loops out, or go back")
        types = tuple(name for each in along for name in each["edge_type"])
        operators = Propagate(
            **{**along[0], "edge_type": types},
            message_local=("coefficient",),
            neighbor_context="sum",
            combine="divide",
            own_message=bool(own),
        )
        return self.steps.write("propagate", (*inputs, *own), self._name(one), attrs=operators.to_attrs())

    def _on_edges(self, value: Expression, logit: Expression, index: Expression) -> str:
        """A value as rows of edges, even if it is the same for all."""
        if value.atom is not None:
            return self.value(value)
        return self.rows.fit(value, value.shape, logit if logit.atom is not None else index)

    def _exponential(self, logit: Expression) -> str:
        return self.steps.write("exp", (self.value(logit),))
