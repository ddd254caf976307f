"""The models, graphs and settings that can be divided into parts."""

from collections.abc import Mapping
from typing import Final

import livegnn._core as _core
from livegnn.errors import InputError
from livegnn.inference import EngineOptions
from livegnn.network import Model
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import NodeType
from livegnn.wording import kind_of

_NEEDED: Final = {"mode": "eager", "keep": "all", "keep_degree": 0, "history": 0, "follow": ()}


def owners_of_types(owners: Owners | Mapping[NodeType, Owners], schema: Schema) -> dict[NodeType, Owners]:
    """The owners of each node type of a graph. Raises `InputError` if some are missing, or if the types have
    different numbers of parts."""
    if isinstance(owners, Owners):
        return dict.fromkeys(schema.node_types, owners)
    if not isinstance(owners, Mapping):
        raise InputError(f"owners must be Owners of livegnn.placement, or a mapping, got {kind_of(owners)}")
    for name, one in owners.items():
        if not isinstance(one, Owners):
            raise InputError(
                "owners must be Owners of livegnn.placement, or a mapping to them, got "
                f"{kind_of(one)} for {name!r}"
            )
    if set(owners) != set(schema.node_types):
        raise InputError(
            f"owners must be given for the node types {', '.join(map(repr, schema.node_types))}, got "
            f"{', '.join(map(repr, owners)) or 'none'}"
        )
    if len(parts := {one.workers for one in owners.values()}) > 1:
        raise InputError(f"all node types must have the same number of parts, got {sorted(parts)}")
    return {name: owners[name] for name in schema.node_types}


def refuse_unfit(
    model: Model, schema: Schema, options: EngineOptions, owners: Owners | Mapping[NodeType, Owners]
) -> None:
    """Raises `InputError`, with the reason, if the parts of a graph would not give all predictions the bits
    that one engine gives them.
    """
    for reason in (
        *map(_unfit_owners, owners_of_types(owners, schema).values()),
        _unfit_options(options),
        _unfit_model(model),
    ):
        if reason is not None:
            raise InputError(f"{reason}: run it with one Engine, which has no such limit, or change this")


def _unfit_owners(owners: Owners) -> str | None:
    if owners.rule == "table":
        return "owners of the nodes that arrive must follow from a rule, got a table by index"
    if owners.workers > _core.MAX_PARTS:
        return f"a graph can be divided into at most {_core.MAX_PARTS} parts, got {owners.workers}"
    return None


def _unfit_options(options: EngineOptions) -> str | None:
    for name, expected in _NEEDED.items():
        if (got := getattr(options, name)) != expected:
            return f"an engine of a divided graph needs {name}={expected!r}, got {got!r}"
    return None


def _unfit_model(model: Model) -> str | None:
    for name in model.functions:
        return (
            "a model of a divided graph may not call a function that is not LiveGNN's, which may give a row "
            f"other bits in another block of rows, got {name!r}"
        )
    return None
