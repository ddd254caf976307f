"""Models that are deployed, answer and are removed while the runtime runs.

    deploy ─► graph copied ─► engine computed on the copy ─► catches up with the log ─┐
              ── a thread of its own, beside the loop ──                             ▼
    switch, remove ──────────────────────────── between two batches: rows are moved over, and follow

Invariants: one engine serves: it answers where no model is named, and only it may refuse a batch that makes a
row non-finite. The register is written before a change takes effect, so a restart has every model that has
answered. An engine that does not serve and fails is dropped; the loop continues without it.

Thread safety: everything may be called from any thread but the loop's; `serving` and `engine` from any.
"""

import logging
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Final, Literal, NamedTuple, TypeAlias

import livegnn._core as _core
from livegnn.arguments import chosen_threads
from livegnn.errors import InputError, LiveGNNError, ViewMissingError
from livegnn.graph import Graph, View
from livegnn.graph.division import refuse_divided
from livegnn.inference import Engine, EngineOptions, RowPredictor
from livegnn.interrupts import Background
from livegnn.log import Log
from livegnn.model import Model
from livegnn.presampling import Predictor, check_predictor, predictor_factory
from livegnn.runtime.between_batches import BetweenBatches
from livegnn.runtime.comparison import Comparison, Read, compare
from livegnn.runtime.model_register import ModelRegister
from livegnn.runtime.recovery import ViewFactory
from livegnn.runtime.replay import replay
from livegnn.runtime.views import Views
from livegnn.wording import kind_of

_logger = logging.getLogger(__name__)

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_NEAR: Final = 512  # events: the loop may wait while a copy applies this number
_ROUNDS: Final = 32  # of catching up, each up to where the graph was when it began
_SHRINKING: Final = 0.7  # if a round leaves more than this share of the rest, batches are made larger
_LEAST_APART, _MOST_APART = 0.05, 0.2  # seconds: readers wait for the commit of a batch

ModelPhase: TypeAlias = Literal["building", "following", "failed"]


class ModelState(NamedTuple):
    """A model of a runtime. phase: "building" on a copy of the graph, "following" the graph, or "failed", for
    `reason`. digest: of the model, as `Model.digest`. serving: whether it answers where no model is named.
    """

    name: str
    digest: str
    phase: ModelPhase
    serving: bool
    reason: str | None


class Switch(NamedTuple):
    """A change of the serving model: after event `seq`, `model` answers instead of `previous`."""

    seq: int
    model: str
    previous: str | None


class Models:
    """The engines of a runtime, by name; one serves."""

    def __init__(
        self,
        log: Log,
        graph: Graph,
        views: Views,
        between_batches: BetweenBatches,
        factories: dict[str, ViewFactory],
        *,
        visible: threading.RLock,
        read: Read,
        register: ModelRegister,
        on_switch: Callable[[Switch], None],
        keep_apart: Callable[[float], None],
    ) -> None:
        """factories: of the loop; the factories of deployed models are added to them. visible: a lock that
        readers of predictions hold. read: as of `Runtime`. on_switch: called in the loop's thread.
        keep_apart: receives the least seconds between batches.

        Raises `InputError` if a model that answered, according to the register, does not exist.
        """
        self._log, self._graph, self._views, self._between_batches = log, graph, views, between_batches
        self._factories, self._visible, self._register = factories, visible, register
        self._read, self._on_switch, self._keep_apart = read, on_switch, keep_apart
        for name in (register.serving, register.previous):
            if name is not None and not isinstance(views.find(name), Predictor):
                raise InputError(
                    "expected the model that answered last, or before it, to be one of "
                    f"{', '.join(self.names) or 'none'}, got {name!r}: put its file back, or remove the "
                    "folder of models to begin with the model of the deployment"
                )
        self.serving = register.serving or next(iter(self.names), None)
        """The name of the engine that answers; None if there is none."""
        self.previous = register.previous
        """The name of the engine that answered before."""
        self.switches = register.switches
        """How often another engine has begun to answer, in earlier processes too if the register keeps it."""
        self._lock = threading.Lock()
        self._changing = threading.Lock()  # one switch or removal at a time
        self._digests: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._building: dict[str, Background] = {}
        self._copies: dict[str, Graph | int] = {}  # that catch up, or the events where they will begin
        self._given = frozenset(self.names).difference(register.names)
        for name in self.names:
            if name != self.serving:
                self.find(name).guard(False)
        self._closing = False

    # -- reading

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that follow the graph."""
        return tuple(name for name, view in self._views.items() if isinstance(view, Predictor))

    @property
    def predictor(self) -> Predictor | None:
        """The serving model; None if there is none, or while it is built again."""
        view = None if self.serving is None else self._views.find(self.serving)
        return view if isinstance(view, Predictor) else None

    @property
    def engine(self) -> RowPredictor | None:
        """The serving model, if it keeps rows; None otherwise, or while it is built again."""
        serving = self.predictor
        return serving if isinstance(serving, RowPredictor) else None

    def find_engine(self, name: str | None) -> Engine:
        """Returns a model by name, or the serving one, if it keeps rows on a graph in one piece.

        Raises the errors of `find_row_predictor`, and `InputError` if the graph is divided.
        """
        found = self.find_row_predictor(name)
        if isinstance(found, Engine):
            return found
        raise InputError(
            f"this needs a model on a graph in one piece, got {found.name!r}, whose graph is in parts: run "
            "it without partitions in [cluster]"
        )

    def find_row_predictor(self, name: str | None) -> RowPredictor:
        """Returns a model by name, or the serving one, if it keeps rows.

        Raises the errors of `find`, and `InputError` if the model answers from samples.
        """
        found = self.find(name)
        if isinstance(found, RowPredictor):
            return found
        raise InputError(
            f"this needs a model that keeps rows, got {found.name!r}, which answers from samples: ask one "
            "with the mode 'eager' or 'lazy'"
        )

    def find(self, name: str | None) -> Predictor:
        """Returns a model by name, or the serving one.

        Raises `InputError` if there is no such model, or it failed, `ViewMissingError` while it is built.
        """
        wanted = self.serving if name is None else name
        if wanted is None:
            raise InputError(
                "this runtime has no engine, and so no predictions: make it with one, "
                "Runtime(log, graph, Engine(graph, model))"
            )
        view = self._look_up(wanted)
        if view is None and isinstance(name, str):
            building, reason = name in self._building, self._failed.get(name)
            view = self._look_up(name)  # it follows the graph before it counts as built
            if view is None and building:
                raise ViewMissingError(
                    f"the model {name!r} is being built and does not follow the graph yet, so there is "
                    "nothing to read: ask again when its phase is 'following' (models.states, GET /v1/models)"
                )
            if view is None and reason is not None:
                raise InputError(
                    f"model must be one that follows the graph, got {name!r}, which failed: {reason}. "
                    "Deploy it again"
                )
        if view is None:
            raise InputError(
                f"model must be one of {', '.join(self.names) or 'none, for there is none'}, got {name!r}"
            )
        return view

    def _look_up(self, name: str) -> Predictor | None:
        try:
            view = self._views[name]
        except (KeyError, TypeError):
            return None
        return view if isinstance(view, Predictor) else None

    def _named(self, name: str) -> Predictor:
        if not isinstance(name, str):
            raise InputError(f"expected the name of a model, got {kind_of(name)}")
        return self.find(name)

    def states(self) -> tuple[ModelState, ...]:
        """Returns all models: the ones that follow the graph, are being built, or failed."""
        return _core.holding(self._lock, self._list_states)

    def _list_states(self) -> tuple[ModelState, ...]:
        following = {
            name: ModelState(name, view.digest, "following", name == self.serving, None)
            for name, view in self._views.items()
            if isinstance(view, Predictor)
        }
        building = {
            name: ModelState(name, self._digests[name], "building", False, None)
            for name in self._building
            if name not in following
        }
        failed = {
            name: ModelState(name, self._digests[name], "failed", False, reason)
            for name, reason in self._failed.items()
            if name not in following and name not in building
        }
        return (*following.values(), *building.values(), *failed.values())

    def compare(
        self,
        second: str,
        first: str | None = None,
        *,
        sample: int = 65_536,
        tolerance: float = 1e-4,
        seed: int = 0,
    ) -> Comparison:
        """Compares the predictions of the model `second` with the ones of `first`, by default the serving
        model. sample: the number of nodes, drawn at random. Raises `InputError` if they cannot be compared.
        """
        refuse_divided(self._graph, "a comparison, by degrees,")
        return compare(
            self.find(first), self._named(second), self._read, sample=sample, tolerance=tolerance, seed=seed
        )

    # -- deploying

    def find_loss(self) -> str | None:
        """Returns why the next start would not find a kept model; None if it would find all."""
        return self._register.find_loss()

    def deploy(
        self, name: str, model: Model, options: EngineOptions | None = None, *, wait: bool = True
    ) -> None:
        """Computes an engine of `model` beside the loop, and lets it follow the graph as `name`.

        It does not serve yet: see `switch`. Meanwhile there is a copy of the graph in memory. wait: whether
        to return only when it follows, and raise its errors; otherwise `states` has them. options: by default
        the options of the serving engine. Raises `InputError` for a name that is taken or not allowed,
        `ModelError` if the model does not fit the graph.
        """
        if not isinstance(model, Model):
            raise InputError(f"expected a Model, got {kind_of(model)}: Model.load(path) reads a file")
        if not isinstance(options, (EngineOptions, NoneType)):
            raise InputError(f"options must be EngineOptions, got {kind_of(options)}")
        if options is None:
            serving = self.predictor
            options = EngineOptions() if serving is None else serving.options
        _check_name(name)
        refuse_divided(self._graph, "a model that is deployed")
        check_predictor(self._graph, model, options)
        if wait:
            self._between_batches.refuse_own_thread()
        failures: list[BaseException] = []

        def run() -> None:
            try:
                self._build(name, model, options)
            except BaseException as error:
                failures.append(error)
                with self._lock:
                    self._failed[name] = f"{type(error).__name__}: {error}"
                _logger.error("the model %r was not deployed: %s", name, error)
            finally:
                with self._lock:
                    self._building.pop(name, None)

        thread = Background(run, f"livegnn-deploy-{name}")
        _core.holding(self._lock, self._begin, name, model.digest, thread)
        if wait:
            thread.join()
            if failures:
                raise failures[0]

    def _begin(self, name: str, digest: str, thread: Background) -> None:
        """Starts `thread`, which builds a model; needs `_lock`."""
        if self._closing:
            raise LiveGNNError("expected a runtime that runs, got one that has stopped")
        if name in self._views or name in self._views.missing or name in self._building:
            raise InputError(
                f"the name of a model must be free, got {name!r}: choose another, or remove that one first"
            )
        self._failed.pop(name, None)
        self._digests[name] = digest
        self._building[name] = thread
        _core.settled(thread.start, partial(self._give_up, name, thread))

    def _give_up(self, name: str, thread: Background) -> None:
        """Removes a model whose thread was interrupted before it began."""
        if not thread.is_alive():
            self._building.pop(name, None)

    def _build(self, name: str, model: Model, options: EngineOptions) -> None:
        if options.mode == "presampled":
            self._follow(name, model, options, None)
            return
        self._copies[name] = self._graph.seq
        try:
            state = self._graph.state()
            self._copies[name] = copy = Graph.from_state(state)
            del state
            half = max(1, chosen_threads(options.threads) // 2)  # the loop uses the others
            engine = Engine(copy, model, replace(options, threads=half, history=0), name=name)
            self._catch_up(copy)
            self._follow(name, model, options, engine)
        finally:
            del self._copies[name]

    def needed_after(self) -> int | None:
        """Returns the event after which models in computation need the log; None if there are none."""
        copies = list(self._copies.values())
        return min((copy if isinstance(copy, int) else copy.seq for copy in copies), default=None)

    def _follow(self, name: str, model: Model, options: EngineOptions, engine: Engine | None) -> None:
        """Lets a model follow the graph, with the rows that `engine` has computed on a copy of it. Without
        `engine` it takes samples, which are drawn while batches wait.
        """

        def join() -> None:
            joined: Predictor
            make = predictor_factory(model, options, name=name)  # a later one has the same seed
            if engine is None:
                joined = make(self._graph, None)
            else:
                replay(self._log, engine.graph, up_to=self._graph.seq)
                joined = Engine(self._graph, model, options, state=engine, name=name)
            joined.guard(False)
            self._factories[name] = make
            self._views.put_back(joined)

        if self._closing:
            raise LiveGNNError("the runtime stops")
        # A model that is visible must exist after a crash: it is kept before it is visible.
        self._register.add(name, model, options.mode)
        try:
            self._between_batches.call(join)
        except BaseException:
            self._register.remove(name)
            raise
        _logger.info("the model %r follows the graph from event %d on", name, self._graph.seq)

    def _catch_up(self, copy: Graph) -> None:
        """Applies the batches that the graph has had since to its copy, until few are left.

        If that is not faster than new ones are applied, batches are made larger for a while, which makes them
        cheaper for both.
        """
        behind, apart = sys.maxsize, 0.0
        try:
            for _ in range(_ROUNDS):
                reached = self._graph.seq
                if self._closing or reached - copy.seq <= _NEAR:
                    break
                if reached - copy.seq > _SHRINKING * behind:
                    apart = min(_MOST_APART, max(_LEAST_APART, 2 * apart))
                    self._keep_apart(apart)
                behind = reached - copy.seq
                replay(self._log, copy, up_to=reached)
        finally:
            self._keep_apart(0.0)

    def _leave(self, name: str) -> None:
        self._register.remove(name)
        if self.previous == name:
            self.previous = None
        self._detach(name)

    def _detach(self, name: str) -> None:
        view = self._views[name]
        _core.holding(self._graph.writer, self._graph.views.detach, view)
        self._views.remove(name)
        self._factories.pop(name, None)
        view.retire()

    def switch(self, name: str) -> Switch:
        """Lets the model `name` answer from now on, at one event; notifies subscribers once.

        The previous model still follows the graph, for `roll_back`. Raises `InputError` if there is no such
        model or it serves already.
        """
        return _core.holding(self._changing, self._switch, name)

    def _switch(self, name: str) -> Switch:
        engine = self._named(name)
        if name == self.serving:
            raise InputError(f"expected the name of a model that does not serve, got {name!r}, which does")
        return self._between_batches.call(partial(self._serve, engine, self.serving))

    def roll_back(self) -> Switch:
        """Lets the previous model answer again. Raises `InputError` if there is none any more."""
        if self.previous is None:
            raise InputError("expected a model that served before, got none: switch to one by its name")
        return self.switch(self.previous)

    def _serve(self, engine: Predictor, before: str | None) -> Switch:
        name = engine.name
        self._register.serve(name, before)
        switch = _core.holding(self._visible, self._answer_with, engine, before)
        told = {"model": name, "previous": before, "event": switch.seq}
        text = "the model %r serves instead of %r from event %d on"
        _logger.info(text, name, before, switch.seq, extra=told)
        self._on_switch(switch)
        return switch

    def _answer_with(self, engine: Predictor, before: str | None) -> Switch:
        engine.guard(engine.options.non_finite == "refuse")
        if (old := self.predictor) is not None:
            old.guard(False)
        self.serving, self.previous = engine.name, before
        self.switches += 1
        return Switch(self._graph.seq, engine.name, before)

    def remove(self, name: str) -> None:
        """Detaches a deployed model from the graph, or forgets one that failed.

        Raises `InputError` if there is no such model, if it serves, or if the runtime was made with it.
        """
        _core.holding(self._changing, self._remove, name)

    def _remove(self, name: str) -> None:
        if isinstance(name, str) and name in self._failed and name not in self._views:
            _core.holding(self._lock, self._failed.pop, name)
            return
        self._named(name)
        if name == self.serving or name in self._given:
            why = "serves: switch to another first" if name == self.serving else "was not deployed"
            raise InputError(f"expected the name of a model that can be removed, got {name!r}, which {why}")
        self._between_batches.call(lambda: self._leave(name))

    def is_dispensable(self, name: str) -> bool:
        """Returns whether the loop continues if the view fails: a deployed model that does not serve."""
        return (
            name != self.serving and name not in self._given and isinstance(self._views.find(name), Predictor)
        )

    def lose(self, name: str, reason: str) -> None:
        """Notes that a dispensable model has failed."""
        _core.holding(self._lock, self._failed.update, {name: reason})
        if self.previous == name:
            self.previous = None

    def close(self) -> None:
        """Ends the builds that run, each at its next step."""
        self._closing = True
        building = _core.holding(self._lock, list, self._building.values())
        for thread in building:
            thread.join()


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name) or name in View.reserved_names:
        raise InputError(
            "the name of a model must be of letters, digits, '.', '_' and '-', 64 at most, begin with a "
            f"letter or digit, and be none of {', '.join(sorted(View.reserved_names))}, got {name!r:.80}"
        )
