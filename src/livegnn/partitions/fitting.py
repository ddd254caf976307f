"""The models, graphs and settings that can be divided into parts."""

from typing import Final

import livegnn._core as _core
from livegnn.compiler.lowering import lower
from livegnn.errors import InputError
from livegnn.inference import EngineOptions
from livegnn.network import Model
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import EdgeType
from livegnn.wording import kind_of

_NEEDED: Final = {"mode": "eager", "keep": "all", "keep_degree": 0, "history": 0}


def refuse_unfit(model: Model, schema: Schema, options: EngineOptions, owners: Owners) -> None:
    """Raises `InputError`, with the reason, if the parts of a graph would not give all predictions the bits
    that one engine gives them.
    """
    if not isinstance(owners, Owners):
        raise InputError(f"owners must be Owners of livegnn.placement, got {kind_of(owners)}")
    for reason in (
        _unfit_owners(owners),
        _unfit_options(options),
        _unfit_schema(schema),
        _unfit_model(model),
    ):
        if reason is not None:
            raise InputError(f"{reason}: run it with one Engine, which has no such limit, or change this")


def _unfit_owners(owners: Owners) -> str | None:
    if owners.rule == "table":
        return "owners of the parts of a graph must follow from ids, got a table by index"
    if owners.workers > _core.MAX_PARTS:
        return f"a graph can be divided into at most {_core.MAX_PARTS} parts, got {owners.workers}"
    return None


def _unfit_options(options: EngineOptions) -> str | None:
    for name, expected in _NEEDED.items():
        if (got := getattr(options, name)) != expected:
            return f"an engine of a divided graph needs {name}={expected!r}, got {got!r}"
    return None


def _unfit_schema(schema: Schema) -> str | None:
    for edge_type, edges in schema.edge_types.items():
        if edges.time_to_live is not None:
            return f"a graph whose edges expire cannot be divided yet, got edge type {_shown(edge_type)}"
    return None


def _unfit_model(model: Model) -> str | None:
    operations, _ = lower(model)
    for operation in operations:
        if operation.op == "call":
            return (
                "a model of a divided graph may not call a function that is not LiveGNN's, which may give "
                f"a row other bits in another block of rows, got {operation.output!r}"
            )
    return None


def _shown(edge_type: EdgeType) -> str:
    return "-".join(edge_type)
