"""Modules that score pairs of nodes: the types of the pairs, and an encoder and a decoder as one method."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

from torch import nn
from torch_geometric.data import Data

from livegnn.importers.arguments.names import PAIRS, RELATION, RELATION_OF_PAIRS, meaning_of
from livegnn.importers.program.export import signature_of
from livegnn.importers.settings import schema_of
from livegnn.network.call_settings import CallSettings
from livegnn.types import EdgeType

if TYPE_CHECKING:
    from collections.abc import Callable

ENCODE, DECODE = "encode", "decode"
_STARS = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def with_decoder(module: nn.Module, settings: CallSettings) -> tuple[nn.Module, CallSettings]:
    """The module with one method that encodes nodes and decodes pairs, if it has one for each; else itself.

    They are one if `method` is ``"decode"``, or if the module has no ``forward``. The method takes the
    arguments of ``encode`` and, by their names, those of ``decode`` without its first, which ``encode``
    returns.
    """
    none = settings.method == "forward" and type(module).forward is nn.Module.forward
    if settings.method != DECODE and not none:
        return module, settings
    kind = type(module)
    encode, decode = (getattr(kind, name, None) for name in (ENCODE, DECODE))
    if not callable(encode) or not callable(decode):
        return module, settings
    more = _arguments_of_pairs(_signature(module, DECODE, "decoder"))
    if more is None:
        return module, settings

    def both(self: nn.Module, *args: object, **kwargs: object) -> object:
        pairs = [kwargs.pop(one.name) for one in more]
        return decode(self, encode(self, *args, **kwargs), *pairs)

    given = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    given += _signature(module, ENCODE, "encoder").parameters.values()
    rest = [given.pop()] if given[-1].kind is Parameter.VAR_KEYWORD else []
    method: Callable[..., object] = both
    method.__signature__ = Signature([*given, *more, *rest])  # type: ignore[attr-defined]
    joined = copy.copy(module)  # which shares all parts with the module
    members: dict[str, Any] = {DECODE: method, "__module__": kind.__module__}
    joined.__class__ = type(kind.__name__, (kind,), members)
    return joined, replace(settings, method=DECODE)


def _signature(module: nn.Module, method: str, part: str) -> Signature:
    """The arguments of a method. One that takes any, as those of PyG's ``GAE``, hands them to a part."""
    own, inner = signature(getattr(module, method)), getattr(module, part, None)
    starred = any(one.kind is one.VAR_POSITIONAL for one in own.parameters.values())
    return signature_of(inner, "forward") if starred and isinstance(inner, nn.Module) else own


def _arguments_of_pairs(decode: Signature) -> list[Parameter] | None:
    """The arguments of a decoder after its first, as keywords, or None if they name no pairs.

    The first of them is the pairs, by any name: PyG's decoders call it ``edge_index``, and their relations
    ``edge_type``.
    """
    parameters = list(decode.parameters.values())
    of_edges = [one for one in parameters[1:] if one.default is one.empty and one.kind not in _STARS]
    starred = bool(parameters) and parameters[0].kind is Parameter.VAR_POSITIONAL
    if not of_edges and not starred:
        return None
    if of_edges and meaning_of(of_edges[0].name) not in (PAIRS, "edge_index"):
        return None
    renamed = {RELATION: RELATION_OF_PAIRS, "edge_attr": "edge_label_attr"}
    names = [PAIRS, *(renamed.get(one.name, one.name) for one in of_edges[1:])]
    return [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]


def typed_pairs(module: nn.Module, settings: CallSettings) -> Iterator[CallSettings]:
    """The settings for each pair of node types that the module may score, if it is not known.

    A module for several types takes the pairs of one of these in one tensor, and only its computation shows
    of which; then the first edge type of each pair of node types is tried.
    """
    names = _lone_pairs(module, settings)
    kinds = _edge_types(settings)
    data: Any = schema_of(settings)
    given = [kind for kind in kinds if hasattr(data, "stores") and PAIRS in data[kind]]
    first = {(source, target): (source, name, target) for source, name, target in reversed(given or kinds)}
    if len(first) < 2 or not names:
        yield settings
        return
    for kind in reversed(first.values()):
        yield replace(settings, inputs={**(settings.inputs or {}), **dict.fromkeys(names, kind)})


def _lone_pairs(module: nn.Module, settings: CallSettings) -> list[str]:
    """The arguments that name pairs of nodes, without those by type or in `inputs`."""
    parameters: Mapping[str, Parameter] = signature_of(module, settings.method).parameters
    return [
        name
        for name, one in parameters.items()
        if meaning_of(name) == PAIRS
        and one.default is one.empty
        and not name.endswith("_dict")
        and name not in (settings.inputs or {})
    ]


def _edge_types(settings: CallSettings) -> list[EdgeType]:
    data: Any = schema_of(settings)
    if data is not None:
        return [] if isinstance(data, Data) else list(data.edge_types)
    return list(settings.metadata[1]) if settings.metadata is not None else []
