"""How an engine works: what it keeps and where, when it computes, and what it refuses."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from livegnn.arguments import whole
from livegnn.compiler.plan import Keep
from livegnn.errors import InputError
from livegnn.graph.core import chosen_threads
from livegnn.inference.guard import NonFinite

Mode = Literal["eager", "lazy"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Settings of an `Engine`. No prediction depends on them, bit for bit.

    threads: how many work on one batch; by default as many as the process may use.
    mode: ``"eager"`` computes with each batch all that it reaches. ``"lazy"`` records what it reaches, and
    computes a prediction when it is asked for (NeutronRT, section V.D). A list has one of the two for each
    depth of propagation, the eager ones first.
    history: over how many of the last events `Engine.explain` can look back; 0 keeps none of them.
    keep: "aggregates" keeps the aggregates alone and computes each layer's rows anew, node by node, when they
    are read.
    keep_degree: keeps even the aggregates of nodes with at least so many in-edges alone, and computes those
    of the others from their neighbours, and theirs, when they are read; 0 for all. Implies "aggregates".
    state_dir: where what is kept lies in mapped files, for when it outgrows memory; the directory is made if
    it is missing, and the files are gone when the engine is.
    non_finite: what becomes of a batch after which a value, a prediction among them, would be infinite or not
    a number that was finite before. ``"refuse"`` raises `InputError`, as for any other bad input;
    ``"allow"`` lets it through, with what the framework would say. What a lazy engine has only recorded it
    cannot refuse: it says what the framework would when it is asked.

    Raises `InputError` for what makes no sense.
    """

    threads: int | None = None
    mode: Mode | Sequence[Mode] = "eager"
    history: int = 0
    keep: Keep = "all"
    keep_degree: int = 0
    state_dir: "str | os.PathLike[str] | None" = None
    non_finite: NonFinite = "refuse"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threads", chosen_threads(self.threads))
        object.__setattr__(self, "history", whole(self.history, "history, a number of events,", 0))
        _check_one_of("keep", self.keep, get_args(Keep))
        _check_one_of("non_finite", self.non_finite, get_args(NonFinite))
        object.__setattr__(self, "keep_degree", whole(self.keep_degree, "keep_degree", 0, 2**32 - 1))

    @property
    def partial(self) -> bool:
        """Whether aggregates of some nodes are not kept."""
        return self.keep_degree > 0


class EngineSettings(TypedDict, total=False):
    """The same as keywords."""

    threads: int | None
    mode: Mode | Sequence[Mode]
    history: int
    keep: Keep
    keep_degree: int
    state_dir: "str | os.PathLike[str] | None"
    non_finite: NonFinite


def _check_one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
