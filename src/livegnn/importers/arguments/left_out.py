"""Refuses a call that leaves out an argument that the module was made for.

The signs are a parameter or buffer that only a call with the argument reads, and rows of edges or of nodes
that make another prediction when they are given as the argument. Calls on a small graph show both.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from livegnn.errors import ModelError
from livegnn.importers.arguments.advice import optional_rows
from livegnn.importers.arguments.arguments import ModuleArguments
from livegnn.importers.arguments.module_inputs import called_with
from livegnn.importers.arguments.names import NAMES, RELATION, meaning_of
from livegnn.importers.arguments.watching import call_watched
from livegnn.importers.program.export import Given, alternating, leaves, signature_of
from livegnn.network.call_settings import CallSettings

_KEYWORDS = ("edge_weight", "edge_attr", "edge_type")
_WIDTHS = 5
"""The number of widths that are tried for an argument, of those that the unread parameters have."""
_NODE_WIDTHS = 8
"""The number of widths that are tried for rows of nodes, of those that most parameters have."""
_SEVERAL = 6
"""The same for several rows in one argument."""
LEFT_OUT = frozenset(("batch", "batch_size", "ptr", "size", "num_nodes", "h", "c", "H", "C"))
"""Arguments that are left out as a rule: the graphs of a batch, sizes, and states to begin with."""
_STARS: Mapping[object, str] = {inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.VAR_POSITIONAL: "*"}
"""Before the name of an argument that takes any keyword, or any place."""
_FEATURES = "('edge', channels)"
_NAMED = 16
"""The number of keywords that are tried, of those that the method's code names."""


def refuse_left_out(module: nn.Module, settings: CallSettings, found: ModuleArguments) -> None:
    """Raises `ModelError` if a parameter, or a prediction, depends on an argument that is left out.

    An argument may be read if the caller leaves it out in `inputs`, or if the data have no such column.
    """
    optional = optional_rows(module, settings.method)
    left_out = [optional[name] for name in found.left_out if name in optional]
    if not left_out:
        return
    calls = Calls(module, settings, found)
    free = [
        one
        for one in left_out
        if meaning_of(one.name) not in calls.said and one.name.removesuffix("_dict") not in LEFT_OUT
    ]
    # Nodes first: rows of edges may work in place of rows of nodes; the opposite is rare.
    for one in free:
        if not (meaning_of(one.name) or one.name).startswith("edge_"):
            if one.default not in (None, one.empty):  # it holds several, of which there are none
                _refuse_if_several_tell(calls, one)
            if not _refuse_if_nodes_tell(calls, one):
                _refuse_if_several_tell(calls, one)
        _refuse_if_edges_tell(calls, one)
    if calls.unread or calls.edges:
        _refuse_if_any_is_read(calls, left_out)
    _refuse_if_all_tell(calls, [one.name for one in free if _has_a_name(one)])


def _refuse_if_any_is_read(calls: "Calls", left_out: Sequence[inspect.Parameter]) -> None:
    unread = calls.unread
    for parameter in left_out if unread and calls.said else ():
        for call in calls.trials(parameter, unread):
            if meaning_of(call.name) in calls.said and unread - calls.unread_by(call):
                unread = frozenset()  # the others too, which a call that fails may not reach
                break
    for parameter in left_out:
        if meaning_of(parameter.name) not in calls.said:
            _refuse_if_read(calls, parameter, unread)


def _refuse_if_read(calls: "Calls", parameter: inspect.Parameter, unread: frozenset[str]) -> None:
    understood, failed, read, results = False, "", "", list[object]()
    any_keyword, name = parameter.kind is parameter.VAR_KEYWORD, parameter.name
    asked = any_keyword and bool(calls.found.positional)  # HeteroConv: weights if required
    for call in calls.trials(parameter, unread):
        if meaning_of(call.name) in calls.said:
            continue
        result, left = calls.call(call)
        key = call.name if any_keyword else name
        if unread - left:
            read = read or min(unread - left)  # the first one reads the rows themselves
            what = f"and then never reads {read!r}, which it reads with rows there"
            if not isinstance(result, Exception):
                raise ModelError(calls.refusal(what, key, parameter, call))
            failed = failed or calls.refusal(what, key, parameter)
        understood = understood or not isinstance(result, Exception)
        results.append(result)
        if call.of_edges and not asked and calls.differs(result):
            what = f"where rows of edges, such as {key!r}, make another prediction"
            raise ModelError(calls.refusal(what, key, parameter, call))
    wider = calls.wider(parameter)
    if wider is not None:
        raise ModelError(calls.refusal(wider[1], name, parameter, wider[0]))
    if failed:
        raise ModelError(failed)
    # If every call fails, only weights are a sign: buffers, such as PNA's degrees, exist for any call.
    # A module that asserts against rows of any width, as RGATConv without edge_dim, was not made for them.
    weights = unread & {name for name, _ in calls.module.named_parameters()}
    asserts = bool(results) and all(isinstance(one, AssertionError) for one in results)
    if weights and not understood and not asserts:
        what = f"and nothing reads {min(weights)!r}, for which it may be needed"
        raise ModelError(calls.refusal(what, name, parameter))


def _has_a_name(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _refuse_if_edges_tell(calls: "Calls", parameter: inspect.Parameter) -> None:
    """A second list of edges beside the first."""
    name = parameter.name
    if calls.edges is None or not _has_a_name(parameter):
        return
    trial = Trial(calls.with_rows(parameter, name, calls.edges), name, of_edges=True)
    if calls.differs(calls.call(trial)[0]):
        same = f"{{{name!r}: 'edge_index'}}"
        raise ModelError(
            f"{calls.name} is called without {name!r}, where edges make another prediction: say "
            f"inputs={same} if it is the same edges, or inputs={{{name!r}: None}} to leave it out; other "
            "edges need a type of their own"
        )


def _refuse_if_nodes_tell(calls: "Calls", parameter: inspect.Parameter) -> bool:
    """Returns whether any call with rows of nodes works."""
    understood, name = False, parameter.name
    if calls.nodes is None or (calls.found.positional and not _has_a_name(parameter)):
        return understood
    for keyword in calls.named_in_code() if parameter.kind is parameter.VAR_KEYWORD else [name]:
        for channels, dtype in calls.shapes():
            value = rows_like(calls.nodes, keyword, channels, dtype)
            shape = leaves(value)[0].channels
            trial = Trial(
                calls.with_rows(parameter, keyword, value), keyword, False, shape, dtype, drawn=(keyword,)
            )
            result, _ = calls.call(trial)
            understood = understood or not isinstance(result, Exception)
            if calls.predicts_otherwise(result):
                mask = calls.mask_of_edges(parameter, keyword) if dtype is torch.int64 else None
                what = f"where rows of {'nodes' if mask is None else 'edges'} make another prediction"
                raise ModelError(calls.refusal(what, keyword, parameter, mask or trial))
    return understood


def _refuse_if_several_tell(calls: "Calls", parameter: inspect.Parameter) -> None:
    """Rows in a dict, with the keys that the code names, or in a list of one, two or three."""
    name = parameter.name
    if parameter.kind is parameter.VAR_KEYWORD or (calls.found.positional and not _has_a_name(parameter)):
        return
    keys = calls.named_in_code() if _has_a_name(parameter) else []
    held: list[Sequence[object]] = [keys] if keys else []
    held += [range(size) for size in ((1, 2, 3) if _has_a_name(parameter) else (2, 3))]
    nothing = repr(parameter.default) if _has_a_name(parameter) else "[]"
    for like, what in (calls.nodes, "node"), (calls.edges, "edge"):
        for channels, places in product(calls.widths()[:_SEVERAL], held) if like is not None else ():
            rows = {place: rows_like(like, f"{name}:{place}", channels, torch.float32) for place in places}
            value = rows if places is keys else list(rows.values())
            trial = Trial(calls.with_several(parameter, name, value), name, what == "edge", drawn=(name,))
            if calls.predicts_otherwise(calls.call(trial)[0]):
                one = what, *leaves(value)[0].channels
                said = dict.fromkeys(rows, one) if places is keys else [one] * len(rows)
                raise ModelError(
                    f"{calls.name} is called without {name!r}, where rows of {what}s in a "
                    f"{'dict' if places is keys else 'list'} make another prediction: say what they are, as "
                    f"in inputs={{{name!r}: {said}}}; or inputs={{{name!r}: {nothing}}} to leave it out"
                )


def _refuse_if_all_tell(calls: "Calls", names: Sequence[str]) -> None:
    """Arguments that a module reads only together."""
    for like, what in ((calls.nodes, "node"), (calls.edges, "edge")) if len(names) > 1 else ():
        for channels in ((), *((size,) for size in (1, 2, 3))) if like is not None else ():
            rows = {name: rows_like(like, name, channels, torch.float32) for name in names}
            found = replace(calls.found, arguments={**calls.found.arguments, **rows})
            trial = Trial(found, names[0], what == "edge", drawn=names)
            if calls.predicts_otherwise(calls.call(trial)[0]):
                shown = ", ".join(map(repr, names))
                said = ", ".join(f"{name!r}: {(what, *channels)}" for name in names)
                nothing = ", ".join(f"{name!r}: None" for name in names)
                raise ModelError(
                    f"{calls.name} is called without {shown}, where rows of {what}s in all of them make "
                    f"another prediction: say what they are, as in inputs={{{said}}}; or "
                    f"inputs={{{nothing}}} to leave them out"
                )


def said_of(settings: CallSettings, found: ModuleArguments) -> set[str]:
    """Returns the meanings of the arguments that the caller, or data without such a column, leave out."""
    meanings = {"edge_weight"} if settings.edge_weight is not None else set()
    meanings |= {"edge_attr"} if settings.edge_channels is not None else set()
    if settings.data is not None:
        meanings |= {one for one in NAMES.values() if one not in found.unused}
    return meanings


@dataclass(frozen=True)
class Trial:
    """A call with one more argument. name: its keyword, or the argument that takes any place. channels,
    dtype: of its rows. drawn: names of rows that are drawn after all others, whole numbers as 0 and 1.
    """

    found: ModuleArguments
    name: str
    of_edges: bool
    channels: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    drawn: Collection[str] = ()


class Calls:
    """Calls of a module on a small graph. said: as `said_of`. unread: the parameters and buffers that the
    imported call never reads. edges, nodes: an argument with rows of edges, and one with rows of nodes.
    """

    def __init__(self, module: nn.Module, settings: CallSettings, found: ModuleArguments) -> None:
        self.module, self.settings, self.found = module, settings, found
        self.method, self.said = settings.method, said_of(settings, found)
        self.result, self.unread = self.call(Trial(found, "", of_edges=False))
        given = [*found.call.args, *found.call.kwargs.values()]
        self.edges = _first_of(given, lambda one: one.ends)
        self.nodes = _first_of(given, lambda one: one.atom.source is None and not one.count)
        if self.nodes is None and self.edges is not None and not isinstance(self.edges, Mapping):
            target = leaves(self.edges)[0].atom.target
            self.nodes = None if target is None else Given("nodes", target)

    @property
    def name(self) -> str:
        """The method that is called."""
        return f"{type(self.module).__name__}.{self.method}"

    def call(self, trial: Trial) -> tuple[object, frozenset[str]]:
        """The result, or an exception, and the names of the parameters and buffers that are never read."""
        watched = call_watched(self.module, trial.found.call, trial.drawn)
        return watched.result, watched.unread

    def unread_by(self, trial: Trial) -> frozenset[str]:
        return self.call(trial)[1]

    def trials(self, parameter: inspect.Parameter, unread: frozenset[str]) -> Iterator[Trial]:
        """Calls with the argument. unread: parameters whose widths its rows may have."""
        named = self.module.named_parameters(remove_duplicate=False)
        held = dict((*named, *self.module.named_buffers(remove_duplicate=False)))
        widths = sorted({size for one in unread for size in held[one].shape[-2:]})[:_WIDTHS]
        of_nodes = {one.channels for one in leaves(self.nodes) if len(one.channels) == 1}
        shapes = dict.fromkeys([(), (1,), *sorted(of_nodes), (2,), (3,)])
        rows = [(self.edges, shape, torch.float32) for shape in shapes]
        if unread:
            rows += [(self.edges, (width,), torch.float32) for width in widths]
            rows += [(self.edges, (), torch.int64), (self.nodes, (), torch.int64)]
            rows += [(self.nodes, (width,), torch.float32) for width in widths]
        for like, channels, dtype in rows:
            if like is None:
                continue
            any_keyword = parameter.kind is parameter.VAR_KEYWORD
            for keyword in self._keywords() if any_keyword else [parameter.name]:
                found = self.with_rows(parameter, keyword, rows_like(like, keyword, channels, dtype))
                yield Trial(found, keyword, like is self.edges, channels, dtype)

    def shapes(self) -> list[tuple[tuple[int, ...] | None, torch.dtype]]:
        """Channels and numbers that rows may have; the channels are None if they are those of other rows."""
        (alone, *channels), numbers = self.widths(), (torch.float32, torch.bool, torch.int64)
        return [*((alone, dtype) for dtype in numbers), *((one, torch.float32) for one in channels)]

    def widths(self) -> list[tuple[int, ...] | None]:
        """The channels that rows may have, likely ones first."""
        held = [*self.module.parameters(), *self.module.buffers()]
        widths = Counter(size for one in held for size in one.shape[-2:])
        widths.update(size for one in _tensors_of(self.result) for size in one.shape[1:][-1:])
        likely = sorted(widths, key=lambda size: (-widths[size], size))[:_NODE_WIDTHS]
        channels = dict.fromkeys([None, (1,), (2,), (3,), *((size,) for size in likely)])
        return [(), *channels]

    def wider(self, parameter: inspect.Parameter) -> tuple[Trial, str] | None:
        """Returns a call with the argument in which the nodes' features have another width, or an otherwise
        unread parameter is read; and the difference in words. None if there is none, or if data are given."""
        if self.settings.data is not None or not _has_a_name(parameter):
            return None
        width, name = _width(self.found), parameter.name
        for rows in ("node", "edge"):
            for dtype in (torch.float32, torch.int64):
                said = (rows,) if dtype.is_floating_point else (rows, int)
                found = called_with(self.module, self.settings, {name: said})
                if found is None:
                    continue
                trial = Trial(found, name, rows == "edge", (), dtype)
                read = self.unread - self.unread_by(trial)
                if read:
                    return trial, f"and then never reads {min(read)!r}, which it reads with rows there"
                if _width(found) != width:
                    return (
                        trial,
                        f"and then reads x of {width} channels, beside rows there of {_width(found)}",
                    )
        return None

    def mask_of_edges(self, parameter: inspect.Parameter, name: str) -> Trial | None:
        """A call in which the argument is a mask of edges. None if it fails, or makes the same prediction.

        Whole numbers, such as rows of nodes, choose edges as well: by their places.
        """
        if self.edges is None:
            return None
        mask = rows_like(self.edges, name, (), torch.bool)
        trial = Trial(self.with_rows(parameter, name, mask), name, True, (), torch.bool, drawn=(name,))
        return trial if self.predicts_otherwise(self.call(trial)[0]) else None

    def with_rows(self, parameter: inspect.Parameter, name: str, value: object) -> ModuleArguments:
        return self.with_several(
            parameter, name, [value] if parameter.kind is parameter.VAR_POSITIONAL else value
        )

    def with_several(self, parameter: inspect.Parameter, name: str, held: object) -> ModuleArguments:
        """With several rows in one argument, or in an argument each if it takes any place."""
        found = self.found
        if parameter.kind is parameter.VAR_POSITIONAL:
            rows = cast("list[object]", held)
            return replace(
                found, positional=(*found.positional, *found.arguments.values(), *rows), arguments={}
            )
        return replace(found, arguments={**found.arguments, name: held})

    def _keywords(self) -> list[str]:
        """Returns the names of arguments that its layers may take."""
        names = dict.fromkeys(_KEYWORDS)
        for part in self.module.modules():
            names |= dict.fromkeys(optional_rows(part, "forward"))
        end = "_dict" if isinstance(self.edges, Mapping) else ""
        known = [name + end for name in names if name in NAMES and name not in self.found.arguments]
        return list(dict.fromkeys([*known, *self.named_in_code()]))

    def named_in_code(self) -> list[str]:
        """Returns names in quotes in the method's code, as in ``kwargs.get("time")``, that are not given."""
        code = getattr(inspect.unwrap(getattr(type(self.module), self.method)), "__code__", None)
        texts = [one for one in _constants_of(code) if isinstance(one, str) and one.isidentifier()]
        free = [one for one in texts if one not in self.found.arguments and one not in LEFT_OUT]
        return free[:_NAMED]

    def differs(self, result: object) -> bool:
        """Returns whether a result has the shapes of the imported call's result, and other values."""
        pairs = list(zip(pytree.tree_leaves(self.result), pytree.tree_leaves(result), strict=False))
        tensors = [(one, other) for one, other in pairs if isinstance(one, torch.Tensor)]
        alike = all(isinstance(b, torch.Tensor) and a.shape == b.shape for a, b in tensors)
        return alike and not all(torch.allclose(a, b, equal_nan=True) for a, b in tensors)

    def predicts_otherwise(self, result: object) -> bool:
        """Returns whether a result has other rows than the imported call's, or rows of other channels.

        A choice of its rows, as by a mask, is not another prediction, and neither is one number, as a loss.
        """
        return not isinstance(result, Exception) and any(
            map(_are_other, _tensors_of(self.result), _tensors_of(result))
        )

    def refusal(self, what: str, key: str, parameter: inspect.Parameter, trial: Trial | None = None) -> str:
        """Returns the message, with `inputs` that help. trial: a call that reads the argument."""
        shown = (
            repr(parameter.name) if _has_a_name(parameter) else f"{_STARS[parameter.kind]}{parameter.name}"
        )
        without_data = self.settings.data is None
        weights = without_data or "edge_weight" in self.found.unused
        rows = self._says(trial, weights=weights)
        said, nothing = "{%s: %s}", repr(parameter.default)
        if parameter.kind is parameter.VAR_POSITIONAL:
            said, nothing = "{%s: [%s]}", "[]"
        elif parameter.kind is parameter.VAR_KEYWORD:
            nothing = "{}"
            if key == parameter.name:
                said = "{%s: {'...': %s}}"  # the keyword is unknown
        without = f"{{{parameter.name!r}: {nothing}}}"
        says = f"say what it is, as in inputs={said % (repr(key), rows)}"
        if trial is None:
            says += ", or ('node', channels), with int behind the channels if they are whole numbers"
        if rows == "'edge_weight'":
            says += " if it is the weights of edges"
            if self._takes_features(parameter, key):
                says += f", or inputs={said % (repr(key), _FEATURES)} if it is features"
        takes_relations = RELATION in signature_of(self.module, self.method).parameters
        if NAMES.get(key) == RELATION and takes_relations:
            says = "say with relations=[...] which edge type each of its numbers stands for"
        if NAMES.get(key) == "edge_attr" and without_data:
            says += ", or edge_channels=..."
        if self.found.unused and not without_data:
            says += f", or name a column of data, which has {', '.join(sorted(self.found.unused))}"
        return f"{self.name} is called without {shown}, {what}: {says}; or inputs={without} to leave it out"

    def _takes_features(self, parameter: inspect.Parameter, key: str) -> bool:
        """Whether a call with rows of several channels for each edge works."""
        rows = [rows_like(self.edges, key, (width,), torch.float32) for width in (1, 2, 3)]
        trials = [Trial(self.with_rows(parameter, key, one), key, of_edges=True) for one in rows]
        return any(not isinstance(self.call(one)[0], Exception) for one in trials)

    def _says(self, trial: Trial | None, *, weights: bool) -> str:
        """Returns the name in `inputs` of rows as in a trial. weights: whether edges may have weights."""
        if trial is None:
            return _FEATURES  # as often as not
        whole, truth = not trial.dtype.is_floating_point, trial.dtype is torch.bool
        if weights and trial.of_edges and not trial.channels and not whole:
            return "'edge_weight'"
        parts = ["'edge'" if trial.of_edges else "'node'"]
        parts += ["channels"] if trial.channels else []
        parts += ["bool" if truth else "int"] if whole else []
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _constants_of(code: object) -> Iterator[object]:
    """Also those of the functions and comprehensions in it."""
    for one in getattr(code, "co_consts", ()):
        yield one
        yield from _constants_of(one)


def _width(found: ModuleArguments) -> int | None:
    """The number of channels of x, where there is one type of nodes."""
    return next((prod(one.channels) for one in found.call.given if one.name == "x"), None)


def _first_of(given: Sequence[object], fits: Callable[[Given], bool]) -> object | None:
    """The first rows that fit, by type if their argument is so; None if there are none. An argument may hold
    others beside them, as PyG data do."""
    for one in given:
        fitting = [part for part in leaves(one) if fits(part)]
        if fitting:
            return one if isinstance(one, Mapping) else fitting[0]
    return None


def _tensors_of(result: object) -> list[torch.Tensor]:
    """The tensors of a result that may have rows."""
    every = pytree.tree_leaves(result)
    return [
        one for one in every if isinstance(one, torch.Tensor) and one.layout is torch.strided and one.dim()
    ]


def _are_other(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether rows are neither the same as before nor chosen of these, by a mask or by 0 and 1 in turn."""
    if before.shape[1:] != after.shape[1:]:  # a mask as wide as the rows chooses numbers of them
        return after.dim() > 1 or not bool(torch.isin(after, before).all())
    before, after = (one.double().unsqueeze(-1) for one in (before, after))  # rows of numbers, at least
    number = before.shape[0]
    if number != after.shape[0]:
        return not all(bool(_are_close(before, row).flatten(1).all(1).any()) for row in after)
    chosen = before[alternating(number).clamp(max=max(number - 1, 0))]
    return not any(bool(_are_close(one, after).all()) for one in (before, chosen))


def _are_close(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return torch.isclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)


def rows_like(like: object, name: str, channels: tuple[int, ...] | None, dtype: torch.dtype) -> object:
    """Rows for an argument, by type if the argument that they are like is so. channels: None for those of
    the rows that they are like."""
    if isinstance(like, Mapping):
        return {key: rows_like(one, f"{name}:{key}", channels, dtype) for key, one in like.items()}
    first = leaves(like)[0]
    return Given(name, first.atom, first.channels if channels is None else channels, dtype)
