"""PyG's index of a node: its internal number (`Graph.to_numbers`), which is its id if ids are integers.
Numbers may have gaps, and where a type has text ids, its numbers need not begin at 0.
"""

from typing import TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from livegnn.arguments import as_array, listed_ids
from livegnn.errors import InputError, UnknownNodeError
from livegnn.graph import Graph
from livegnn.types import IntArray, NodeType
from livegnn.wording import kind_of

Index: TypeAlias = "Tensor | np.ndarray[tuple[int], np.dtype[np.generic]] | list[int] | slice | int | None"


def all_numbers(graph: Graph, node_type: NodeType | None) -> IntArray:
    """The numbers of all nodes of a type, in the order of `graph.ids(node_type)`."""
    numbers: IntArray = graph.native.numbers(graph.node_type_index(node_type))
    return numbers


def count_if_dense(numbers: IntArray) -> int | None:
    """The number of `numbers`, if they are 0, 1, 2, ... in any order; else None."""
    return len(numbers) if not len(numbers) or int(numbers.max()) == len(numbers) - 1 else None


def listed_numbers(graph: Graph, node_type: NodeType, what: str) -> IntArray:
    """The numbers of the rows of a tensor that has one for each node, in the order of `graph.ids`.

    what: what has these rows, for the message. Raises `InputError` where the order would be a guess: ids are
    0, 1, 2, ..., so that PyG takes row i for node i, but the graph lists them in another order.
    """
    numbers = all_numbers(graph, node_type)
    if graph.schema.text_ids or count_if_dense(numbers) is None or bool((np.diff(numbers) > 0).all()):
        return numbers
    raise InputError(
        f"{what} has a row for each node, but which is not clear: the ids of {node_type!r} are 0 to "
        f"{len(numbers) - 1}, and graph.ids lists them in another order, since nodes were removed and "
        f"added. Name the rows: index=torch.arange({len(numbers)}), or "
        f"index=torch.from_numpy(graph.ids({node_type!r}))"
    )


def numbers_at(graph: Graph, node_type: NodeType, index: Index, what: str = "index") -> IntArray:
    """The numbers of the nodes at `index`: their numbers; text ids; a mask or a slice of all nodes in the
    order of `graph.ids`; or None, all of these.

    Raises `InputError` for anything else, such as fractions, and `UnknownNodeError` for an unknown text id.
    """
    if index is None:
        return listed_numbers(graph, node_type, f"{what}=None")
    if isinstance(index, slice):
        return np.ascontiguousarray(listed_numbers(graph, node_type, f"a slice as {what}")[index])
    if isinstance(index, (bool, tuple, np.bool_)):
        raise InputError(f"{what} must be numbers of nodes, a mask, a slice or None, got {kind_of(index)}")
    array = np.atleast_1d(as_array(index.detach().cpu() if isinstance(index, Tensor) else index, what))
    if array.dtype.kind == "b":
        numbers = listed_numbers(graph, node_type, f"a mask as {what}")
        if array.shape != numbers.shape:
            raise InputError(
                f"a mask as {what} must have an entry for each of the {len(numbers)} nodes of {node_type!r}, "
                f"in the order of graph.ids, got the shape {array.shape}"
            )
        return numbers[array]
    if array.dtype.kind in "UO" and graph.schema.text_ids:
        asked = listed_ids(index, what)
        numbers = graph.to_numbers(asked)
        if (numbers < 0).any():
            raise UnknownNodeError(graph.unknown_node(asked[int(np.argmax(numbers < 0))], node_type))
        return numbers
    return whole_numbers(array, what)


def unknown_number(graph: Graph, number: int, node_type: NodeType) -> str:
    """Why an internal number is of no node of a type, for errors: its id, while that is known."""
    try:
        return graph.unknown_node(graph.to_user_ids(np.array([number]))[0], node_type)
    except UnknownNodeError:
        return (
            f"expected a node of type {node_type!r}, got the number {number} (Graph.to_numbers), which none "
            "has: its node was removed"
        )


def unknown_seed(graph: Graph, number: int, node_type: NodeType) -> str:
    """The same of a seed, which a sampler can omit."""
    why = unknown_number(graph, number, node_type)
    return f"{why}, or pass gone='skip' to omit removed seeds"


def whole_numbers(given: object, what: str) -> IntArray:
    """Numbers of nodes as `int64`. Raises `InputError` for other kinds, other shapes and negative numbers."""
    array = cast("IntArray", as_array(given.detach().cpu() if isinstance(given, Tensor) else given, what))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{what} must be integers in one dimension, got {array.dtype} of the shape {array.shape}: of a "
            "mask, pass mask.nonzero().view(-1)"
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) >= 1 << 63):
        wrong = array[(array < 0) | (array > np.iinfo(np.int64).max)]
        raise InputError(f"{what} must be numbers of nodes, which are from 0 to 2^63 - 1, got {wrong[0]}")
    return np.ascontiguousarray(array, dtype=np.int64)


def weights_by_number(
    graph: Graph, node_type: NodeType, weight: Tensor, what: str
) -> tuple[IntArray, Tensor]:
    """The numbers of the nodes that have a weight, and their weights.

    weight: one for each node, in the order of `graph.ids`; or, where ids are integers, one for each id from 0
    up to the largest one at least. Raises `InputError` for another number of them.
    """
    numbers = all_numbers(graph, node_type)
    if not isinstance(weight, Tensor) or weight.ndim != 1:
        raise InputError(f"{what} must be a tensor of one weight for each node, got {kind_of(weight)}")
    if len(weight) == len(numbers):
        numbers = listed_numbers(graph, node_type, what)
    elif not graph.schema.text_ids and len(weight) > numbers.max(initial=-1):
        numbers = np.arange(len(weight))
    else:
        raise InputError(
            f"{what} must have a weight for each of the {len(numbers)} nodes of {node_type!r}, in the order "
            f"of graph.ids({node_type!r}), got {len(weight)}"
        )
    return numbers, weight.detach().cpu()


def as_seeds(graph: Graph, node_type: NodeType | None, ids: object) -> tuple[Tensor, Tensor | None]:
    """The numbers of seeds, and, of a mask of all nodes, the positions that it marks. Raises what
    `numbers_at` raises."""
    if isinstance(ids, Tensor):
        ids = ids.detach().cpu().numpy()
    if isinstance(ids, (list, tuple)) and set(map(type, ids)) == {bool}:
        ids = np.array(ids)
    if isinstance(ids, np.ndarray) and ids.dtype == np.bool_:
        name = list(graph.schema.node_types)[graph.node_type_index(node_type)]
        marked = torch.from_numpy(np.flatnonzero(ids))
        return torch.from_numpy(numbers_at(graph, name, ids, "the seeds")), marked
    asked = listed_ids(ids)
    if not graph.schema.text_ids and isinstance(asked, np.ndarray) and asked.dtype.kind == "u":
        whole_numbers(np.ravel(asked), "seeds")  # the conversion to int64 would change large ones
    numbers = graph.to_numbers(asked) if asked.size else np.empty(0, dtype=np.int64)
    unknown = np.flatnonzero(numbers < 0)
    if graph.schema.text_ids and len(unknown):
        raise UnknownNodeError(graph.unknown_node(asked[unknown[0]], None))
    return torch.from_numpy(np.array(numbers)), None
