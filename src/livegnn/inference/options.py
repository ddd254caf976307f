"""Settings of an engine: the rows that it stores, when it computes, and the batches that it refuses."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict, cast, get_args

from livegnn.arguments import check_int, chosen_threads
from livegnn.compiler.plan import Keep
from livegnn.errors import InputError
from livegnn.wording import kind_of

Mode = Literal["eager", "lazy", "presampled"]
NonFinite = Literal["refuse", "allow"]

_OF_ROWS: Final = {"history": 0, "keep": "all", "keep_degree": 0, "state_dir": None, "follow": ()}


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Settings of an `Engine`. Predictions are the same, bit for bit, with all settings but "presampled".

    threads: how many threads work on one batch; by default as many as the process may use.
    mode: ``"eager"`` computes with each batch all predictions that it reaches. ``"lazy"`` records the nodes
    that it reaches, and computes a prediction when it is queried (NeutronRT, section V.D). A list has one of
    the two for each depth of propagation, the eager ones first. ``"presampled"``, of a `SampledEngine`, keeps
    samples instead of rows, and predicts on the samples.
    sample_seed: the seed of the samples in the mode "presampled", 0 to 2^64 - 1. By default it is drawn, so
    that a client cannot choose ids for it, and a checkpoint keeps it.
    history: how many of the last events `Engine.explain` can go back; 0 keeps no history.
    keep: ``"all"`` keeps aggregates and layer outputs. ``"aggregates"`` keeps only the aggregates and
    computes a layer's rows again, node by node, when they are read.
    keep_degree: keeps only the aggregates of nodes with at least this many in-edges; those of other nodes are
    computed from their neighbours, recursively, when they are read. 0 keeps all. Implies "aggregates".
    state_dir: directory of the mapped files that hold the kept rows, for state larger than memory; it is
    created if it is missing, and the files are deleted with the engine.
    non_finite: how to treat a batch that would turn a finite value, such as a prediction, into an infinity or
    NaN. ``"refuse"`` raises `InputError`, as for any other bad input; ``"allow"`` applies the batch and gives
    the framework's result. A lazy engine cannot refuse a batch that it only records: a later query gives the
    framework's result.
    follow: edge outputs of the model, by name: each `Update` lists the edges whose scores the batch has
    changed. follow_limit: how many edges of one output are compared in a batch at most; a batch that reaches
    more lists none, and says so.

    Raises `InputError` for values that are not valid.
    """

    threads: int | None = None
    mode: Mode | Sequence[Mode] = "eager"
    history: int = 0
    keep: Keep = "all"
    keep_degree: int = 0
    state_dir: "str | os.PathLike[str] | None" = None
    non_finite: NonFinite = "refuse"
    sample_seed: int | None = None
    follow: Sequence[str] = ()
    follow_limit: int = 1_000_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "threads", chosen_threads(self.threads))
        object.__setattr__(self, "history", check_int(self.history, "history, a number of events,", 0))
        _check_one_of("keep", self.keep, get_args(Keep))
        _check_one_of("non_finite", self.non_finite, get_args(NonFinite))
        if self.sample_seed is not None:
            object.__setattr__(self, "sample_seed", check_int(self.sample_seed, "sample_seed", 0, 2**64 - 1))
        object.__setattr__(self, "keep_degree", check_int(self.keep_degree, "keep_degree", 0, 2**32 - 1))
        _check_mode(self.mode)
        object.__setattr__(self, "follow", _to_names(self.follow))
        object.__setattr__(self, "follow_limit", check_int(self.follow_limit, "follow_limit", 1, 2**32 - 1))
        if self.mode == "presampled":
            for name, without in _OF_ROWS.items():
                if getattr(self, name) != without:
                    raise InputError(
                        f"{name} is of engines that keep rows, got {getattr(self, name)!r} with the mode "
                        "'presampled', which keeps samples: leave it out"
                    )

    def in_mode(self, mode: Mode | Sequence[Mode]) -> "EngineOptions":
        """The same options for an engine of another mode, without those that it does not know. Raises
        `InputError`."""
        left_out = _OF_ROWS if mode == "presampled" else {} if mode == "eager" else {"follow": ()}
        return replace(self, mode=mode, **left_out)

    @property
    def partial(self) -> bool:
        """Whether the engine leaves out the aggregates of some nodes."""
        return self.keep_degree > 0


class EngineSettings(TypedDict, total=False):
    """The fields of `EngineOptions` as keywords."""

    threads: int | None
    mode: Mode | Sequence[Mode]
    history: int
    keep: Keep
    keep_degree: int
    state_dir: "str | os.PathLike[str] | None"
    non_finite: NonFinite
    sample_seed: int | None
    follow: Sequence[str]
    follow_limit: int


def choose_options(options: EngineOptions | None, settings: EngineSettings) -> EngineOptions:
    """The options, with the settings given as keywords applied. Raises `InputError`."""
    if options is None:
        return EngineOptions(**settings)
    if not isinstance(options, EngineOptions):
        raise InputError(f"options must be EngineOptions, got {kind_of(options)}: write Engine(graph, model)")
    return replace(options, **settings) if settings else options


def _check_one_of(name: str, value: object, allowed: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def _to_names(follow: object) -> tuple[str, ...]:
    if (
        isinstance(follow, str)
        or not isinstance(follow, Sequence)
        or not all(isinstance(one, str) for one in follow)
    ):
        raise InputError(f"follow must be a list of names of edge outputs, got {follow!r}")
    return tuple(dict.fromkeys(follow))


def _check_mode(mode: object) -> None:
    """Whether a list fits the model is for its plan to say."""
    several = isinstance(mode, Sequence) and not isinstance(mode, str)
    allowed = ("eager", "lazy") if several else get_args(Mode)
    for one in cast("Sequence[object]", mode) if several else (mode,):
        if not isinstance(one, str) or one not in allowed:
            raise InputError(
                "mode must be 'eager', 'lazy' or 'presampled', or a list of 'eager' and 'lazy', got "
                f"{one!r}{' in a list' if several else ''}"
            )
