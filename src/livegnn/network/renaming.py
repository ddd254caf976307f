"""Renames the types of a model that was made without type names, for a graph with one type of each kind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from livegnn.network.model import Model
from livegnn.network.operators import Attribute
from livegnn.query import Query
from livegnn.types import EdgeType, NodeType


def renamed(model: Model, names: Mapping[NodeType | EdgeType, NodeType | EdgeType]) -> Model:
    """The model with types replaced by `names`; the same object if it uses none of them."""
    used: set[NodeType | EdgeType] = {given.node_type for given in model.inputs.values()}
    used.update(model.edge_types, (scores.edge_type for scores in model.edge_scores.values()))
    if not used.intersection(names):
        return model

    def node(name: NodeType) -> NodeType:
        return cast("NodeType", names.get(name, name))

    def edge(name: EdgeType) -> EdgeType:
        return cast("EdgeType", names.get(name, name))

    def attribute(name: str, value: Attribute) -> Attribute:
        if name != "edge_type" or not isinstance(value, (tuple, list)):
            return value
        # A propagation may have several types, concatenated.
        parts = [str(part) for part in value]
        triples = [(parts[i], parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)]
        return tuple(part for triple in triples for part in edge(triple))

    def query(given: Query) -> Query:
        one_hop = (replace(one, edge_type=edge(one.edge_type)) for one in given.one_hop)
        return Query(node(given.seed_type), tuple(one_hop))

    return replace(
        model,
        inputs={
            name: replace(given, node_type=node(given.node_type)) for name, given in model.inputs.items()
        },
        steps=tuple(
            replace(step, attrs={name: attribute(name, value) for name, value in step.attrs.items()})
            for step in model.steps
        ),
        edge_inputs={
            name: replace(given, edge_type=edge(given.edge_type)) for name, given in model.edge_inputs.items()
        },
        query=None if model.query is None else query(model.query),
    )
