"""Finds the arguments of a module, from its signature and from PyG data or a schema if there is one."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from torch_geometric.data import Data

from livegnn.errors import ModelError
from livegnn.importers.arguments.groups import Groups, find_groups, without_groups
from livegnn.importers.arguments.names import (
    NAMES,
    OF_PAIRS,
    PAIRS,
    RELATION,
    RELATION_OF_PAIRS,
    VALUE,
    meaning_of,
)
from livegnn.importers.expressions.expressions import Atom, find_rounded
from livegnn.importers.program.export import Given, MethodCall, Record, leaves, signature_of
from livegnn.network.call_settings import Members
from livegnn.network.checks import check_width
from livegnn.types import DEFAULT_EDGE_TYPE, DEFAULT_NODE_TYPE, EdgeType

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from livegnn.graph import Schema

_ORDER = ("x", "edge_index")
_RECORDS = ("data", "batch")
"""Names of arguments that are whole PyG data objects."""


def lone_argument(module: nn.Module, method: str) -> str | None:
    """The name of the only argument that a method must be given; None if it takes none, or more."""
    parameters = signature_of(module, method).parameters
    needed = [name for name, one in parameters.items() if one.default is one.empty]
    return needed[0] if len(needed) == 1 else None


def record_of(module: nn.Module, method: str, inputs: Mapping[str, object] | None) -> str | None:
    """The name of the argument that is PyG data, by its own name or as `inputs` says; None if none is."""
    for name, spec in (inputs or {}).items():
        if isinstance(spec, str) and spec == "data":
            return name
    lone = lone_argument(module, method)
    return lone if lone in _RECORDS and lone not in (inputs or {}) else None


@dataclass(frozen=True)
class ModuleArguments:
    """A method, its arguments, by name or position, and the module's parameters with a row for each node.

    left_out: the names of optional arguments that it is called without though `inputs` does not leave them
    out. unused: the columns of the data that no argument takes. guessed: the arguments whose names have no
    known meaning; their places decide whether they are rows of nodes, or edges. places: the first of the
    arguments, which are given by their places, as callers give them; hooks see the difference. whole: the
    edges to the one group of all nodes, for each node type.
    """

    method: str
    arguments: Mapping[str, object]
    parameters: tuple[Given, ...]
    positional: tuple[object, ...] = ()
    left_out: tuple[str, ...] = ()
    unused: frozenset[str] = frozenset()
    guessed: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    whole: tuple[Atom, ...] = ()

    @property
    def call(self) -> MethodCall:
        """The call of the method."""
        first = [self.arguments[name] for name in self.places if name in self.arguments]
        named = {name: one for name, one in self.arguments.items() if name not in self.places}
        return MethodCall((*self.positional, *first), named, self.method, self.parameters)


def find_arguments(
    module: nn.Module,
    data: "Data | HeteroData | Schema | None",
    method: str,
    inputs: Mapping[str, object] | None,
    *,
    by_name: bool = False,
    groups: Mapping[str | None, Members] | None = None,
) -> ModuleArguments:
    """Finds the meaning of each argument of a method.

    by_name: whether it is called with all of them by their names.

    Raises `ModelError` with the name of an argument whose meaning is unknown, or of an input for which there
    is no argument.
    """
    given = dict(inputs or {})
    graph = _GraphRows(module, data, given, groups)
    parameters = tuple(
        Given(name, graph.node, tuple(tensor.shape[1:]), tensor.dtype, parameter=True)
        for name, tensor in module.named_parameters()
        if given.pop(name, None) == "node" or graph.is_embedding(name)
    )
    taken: set[str] = set()
    arguments: dict[str, object] = {}
    positional: tuple[object, ...] = ()
    left_out: list[str] = []
    record = record_of(module, method, inputs)
    guessed: list[str] = []
    signature = signature_of(module, method)
    named = set(map(meaning_of, signature.parameters))
    required = {
        name.removesuffix("_dict") for name, one in signature.parameters.items() if one.default is one.empty
    }
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            left_out += [] if name in given else [name]
            rest = graph.rest(given.pop(name, None), name, {*taken, *given})
            if rest:
                left_out = [one for one in left_out if one != name]
                positional, arguments = (*arguments.values(), *rest), {}
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            keywords = _keywords(given, name)
            columns = () if keywords is not None and not positional else ("edge_weight", "edge_attr")
            arguments |= {key: graph.rows(value, key) for key, value in (keywords or {}).items()}
            given = {}
            for column in columns if getattr(data, "asked_for", False) else ():
                if positional and column in graph.known:  # as HeteroConv hands them on
                    arguments[f"{column}_dict"] = graph.known[column]
                elif column in graph.known and column not in taken:
                    arguments[column] = graph.find(column, required=True)
            left_out += [] if keywords is not None else [name]
            continue
        numbers = graph.groups.columns.get(name) if name != record else None
        if name in given or numbers is not None:
            arguments[name] = numbers or graph.rows(given.pop(name), name)
            continue
        needed = parameter.default is parameter.empty
        own = name.removesuffix("_dict")
        meaning = _meaning(own, needed=needed, taken=taken, required=required)
        if (
            meaning is None
            and needed
            and own not in (*NAMES, *_RECORDS)
            and name not in graph.known
            and place < len(_ORDER)
            and _ORDER[place] not in named
        ):
            meaning = _ORDER[place]
            guessed.append(name)
        if not needed and (
            own == "num_nodes"
            or (meaning is None and NAMES.get(own) in taken)
            or (meaning or "").startswith(OF_PAIRS)
        ):
            left_out += [] if own == "num_nodes" else [name]
            continue
        if own in _RECORDS and needed and own not in graph.known and not named & set(_ORDER):
            arguments[name] = graph.record()
            continue
        found = graph.find(meaning or own, required=needed, by_type=name.endswith("_dict"))
        if meaning == "edge_attr" and not needed and graph.leaves_edge_features_out():
            left_out.append(name)
            continue
        if found is not None:
            arguments[name] = found
            taken.add(meaning or name)
        elif parameter.default is parameter.empty:
            raise ModelError(
                f"{type(module).__name__}.{method} takes {name!r}, whose meaning is unknown: give it "
                f"as inputs={{{name!r}: ...}}, the name of an attribute of data, ('node', channels), "
                f"('edge', channels), or the value itself{graph.hint(name)}"
            )
        else:
            left_out.append(name)
    if given:
        raise ModelError(
            f"inputs has {min(given)!r}, which {method} does not take: it takes "
            f"{', '.join(signature.parameters)}"
        )
    if not arguments and not positional:
        raise ModelError(
            f"{type(module).__name__}.{method} takes no rows of a graph, so that it has one of its own, or "
            "none: give it arguments, such as x and edge_index"
        )
    for one in leaves([positional, arguments]):
        lost = find_rounded(graph.whole[one.name]) if one.name in graph.whole and not one.group else None
        if lost is not None:
            raise ModelError(
                f"{type(module).__name__}.{method} takes whole numbers, and {one.name} has {lost}, which "
                "float32 would round: subtract where such numbers begin, or divide them"
            )
    used = {one.name.partition(":")[0] for one in leaves([positional, arguments])}
    unused = frozenset(graph.known) - used - {"edge_index"}
    places = () if positional or by_name else _by_place(signature, arguments)
    graph.groups.check_used(leaves([positional, arguments]), f"{type(module).__name__}.{method}")
    whole = graph.groups.whole
    return ModuleArguments(
        method, arguments, parameters, positional, tuple(left_out), unused, tuple(guessed), places, whole
    )


def _by_place(signature: Signature, arguments: Mapping[str, object]) -> tuple[str, ...]:
    """The first arguments, up to one that is left out or must be given by name."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    named = takewhile(lambda one: one.kind in kinds, signature.parameters.values())
    return tuple(takewhile(lambda name: name in arguments, (one.name for one in named)))


def _meaning(name: str, *, needed: bool, taken: Collection[str], required: Collection[str]) -> str | None:
    """The meaning of an argument by its name, or None.

    A second name for the same meaning, such as ``h`` beside ``x``, means something else. The same can hold
    for an optional argument, such as ``h=None``, which may be a state.
    """
    meaning = NAMES.get(name)
    if meaning is None or meaning in taken:
        return None
    if name != meaning and (meaning in required or not (needed or name.startswith("edge_"))):
        return None
    return meaning


def _pairs_of(edges: Atom) -> Atom:
    """The pairs of nodes that may be joined by these edges."""
    return Atom(edges.name, edges.source, edges.target, pairs=True)


def _place_of(name: str, key: object, held: Collection[object]) -> str:
    """The name of rows among several in one argument."""
    return name if len(held) == 1 else f"{name}[{key!r}]"


def _keywords(given: Mapping[str, object], name: str) -> dict[str, object] | None:
    """Returns the inputs for ``**name``, given by their names or as a dict; None if none are given."""
    if not given:
        return None
    more = given.get(name, {})
    if not isinstance(more, Mapping):
        raise ModelError(
            f"inputs has {name!r}, which takes any keyword: give a dict from keywords to their rows or "
            "values, or {} if there are none"
        )
    return {**{key: value for key, value in given.items() if key != name}, **more}


class _GraphRows:
    """Rows that a graph and a module have. known: name -> type of node or edge -> its rows. of_pairs: the
    same for pairs of nodes, by the edge type. whole: the columns of data with whole numbers, by full name.
    """

    def __init__(
        self,
        module: nn.Module,
        data: "Data | HeteroData | Schema | None",
        inputs: Mapping[str, object],
        groups: Mapping[str | None, Members] | None,
    ) -> None:
        self.module, self.data = module, data
        floats = [one.dtype for one in module.parameters() if one.is_floating_point()]
        self.dtype = floats[0] if floats else torch.float32
        self.hetero = data is not None and not isinstance(data, Data)
        node_types = list(getattr(data, "node_types", ())) if self.hetero else [DEFAULT_NODE_TYPE]
        edge_types = list(getattr(data, "edge_types", ())) if self.hetero else [DEFAULT_EDGE_TYPE]
        if self.hetero and not hasattr(data, "stores"):
            node_types, edge_types = without_groups(groups, cast("Schema", data))
        self.nodes = {name: Atom(name) for name in node_types}
        self.edges = {
            kind: Atom("-".join(kind), self.nodes[kind[0]], self.nodes[kind[2]]) for kind in edge_types
        }
        if not hasattr(data, "stores") and len(node_types) == len(edge_types) == 1:
            self.hetero = False  # a schema of one type
        self.node, self.edge = next(iter(self.nodes.values())), next(iter(self.edges.values()), None)
        self.known: dict[str, dict[object, Given]] = {}
        self.of_pairs: dict[str, dict[object, Given]] = {}
        self.whole: dict[str, torch.Tensor] = {}
        self.pairs_of_data: list[object] = []
        said = [(one, PAIRS) if meaning_of(name) == PAIRS else one for name, one in inputs.items()]
        chosen = [one[0] for one in said if isinstance(one, tuple) and one[1:] == (PAIRS,)]
        self.pair = next((one for one in chosen if isinstance(one, tuple) and one in self.edges), None)
        self.groups: Groups = find_groups(groups, self.nodes, self.edges)
        for key, atom in (*self.nodes.items(), *self.edges.items()):
            self._learn(key, atom)

    def _learn(self, key: str | tuple[str, str, str], atom: Atom) -> None:
        """Collects the rows that the graph has for one type."""
        if atom.source is not None:
            self._know("edge_index", key, atom)
            self._know(PAIRS, key, _pairs_of(atom))
        if self.data is None:
            return
        if not hasattr(self.data, "stores"):
            self._learn_schema(self.data, key, atom)
            return
        graph: Any = self.data  # PyG's classes are not typed
        store = graph[key] if self.hetero else graph
        of_edges = atom.source is not None
        number = store.num_edges if of_edges else store.num_nodes
        ambiguous = not self.hetero and store.num_nodes == store.num_edges
        pairs = store[PAIRS].shape[1] if of_edges and PAIRS in store else None
        self.pairs_of_data += [key] if pairs is not None else []
        for name, tensor in store.to_dict().items():
            if not isinstance(tensor, torch.Tensor) or not tensor.dim() or name in ("edge_index", PAIRS):
                continue
            if name.startswith(OF_PAIRS) and len(tensor) == pairs:
                self._know(name, key, _pairs_of(atom), tuple(tensor.shape[1:]), tensor.dtype)
                continue
            if len(tensor) == number and (not ambiguous or name.startswith("edge") == of_edges):
                if not tensor.dtype.is_floating_point:
                    self.whole[f"{name}:{key}" if self.hetero else name] = tensor
                self._know(name, key, atom, tuple(tensor.shape[1:]), tensor.dtype)

    def _learn_schema(self, schema: "Schema", key: str | tuple[str, str, str], atom: Atom) -> None:
        if isinstance(key, str):
            self._know("x", key, atom, (schema.node_types[key],))
            return
        edges = schema.edge_types[key]
        if edges.edge_dim:
            self._know("edge_attr", key, atom, (edges.edge_dim,))
        if edges.weighted:
            self._know("edge_weight", key, atom)

    def _know(
        self,
        name: str,
        key: object,
        atom: Atom,
        channels: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float32,
    ) -> None:
        dtype = self.dtype if dtype.is_floating_point else dtype
        full = f"{name}:{key}" if self.hetero else name
        rows = Given(full, atom, channels, dtype, ends=name in ("edge_index", PAIRS))
        (self.of_pairs if atom.pairs else self.known).setdefault(name, {})[key] = rows

    def leaves_edge_features_out(self) -> bool:
        """Whether some of the module's layers support edge features, but none was made for them.

        False if the caller requires the features.
        """
        if getattr(self.data, "asked_for", False):
            return False
        made = [part.edge_dim for part in self.module.modules() if hasattr(part, "edge_dim")]
        return bool(made) and not any(made)

    def record(self) -> Record:
        """All columns of the graph, as a PyG data object."""
        of_pairs = {
            name: {key: one for key, one in rows.items() if key in self.pairs_of_data}
            for name, rows in self.of_pairs.items()
        }
        if self.hetero:
            every = (*self.known.items(), *of_pairs.items())
            fields = {(key, name): one for name, rows in every for key, one in rows.items()}
            return Record(fields | {(one.atom.name, name): one for name, one in self.groups.columns.items()})
        names = ("x", *self.known, *(name for name, rows in of_pairs.items() if rows))
        rows = {name: self.find(name, required=True) for name in names}
        rows |= self.groups.columns
        return Record({(None, name): one for name, one in rows.items() if one is not None})

    def hint(self, name: str) -> str:
        """Returns the usual meaning of an argument of this name, as the end of an error."""
        got = f" (got groups of {', '.join(map(repr, self.groups.columns))})" if self.groups.columns else ""
        groups = f"; if it numbers the group of each node, say groups={{{name!r}: 'graph'}}{got}"
        if name == "batch":
            return f", which is None where nodes are predicted{groups}"
        if name.endswith("_index") or "pair" in name:
            return f"; if it names pairs of nodes to be scored, say inputs={{{name!r}: {PAIRS!r}}}"
        if "node_type" in name and self.hetero:
            kinds: object = list(self.nodes) if name.endswith("s") else next(iter(self.nodes))
            return f"; if it names types of nodes, say which, as in inputs={{{name!r}: {kinds!r}}}"
        if "mask" in name:
            return f"; if it selects rows of the result, say inputs={{{name!r}: slice(None)}} for all rows"
        return groups

    def is_embedding(self, name: str) -> bool:
        """Whether a parameter is an embedding of the nodes of the data."""
        owner, _, _ = name.rpartition(".")
        part = self.module.get_submodule(owner)
        nodes = getattr(self.data, "num_nodes", None) if not self.hetero else None
        return isinstance(part, nn.Embedding) and nodes is not None and part.num_embeddings == nodes

    def rows(self, given: object, name: str) -> object:
        """The meaning that `inputs` gives to an argument."""
        if isinstance(given, str):
            if given == "data" and "data" not in self.known:
                return self.record()
            found = self.find(given, required=True)
            if found is None and self.hetero and given in self.nodes:
                return given  # as forward(..., target_node_type) takes it
            if found is None:
                raise ModelError(
                    f"inputs says that {name!r} is {given!r}, which the data does not have: if it is this "
                    f"text itself, say inputs={{{name!r}: ({VALUE!r}, {given!r})}}"
                )
            return found
        if isinstance(given, list):
            return [self.rows(one, _place_of(name, i, given)) for i, one in enumerate(given)]
        if isinstance(given, dict):  # values of other kinds than rows stay as they are
            rows = {key: one for key, one in given.items() if isinstance(one, (tuple, list, dict))}
            return given | {key: self.rows(one, _place_of(name, key, rows)) for key, one in rows.items()}
        if isinstance(given, tuple) and len(given) == 2 and given[0] == VALUE and VALUE not in self.nodes:
            return given[1]
        if isinstance(given, tuple) and given in self.edges:
            return (self.of_pairs[PAIRS] if meaning_of(name) == PAIRS else self.known["edge_index"])[given]
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str):
            return self._of_type(*given)
        if isinstance(given, tuple) and given:
            atom = self._atom(given[0], name)
            if atom is not None:
                channels = tuple(size for size in given[1:] if size and size not in (int, bool))
                for size in channels:
                    check_width(size, f"the channels in inputs[{name!r}]", 0)
                numbers = name in (RELATION, RELATION_OF_PAIRS) or int in given
                whole = torch.int64 if numbers else self.dtype
                return Given(name, atom, channels, torch.bool if bool in given else whole)
        return given

    def _atom(self, rows: object, name: str) -> Atom | None:
        """The nodes or edges of a type, or of the only one if it is ``"node"`` or ``"edge"``; else None."""
        if not isinstance(rows, Hashable):
            return None
        if rows == "pair":
            return self.find_pairs(PAIRS).atom
        nodes = {**self.nodes, **self.groups.nodes}
        atom = nodes.get(cast("str", rows)) or self.edges.get(cast("EdgeType", rows))
        if atom is not None or rows not in ("node", "edge"):
            return atom
        known: Mapping[object, Atom] = self.nodes if rows == "node" else self.edges
        if len(known) != 1:
            kinds = ", ".join(map(repr, known)) or "none"
            raise ModelError(
                f"inputs says that {name!r} is rows of {rows}s, whose types are {kinds}: name one of them, "
                f"as in inputs={{{name!r}: ({next(iter(known), rows)!r}, channels)}}"
            )
        return next(iter(known.values()))

    def rest(self, given: object, name: str, taken: Collection[str]) -> tuple[object, ...]:
        """The arguments for ``*args``: those in `inputs`, or those of ``x, edge_index`` not yet taken."""
        if given is not None:
            rows = self.rows(given if isinstance(given, list) else [given], name)
            return tuple(cast("list[object]", rows))
        found = (self.find(one, required=True) for one in _ORDER if one not in taken)
        return tuple(one for one in found if one is not None)

    def _of_type(self, key: object, name: str) -> Given:
        """The rows of one type with this name; ``num_nodes`` is the number of its nodes."""
        known: dict[object, Atom] = {**self.nodes, **self.edges}
        known.update(self.groups.nodes)
        atom = known.get(key)
        if atom is None:
            kinds = ", ".join(map(repr, known))
            raise ModelError(f"inputs names {key!r}, but the types of the data are {kinds}")
        if name == "num_nodes":
            return Given(f"{name}:{atom}", atom, count=True)
        held = self.of_pairs if name in self.of_pairs else self.known
        if key not in held.get(name, {}):
            raise ModelError(f"inputs names {name!r} of {key!r}, which the data does not have")
        return held[name][key]

    def find_pairs(self, name: str) -> Given:
        """The rows with this name of the scored pairs. Raises `ModelError` if their type is not known."""
        known = self.of_pairs[name]
        key = next(iter(known)) if len(known) == 1 else self.pair
        if key is None and len(self.pairs_of_data) == 1:
            key = self.pairs_of_data[0]
        if key not in known:
            raise ModelError(
                f"{name!r} may name pairs of {', '.join(map(str, known))}: say which, as in "
                f"inputs={{{name!r}: {next(iter(known))}}}"
            )
        return known[key]

    def find(self, name: str, *, required: bool, by_type: bool = False) -> object | None:
        """The rows with this name, by type if there are several types; None if there are none.

        by_type: whether columns of pairs are by type too.
        """
        if name in self.of_pairs:
            if not self.hetero or not by_type:
                return self.find_pairs(name)
            held = self.of_pairs[name]
            return {key: held[key] for key in self.pairs_of_data if key in held} or held
        if name in self.known:
            return self.known[name] if self.hetero else next(iter(self.known[name].values()))
        if name == "num_nodes" and not self.hetero:
            return Given(name, self.node, count=True)
        return None
