"""The routes of the schema: its types, and their growth."""

from typing import Annotated, Final, Literal, TypeAlias

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from livegnn.graph import EdgeSchema, Growth
from livegnn.runtime import Runtime
from livegnn.server.bodies import Limits, media_type_of, off_loop, parse, read_body, to_json
from livegnn.server.requests import body_of

_WIDEST: Final = 1 << 14
"""Features of a type that a request makes: a row of them takes memory in each answer and batch."""

Name: TypeAlias = Annotated[StrictStr, Field(min_length=1, max_length=200)]
Width: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=_WIDEST)]
Number: TypeAlias = Annotated[float, Field(strict=True)]


class SchemaAnswer(BaseModel):
    """The types of nodes and edges of the graph, as `Schema.to_json` has them."""

    seq: int
    types: dict[str, object] = Field(alias="schema")  # pydantic has a method of this name


class EdgeTypeRequest(BaseModel):
    """A new edge type, with the settings of `EdgeSchema`."""

    model_config = ConfigDict(extra="forbid")
    edge_type: list[Name] = Field(description="source type, relation and target type")
    undirected: StrictBool = False
    weighted: StrictBool = False
    timed: StrictBool = False
    duplicates: Literal["replace", "add", "keep"] = "replace"
    edge_dim: Width = Field(0, description="the width of the edges' features")
    time_to_live: float | None = Field(None, strict=True, description="the age at which edges expire")
    in_neighbors: StrictBool = True


class GrowthRequest(BaseModel):
    """New columns and types of the schema, as of `Growth`."""

    model_config = ConfigDict(extra="forbid")
    columns: dict[Name, dict[Name, Number]] = Field(
        default_factory=dict,
        description="by node type: the names of new columns, and their value in old rows",
    )
    node_types: dict[Name, Width] = Field(
        default_factory=dict, description="new node types, and the width of their features"
    )
    edge_types: list[EdgeTypeRequest] = Field(default_factory=list)
    auto_add: dict[Name, list[Number]] = Field(
        default_factory=dict, description="new node types that are added unannounced, with their features"
    )
    timeout: float = Field(60.0, gt=0, le=300, strict=True, description="seconds to wait for the new schema")

    def to_growth(self) -> Growth:
        """The growth. Raises `InputError`."""
        edge_types = {
            tuple(one.edge_type): EdgeSchema(**one.model_dump(exclude={"edge_type"}))
            for one in self.edge_types
        }
        auto_add = {name: tuple(row) for name, row in self.auto_add.items()}
        return Growth(self.columns, self.node_types, edge_types, auto_add)  # type: ignore[arg-type]  # checked


def add_schema_routes(router: APIRouter, runtime: Runtime, limits: Limits) -> None:
    """Adds the routes."""

    @router.get("/v1/schema", responses={200: {"model": SchemaAnswer}})
    def describe_schema() -> Response:
        """The types of nodes and edges of the graph, as `Schema.to_json` has them."""
        return to_json({"seq": runtime.seq, "schema": runtime.graph.schema.to_json()})

    @router.post("/v1/schema", responses={200: {"model": SchemaAnswer}}, openapi_extra=body_of(GrowthRequest))
    async def grow_schema(request: Request) -> Response:
        """Add columns and types to the schema, as an event; the answer has the new schema."""
        body, media_type = await read_body(request, limits.objects, "send a part"), media_type_of(request)
        wanted = await off_loop(len(body), lambda: parse(GrowthRequest, body, media_type))
        growth = wanted.to_growth()
        await run_in_threadpool(lambda: runtime.grow(growth, timeout=wanted.timeout))
        return describe_schema()
