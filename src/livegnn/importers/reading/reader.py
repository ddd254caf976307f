"""Reads an exported program as expressions: each node by one operator, checked against torch's shape."""

import operator as python_operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch
from torch import fx
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from livegnn.errors import ModelError
from livegnn.importers.expressions.expressions import Atom, Expression, Expressions, Origin, kind_of, walk
from livegnn.importers.program.export import Exported, Given, symbolic
from livegnn.importers.program.failures import code_lines, way_out, where
from livegnn.importers.program.in_place import is_tensor
from livegnn.importers.reading import row_operators, shape_operators  # noqa: F401  they put their operators in
from livegnn.importers.reading.operators import OPERATORS, Call
from livegnn.importers.reading.precision import Precision
from livegnn.importers.reading.values import ROWS, Piece, Value, Values


@dataclass(frozen=True)
class Program:
    """The computation of a module: its outputs by name, as pieces of rows. read: the input rows of each of
    its convolutions, in order, if known.
    """

    outputs: Mapping[str, Value]
    make: Expressions
    given: Sequence[Given]
    module_name: str
    read: Sequence[Expression]

    @property
    def rows(self) -> list[Expression]:
        """The rows of all pieces of all outputs, and their masks."""
        return [one for value in self.outputs.values() for p in value.pieces for one in (p.row, p.mask)]


def read(exported: Exported, wanted: Sequence[str] | None = None, *, of_all: bool = False) -> Program:
    """Reads an exported program. wanted: the names of the results to read; by default all. of_all: whether a
    result may be one row for all nodes.

    Raises `ModelError` with the line of the user's module whose operation is unknown or unsupported.
    """
    reading = _Reading(exported, of_all=of_all)
    needed = reading.needed(wanted)
    outputs: dict[str, Value] = {}
    for node in exported.graph.nodes:
        if node.op == "output":
            outputs = reading.outputs(node)
        elif node in needed:
            try:
                reading.visit(node)
            except ModelError as error:
                own = reading.own_edges(node) or way_out(node.meta.get("stack_trace") or "")
                raise ModelError(f"{exported.module_name}: {where(node)}{own or error}") from error
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                raise ModelError(
                    f"{exported.module_name}: {where(node)}{node.target} cannot be read: {what}"
                ) from error
    layers = [reading.reads[call] for call in reading.layers if call in reading.reads]
    return Program(outputs, reading.values.make, exported.given, exported.module_name, layers)


class _Reading:
    """The values of the nodes that have been read."""

    def __init__(self, exported: Exported, *, of_all: bool) -> None:
        self.exported, self.of_all = exported, of_all
        self.values = Values()
        self.read: dict[fx.Node, object] = {}
        self.rows = iter(exported.given)
        wide = any(one.dtype == torch.float64 for one in exported.given)
        self.precision = Precision(self.values, wide=wide)
        inputs = [node for node in exported.graph.nodes if node.op == "placeholder"]
        signature = exported.program.graph_signature
        self.specs = dict(zip(inputs, signature.input_specs, strict=True))
        self.results = [spec.kind for spec in signature.output_specs]
        self.tensors = {**exported.program.state_dict, **exported.program.constants}
        self.last: dict[fx.Node, Atom] = {}
        self.reads: dict[str, Expression] = {}
        self.layers: list[str] = []
        self.names = name_results(exported.program.call_spec.out_spec)

    def needed(self, wanted: Sequence[str] | None) -> set[fx.Node]:
        """The nodes of which the wanted results are computed, and the assertions about these. If a name is
        unknown, all."""
        nodes = list(self.exported.graph.nodes)
        returned = dict(zip(self.names, nodes[-1].args[0], strict=False))
        if wanted is None or not all(name in returned for name in wanted):
            return set(nodes)
        self.names = [name if name in wanted else "" for name in self.names]
        found = _before([one for name in wanted if isinstance(one := returned[name], fx.Node)])
        found |= {node for node in nodes if node.op == "placeholder"}
        for node in nodes:
            if not node.users and node.op != "output":
                above = _before([node])
                computed = {one for one in above if one.op == "call_function" and is_tensor(one)}
                if computed <= found:
                    found |= above
        return found

    def visit(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.read[node] = self._input(node)
            return
        name = str(node.target).removeprefix("aten.")
        name = name.rpartition(".")[0] or name
        if name in ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"):
            self._check_assertion(node)
            return
        expected = node.meta.get("val")
        if node.target is python_operator.getitem:
            several = self._arguments(node.args[0])
            assert isinstance(several, Sequence)
            self.read[node] = several[node.args[1]]
            return
        if isinstance(expected, torch.SymInt | torch.SymBool | torch.SymFloat | int | bool):
            last = next((self.last[one] for one in node.all_input_nodes if one in self.last), None)
            if last is not None and name in ("item", "_local_scalar_dense"):
                self.values.name_last(expected, ((last, self.values.everything),))
            elif any(map(self._is_largest, node.all_input_nodes)):
                self.values.largest |= symbolic(expected).free_symbols
            self.read[node] = expected
            return
        if name in ("max", "amax") and node.users and all(map(_is_item, node.users)):
            last = self._nodes_of(node.args)
            if last is not None:
                self.last[node], self.read[node] = last, None
                return
        function = OPERATORS.get(name)
        if function is None:
            known_as = name if str(node.target).startswith("aten.") else str(node.target)
            raise ModelError(f"the operator {known_as} is not known")
        call = Call(self.values)
        if isinstance(expected, torch.Tensor):
            call = Call(self.values, tuple(expected.shape), kind_of(expected.dtype))
        self._note_reads(node)
        self.values.make.origin = Origin(
            _module_of(node), *code_lines(node.meta.get("stack_trace") or "")[:1]
        )
        traced = self.precision.plan(node, name, self.read)

        def apply(instead: Mapping[fx.Node, object]) -> object:
            return function(call, *self._arguments(_every_argument(node), instead))  # type: ignore[misc]

        try:
            self.read[node] = apply(self.precision.instead(traced, self.read))
        except TypeError as error:
            if "argument" not in str(error):
                raise
            raise ModelError(f"{name} is called in a way that is not known ({error})") from error
        if isinstance(expected, torch.Tensor):
            self._check(self.read[node], expected, name)
            self.read[node] = self.precision.note(traced, self.read[node], self.read, apply)
        self._note_layer(node)

    def _is_largest(self, node: fx.Node) -> bool:
        """Whether it is the largest of the whole numbers of all rows."""
        of = self.read.get(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
        largest = str(node.target).startswith(("aten.max", "aten.amax"))
        return largest and isinstance(of, Value) and of.kind == "int" and of.row_axis is not None

    def _nodes_of(self, args: Sequence[object]) -> Atom | None:
        """The nodes whose places a largest number is taken of, over all rows; else None."""
        value = self.read.get(args[0]) if isinstance(args[0], fx.Node) else None
        whole = len(args) == 1 or args[1] in ([], None)
        if not isinstance(value, Value) or value.kind != "id" or not whole:
            return None
        ends = {one.refers for piece in value.pieces for one in walk([piece.row]) if one.kind == "id"}
        found = ends - {None}
        return found.pop() if len(found) == 1 else None

    def _note_reads(self, node: fx.Node) -> None:
        """Records the first rows of nodes that each call of a submodule reads."""
        for call in _calls(node):
            if call in self.reads:
                continue
            for arg in node.all_input_nodes:
                value = self.read[arg]
                if call in _calls(arg) or not isinstance(value, Value) or len(value.pieces) != 1:
                    continue
                row = value.pieces[0].row
                if row.kind == "float" and row.atom and row.atom.source is None:
                    self.reads[call] = row
                    break

    def _note_layer(self, node: fx.Node) -> None:
        """Records the innermost call that reduces along edges; aggregations are only parts of such calls."""
        value = self.read[node]
        if isinstance(value, Value) and any(piece.row.op == "scatter" for piece in value.pieces):
            inner = [call for call, name in _calls(node).items() if ".aggr." not in name]
            if inner and inner[-1] not in self.layers:
                self.layers.append(inner[-1])

    def own_edges(self, node: fx.Node) -> str:
        """The error for a node that reads edges stored in the module; empty if it reads none."""
        for one in _before([node]) & set(self.specs):
            tensor = self.tensors.get(str(self.specs[one].target))
            if self.specs[one].kind is InputKind.USER_INPUT or not isinstance(tensor, torch.Tensor):
                continue
            if tensor.dtype == torch.int64 and tensor.dim() == 2 and len(tensor) == 2:
                return (
                    "the module has a graph of its own, whole numbers of shape "
                    f"{list(tensor.shape)}, which no event reaches: give it as an argument, edge_index"
                )
        return ""

    def outputs(self, node: fx.Node) -> dict[str, Value]:
        """The module's results by name."""
        returned = node.args[0]
        assert isinstance(returned, Sequence)
        unchanged = zip(self.specs, returned[len(self.results) :], strict=True)
        buffers = [node is after for node, after in unchanged if self.specs[node].kind is InputKind.BUFFER]
        if OutputKind.BUFFER_MUTATION in self.results or not all(buffers):
            raise ModelError(
                f"{self.exported.module_name} changes a buffer whenever it is called, and so does not say "
                "the same twice"
            )
        found = {}
        refused: ModelError | None = None
        for name, result in zip(self.names, returned[: len(self.results)], strict=True):
            if not name:
                continue
            try:
                value = self._arguments(result)
                if isinstance(value, Value):
                    self._check_output(value)
                    found[name] = value
                elif value is not None:
                    raise ModelError(
                        f"{self.exported.module_name} must return tensors of rows, got {value!r}"
                    )
            except ModelError as error:  # another result may be the prediction
                refused = refused or error
        if refused is not None and not found:
            raise refused
        if not found:
            raise ModelError(f"{self.exported.module_name} returns no tensor")
        return found

    def _check_output(self, value: Value) -> None:
        returns = f"{self.exported.module_name} returns"
        if value.row_axis is None:
            if self.of_all:
                return
            reduced = any(one.op == "scatter" for one in walk([value.row]))
            raise ModelError(
                f"{returns} no row for each node or edge: return the rows before they are joined"
                + (", or name the node type of the one group of all nodes, as in groups={None: 'graph'}")
                * reduced
            )
        masks = [piece.mask for piece in value.pieces if not piece.mask.is_number(1)]
        if len(masks) == len(value.pieces) == 1 and masks[0].op == "input":
            name = masks[0].attrs[0]
            raise ModelError(
                f"{returns} only the rows for which {name!r} holds, and predictions are kept for all: return "
                f"all rows, or give inputs={{{name!r}: slice(None)}} if it is an argument for this alone"
            )
        if masks or len(value.axes[value.row_axis]) > 1:
            raise ModelError(f"{returns} some rows of those it has: return all, and let the reader choose")

    def _input(self, node: fx.Node) -> object:
        spec = self.specs[node]
        if spec.kind is not InputKind.USER_INPUT:
            name = str(spec.target)
            return self.values.constant(
                self.tensors[name], name.removeprefix("module.").replace("_orig_mod.", "")
            )
        held = node.meta.get("val")
        if not isinstance(held, torch.Tensor | torch.SymInt):
            return held
        given = next(self.rows)
        everything = self.values.everything
        space = ((given.atom, everything),)
        if isinstance(held, torch.SymInt):
            self.values.name_size(held, space)
            return held
        for size in held.shape:
            if not isinstance(size, int):
                self.values.name_size(size, space)
        make = self.values.make
        if given.ends:
            ends = [make.reshape(make.end(given.atom, i), (1,)) for i in (0, 1)]
            return Value((Piece(given.atom, everything, make.concat(ends, 0)),), ((2,), (ROWS,)))
        if given.group is not None:
            return Value((Piece(given.atom, everything, make.group(given.group)),), ((ROWS,),))
        row = make.input(given.name, given.atom, given.channels, kind_of(given.dtype))
        return Value((Piece(given.atom, everything, row),), ((ROWS,), *((size,) for size in given.channels)))

    def _arguments(self, args: object, instead: Mapping[fx.Node, object] | None = None) -> object:
        """Returns arguments with the values that were read of nodes. instead: other values of some nodes."""
        if isinstance(args, fx.Node):
            found = (instead or {}).get(args, self.read[args])
            if found is None:
                raise ModelError("a part of a result is used that is not known")
            return found
        if isinstance(args, list | tuple):
            return [self._arguments(arg, instead) for arg in args]
        return args

    def _check(self, value: object, expected: torch.Tensor, name: str) -> None:
        """Checks a value against torch's kind, shape and sizes of the same tensor. Raises `ModelError`."""
        assert isinstance(value, Value), f"{name} returned {type(value).__name__}"
        kind = kind_of(expected.dtype)
        if (value.kind if value.kind != "id" else "int") != kind:
            raise ModelError(f"{name} was read as numbers of kind {value.kind}, it is {expected.dtype}")
        if len(value.axes) != expected.dim():
            raise ModelError(f"{name} was read as {value.axes}, it is {tuple(expected.shape)}")
        for axis, size in zip(value.axes, expected.shape, strict=True):
            own = sympy.Integer(1)
            for part in axis:
                own *= self.values.count(value.space) if part == ROWS else part
            known = self.values.size(size)
            if known is None or sympy.expand(known - own) != 0:
                raise ModelError(f"{name} was read with {own} in an axis, it has {symbolic(size)} there")
        for piece in value.pieces:
            if piece.row.shape != value.channels:
                raise ModelError(f"{name} was read with channels {piece.row.shape}, not {value.channels}")
            if piece.row.atom not in (None, piece.atom):
                raise ModelError(f"{name} was read with rows of {piece.row.atom}, not of {piece.atom}")

    def _check_assertion(self, node: fx.Node) -> None:
        """Accepts an assertion on sizes that always holds. Raises `ModelError` for any other, which is a
        condition on the data."""
        condition = node.args[0] if node.args else None
        if str(node.target).startswith("aten.sym_constrain"):
            low, high = (node.kwargs.get(name) for name in ("min", "max"))
            if (low is None or low <= 2) and (high is None or high >= 2**32):
                return
        held = condition.meta.get("val") if isinstance(condition, fx.Node) else condition
        relation = held.node.expr if isinstance(held, torch.SymBool) else held
        if relation is True or relation == sympy.true:
            return
        if isinstance(relation, sympy.Ge | sympy.Le | sympy.Gt | sympy.Lt):
            low, high = (relation.lts, relation.gts)
            if (low in (-1, 0, 1, 2) and high.is_nonnegative is not False) or (
                high.is_number and high >= 2**32
            ):
                return
        if isinstance(relation, sympy.Eq) and type(relation.lhs).__name__.endswith("Mod"):
            whole, part = relation.lhs.args
            if relation.rhs == 0 and sympy.cancel(whole / part).is_Integer:  # from a view that groups rows
                return
        if isinstance(relation, sympy.Eq):
            left, right = self.values.size(relation.lhs), self.values.size(relation.rhs)
            if left is not None and right is not None and sympy.cancel(_divided(left - right)) == 0:
                return
        raise ModelError(f"it works only where {relation} holds, which a change of the graph may end")


def _is_item(node: fx.Node) -> bool:
    """Whether it takes the number out of a tensor."""
    return str(node.target).startswith(("aten._local_scalar_dense", "aten.item"))


def _before(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """These nodes and all that they are computed of."""
    seen, left = set(nodes), list(nodes)
    while left:
        more = [one for one in left.pop().all_input_nodes if one not in seen]
        seen.update(more)
        left += more
    return seen


def _divided(size: sympy.Expr) -> sympy.Expr:
    """The size without remainders that are 0, of sizes that are multiples of others."""
    remainders = [one for one in size.atoms(sympy.Function) if type(one).__name__ in ("Mod", "PythonMod")]
    whole = {one for one in remainders if sympy.cancel(one.args[0] / one.args[1]).is_Integer}
    return size.subs(dict.fromkeys(whole, 0))


def name_results(spec: pytree.TreeSpec | None) -> list[str]:
    """The name of each tensor of a result: its key in a dict, otherwise its path in the result."""
    if spec is None or spec.num_leaves == 1:
        return ["output"]
    leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    return [
        str(path[0].key)
        if len(path) == 1 and isinstance(path[0], pytree.MappingKey)
        else f"output{pytree.keystr(path)}"
        for path, _ in leaves
    ]


_IGNORED = frozenset(
    {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad", "implicit"}
    | {"sparse_grad", "half_to_float", "generator"}
)
"""Arguments that do not affect rows. The kind of numbers follows from the result (`Call.kind`)."""


def _every_argument(node: fx.Node) -> list[object]:
    """The arguments of an operator, with defaults for those that are left out."""
    schema = node.target._schema.arguments
    given = {**dict(zip((one.name for one in schema), node.args, strict=False)), **node.kwargs}
    return [given.get(one.name, one.default_value) for one in schema if one.name not in _IGNORED]


def _calls(node: fx.Node) -> dict[str, str]:
    """The calls of submodules that contain a node, from outer to inner, and the names of their classes."""
    return {call: str(kind) for call, (_, kind) in (node.meta.get("nn_module_stack") or {}).items()}


def _module_of(node: fx.Node) -> str:
    """The path of the innermost submodule that contains a node, as in ``named_modules``."""
    path = "".join(name for name, _ in list((node.meta.get("nn_module_stack") or {}).values())[-1:])
    return path.removeprefix("module").removeprefix(".").replace("_orig_mod.", "")
