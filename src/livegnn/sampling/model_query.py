"""Checks that the edges that a query draws carry a model's messages to the seed.

A message that no edge of a sample carries is missing from the prediction, and nothing else shows it. So
all code that predicts on the samples of a model's query takes the query from `fit_query`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from livegnn.errors import ModelError
from livegnn.graph.defaults import left_out
from livegnn.network.model import Model
from livegnn.network.propagation import Propagate
from livegnn.network.renaming import renamed
from livegnn.query import SEEDS, Direction, OneHop, Query
from livegnn.schema import Schema
from livegnn.types import EdgeType

_Lists: TypeAlias = tuple[EdgeType, Direction]
_OTHER: Final[Mapping[Direction, Direction]] = {"in": "out", "out": "in"}


def fit_query(model: Model, schema: Schema) -> Query:
    """The query of a model, with one-hop queries over undirected edges in the direction of the messages.

    A node has the same neighbours in both directions of an undirected type, but an edge of a sample points
    one way, as it was drawn. Edges along which the model sends no message may be drawn too.

    Raises the errors of `Query.check`; `ModelError`, which says how to correct the query, if the model has no
    query, if a one-hop query draws edges in the direction in which the model sends nothing to its key nodes,
    or if no edge of the first hop carries a message to the seed.
    """
    if model.query is None:
        raise ModelError(
            "a model that answers from samples must carry the query that it was trained with, got one "
            "without: give it one with model.with_query(Query(...)), and save it again"
        )
    query, model = model.query, renamed(model, left_out(schema))
    query.check(schema)
    sends = _messages_to(model, model.shown).keys()
    seeds = {name for name in model.outputs.values() if model.node_type(name) == query.seed_type}
    reached: dict[int, set[str] | None] = {SEEDS: seeds}  # by one-hop query: what is read of its nodes
    fitted: list[OneHop] = []
    for position, one in enumerate(query.one_hop):
        near = [read for parent in one.parents if (read := reached[parent]) is not None]
        reads = _messages_to(model, set[str]().union(*near)) if near else {}
        lists, turned = (one.edge_type, one.direction), (one.edge_type, _OTHER[one.direction])
        if lists not in reads and turned in reads and schema.edge_types[one.edge_type].undirected:
            one, lists = replace(one, direction=turned[1]), turned
        if lists not in reads and reads and (turned in reads or (turned in sends and lists not in sends)):
            also = position > 0 and query.one_hop[position - 1].parents == one.parents
            raise _refusal(f"one-hop query {position} of its query", one, reads, "also" if also else "hop")
        reached[position] = reads.get(lists)
        fitted.append(one)
    first = [position for position, one in enumerate(query.one_hop) if one.parents == (SEEDS,)]
    reads = _messages_to(model, seeds)
    if reads and all(reached[position] is None for position in first):
        raise _refusal("the first hop of its query", query.one_hop[first[0]], reads)
    return Query(query.seed_type, tuple(fitted))


def _refusal(what: str, one: OneHop, reads: Iterable[_Lists], call: str = "hop") -> ModelError:
    turned = (one.edge_type, _OTHER[one.direction])
    choices = [turned] if turned in reads else list(reads)
    drawn = "" if one.by == "uniform" else f", by={one.by!r}"
    calls = " or ".join(
        f"{call}({edge_type!r}, {one.num_neighbors}, direction={direction!r}{drawn})"
        for edge_type, direction in choices
    )
    return ModelError(
        f"{what} must draw edges that carry the model's messages to {one.key_type!r} nodes, got direction "
        f"{one.direction!r} along {one.edge_type!r}, which carries none there: write {calls} in the query "
        "of model.with_query"
    )


def _messages_to(model: Model, values: Iterable[str]) -> dict[_Lists, set[str]]:
    """Finds the inputs of some values' rows on one node: the lists of neighbours, and the values of the
    neighbours in each."""
    here, found = set(values), dict[_Lists, set[str]]()
    ends = _ends_of(model)
    for step in reversed(model.steps):
        if step.output not in here or step.op == "degree":
            continue
        if step.op != "propagate":
            here.update(step.inputs)
            continue
        operators = Propagate.from_step(step)
        direction: Direction = "out" if operators.reverse else "in"
        along = len(operators.edge_types) * (2 if operators.coefficients else 1)
        sent: set[str] = set()
        for position, name in enumerate(step.inputs):
            if name in ends:
                source, target = ends[name]
                sent |= target if operators.reverse else source
                here |= source if operators.reverse else target
            elif model.edge_type(name) is None:
                (sent if position < along else here).add(name)
        if operators.only_loops:
            here |= sent
            continue
        for edge_type in operators.edge_types:
            of_type = {name for name in sent if model.node_type(name) == operators.source_type(edge_type)}
            found.setdefault((edge_type, direction), set()).update(of_type)
    return found


def _ends_of(model: Model) -> dict[str, tuple[set[str], set[str]]]:
    """For each value on edges that steps make: the values of the edge's source, and of its target."""
    ends: dict[str, tuple[set[str], set[str]]] = {}
    for step in model.steps:
        if step.op in ("source", "target"):
            read = {step.inputs[0]}
            ends[step.output] = (read, set()) if step.op == "source" else (set(), read)
        elif step.op != "propagate" and (made := [ends[name] for name in step.inputs if name in ends]):
            source, target = zip(*made, strict=True)
            ends[step.output] = (set[str]().union(*source), set[str]().union(*target))
    return ends
