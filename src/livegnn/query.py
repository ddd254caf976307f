"""Sampling queries of several hops: a seed node type, and what each hop draws along which edges.

A query is decomposed into one-hop queries in topological order (`Query.one_hop`). Each names its parents: the
one-hop queries of the hop before that bring in the nodes it draws for.

Invariant: a query that exists is well-formed; whether it fits a graph says `Query.check`. Queries are
immutable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from livegnn.arguments import check_int
from livegnn.errors import FileFormatError, InputError, UnknownTypeError
from livegnn.types import JSON, EdgeType, NodeType
from livegnn.wording import kind_of, never_raises

if TYPE_CHECKING:
    from livegnn.schema import Schema

Direction: TypeAlias = Literal["in", "out"]
NeighborsBy: TypeAlias = Literal["uniform", "weight", "latest"]

NEIGHBORS_BY = ("uniform", "weight", "latest")
SEEDS = -1
"""As a parent: the seeds of the query."""

_VERSION = 1
_MOST_NEIGHBORS = 2**31 - 1


@dataclass(frozen=True)
class OneHop:
    """One hop along one edge type: for each key node, `num_neighbors` of its neighbours, or all if it has
    fewer.

    direction: `"out"`: the key node is the source of an edge, its target is drawn; `"in"`: the key node is
    the target, the source is drawn. by: as in `sample_neighbors`. parents: positions of earlier one-hop
    queries of one and the same hop, whose neighbours are the key nodes; `SEEDS` for those of the first hop.

    Raises `InputError`.
    """

    edge_type: EdgeType
    num_neighbors: int
    direction: Direction = "out"
    by: NeighborsBy = "uniform"
    parents: tuple[int, ...] = (SEEDS,)

    def __post_init__(self) -> None:
        name = self.edge_type
        if not isinstance(name, (tuple, list)) or len(name) != 3 or not all(isinstance(n, str) for n in name):
            raise InputError(f"an edge type must be (source type, relation, target type), got {name!r}")
        object.__setattr__(self, "edge_type", tuple(name))
        count = check_int(self.num_neighbors, f"num_neighbors of {self.edge_type!r}", 1, _MOST_NEIGHBORS)
        object.__setattr__(self, "num_neighbors", count)
        if not isinstance(self.direction, str) or self.direction not in ("in", "out"):
            raise InputError(f"direction must be 'in' or 'out', got {self.direction!r}")
        if not isinstance(self.by, str) or self.by not in NEIGHBORS_BY:
            raise InputError(f"by must be one of {', '.join(map(repr, NEIGHBORS_BY))}, got {self.by!r}")
        if not isinstance(self.parents, (tuple, list)) or not self.parents:
            raise InputError(
                "parents must be positions of earlier one-hop queries, or (-1,) for the seeds, "
                f"got {self.parents!r}"
            )
        parents = tuple(sorted({check_int(parent, "a parent", SEEDS) for parent in self.parents}))
        object.__setattr__(self, "parents", parents)

    @property
    def key_type(self) -> NodeType:
        """The type of the nodes that it draws for."""
        return self.edge_type[2 if self.direction == "in" else 0]

    @property
    def neighbor_type(self) -> NodeType:
        """The type of the nodes that it draws."""
        return self.edge_type[0 if self.direction == "in" else 2]


@dataclass(frozen=True, repr=False)
class Query:
    """A sampling query: `Query("user").hop(("user", "click", "item"), 25).hop(...)`.

    Each hop draws for the nodes that the previous hop added and whose type its edges begin with; a node
    that the sample already has is not drawn for again. A node belongs to the one-hop query that reaches it
    first. `hop` and `also` return new queries; `one_hop` is the decomposition, in topological order.

    Raises `InputError`, which names the one-hop query, for a fan-out below 1, a gap in the path, and parents
    that are not earlier one-hop queries (so that a cycle cannot be written), or are of several hops.
    """

    seed_type: NodeType
    one_hop: tuple[OneHop, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.seed_type, str):
            raise InputError(f"seed_type must be the name of a node type, got {self.seed_type!r}")
        if not isinstance(self.one_hop, Iterable) or isinstance(self.one_hop, (str, bytes)):
            raise InputError(f"one_hop must be a list of OneHop, got {kind_of(self.one_hop)}")
        object.__setattr__(self, "one_hop", tuple(self.one_hop))
        hops: list[int] = []
        for position, one in enumerate(self.one_hop):
            if not isinstance(one, OneHop):
                raise InputError(f"one_hop must be a list of OneHop, got {kind_of(one)}")
            hops.append(self._hop_of(position, one, hops))

    def hop(
        self,
        edge_type: EdgeType,
        num_neighbors: int,
        *,
        direction: Direction = "out",
        by: NeighborsBy = "uniform",
    ) -> "Query":
        """Returns the query with one more hop, for the nodes that the last hop adds.

        direction: `"out"` follows the edges, `"in"` follows them backwards, as message-passing layers need.
        Raises `InputError`, also if the last hop adds no nodes of the type that the edges begin with.
        """
        return self._with(self.num_hops, OneHop(edge_type, num_neighbors, direction, by))

    def also(
        self,
        edge_type: EdgeType,
        num_neighbors: int,
        *,
        direction: Direction = "out",
        by: NeighborsBy = "uniform",
    ) -> "Query":
        """The query with another edge type in its last hop. Arguments and errors are those of `hop`."""
        if not self.one_hop:
            raise InputError(
                "also adds an edge type to the last hop, got a query without hops: begin with hop"
            )
        return self._with(self.num_hops - 1, OneHop(edge_type, num_neighbors, direction, by))

    @classmethod
    def from_num_neighbors(
        cls,
        schema: "Schema",
        seed_type: NodeType,
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        by: NeighborsBy = "uniform",
    ) -> "Query":
        """The query of PyG's loaders: each hop draws against all edge types that lead to nodes of the hop
        before (direction `"in"`), in the order of the schema.

        num_neighbors: a fan-out for each hop, for all edge types or by edge type. By edge type, 0 means none;
        an edge type that is left out is never drawn.

        Raises `InputError`, also if a hop draws nothing, and `UnknownTypeError`.
        """
        fan_outs = _fan_outs_of(schema, num_neighbors)
        query = cls(seed_type)
        if seed_type not in schema.node_types:
            raise _unknown("the seed type", seed_type, schema.node_types)
        reached = {seed_type}
        for hop in range(max((len(counts) for counts in fan_outs.values()), default=0)):
            drawn = [name for name, counts in fan_outs.items() if name[2] in reached and counts[hop] != 0]
            if not drawn:
                at = " and ".join(map(repr, sorted(reached)))
                raise InputError(f"hop {hop + 1} draws nothing: no edge type with a fan-out leads to {at}")
            for i, name in enumerate(drawn):
                add = query.also if i else query.hop
                query = add(name, fan_outs[name][hop], direction="in", by=by)
            reached = {name[0] for name in drawn}
        return query

    @property
    def num_hops(self) -> int:
        """The number of hops."""
        return max(self.hops, default=-1) + 1

    @property
    def hops(self) -> tuple[int, ...]:
        """The hop of each one-hop query, counted from 0."""
        hops: list[int] = []
        for one in self.one_hop:
            hops.append(0 if one.parents == (SEEDS,) else hops[one.parents[0]] + 1)
        return tuple(hops)

    @property
    def most_lookups(self) -> int:
        """The most neighbour lists that a sample for one seed reads: sums of products of fan-outs."""
        drawn: list[int] = []
        lookups = 0
        for one in self.one_hop:
            keys = sum(1 if parent == SEEDS else drawn[parent] for parent in one.parents)
            drawn.append(keys * one.num_neighbors)
            lookups += keys
        return lookups

    def check(self, schema: "Schema") -> None:
        """Raises an error unless the query fits a graph of this schema and has a hop.

        `UnknownTypeError`: a type that the schema lacks. `InputError`: `"latest"` on edges without times,
        `"weight"` on edges without weights, `"in"` on edges that keep no in-neighbours.
        """
        if not self.one_hop:
            raise InputError("a query must have at least one hop, got none: add one with hop")
        if self.seed_type not in schema.node_types:
            raise _unknown("the seed type", self.seed_type, schema.node_types)
        for position, one in enumerate(self.one_hop):
            what = self._describe(position, one)
            edges = schema.edge_types.get(one.edge_type)
            if edges is None:
                raise _unknown(what, one.edge_type, schema.edge_types)
            if one.by == "latest" and not edges.timed:
                raise InputError(f"{what}: by='latest' needs edges with times, use another strategy")
            if one.by == "weight" and not edges.weighted:
                raise InputError(f"{what}: by='weight' needs edges with weights, use another strategy")
            if one.direction == "in" and not (edges.in_neighbors or edges.undirected):
                raise InputError(
                    f"{what}: the edges keep no in-neighbors, so only direction 'out' can be drawn"
                )

    def to_json(self) -> JSON:
        """The query as JSON values, with a version."""
        return {
            "version": _VERSION,
            "seed_type": self.seed_type,
            "one_hop": [
                {
                    "edge_type": list(one.edge_type),
                    "num_neighbors": one.num_neighbors,
                    "direction": one.direction,
                    "by": one.by,
                    "parents": list(one.parents),
                }
                for one in self.one_hop
            ],
        }

    @classmethod
    def from_json(cls, data: JSON) -> "Query":
        """The inverse of `to_json`. Raises `FileFormatError` if `data` is not what `to_json` makes."""
        version = data.get("version") if isinstance(data, dict) else None
        if not isinstance(data, dict) or "version" not in data:
            raise FileFormatError(f"a query must be what Query.to_json makes, got {data!r}")
        if version != _VERSION or isinstance(version, bool):
            raise FileFormatError(f"a query must be of version {_VERSION}, got {version!r}: update livegnn")
        try:
            listed = data["one_hop"]
            assert isinstance(listed, list)
            return cls(cast("NodeType", data["seed_type"]), tuple(map(_one_hop, listed)))
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise FileFormatError(
                f"a query must be what Query.to_json makes, got {data!r}: {error}"
            ) from error

    @never_raises
    def __repr__(self) -> str:
        """The calls that make the query."""
        text, rebuilt = f"Query({self.seed_type!r})", Query(self.seed_type)
        for one, hop in zip(self.one_hop, self.hops, strict=True):
            if hop < rebuilt.num_hops - 1:
                break
            add = "hop" if hop == rebuilt.num_hops else "also"
            extra = "" if one.direction == "out" else f", direction={one.direction!r}"
            extra += "" if one.by == "uniform" else f", by={one.by!r}"
            text += f".{add}({one.edge_type!r}, {one.num_neighbors}{extra})"
            rebuilt = rebuilt._with(hop, one)
        return text if rebuilt == self else f"Query({self.seed_type!r}, {self.one_hop!r})"

    def _with(self, hop: int, one: OneHop) -> "Query":
        """The query with a one-hop query more, for all key nodes that the hop before brings in."""
        if hop == 0:
            parents: tuple[int, ...] = (SEEDS,)
        else:
            reaching = zip(self.one_hop, self.hops, strict=True)
            parents = tuple(
                position
                for position, (other, at) in enumerate(reaching)
                if at == hop - 1 and other.neighbor_type == one.key_type
            )
            if not parents:
                there = {
                    other.neighbor_type
                    for other, at in zip(self.one_hop, self.hops, strict=True)
                    if at == hop - 1
                }
                raise self._gap(len(self.one_hop), one, there)
        added = OneHop(one.edge_type, one.num_neighbors, one.direction, one.by, parents)
        return Query(self.seed_type, (*self.one_hop, added))

    def _hop_of(self, position: int, one: OneHop, hops: Sequence[int]) -> int:
        """The hop of a one-hop query, counted from 0. hops: those of the earlier one-hop queries."""
        what = self._describe(position, one)
        late = [parent for parent in one.parents if parent >= position]
        if late:
            raise InputError(
                f"{what}: a parent must be an earlier one-hop query, got {late[0]}: list them in topological "
                "order, which a cycle does not have"
            )
        at = {hops[parent] + 1 if parent != SEEDS else 0 for parent in one.parents}
        if len(at) > 1:
            raise InputError(
                f"{what}: its parents must be of one hop, got parents of the hops "
                f"{', '.join(str(hop) for hop in sorted(at))}: give it parents of one of them"
            )
        there = {
            self.seed_type if parent == SEEDS else self.one_hop[parent].neighbor_type
            for parent in one.parents
        }
        if there != {one.key_type}:
            raise self._gap(position, one, there)
        return at.pop()

    def _gap(self, position: int, one: OneHop, there: Iterable[NodeType]) -> InputError:
        at = " and ".join(map(repr, sorted(there)))
        other = "in" if one.direction == "out" else "out"
        return InputError(
            f"{self._describe(position, one)}: the query has a gap: it is at node type {at}, not "
            f"{one.key_type!r}; add the hop between, or go in direction {other!r}"
        )

    @staticmethod
    def _describe(position: int, one: OneHop) -> str:
        return f"one-hop query {position}, {one.direction!r} along {one.edge_type!r}"


def _fan_outs_of(
    schema: "Schema", num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]]
) -> dict[EdgeType, list[int]]:
    """Fan-outs by edge type, in the order of the schema. Raises `InputError`."""
    if not isinstance(num_neighbors, Mapping):
        counts = _counts_of(num_neighbors, least=1)
        return dict.fromkeys(schema.edge_types, counts)
    for name in num_neighbors:
        if name not in schema.edge_types:
            raise _unknown("num_neighbors", name, schema.edge_types)
    by_type = {
        name: _counts_of(num_neighbors[name], least=0) for name in schema.edge_types if name in num_neighbors
    }
    lengths = sorted({len(counts) for counts in by_type.values()})
    if len(lengths) > 1:
        raise InputError(
            f"num_neighbors must have as many hops for each edge type, got {lengths[0]} and {lengths[-1]}"
        )
    return by_type


def _counts_of(given: object, *, least: int) -> list[int]:
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        return [check_int(count, "num_neighbors", least, _MOST_NEIGHBORS) for count in given]
    raise InputError(f"num_neighbors must be a list with a number for each hop, got {given!r}")


def _one_hop(data: JSON) -> OneHop:
    assert isinstance(data, dict)
    parents = data["parents"]
    assert isinstance(parents, list)
    return OneHop(
        edge_type=cast("EdgeType", data["edge_type"]),
        num_neighbors=cast("int", data["num_neighbors"]),
        direction=cast("Direction", data["direction"]),
        by=cast("NeighborsBy", data["by"]),
        parents=tuple(cast("list[int]", parents)),
    )


def _unknown(what: str, name: object, known: Iterable[object]) -> UnknownTypeError:
    return UnknownTypeError(
        f"{what} names type {name!r}, which the graph lacks; it has {', '.join(map(repr, known))}"
    )
