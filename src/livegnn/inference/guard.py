"""The error for batches that would make a value infinite or NaN."""

from typing import TYPE_CHECKING, Literal, NoReturn

import numpy as np

from livegnn.compiler.plan import Plan
from livegnn.errors import InputError

if TYPE_CHECKING:
    import livegnn._core as _core
    from livegnn.graph import Graph

NonFinite = Literal["refuse", "allow"]


def refuse_lost(
    graph: "Graph", plan: Plan, delta: "_core.Delta", node_type: int, index: int, step: int
) -> NoReturn:
    """Raises an `InputError` that names a node for which the prepared batch gives a row that is not finite,
    and the propagation in which it is computed.

    The row may be one of the node's aggregates, a layer's output or the prediction; features are always
    finite.
    """
    added = delta.added(node_type)[delta.added_indices(node_type) == index]
    numbers = added[added >= 0]
    if not len(numbers):
        numbers = graph.native.ids_of(node_type, np.array([index], dtype=np.uint32))
    id = graph.to_user_ids(numbers)[0].item()
    name = list(graph.schema.node_types)[node_type]
    raise InputError(
        "expected events after which every value is finite, but what the model computes for node "
        f"{id!r} of type {name!r} would be infinite or not a number in propagation "
        f"{plan.propagation_of(step)} of {plan.depths}: send smaller features and weights, or, to go on as "
        'the framework would, set non_finite of the engine to "allow"'
    )
