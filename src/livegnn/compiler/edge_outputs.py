"""Adds a model's edge outputs to the program of an engine, as operations on rows of edges.

An edge output that is an inner product adds two more, for its vectors: that of the source, from the source
and the edge's columns, and that of the target. They follow all others.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

import livegnn._core as _core
from livegnn.compiler.layout import Layouts
from livegnn.compiler.lowering import BY_DEGREE
from livegnn.compiler.messages import SIDES, Operation
from livegnn.errors import ModelError
from livegnn.network import Model, Step
from livegnn.network.edge_scores import EdgeScores
from livegnn.network.inner_products import InnerProduct, inner_products, side_steps
from livegnn.network.outputs import Outputs
from livegnn.schema import Schema
from livegnn.types import FloatArray, NodeType


class VectorOutputs:
    """The positions of the edge outputs for the vectors of an inner product.

    width: of the vectors.
    """

    def __init__(self, model: Model, name: str, place: int, product: InnerProduct) -> None:
        self.source = len(model.edge_scores) + 2 * place
        self.target = self.source + 1
        self._scales = product.scales([model.width(value) for value in product.source_values])
        self._offsets = np.array([factor for factor, _ in product.offsets], np.float32)
        self.width = sum(model.width(value) for value in product.target_values)
        scores = model.edge_scores[name]
        needed = {
            read for step in side_steps(scores, product.target_values, model.width)[0] for read in step.inputs
        }
        self.read = tuple(dict.fromkeys(scores.targets[value] for value in scores.targets if value in needed))
        """The outputs of nodes that the vector of a target is made of."""

    def query_of(self, row: FloatArray) -> FloatArray:
        """The vector of a source [width], of its row in the edge output [channels]."""
        return np.concatenate([row * self._scales, self._offsets])


def vector_outputs(model: Model) -> Mapping[str, VectorOutputs]:
    """Those of each edge output that is an inner product."""
    return {
        name: VectorOutputs(model, name, place, product)
        for place, (name, product) in enumerate(inner_products(model).items())
    }


def add_edge_outputs(model: Model, schema: Schema, program: _core.Program) -> None:
    """Adds all edge outputs, in the order of ``model.edge_scores``, to the program of the model's plan, and
    then the vectors of `vector_outputs`.

    Raises `ModelError` if the graph lacks a node type at an end of the edges.
    """
    adding = _Adding(model, schema, program)
    for name, scores in model.edge_scores.items():
        _check_ends(name, scores, schema)
        adding.add(scores, scores.steps, scores.value, scores.edge_type[0], scores.edge_type[2])
    for name, product in inner_products(model).items():
        scores = model.edge_scores[name]
        source, _, target = scores.edge_type
        for values, node_type in ((product.source_values, source), (product.target_values, target)):
            steps, value, width = side_steps(scores, values, model.width)
            adding.add(scores, steps, value, node_type, node_type, {value: width})


class _Adding:
    """Adds edge outputs of one model to one program."""

    def __init__(self, model: Model, schema: Schema, program: _core.Program) -> None:
        self._model, self._schema, self._program = model, schema, program
        self._outputs, self._layouts = Outputs(model), Layouts(model, program)

    def add(
        self,
        scores: EdgeScores,
        steps: Sequence[Step],
        value: str,
        source_type: NodeType,
        target_type: NodeType,
        widths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Adds the rows of a value that the steps write. widths: of values that the model does not have."""
        read = {value, *(name for step in steps for name in step.inputs)}
        sides: dict[str, tuple[int, int]] = {}
        for side, ends in ((SIDES["source"], scores.sources), (SIDES["target"], scores.targets)):
            for name, output in ends.items():
                sides[name] = (side, self._outputs.find(output).position)
        for name, column in scores.edge_inputs.items():
            sides[name] = (SIDES[column.column], 0)
        sides = {name: place for name, place in sides.items() if name in read}
        layout = self._layouts.lay_out(
            {name: self._model.width(name) for name in sides},
            [_operation(step, widths.get(step.output) or self._model.width(step.output)) for step in steps],
        )
        known = scores.edge_type in self._schema.edge_types
        self._program.add_edge_output(
            edge_type=self._schema.edge_type_index(scores.edge_type) if known else None,
            source_type=self._schema.node_type_index(source_type),
            target_type=self._schema.node_type_index(target_type),
            sources=list(sides.values()),
            buffers=layout.buffers,
            registers=layout.registers,
            ops=layout.ops,
            register=layout.register[value],
        )


def _operation(step: Step, width: int) -> Operation:
    by_degree = step.op in BY_DEGREE
    return Operation(
        BY_DEGREE.get(step.op, step.op), step.inputs, step.output, width, "", None if by_degree else step
    )


def _check_ends(name: str, scores: EdgeScores, schema: Schema) -> None:
    for node_type in (scores.edge_type[0], scores.edge_type[2]):
        if node_type not in schema.node_types:
            raise ModelError(
                f"the edge output {name!r} is of {scores.edge_type} edges, the graph has node types "
                f"{', '.join(schema.node_types)}"
            )
