"""The oracle for edge outputs: the rows of any pairs of nodes, from rows of the model's outputs."""

from collections.abc import Mapping

import numpy as np

from livegnn.errors import ModelError
from livegnn.network.model import Model
from livegnn.oracle import row_reference
from livegnn.types import DoubleArray, FloatArray, IntArray


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # NaN and infinity are valid results
def compute_edge_output(
    model: Model,
    name: str,
    values: Mapping[str, DoubleArray],
    ends: IntArray,
    *,
    edge_attr: FloatArray | None = None,
    weight: FloatArray | None = None,
) -> DoubleArray:
    """One edge output of a model for pairs of nodes, which need not be edges of a graph.

    values: of the model's outputs, by the names of values, as `reference.compute` returns them: [nodes,
    channels]. ends: [2, pairs], places of nodes in these rows. edge_attr: [pairs, channels]; weight: [pairs].

    Returns [pairs, width], in the precision of the values. Raises `ModelError` if it reads columns of edges
    that are not given, or have another width.
    """
    scores = model.edge_scores[name]
    dtype = next(iter(values.values())).dtype
    found = {value: values[model.outputs[output]][ends[0]] for value, output in scores.sources.items()}
    found |= {value: values[model.outputs[output]][ends[1]] for value, output in scores.targets.items()}
    for value, given in scores.edge_inputs.items():
        column = edge_attr if given.column == "edge_attr" else None if weight is None else weight[:, None]
        expected = (ends.shape[1], given.width)
        if column is None or column.shape != expected:
            got = "none" if column is None else str(list(column.shape))
            raise ModelError(f"the edge output {name!r} reads {given.column} {list(expected)}, got {got}")
        found[value] = np.asarray(column, dtype)
    for step in scores.steps:
        inputs = [found[one] for one in step.inputs]
        if step.op == "call":
            result = model.functions[step.text("function")](*(one.astype(np.float32) for one in inputs))
            found[step.output] = np.asarray(result, dtype=dtype)
            continue
        tensors: dict[str, DoubleArray] = {
            role: np.asarray(model.tensors[tensor], dtype) for role, tensor in step.tensors.items()
        }
        found[step.output] = row_reference.apply(step, inputs, tensors)
    rows: DoubleArray = found[scores.value]
    return rows
