"""Finds the type and the column of each input of an exported program.

They follow from the caller's `inputs`, the input's name (its path in the call, such as ``x_dict['paper']``),
its dtype and shape, the symbols that count rows, and a schema. If these are not enough, an error names the
input.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import sympy
import torch

from livegnn.errors import ModelError
from livegnn.importers.arguments.names import PAIRS, RELATION, meaning_of
from livegnn.importers.expressions.expressions import Atom, edge_type_of
from livegnn.importers.program.export import Given, symbolic
from livegnn.network.call_settings import InputSpec
from livegnn.network.checks import to_edge_type
from livegnn.types import EdgeType, NodeType

_COLUMNS = ("x", "edge_index", "edge_weight", "edge_attr", RELATION, PAIRS)
_INPUTS = (
    "say whose rows they are, as in inputs={{{0!r}: 'paper'}} or inputs={{{0!r}: ('user', 'buys', 'item')}}"
)


@dataclass(frozen=True)
class Argument:
    """A tensor, or a variable number, that a program is called with.

    argument, keys: its path in the call. symbols: the axes without a fixed size.
    """

    argument: str
    keys: tuple[object, ...]
    held: torch.Tensor | torch.SymInt

    @property
    def name(self) -> str:
        return self.argument + "".join(f"[{key!r}]" for key in self.keys)

    @property
    def shape(self) -> tuple[int | torch.SymInt, ...]:
        return tuple(self.held.shape) if isinstance(self.held, torch.Tensor) else ()

    @property
    def symbols(self) -> dict[int, sympy.Expr]:
        return {i: symbolic(size) for i, size in enumerate(self.shape) if not isinstance(size, int)}

    @property
    def is_ends(self) -> bool:
        return (
            isinstance(self.held, torch.Tensor)
            and not self.held.dtype.is_floating_point
            and self.held.dim() == 2
            and self.shape[0] == 2
            and set(self.symbols) <= {1}
        )


@dataclass(frozen=True)
class Types:
    """The types of nodes and edges whose rows inputs may have. schema: their widths, if known."""

    nodes: Sequence[NodeType]
    edges: Sequence[EdgeType]
    schema: object

    @staticmethod
    def of(
        schema: object, relations: Sequence[EdgeType] | None, node_type: NodeType, edge_type: EdgeType
    ) -> "Types":
        if relations is not None:
            return Types([node_type], [(node_type, "relation", node_type)], schema)
        if schema is None or not hasattr(schema, "node_types"):
            return Types(list(dict.fromkeys((edge_type[0], edge_type[2]))), [edge_type], schema)
        return Types(list(schema.node_types), list(getattr(schema, "edge_types", ())), schema)

    @property
    def from_schema(self) -> bool:
        """Whether a schema gives the types."""
        return hasattr(self.schema, "node_types")

    def check(self, given: Sequence[Given], relations: Sequence[EdgeType] | None) -> None:
        """Raises `ModelError` if the inputs do not have the types and widths of a schema of LiveGNN."""
        nodes, edges = getattr(self.schema, "node_types", None), getattr(self.schema, "edge_types", None)
        if not isinstance(nodes, Mapping) or not isinstance(edges, Mapping):
            return
        for atom in dict.fromkeys(one.atom for one in given):
            of = [one for one in given if one.atom == atom and not (one.ends or one.count)]
            columns = [one for one in of if one.name.partition(":")[0] not in ("edge_weight", RELATION)]
            width = sum(prod(one.channels) for one in columns)
            if atom.source is None:
                if atom.name not in nodes:
                    raise ModelError(
                        f"node_type is {atom.name!r}, which the schema lacks: it has {list(nodes)}"
                    )
                self._check_width(columns, width, atom.name, nodes[atom.name])
                continue
            for edge_type in relations or [edge_type_of(atom)]:
                if edge_type not in edges:
                    raise ModelError(
                        f"relations has {edge_type}, which the schema lacks: it has {list(edges)}"
                    )
                self._check_width(columns, width, edge_type, edges[edge_type].edge_dim)
                if len(of) > len(columns) and relations is None and not edges[edge_type].weighted:
                    raise ModelError(
                        f"the program reads weights of {edge_type} edges, and the schema has none: set "
                        "weighted=True in its EdgeSchema"
                    )

    @staticmethod
    def _check_width(columns: Sequence[Given], width: int, of: object, expected: int) -> None:
        if columns and width != expected:
            names = ", ".join(f"{one.name}[{prod(one.channels)}]" for one in columns)
            raise ModelError(
                f"the program reads {width} channels of {of!r} ({names}), and the schema has {expected}"
            )


class InputTypes:
    """Finds the type of the rows of each argument."""

    def __init__(self, arguments: Sequence[Argument], known: Types, specs: Mapping[str, InputSpec]) -> None:
        self.arguments, self.known = arguments, known
        self.specs = {name: self._split(name, spec) for name, spec in specs.items()}
        names = [one.name for one in arguments]
        for name in specs:
            if name not in names:
                raise ModelError(
                    f"inputs has {name!r}, which the program is not called with: that is {', '.join(names)}"
                )
        self.atoms: dict[object, Atom] = {}
        self.of_symbol: dict[sympy.Expr, Atom] = {}

    def given(self) -> list[Given]:
        """The meaning of each argument, in order. Raises `ModelError` if it cannot be found."""
        self._check_sizes()
        ends = {one.name: self._ends(one) for one in self.arguments if one.is_ends}
        if not ends:
            raise ModelError(
                "the program is called with no ends of edges, int64 [2, edges]: give it edge_index as an "
                "argument, not as a part of the module"
            )
        for one in self.arguments:
            if one.name not in ends and isinstance(one.held, torch.Tensor):
                kind = self._type_of(one)
                if kind is not None:
                    self._bind(one, self._atom(kind, one))
        found: list[Given] = []
        for one in self.arguments:
            atom = ends.get(one.name)
            made = Given("", atom, ends=True) if atom is not None else self._rows(one)
            found.append(self._named(one, made, found))
        return found

    def _check_sizes(self) -> None:
        """Raises `ModelError` unless every tensor has exactly one axis of rows."""
        tensors = [one for one in self.arguments if isinstance(one.held, torch.Tensor)]
        if not tensors:
            raise ModelError("the program is called with no tensors of nodes and edges")
        for one in tensors:
            if not one.symbols:
                raise ModelError(
                    f"the program was exported for {one.name} of the fixed size {tuple(one.shape)}, and a "
                    f"graph grows: export it with\n{_example(tensors)}\nA tensor that is the same for every "
                    "graph belongs into the module, as a buffer"
                )
            if set(one.symbols) != ({1} if one.is_ends else {0}):
                raise ModelError(
                    f"{one.name} has the shape {tuple(map(str, one.shape))}: of rows only the first axis may "
                    "change its size, of the ends of edges, int64 [2, edges], only the second"
                )

    def _split(self, name: str, spec: object) -> tuple[object, str | None]:
        """The type and the column in a value of `inputs`."""
        if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[1], str):
            return spec[0], spec[1]
        if isinstance(spec, str) and spec in _COLUMNS and spec not in self.known.nodes:
            return None, spec
        if isinstance(spec, str) or (isinstance(spec, tuple | list) and len(spec) == 3):
            return spec, None
        raise ModelError(
            f"inputs[{name!r}] must be a node type, an edge type, one of {', '.join(_COLUMNS)}, or a type "
            f"and one of these, got {spec!r}"
        )

    def _type_of(self, one: Argument) -> object | None:
        """The type given by `inputs` or by the keys of a dict; None if there is none."""
        kind = self.specs.get(one.name, (None, None))[0]
        if kind is not None:
            return tuple(kind) if isinstance(kind, list) else kind
        key = next((key for key in reversed(one.keys) if isinstance(key, str | tuple)), None)
        if isinstance(key, str) and key.count("__") == 2:
            return tuple(key.split("__"))
        return key

    def _ends(self, one: Argument) -> Atom:
        kind = self._type_of(one)
        if kind is None:
            if len(self.known.edges) > 1:
                raise ModelError(f"{one.name} may be edges of several types: {_INPUTS.format(one.name)}")
            kind = self.known.edges[0]
        if not isinstance(kind, tuple):
            raise ModelError(f"{one.name} must be edges of an edge type, got {kind!r}")
        atom = self._atom(kind, one)
        if _column(one, self.specs) == PAIRS:
            atom = replace(atom, pairs=True)
        if atom in self.of_symbol.values():
            raise ModelError(
                f"{one.name} and another argument are ends of {atom} edges: {_INPUTS.format(one.name)}"
            )
        self._bind(one, atom)
        return atom

    def _rows(self, one: Argument) -> Given:
        if isinstance(one.held, torch.SymInt):
            symbol = symbolic(one.held)
            counted = self.of_symbol.get(symbol) or self._only_node(one)
            return Given("", counted, count=True)
        kind = self._type_of(one)
        (symbol,) = one.symbols.values()
        known = self.of_symbol.get(symbol)
        if kind is not None:
            atom = self._atom(kind, one)
        elif known is not None:
            atom = known
            if atom.source is not None and _column(one, self.specs) in ("x", "num_nodes"):
                raise ModelError(
                    f"{one.name} has as many rows as there are {atom} edges: export it with a Dim of its own "
                    f"for each type of nodes and edges, or {_INPUTS.format(one.name)}"
                )
        else:
            of_edges = _column(one, self.specs).startswith("edge_")
            edges = [other for other in self.of_symbol.values() if other.source and not other.pairs]
            if of_edges and len(edges) > 1:
                raise ModelError(f"{one.name} may be rows of several types: {_INPUTS.format(one.name)}")
            atom = edges[0] if of_edges else self._only_node(one)
            self._bind(one, atom)
        return Given("", atom, tuple(int(size) for size in one.shape[1:]), one.held.dtype)

    def _only_node(self, one: Argument) -> Atom:
        """The only type of nodes. Raises `ModelError` if there are several."""
        ends = {end for atom in self.of_symbol.values() for end in (atom.source, atom.target) if end}
        if len(self.known.nodes) > 1 or len(ends) > 1:
            raise ModelError(f"{one.name} may be rows of several types: {_INPUTS.format(one.name)}")
        return next(iter(ends))

    def _named(self, one: Argument, made: Given, before: Sequence[Given]) -> Given:
        """The argument with the name of its column, which is unique among inputs of the same rows."""
        column = _column(one, self.specs)
        of_edges = made.atom.source is not None
        if made.ends or made.count:
            column = "num_nodes" if made.count else PAIRS if made.atom.pairs else "edge_index"
        elif column == "edge_weight" and (not of_edges or prod(made.channels) != 1):
            column = "edge_attr" if of_edges else "x"
        elif column == RELATION and not of_edges:
            column = one.argument
        several = len(self.atoms) > 2 or bool(one.keys)
        names = [f"{name}:{made.atom}" if several else name for name in (column, one.name)]
        taken = [other.name for other in before if other.atom == made.atom]
        name = names[0] if names[0] not in taken else names[1]
        return replace(made, name=name)

    def _bind(self, one: Argument, atom: Atom) -> None:
        """Binds the symbol of an argument's rows to a type. Raises `ModelError` if it has another type."""
        (symbol,) = one.symbols.values()
        other = self.of_symbol.setdefault(symbol, atom)
        if other != atom:
            raise ModelError(
                f"{one.name} has as many rows as there are {other}, and is of {atom}: export it with a Dim "
                "of its own for each type of nodes and edges"
            )

    def _atom(self, kind: object, one: Argument) -> Atom:
        """The atom of a type. Raises `ModelError` if the schema lacks the type."""
        if isinstance(kind, str):
            if self.known.from_schema and kind not in self.known.nodes:
                raise ModelError(
                    f"{one.name} is of {kind!r}, and the schema has the node types {list(self.known.nodes)}"
                )
            return self.atoms.setdefault(kind, Atom(kind))
        edge_type = to_edge_type(kind, one.name)
        if self.known.from_schema and edge_type not in self.known.edges:
            raise ModelError(
                f"{one.name} is of {edge_type}, and the schema has the edge types {list(self.known.edges)}"
            )
        source, target = self._atom(edge_type[0], one), self._atom(edge_type[2], one)
        return self.atoms.setdefault(edge_type, Atom("-".join(edge_type), source, target))


def _column(one: Argument, specs: Mapping[str, tuple[object, str | None]]) -> str:
    """The column of an argument: from `inputs`, from its name, or the name itself."""
    column = specs.get(one.name, (None, None))[1]
    return column or meaning_of(one.argument) or one.argument


def _example(tensors: Sequence[Argument]) -> str:
    """A line of code that exports the module for any number of rows."""
    edges = {str(one.shape[1]) for one in tensors if one.is_ends}  # symbols have no hash
    shapes: dict[object, object] = {}
    for one in tensors:
        rows = next(iter(one.shape), 0)
        named = meaning_of(one.argument) or one.argument
        of_edges = one.is_ends or named.startswith("edge") or (str(rows) in edges and named != "x")
        types = [part for key in one.keys for part in (key if isinstance(key, tuple) else [key])]
        kind = re.sub(r"\W", "_", "_".join(map(str, types))) or ("edges" if of_edges else "nodes")
        kind = kind if kind.isidentifier() else f"rows_{kind}"
        inside: dict[object, object] = shapes
        for key in (one.argument, *one.keys[:-1]) if one.keys else ():
            inside = inside.setdefault(key, {})  # type: ignore[assignment]
        inside[one.keys[-1] if one.keys else one.argument] = f"{{{int(one.is_ends)}: Dim({kind!r})}}"
    return f"torch.export.export(module.eval(), args, dynamic_shapes={_literal(shapes)})"


def _literal(shapes: object) -> str:
    if not isinstance(shapes, dict):
        return str(shapes)
    return "{" + ", ".join(f"{key!r}: {_literal(value)}" for key, value in shapes.items()) + "}"
