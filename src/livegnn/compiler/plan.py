"""Makes the program that the native engine runs for a model: chooses the values to keep and groups the
operations that are computed together.

The depth of a value is the number of propagations before it. At each depth, node-wise operations compute the
inputs of the next propagation and of later depths from kept values; then the propagations of that depth run.
A value is kept if

- it is the output of a propagation (the un-combined aggregate, to which a delta is added),
- a propagation reads it (a delta subtracts its old row),
- an operation of a later depth reads it (so that a linear layer of the features is not computed again when a
  neighbour changes), unless only cheap operations lie between it and kept values,
- or it is the prediction, unless that is cheap to compute from kept values too.

With `keep` "aggregates", kept values that can be computed node by node from aggregates, contexts and features
are derived: a batch computes them like the others, but their rows are not stored. A row is computed when it
is read, from stored values only, through any number of layers (NeutronRT, section V.B). Inputs of message
programs stay stored, since each edge reads them, and so do results of user functions, which may give a row
other bits in another block. A `partial` plan works in the same way and stores the aggregates of only some
nodes; it allows neither message programs nor user functions.

A `sampled` plan is for forward passes over samples, which keep nothing. A value is computed where it is read
if it needs no aggregate of an earlier depth, and values that are needed nearer to the seeds are computed
apart from those that are needed farther away, for fewer nodes.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import livegnn._core as _core
from livegnn.compiler.layout import Layouts
from livegnn.compiler.lowering import Context, lower
from livegnn.compiler.messages import SIDES, Operation, distances_to_seeds
from livegnn.errors import InputError, ModelError
from livegnn.network import Model
from livegnn.network.operators import PRODUCTS
from livegnn.network.outputs import Outputs
from livegnn.schema import Schema
from livegnn.types import EdgeType, NodeType

Keep = Literal["all", "aggregates"]

_CONTEXT_KINDS = {"count": 0, "sum": 1, "loop": 2}


@dataclass(frozen=True)
class Kept:
    """A table of the engine: its name, its position in the engine, and the propagation or context that fills
    it, if any. summed: it is a sum; each row is stored with its error or with itself in float64. counted: it
    is a maximum; each row is stored with the number of messages that equal it. derived: its rows are not
    stored. partial: only the rows of some nodes are stored. part: the part of the memory it belongs to.
    """

    name: str
    index: int
    features: bool = False
    propagation: int | None = None
    context: int | None = None
    summed: bool = False
    counted: bool = False
    derived: bool = False
    partial: bool = False
    part: Literal["aggregates", "layer outputs", "contexts"] = "layer outputs"

    @property
    def stored(self) -> bool:
        """Whether the engine stores its rows."""
        return not (self.features or self.derived)


@dataclass(frozen=True)
class _Rows:
    """Operations on rows in registers, and the values that they read."""

    sources: tuple[str, ...]
    operations: tuple[Operation, ...]


class Plan:
    """A model laid out for a graph. Raises `ModelError` if the model does not fit the graph."""

    def __init__(
        self,
        model: Model,
        schema: Schema,
        keep: Keep = "all",
        *,
        partial: bool = False,
        sampled: bool = False,
    ) -> None:
        self._model = model
        self._keep_layers = keep == "all" and not partial
        self._partial = partial
        self._sampled = sampled
        self._schema = schema
        self._operations, self._contexts = lower(model, sampled=sampled)
        self._producers = {operation.output: operation for operation in self._operations}
        self._check_fit()
        if partial:
            self._check_partial()
        self._slabs: dict[tuple[str, str], int] = {}
        self.program = _core.Program()
        self._layouts = Layouts(model, self.program)
        self.kept: dict[str, Kept] = {}
        self.on_demand: dict[str, int] = {}
        self.turned: set[int] = set()
        """The edge types that are also read from target to source, by number."""
        self._steps_to: list[int] = []
        self._build()

    def eager_steps(self, mode: str | Sequence[str]) -> int | None:
        """The number of steps of the program that a batch computes eagerly, contexts included; None if all.

        mode: ``"eager"``, ``"lazy"``, or one of the two for each depth of propagation, first to last. Rows
        computed from the aggregates of a depth belong to that depth; the inputs of the first propagation
        belong to the first depth.
        """
        depths = self.depths
        if isinstance(mode, str):
            modes = [mode] * depths
        else:
            modes = list(mode) if isinstance(mode, Sequence) else [mode]
        unknown = [m for m in modes if not isinstance(m, str) or m not in ("eager", "lazy")]
        if unknown:
            raise InputError(f"mode must be 'eager' or 'lazy', or a list of these, got {unknown[0]!r}")
        if len(modes) != depths:
            raise InputError(
                f"mode as a list must have one entry for each propagation, {depths}, got {modes}"
            )
        eager = modes.index("lazy") if "lazy" in modes else depths
        if "eager" in modes[eager:]:
            raise InputError(
                f"mode must be eager first and lazy after that, since an eager propagation reads what those "
                f"before it compute, got {modes}"
            )
        if eager == depths:
            return None
        return self._steps_to[eager] if eager else len(self._contexts)

    @property
    def depths(self) -> int:
        """The number of propagations that follow one another."""
        return len(self._steps_to) - 1

    def propagation_of(self, step: int) -> int:
        """The propagation, from 1 to `depths`, to which a step of the program belongs."""
        return max(1, min(self.depths, bisect_right(self._steps_to, step)))

    def node_type(self, name: str) -> NodeType:
        """The type of the nodes whose rows a kept value holds."""
        context = self._contexts.get(name)
        if context is not None:
            return context.node_type
        producer = self._producers.get(name)
        return self._model.node_type(name) if producer is None else producer.node_type

    def _check_fit(self) -> None:
        schema = self._schema
        for name, given in self._model.inputs.items():
            width = schema.node_types.get(given.node_type)
            if width is None or given.width not in schema.widths_of(given.node_type):
                got = "has no such type"
                if width is not None:
                    got = f"has {width}: if the module takes as many, import it with in_channels={width}"
                raise ModelError(
                    f"the model reads {given.width} features of {given.node_type!r} nodes ({name!r}), "
                    f"the graph {got}"
                )
        for edge_type in self._model.edge_types:
            if edge_type not in schema.edge_types:
                have = ", ".join(map(str, schema.edge_types))
                raise ModelError(f"the model propagates along {edge_type}, the graph has {have}")
            edges = schema.edge_types[edge_type]
            if not edges.in_neighbors and not edges.undirected:
                raise ModelError(
                    f"the model propagates along {edge_type}, of which the graph keeps no in-neighbours: "
                    "make it with in_neighbors=True"
                )
        for name, column in self._model.edge_inputs.items():
            features = (
                schema.edge_types[column.edge_type].edge_dim if column.edge_type in schema.edge_types else 0
            )
            if column.column == "edge_attr" and features != column.width:
                raise ModelError(
                    f"the model reads {column.width} features of {column.edge_type} edges ({name!r}), the "
                    f"graph has {features or 'none'}: give Graph its edges' features with edge_attr"
                )
        if self._model.output in self._model.inputs:
            raise ModelError("the model's output must be computed, got an input")

    def _check_partial(self) -> None:
        """Raises `ModelError` if rows cannot be computed again from neighbours, as a partial plan must do for
        rows that are not kept."""
        for operation in self._operations:
            if operation.op in ("messages", "message_context"):
                reason = f"messages along {operation.edge_type} that depend on more than their source's row"
            elif operation.op == "call":
                reason = f"a function that is not LiveGNN's ({operation.output!r})"
            else:
                continue
            raise ModelError(
                "with keep_degree a model must propagate rows of sources alone, by operators of LiveGNN, got "
                f'{reason}: use keep="aggregates" instead'
            )

    # -- what is kept
    # -------------------------------------------------------------------------------------------

    @cached_property
    def _depths(self) -> dict[str, int]:
        depths = dict.fromkeys([*self._model.inputs, *self._contexts], 0)
        for operation in self._operations:
            below = max((depths[name] for name in operation.inputs), default=0)
            depths[operation.output] = below + 1 if operation.along_edges else below
        return depths

    def _choose_kept(self) -> set[str]:
        depths = self._depths
        kept = {*self._model.inputs, *self._contexts}
        aggregates = {operation.output for operation in self._operations if operation.along_edges}
        kept |= aggregates
        kept |= {name for operation in self._operations if operation.along_edges for name in operation.inputs}

        def cheap(name: str) -> bool:
            if name in kept:
                return True
            operation = self._producers[name]
            return operation.op not in {*PRODUCTS, "call"} and all(map(cheap, operation.inputs))

        def at_hand(name: str) -> bool:
            if name in kept:
                return name not in aggregates
            return self._producers[name].op != "call" and all(map(at_hand, self._producers[name].inputs))

        for operation in self._operations:
            if operation.along_edges:
                continue
            for name in operation.inputs:
                if depths[name] == depths[operation.output] or cheap(name):
                    continue
                if not (self._sampled and at_hand(name)):
                    kept.add(name)
        if not cheap(self._model.output):
            kept.add(self._model.output)
        return kept

    def _rows(self, output: str, kept: set[str]) -> _Rows:
        """The operations that compute `output` from kept values of earlier depths and aggregates of its own
        depth."""
        depth = self._depths[output]
        sources: dict[str, None] = {}
        operations: dict[str, Operation] = {}

        def visit(name: str) -> None:
            if name in operations or name in sources:
                return
            operation = self._producers.get(name)
            if operation is None or operation.along_edges or (name in kept and self._depths[name] < depth):
                sources[name] = None
                return
            for part in operation.inputs:
                visit(part)
            operations[name] = operation

        visit(output)
        return _Rows(tuple(sources), tuple(operations.values()))

    # -- building the program
    # -----------------------------------------------------------------------------------

    def _build(self) -> None:
        kept = self._choose_kept()
        schema = self._schema
        node_type = self._schema.node_type_index
        for name, given in self._model.inputs.items():
            index = self.program.add_value(node_type(given.node_type), given.width, True, 0)
            self.kept[name] = Kept(name, index, features=True)
        for position, (name, context) in enumerate(self._contexts.items()):
            index = self.program.add_value(node_type(context.node_type), 1, False, self._slab(name))
            kind = self._context_kind(context)
            self.kept[name] = Kept(name, index, context=position, summed=kind == "sum", part="contexts")
            self.program.add_context(
                self._schema.edge_type_index(context.edge_type),
                index,
                _CONTEXT_KINDS[kind],
                context.fill,
                context.skip_loops,
                context.weighted and schema.edge_types[context.edge_type].weighted,
                self._is_reversed(context),
            )
        propagations = [operation for operation in self._operations if operation.along_edges]
        order: list[Operation] = []
        distances = distances_to_seeds(self._operations)
        steps = len(self._contexts)
        for depth in range(max(self._depths.values()) + 1):
            wanted = [
                o.output
                for o in self._operations
                if o.output in kept and not o.along_edges and self._depths[o.output] == depth
            ]
            groups: dict[tuple[str, frozenset[str], int], list[str]] = {}
            for name in wanted:
                rows = self._rows(name, kept)
                distance = distances[name] if self._sampled else 0
                place = (self._producers[name].node_type, frozenset(rows.sources), distance)
                groups.setdefault(place, []).append(name)
                self._keep(self._producers[name])
                if not self._keep_layers and name not in self._read_by_messages:
                    self._derive(name)
            for (type_name, _, _), names in groups.items():
                self._add_rows(type_name, names, kept)
            steps += len(groups)
            self._steps_to.append(steps)
            for operation in propagations:
                if self._depths[operation.output] == depth + 1 and operation.op == "message_context":
                    self._keep(operation)
            for operation in propagations:
                if self._depths[operation.output] == depth + 1 and operation.op != "message_context":
                    steps += 1
                    self._keep(operation, propagation=len(order))
                    order.append(operation)
                    edges = schema.edge_types[_edge_type(operation)]
                    weighted = operation.weighted and edges.weighted
                    if operation.op == "max" and weighted and edges.duplicates == "keep":
                        self._refuse_loops(_edge_type(operation))
                    if operation.messages is not None:
                        self._add_messages(operation, weighted)
                        continue
                    self.program.add_propagation(
                        self._schema.edge_type_index(_edge_type(operation)),
                        self.kept[operation.inputs[0]].index,
                        self.kept[operation.output].index,
                        operation.op == "max",
                        weighted,
                        # Only the last of parallel loops counts; the node adds it to the sum of the others.
                        operation.self_loops and edges.duplicates == "keep",
                        operation.averaged,
                        self._is_reversed(operation),
                    )
        for name in self._model.shown:
            if name not in self.kept or self.kept[name].partial:
                self._add_on_demand(name, kept)
        for i, output in enumerate(Outputs(self._model).values):
            set_or_add = self.program.add_output if i else self.program.set_output
            if output in self.kept:
                set_or_add(True, self.kept[output].index)
            else:
                set_or_add(False, self.on_demand[output])

    def _is_reversed(self, along: Operation | Context) -> bool:
        """Whether the engine must read edges from target to source; never so for an undirected type."""
        assert along.edge_type is not None
        if not along.reverse or self._schema.edge_types[along.edge_type].undirected:
            return False
        self.turned.add(self._schema.edge_type_index(along.edge_type))
        return True

    def _keep(self, operation: Operation, propagation: int | None = None) -> None:
        node_type = self._schema.node_type_index(operation.node_type)
        index = self.program.add_value(node_type, operation.width, False, self._slab(operation.output))
        self.kept[operation.output] = Kept(
            operation.output,
            index,
            propagation=propagation,
            summed=operation.summed,
            counted=operation.op == "max",
            partial=self._partial and propagation is not None,
            part=(
                "aggregates"
                if propagation is not None
                else "contexts"
                if operation.op == "message_context"
                else "layer outputs"
            ),
        )

    @cached_property
    def _read_by_messages(self) -> frozenset[str]:
        """The inputs of messages that read more than their source's row. They are not derived, since each
        edge reads them."""
        along = [o for o in self._operations if o.op in ("messages", "message_context")]
        return frozenset(name for operation in along for name in operation.inputs)

    def _derive(self, name: str) -> None:
        stored = {kept.name for kept in self.kept.values() if not kept.derived} - {name}
        # A user function may give other bits to a row in another block.
        if any(operation.op == "call" for operation in self._rows(name, stored).operations):
            return
        self._add_on_demand(name, stored)
        kept = self.kept[name] = replace(self.kept[name], derived=True)
        self.program.set_derived(kept.index, self.on_demand[name])

    def _slab(self, name: str) -> int:
        """The number of the slab of a value. Values that one step reads for the same nodes share a slab, so
        that their rows of a node are adjacent in memory.

        These are an aggregate, the values kept for its depth, and those computed there. The inputs of a
        propagation are not among them, since they are read along edges, for other nodes.
        """
        readers = [o for o in self._operations if name in o.inputs]
        along = [reader for reader in readers if reader.along_edges]
        if self._partial:
            place = name
        elif name in self._contexts or along:
            # Values that the same messages read at the same end share a slab as well.
            sides = [s.side for o in along if o.messages for s in o.messages.sources if s.value == name]
            ways = {(o.edge_type, o.reverse) for o in along}
            together = len(ways) == len(set(sides)) == 1 and len(readers) == len(along)
            place = f"{sides[0]} {'-'.join(along[0].inputs)}" if together else name
        else:
            place = str(min((self._depths[reader.output] for reader in readers), default=self._depths[name]))
        return self._slabs.setdefault((self.node_type(name), place), len(self._slabs))

    def _refuse_loops(self, edge_type: EdgeType) -> None:
        # Only one of parallel loops counts, with its weight, but the maximum covers all of them.
        if any(c.kind == "loop" and c.edge_type == edge_type for c in self._contexts.values()):
            raise ModelError(
                f"a maximum of weighted messages with self-loops cannot be kept over edges of type "
                f"{edge_type!r}, which keeps parallel ones: train it without self-loops, or take the sum of "
                "parallel edges (duplicates='add')"
            )

    def _context_kind(self, context: Context) -> str:
        # Without weights the sum is the number of edges, and a count needs no sum stored beside it. A missing
        # loop counts as its fill, so the fill must be 1 for the two to be equal.
        weighted = self._schema.edge_types[context.edge_type].weighted
        return (
            "count" if context.kind == "sum" and not weighted and context.fill in (None, 1) else context.kind
        )

    def _add_rows(self, node_type: str, names: Sequence[str], kept: set[str]) -> None:
        parts = [self._rows(name, kept) for name in names]
        sources = tuple(dict.fromkeys(source for rows in parts for source in rows.sources))
        operations = {o.output: o for rows in parts for o in rows.operations}
        layout = self._layouts.lay_out(
            self._widths(sources), [o for o in self._operations if o.output in operations]
        )
        self.program.add_rows(
            self._schema.node_type_index(node_type),
            [self.kept[name].index for name in sources],
            layout.buffers,
            layout.registers,
            layout.ops,
            [(layout.register[name], self.kept[name].index) for name in names],
        )

    def _add_messages(self, operation: Operation, weighted: bool) -> None:
        messages = operation.messages
        assert messages is not None
        widths = {source.name: source.width for source in messages.sources}
        layout = self._layouts.lay_out(widths, messages.operations)
        coefficient = messages.coefficient
        self.program.add_messages(
            edge_type=self._schema.edge_type_index(_edge_type(operation)),
            sources=[
                (SIDES[source.side], self.kept[source.value].index if source.value else 0)
                for source in messages.sources
            ],
            buffers=layout.buffers,
            registers=layout.registers,
            ops=layout.ops,
            message=layout.register[messages.message],
            coefficient=None if coefficient is None else layout.register[coefficient],
            softmax=messages.softmax,
            output=self.kept[operation.output].index,
            context=None if operation.context is None else self.kept[operation.context].index,
            maximum=messages.maximum,
            weighted=weighted,
            skip_loops=messages.skip_loops,
            only_loops=messages.only_loops,
            reversed=self._is_reversed(operation),
        )

    def _add_on_demand(self, name: str, kept: set[str]) -> None:
        rows = self._rows(name, kept)
        layout = self._layouts.lay_out(self._widths(rows.sources), rows.operations)
        self.on_demand[name] = self.program.add_on_demand(
            self._schema.node_type_index(self._producers[name].node_type),
            [self.kept[source].index for source in rows.sources],
            layout.buffers,
            layout.registers,
            layout.ops,
            layout.register[name],
        )

    def _widths(self, names: Sequence[str]) -> dict[str, int]:
        return {name: 1 if name in self._contexts else self._width(name) for name in names}

    def _width(self, name: str) -> int:
        producer = self._producers.get(name)
        return self._model.width(name) if producer is None else producer.width


def _edge_type(operation: Operation) -> tuple[str, str, str]:
    assert operation.edge_type is not None
    return operation.edge_type
