"""Adds a model's edge outputs to the program of an engine, as operations on rows of edges."""

import livegnn._core as _core
from livegnn.compiler.layout import Layouts
from livegnn.compiler.lowering import BY_DEGREE
from livegnn.compiler.messages import SIDES, Operation
from livegnn.errors import ModelError
from livegnn.network import Model, Step
from livegnn.network.edge_scores import EdgeScores
from livegnn.network.outputs import Outputs
from livegnn.schema import Schema


def add_edge_outputs(model: Model, schema: Schema, program: _core.Program) -> None:
    """Adds all edge outputs, in the order of ``model.edge_scores``, to the program of the model's plan.

    Raises `ModelError` if the graph lacks a node type at an end of the edges.
    """
    outputs, layouts = Outputs(model), Layouts(model, program)
    for name, scores in model.edge_scores.items():
        _check_ends(name, scores, schema)
        sides: dict[str, tuple[int, int]] = {}
        for value, output in scores.sources.items():
            sides[value] = (SIDES["source"], outputs.find(output).position)
        for value, output in scores.targets.items():
            sides[value] = (SIDES["target"], outputs.find(output).position)
        for value, column in scores.edge_inputs.items():
            sides[value] = (SIDES[column.column], 0)
        layout = layouts.lay_out(
            {value: model.width(value) for value in sides},
            [_operation(model, step) for step in scores.steps],
        )
        source, _, target = scores.edge_type
        known = scores.edge_type in schema.edge_types
        program.add_edge_output(
            edge_type=schema.edge_type_index(scores.edge_type) if known else None,
            source_type=schema.node_type_index(source),
            target_type=schema.node_type_index(target),
            sources=list(sides.values()),
            buffers=layout.buffers,
            registers=layout.registers,
            ops=layout.ops,
            register=layout.register[scores.value],
        )


def _operation(model: Model, step: Step) -> Operation:
    by_degree = step.op in BY_DEGREE
    return Operation(
        BY_DEGREE.get(step.op, step.op),
        step.inputs,
        step.output,
        model.width(step.output),
        "",
        None if by_degree else step,
    )


def _check_ends(name: str, scores: EdgeScores, schema: Schema) -> None:
    for node_type in (scores.edge_type[0], scores.edge_type[2]):
        if node_type not in schema.node_types:
            raise ModelError(
                f"the edge output {name!r} is of {scores.edge_type} edges, the graph has node types "
                f"{', '.join(schema.node_types)}"
            )
