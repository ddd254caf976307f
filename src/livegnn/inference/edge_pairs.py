"""The arguments of a score: an edge output, and pairs of nodes with the columns of their edges, checked."""

from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from livegnn.arguments import listed_ids
from livegnn.errors import InputError, UnknownTypeError
from livegnn.events.chunk import to_edge_type, to_key, to_rows, to_weight
from livegnn.network.outputs import EdgeOutput, EdgeOutputs
from livegnn.schema import Schema
from livegnn.texts import Texts
from livegnn.types import EdgeType, FloatArray
from livegnn.wording import format_edge_type

if TYPE_CHECKING:
    from jaxtyping import Float32, Shaped, UInt32
    from numpy.typing import ArrayLike, NDArray


class OutputSettings(TypedDict, total=False):
    """The choice of an edge output: its name, and its edges."""

    output: str | None
    edge_type: EdgeType | None


class PairSettings(OutputSettings, total=False):
    """The arguments of `EdgePredictor.score` beside the ends."""

    edge_attr: "ArrayLike | None"
    edge_weight: "ArrayLike | None"


class EdgeSettings(OutputSettings, total=False):
    """The arguments of `EdgePredictor.predict_edges` beside the ends."""

    key: "ArrayLike | None"


class Pairs(NamedTuple):
    """Checked arguments of a score: the ids of the ends, and the columns that the edge output reads."""

    sources: "Shaped[NDArray[np.generic], 'pairs'] | Texts"
    targets: "Shaped[NDArray[np.generic], 'pairs'] | Texts"
    edge_attr: "Float32[FloatArray, 'pairs channels'] | None" = None
    edge_weight: "Float32[FloatArray, 'pairs'] | None" = None


def find_edge_output(edge_outputs: EdgeOutputs, settings: OutputSettings) -> EdgeOutput:
    """The edge output that a caller has named. Raises `InputError`."""
    edge_type = settings.get("edge_type")
    return edge_outputs.find(settings.get("output"), None if edge_type is None else to_edge_type(edge_type))


def find_output_of_edges(edge_outputs: EdgeOutputs, schema: Schema, settings: EdgeSettings) -> EdgeOutput:
    """The same for edges of the graph. Raises `InputError` and `UnknownTypeError`."""
    chosen = find_edge_output(edge_outputs, settings)
    if (edges := schema.edge_types.get(chosen.scores.edge_type)) is None:
        raise UnknownTypeError(
            f"the graph has no {format_edge_type(chosen.scores.edge_type)} edges: score(src, dst) scores "
            "pairs of nodes"
        )
    if settings.get("key") is not None and edges.duplicates != "keep":
        raise InputError("key is for edge types that keep parallel edges, got one that does not: omit it")
    return chosen


def check_edges(
    src: "ArrayLike", dst: "ArrayLike", settings: EdgeSettings
) -> "tuple[Pairs, UInt32[NDArray[np.uint32], 'pairs'] | None]":
    """The ends of edges, and their keys, checked. Raises `InputError`."""
    pairs, key = Pairs(*check_ends(src, dst)), settings.get("key")
    return pairs, None if key is None else to_key(key, len(pairs.sources))


def check_pairs(
    schema: Schema, chosen: EdgeOutput, src: "ArrayLike", dst: "ArrayLike", settings: PairSettings
) -> Pairs:
    """The arguments of a score, checked. Raises `InputError`."""
    edge_attr, edge_weight = settings.get("edge_attr"), settings.get("edge_weight")
    sources, targets = check_ends(src, dst)
    count, edge_type = len(sources), chosen.scores.edge_type
    widths = {given.column: given.width for given in chosen.scores.edge_inputs.values()}
    if not count:
        return Pairs(sources, targets)
    edges = schema.edge_types.get(edge_type)
    rows = weights = None
    for name, column, value in (
        ("edge_attr", "edge_attr", edge_attr),
        ("edge_weight", "weight", edge_weight),
    ):
        if value is not None and column not in widths:
            raise InputError(f"the edge output {chosen.name!r} reads no {name}, got some: leave it out")
    if edge_attr is not None:
        rows = to_rows(edge_attr, count, "edge_attr", scalar=count == 1)
        if rows.shape[1] != widths["edge_attr"]:
            raise InputError(
                f"edge_attr must have {widths['edge_attr']} columns for the edge output {chosen.name!r}, got "
                f"{rows.shape[1]}"
            )
    elif "edge_attr" in widths:
        raise InputError(
            f"the edge output {chosen.name!r} reads edge_attr, of shape ({count}, {widths['edge_attr']}), "
            "got none: give the features of each edge"
        )
    if edge_weight is not None:
        weights = to_weight(edge_weight, count, "edge_weight")
    elif "weight" in widths and edges is not None and edges.weighted:
        raise InputError(
            f"the edge output {chosen.name!r} reads edge_weight, one for each of {count} edges, got none: "
            "give the weight of each edge"
        )
    for name, array in (("edge_attr", rows), ("edge_weight", weights)):
        if array is not None and not np.isfinite(array).all():
            at = np.argwhere(~np.isfinite(array.reshape(count, -1)))[0, 0]
            raise InputError(f"{name} must be finite, got {array[at].tolist()!r} for pair {at}")
    return Pairs(sources, targets, rows, weights)


def check_ends(
    src: "ArrayLike", dst: "ArrayLike"
) -> "tuple[Shaped[NDArray[np.generic], 'pairs'] | Texts, Shaped[NDArray[np.generic], 'pairs'] | Texts]":
    """Ids of the sources and the targets of pairs. Raises `InputError`."""
    sources, targets = listed_ids(src, "src"), listed_ids(dst, "dst")
    if len(sources) != len(targets):
        raise InputError(f"src and dst must be of the same length, got {len(sources)} and {len(targets)}")
    return sources, targets
