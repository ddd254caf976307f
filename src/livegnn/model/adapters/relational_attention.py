"""RGATConv: attention over edges of several relations (NeutronRT, table II, row RGAT).

As with RGCNConv (`livegnn.model.adapters.relational`) relation r is an edge type of the graph. A softmax
across relations is one propagate step over all their edge types, which share its context; a softmax within
each relation is a step for each, and a sum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_geometric import nn as pyg

from livegnn.errors import ModelError
from livegnn.model.adapters.arguments import Arguments, check_relations, write_bias
from livegnn.model.adapters.operations import node_rows
from livegnn.model.adapters.tape import EdgeWeights, RelationRows, Rows, Tape, Weight
from livegnn.model.propagation import Propagate
from livegnn.types import EdgeType


@dataclass(frozen=True)
class _Relation:
    """The messages of one relation. value: rows of the source nodes. coefficient: one row per edge."""

    edge_type: EdgeType
    value: Rows
    coefficient: Rows


def rgat_conv(tape: Tape, layer: pyg.RGATConv, path: str, given: Arguments) -> Rows:
    """RGATConv: attention over the edges of all relations, which lie between nodes of one type."""
    relations = check_relations(layer, given)
    _check(layer)
    x = node_rows(given["x"])
    tape.consumed.append(x.name)
    features = _features(layer, given, relations)
    parts = [
        _relation(tape, layer, path, x, f"relation_{r}", matrix, edge_type, rows)
        for r, (edge_type, matrix, rows) in enumerate(zip(relations, _matrices(layer), features, strict=True))
    ]
    if layer.attention_mechanism == "across-relation":
        out = _softmax_sum(tape, parts)
    else:
        out, *others = [_softmax_sum(tape, [part]) for part in parts]
        for other in others:
            out = tape.write("add", out, other, name="relations")
    out = _modify(tape, layer, path, x, parts, out)
    if not layer.concat and layer.heads > 1:
        out = tape.write("sum_heads", out, name="sum_heads", attrs={"heads": layer.heads})
        out = tape.write("scale", out, name="mean", attrs={"value": 1 / layer.heads})
    return write_bias(tape, layer.bias, path, out)


def _check(layer: pyg.RGATConv) -> None:
    if layer.aggr not in ("add", "sum"):
        raise ModelError(f"aggr must be 'add' with attention, got {layer.aggr!r}")
    if layer.mod not in (None, "additive", "scaled", "f-scaled"):
        raise ModelError(
            f"mod must be None, 'additive', 'scaled' or 'f-scaled', got {layer.mod!r}, which tells a share "
            "of almost nothing from none"
        )


def _features(layer: pyg.RGATConv, given: Arguments, relations: Sequence[EdgeType]) -> Sequence[Rows | None]:
    """The features of each relation's edges."""
    features = given.get("edge_attr")
    if features is None:
        return [None] * len(relations)
    if layer.lin_edge is None:
        raise ModelError("must be called without edge_attr, as its edge_dim is None")
    if isinstance(features, EdgeWeights):
        return features.columns()
    if not isinstance(features, RelationRows) or [rows.place for rows in features.parts] != list(relations):
        raise ModelError(
            "edge_attr must be the edge_attr of the module's own input, or made of it row by row, "
            f"got {type(features).__name__}"
        )
    return features.parts


def _matrices(layer: pyg.RGATConv) -> torch.Tensor:
    """The weights of the relations in double precision, [relations, in, heads * channels]."""
    if layer.num_bases is not None:
        return torch.einsum("rb,bio->rio", layer.att.double(), layer.basis.double())
    weight: torch.Tensor = layer.weight.double()
    if layer.num_blocks is not None:
        return torch.stack([torch.block_diag(*blocks) for blocks in weight])
    return weight


def _relation(
    tape: Tape,
    layer: pyg.RGATConv,
    path: str,
    x: Rows,
    name: str,
    matrix: torch.Tensor,
    edge_type: EdgeType,
    features: Rows | None,
) -> _Relation:
    """The query, the key and the value are linear maps of a node's row: the products of two matrices."""

    def linear(rows: Rows, role: str, weight: torch.Tensor) -> Rows:
        kept = Weight(f"{path}.{name}.{role}", weight.float())
        return tape.write("linear", rows, name=f"{name}.{role}", weights={"weight": kept})

    query = linear(x, "query", (matrix @ layer.q.double()).T)
    key = linear(x, "key", (matrix @ layer.k.double()).T)
    multiplicative = layer.attention_mode == "multiplicative-self-attention"
    combine = "multiply" if multiplicative else "add"
    query = tape.target(query, edge_type, f"{name}.query.target")
    key = tape.source(key, edge_type, f"{name}.key.source")
    logits = tape.write(combine, query, key, name=f"{name}.logits")
    if features is not None:
        to_logits = linear(features, "edge", layer.e.double().T @ layer.lin_edge.weight.double())
        logits = tape.write(combine, logits, to_logits, name=f"{name}.logits")
    if not multiplicative:
        attrs = {"slope": float(layer.negative_slope)}
        logits = tape.write("leaky_relu", logits, name=f"{name}.logits", attrs=attrs)
    weight = matrix.T.reshape(
        layer.heads, 1, layer.out_channels, -1
    )  # once for each dimension of the attention
    value = linear(x, "value", weight.expand(-1, layer.dim, -1, -1).reshape(-1, matrix.shape[0]))
    return _Relation(edge_type, value, tape.write("exp", logits, name=f"{name}.coefficient"))


def _softmax_sum(tape: Tape, parts: Sequence[_Relation]) -> Rows:
    """The values, weighted by the softmax over all edges of these relations."""
    operators = Propagate(_joined(parts), ("coefficient",), "sum", "divide")
    first, *further = [rows for part in parts for rows in (part.value, part.coefficient)]
    return tape.propagate(first, operators, *further)


def _modify(
    tape: Tape, layer: pyg.RGATConv, path: str, x: Rows, parts: Sequence[_Relation], out: Rows
) -> Rows:
    """What `mod` adds to the weighted sum, or multiplies it by, so that the number of in-edges counts."""
    if layer.mod is None:
        return out
    times = layer.heads * layer.dim
    if layer.mod == "additive":
        total = _sum(tape, parts, [part.value for part in parts])
        scale = {"scale": Weight(f"{path}.w.tiled", layer.w.repeat(times))}
        return tape.write("add", out, tape.write("scale_shift", total, name="additive", weights=scale))
    ones = {
        "weight": Weight(f"{path}.zeros", torch.zeros(1, layer.in_channels)),
        "bias": Weight(f"{path}.one", torch.ones(1)),
    }
    degree = _sum(tape, parts, [tape.write("linear", x, name="one", weights=ones)] * len(parts))
    if layer.mod == "f-scaled":
        return tape.write("scale_heads", out, degree, name="scaled")
    hidden = {
        "weight": Weight(f"{path}.l1.T", layer.l1.T),
        "bias": Weight(f"{path}.b1", layer.b1.reshape(-1)),
    }
    factor = tape.write("relu", tape.write("linear", degree, name="l1", weights=hidden), name="relu")
    tiled = {
        "weight": Weight(f"{path}.l2.tiled", layer.l2.T.repeat(times, 1)),
        "bias": Weight(f"{path}.b2.tiled", layer.b2.reshape(-1).repeat(times)),
    }
    return tape.write("multiply", out, tape.write("linear", factor, name="l2", weights=tiled), name="scaled")


def _sum(tape: Tape, parts: Sequence[_Relation], values: Sequence[Rows]) -> Rows:
    first, *further = values
    return tape.propagate(first, Propagate(_joined(parts)), *further)


def _joined(parts: Sequence[_Relation]) -> tuple[str, ...]:
    return tuple(name for part in parts for name in part.edge_type)
