"""Parts of a graph in one process, a thread for each."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, Self, Unpack

import livegnn._core as _core
from livegnn.graph import Graph
from livegnn.graph.division import join
from livegnn.inference import Engine, EngineOptions
from livegnn.inference.engine_state import join as join_states
from livegnn.inference.native_engine import check_pair
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.beginning import Beginning
from livegnn.partitions.crew import ThreadCrew
from livegnn.partitions.divided import Partitions
from livegnn.partitions.fitting import owners_of_types, refuse_unfit
from livegnn.partitions.part import LocalPart
from livegnn.partitions.sets import SavedSet
from livegnn.placement import Owners, Partition
from livegnn.schema import Schema
from livegnn.types import NodeType, State


class LocalPartitions(Partitions):
    """A graph in parts, and engines of `model` whose predictions are those of one `Engine` on one
    graph, bit by bit, after the same batches.

    owners: of the nodes of all types, or of each type, by a hash of ids or as Fennel places nodes when they
    arrive; there are as many parts as their `workers`. options: of every engine; its fields may also be given
    one by one, as keywords. A `state_dir` gets a directory for each part.

    beginning: the graphs and states of the parts, by default empty ones; `from_graph` makes them.

    Raises `InputError`, `ModelError` and `OSError` as `Engine`, and `InputError` if this model, schema or
    setting cannot be divided (`refuse_unfit`).

    graphs, engines: by part.
    """

    def __init__(
        self,
        schema: Schema,
        model: Model,
        owners: Owners | Mapping[NodeType, Owners],
        options: EngineOptions | None = None,
        *,
        beginning: Beginning | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options = choose_options(options, settings)
        refuse_unfit(model, schema, options, owners)
        rules = tuple(owners_of_types(owners, schema).values())
        begun = Beginning.empty(schema, rules, options.threads) if beginning is None else beginning
        names, self.graphs, states = begun
        self.engines: Final = tuple(
            Engine(graph, model, _of_part(options, number), state=None if states is None else states[number])
            for number, graph in enumerate(self.graphs)
        )
        exchange = _core.LocalExchange(len(self.graphs))
        for number, engine in enumerate(self.engines):
            exchange.join(engine.core.native, engine.core.graph.native, number)
        if states is None and beginning is not None:
            _compute(self.engines, exchange)
        parts = [
            LocalPart(number, graph, engine, exchange)
            for number, (graph, engine) in enumerate(zip(self.graphs, self.engines, strict=True))
        ]
        super().__init__(names, model, options, rules, parts, ThreadCrew(parts, exchange.begin))

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        model: Model,
        owners: Owners | Mapping[NodeType, Owners] | Partition,
        options: EngineOptions | None = None,
        *,
        state: State | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """The parts of a graph, with the bits of `Engine(graph, model)` from now on; batches that are applied
        to the graph itself do not reach them.

        owners: as of the constructor; where Fennel places nodes, it first places those that are there, in
        passes over all. Or a `Partition` of the graph, whose owners its nodes get; Fennel places those that
        arrive. state: of an engine of the model on the graph, so that no row is computed; of one that keeps
        all rows. Raises the errors of the constructor, `InputError` for a partition of another graph or for
        more parts than nodes, and `FileFormatError` if the state does not fit.
        """
        options = choose_options(options, settings)
        check_pair(graph, model)
        partition = owners if isinstance(owners, Partition) else None
        rule = Owners("fennel", owners.workers) if isinstance(owners, Partition) else owners
        refuse_unfit(model, graph.schema, options, rule)
        rules = tuple(owners_of_types(rule, graph.schema).values())
        beginning = _core.holding(graph.writer, Beginning.of, graph, rules, options.threads, state, partition)
        return cls(graph.schema, model, rule, options, beginning=beginning)

    @classmethod
    def from_checkpoint(
        cls,
        directory: "Path | str",
        model: Model,
        options: EngineOptions | None = None,
        *,
        seq: int | None = None,
        **settings: Unpack[EngineSettings],
    ) -> Self:
        """The parts that `write` wrote into a directory, as of event `seq`, by default the newest there.

        Raises the errors of the constructor, `InputError` if the directory has no such checkpoint, and
        `FileFormatError` if one of its files is missing, damaged or of another checkpoint.
        """
        options = choose_options(options, settings)
        saved = SavedSet.find(directory, seq)
        refuse_unfit(model, saved.schema, options, saved.owners)
        beginning = saved.begin(options.threads)
        return cls(saved.schema, model, saved.owners, options, beginning=beginning)

    def join(self) -> tuple[Graph, State]:
        """The undivided graph, and the state of its engine: `Engine(graph, model, state=state)` continues as
        one engine would have. Later batches of the parts do not reach it."""
        return _core.holding(self.names.writer, self._join)

    def _join(self) -> tuple[Graph, State]:
        self._refuse_broken()
        graph = join(self.names, list(self.graphs), threads=self.engines[0].options.threads)
        states = [engine.state() for engine in self.engines]
        return graph, join_states([engine.core for engine in self.engines], states)


def _compute(engines: Sequence[Engine], exchange: _core.LocalExchange) -> None:
    """Computes all rows of parts that have nodes, in a thread for each."""

    def compute(engine: Engine) -> None:
        try:
            engine.core.native.initialize()
        except BaseException:
            exchange.end()
            raise

    exchange.begin()
    with ThreadPoolExecutor(len(engines), "livegnn-part") as threads:
        try:
            computed = [threads.submit(compute, engine) for engine in engines]
        except BaseException:
            exchange.end()  # those that run do not wait for one that does not
            raise
    errors = [error for one in computed if (error := one.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, _core.ExchangeEndedError)):
        raise error


def _of_part(options: EngineOptions, part: int) -> EngineOptions:
    if options.state_dir is None:
        return options
    return replace(options, state_dir=Path(options.state_dir) / f"part-{part}")
