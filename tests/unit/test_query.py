"""Queries: what may be written, how it is decomposed, and what it says to a graph that it does not fit."""

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import FileFormatError, InputError, UnknownTypeError
from livegnn.query import SEEDS, OneHop, Query
from livegnn.types import EdgeType

CLICK: EdgeType = ("user", "click", "item")
FOLLOW: EdgeType = ("user", "follow", "user")
BOUGHT: EdgeType = ("item", "bought_with", "item")
SCHEMA = lg.Schema(
    {"user": 0, "item": 0},
    {
        CLICK: lg.EdgeSchema(weighted=True, timed=True),
        FOLLOW: lg.EdgeSchema(in_neighbors=False),
        BOUGHT: lg.EdgeSchema(undirected=True, timed=True),
    },
)


def test_a_path_is_decomposed_into_one_hop_queries() -> None:
    query = lg.Query("user").hop(CLICK, 25).hop(BOUGHT, 10, by="latest").hop(CLICK, 5, direction="in")
    assert query.one_hop == (
        OneHop(CLICK, 25),
        OneHop(BOUGHT, 10, by="latest", parents=(0,)),
        OneHop(CLICK, 5, direction="in", parents=(1,)),
    )
    assert query.one_hop[0].parents == (SEEDS,)
    assert query.hops == (0, 1, 2)
    assert query.num_hops == 3
    assert query.most_lookups == 1 + 25 + 250
    assert [one.key_type for one in query.one_hop] == ["user", "item", "item"]
    assert [one.neighbor_type for one in query.one_hop] == ["item", "item", "user"]
    query.check(SCHEMA)


def test_several_edge_types_in_a_hop_make_a_dag() -> None:
    query = Query("user").hop(CLICK, 3).also(FOLLOW, 4).hop(BOUGHT, 2).also(CLICK, 5).hop(BOUGHT, 7)
    assert [one.parents for one in query.one_hop] == [(SEEDS,), (SEEDS,), (0,), (1,), (2, 3)]
    assert query.hops == (0, 0, 1, 1, 2)
    assert query.most_lookups == 1 + 1 + 3 + 4 + (3 * 2 + 4 * 5)
    # One edge type may be drawn in both directions in one hop.
    both = Query("user").hop(FOLLOW, 3).also(FOLLOW, 3, direction="in")
    assert [one.direction for one in both.one_hop] == ["out", "in"]


def test_queries_are_immutable_and_equal_by_what_they_ask() -> None:
    begin = Query("user").hop(CLICK, 3)
    longer = begin.hop(BOUGHT, 2)
    assert begin.num_hops == 1
    assert longer == Query("user", longer.one_hop) == Query("user", list(longer.one_hop))  # type: ignore[arg-type]
    assert hash(longer) == hash(Query("user", longer.one_hop))
    assert longer != begin
    assert longer != Query("user").hop(CLICK, 3).hop(BOUGHT, 2, by="latest")
    with pytest.raises(AttributeError):
        longer.seed_type = "item"  # type: ignore[misc]
    assert OneHop(list(CLICK), 3).edge_type == CLICK  # type: ignore[arg-type]


QUERIES = {
    "none": Query("user"),
    "path": Query("user").hop(CLICK, 25).hop(BOUGHT, 10, by="latest").hop(CLICK, 5, direction="in"),
    "dag": Query("user")
    .hop(CLICK, 3)
    .also(FOLLOW, 4, by="uniform")
    .hop(BOUGHT, 2)
    .also(CLICK, 5, by="weight"),
    "some parents": Query(
        "user", (OneHop(CLICK, 3), OneHop(CLICK, 2, by="latest"), OneHop(BOUGHT, 1, parents=(1,)))
    ),
    "not in order": Query("user", (OneHop(CLICK, 3), OneHop(BOUGHT, 1, parents=(0,)), OneHop(FOLLOW, 2))),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_comes_back_from_its_text_and_from_json(name: str) -> None:
    query = QUERIES[name]
    assert eval(repr(query)) == query
    assert Query.from_json(json.loads(json.dumps(query.to_json()))) == query


def test_text_is_the_calls_that_make_a_query() -> None:
    assert repr(QUERIES["path"]) == (
        "Query('user').hop(('user', 'click', 'item'), 25)"
        ".hop(('item', 'bought_with', 'item'), 10, by='latest')"
        ".hop(('user', 'click', 'item'), 5, direction='in')"
    )
    assert repr(QUERIES["dag"]).count(".also(") == 2
    assert "OneHop(" in repr(QUERIES["some parents"])


def test_pygs_form_draws_against_all_edge_types_that_lead_here() -> None:
    query = Query.from_num_neighbors(SCHEMA, "item", [4, 3, 2])
    assert [(one.edge_type, one.num_neighbors, one.direction, one.parents) for one in query.one_hop] == [
        (CLICK, 4, "in", (SEEDS,)),
        (BOUGHT, 4, "in", (SEEDS,)),
        (CLICK, 3, "in", (1,)),
        (FOLLOW, 3, "in", (0,)),
        (BOUGHT, 3, "in", (1,)),
        (CLICK, 2, "in", (4,)),
        (FOLLOW, 2, "in", (2, 3)),
        (BOUGHT, 2, "in", (4,)),
    ]
    by_type = Query.from_num_neighbors(SCHEMA, "item", {BOUGHT: [2, 0], CLICK: [0, 3]}, by="latest")
    assert by_type == Query("item").hop(BOUGHT, 2, direction="in", by="latest").hop(
        CLICK, 3, direction="in", by="latest"
    )


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "fan-out of 0": (
        lambda: Query("user").hop(CLICK, 0),
        r"num_neighbors of \('user'.* of at least|from 1 to",
    ),
    "fan-out below 0": (lambda: Query("user").hop(CLICK, -1), r"num_neighbors .* got -1"),
    "fan-out as text": (lambda: Query("user").hop(CLICK, "3"), r"num_neighbors .* got '3'"),  # type: ignore[arg-type]
    "gap": (
        lambda: Query("user").hop(CLICK, 3).hop(CLICK, 3),
        r"one-hop query 1, 'out' along .*a gap: it is at node type 'item', not 'user'.*direction 'in'",
    ),
    "gap at the seeds": (
        lambda: Query("item").hop(CLICK, 3),
        r"one-hop query 0.*at node type 'item', not 'user'",
    ),
    "a later parent": (
        lambda: Query("user", (OneHop(CLICK, 3, parents=(1,)), OneHop(BOUGHT, 3, parents=(0,)))),
        r"one-hop query 0.*must be an earlier one-hop query, got 1.*cycle",
    ),
    "its own parent": (
        lambda: Query("user", (OneHop(FOLLOW, 3, parents=(0,)),)),
        r"an earlier one-hop query, got 0",
    ),
    "parents of two hops": (
        lambda: Query("user", (OneHop(FOLLOW, 3), OneHop(FOLLOW, 3, parents=(SEEDS, 0)))),
        r"one-hop query 1.*of one hop, got parents of the hops 0, 1",
    ),
    "no parents": (lambda: OneHop(CLICK, 3, parents=()), r"parents must be positions"),
    "a parent below the seeds": (lambda: OneHop(CLICK, 3, parents=(-2,)), r"a parent must be .* got -2"),
    "direction": (lambda: Query("user").hop(CLICK, 3, direction="both"), r"direction .* got 'both'"),  # type: ignore[arg-type]
    "strategy": (lambda: Query("user").hop(CLICK, 3, by="degree"), r"by must be one of .* got 'degree'"),  # type: ignore[arg-type]
    "edge type": (
        lambda: Query("user").hop("click", 3),
        r"\(source type, relation, target type\), got 'click'",
    ),  # type: ignore[arg-type]
    "seed type": (lambda: Query(3), r"seed_type must be the name of a node type, got 3"),  # type: ignore[arg-type]
    "one-hop queries": (lambda: Query("user", (3,)), r"a list of OneHop, got int"),  # type: ignore[arg-type]
    "one-hop queries as text": (lambda: Query("user", "abc"), r"a list of OneHop, got str"),  # type: ignore[arg-type]
    "also first": (lambda: Query("user").also(CLICK, 3), r"begin with hop"),
    "pyg: a hop that draws nothing": (
        lambda: Query.from_num_neighbors(SCHEMA, "item", {BOUGHT: [2, 0]}),
        r"hop 2 draws nothing: .* leads to 'item'",
    ),
    "pyg: 0": (lambda: Query.from_num_neighbors(SCHEMA, "item", [2, 0]), r"num_neighbors .* got 0"),
    "pyg: all": (lambda: Query.from_num_neighbors(SCHEMA, "item", [-1]), r"num_neighbors .* got -1"),
    "pyg: hops": (
        lambda: Query.from_num_neighbors(SCHEMA, "item", {BOUGHT: [2], CLICK: [2, 1]}),
        r"as many hops for each edge type, got 1 and 2",
    ),
    "pyg: a number": (
        lambda: Query.from_num_neighbors(SCHEMA, "item", 3),
        r"a list with a number for each hop",
    ),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_query_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        make()


UNFIT: dict[str, tuple[Query, type[InputError], str]] = {
    "no hops": (Query("user"), InputError, "at least one hop"),
    "seed type": (
        Query("shop").hop(("shop", "sells", "item"), 3),
        UnknownTypeError,
        "the seed type names type 'shop', which the graph lacks; it has 'user', 'item'",
    ),
    "edge type": (
        Query("user").hop(("user", "likes", "item"), 3),
        UnknownTypeError,
        "one-hop query 0, 'out' along ('user', 'likes', 'item') names type",
    ),
    "latest": (Query("user").hop(FOLLOW, 3, by="latest"), InputError, "by='latest' needs edges with times"),
    "weight": (
        Query("user").hop(CLICK, 3).hop(BOUGHT, 3, by="weight"),
        InputError,
        "one-hop query 1, 'out' along ('item', 'bought_with', 'item'): by='weight' needs edges with weights",
    ),
    "in": (Query("user").hop(FOLLOW, 3, direction="in"), InputError, "no in-neighbors"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_query_that_does_not_fit_a_graph_says_why(name: str) -> None:
    query, error, message = UNFIT[name]
    with pytest.raises(error, match=re.escape(message)):
        query.check(SCHEMA)


def test_unknown_types_of_pygs_form_are_named() -> None:
    with pytest.raises(UnknownTypeError, match="'shop'"):
        Query.from_num_neighbors(SCHEMA, "shop", [3])
    with pytest.raises(UnknownTypeError, match="'likes'"):
        Query.from_num_neighbors(SCHEMA, "item", {("user", "likes", "item"): [3]})


@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["version", "seed_type", "one_hop", "parents"]), inner)
        ),
        max_leaves=8,
    )
)
def test_other_json_is_no_query(data: object) -> None:
    try:
        query = Query.from_json(data)  # type: ignore[arg-type]
    except FileFormatError:
        return
    assert Query.from_json(query.to_json()) == query


SPOILT = {
    "version": {"version": 2},
    "no seed type": {"seed_type": None},
    "a gap": {"seed_type": "item"},
    "no parents": {
        "one_hop": [{"edge_type": list(CLICK), "num_neighbors": 3, "direction": "out", "by": "uniform"}]
    },
    "no list": {"one_hop": {"0": 1}},
}


@pytest.mark.parametrize("name", SPOILT)
def test_json_that_is_no_query_is_refused(name: str) -> None:
    data = QUERIES["path"].to_json()
    assert isinstance(data, dict)
    with pytest.raises(
        FileFormatError, match="of version 1, got 2" if name == "version" else "Query.to_json"
    ):
        Query.from_json({**data, **SPOILT[name]})  # type: ignore[dict-item]
