"""Parts of a graph in one process, a thread for each."""

from pathlib import Path
from typing import Final, Unpack

import livegnn._core as _core
from livegnn.graph.division import make_part
from livegnn.inference import Engine, EngineOptions
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.divided import Partitions
from livegnn.partitions.fitting import refuse_unfit
from livegnn.partitions.part import LocalPart
from livegnn.placement import Owners
from livegnn.schema import Schema


class LocalPartitions(Partitions):
    """An empty graph in parts, and engines of `model` whose predictions are those of one `Engine` on one
    graph, bit by bit, after the same batches.

    owners: the part of each node, by a hash of its id; there are as many parts as its `workers`. options: of
    every engine; its fields may also be given one by one, as keywords. A `state_dir` gets a directory for
    each part.

    Raises `InputError`, `ModelError` and `OSError` as `Engine`, and `InputError` if this model, schema or
    setting cannot be divided (`refuse_unfit`).

    graphs, engines: by part.
    """

    def __init__(
        self,
        schema: Schema,
        model: Model,
        owners: Owners,
        options: EngineOptions | None = None,
        **settings: Unpack[EngineSettings],
    ) -> None:
        options = choose_options(options, settings)
        refuse_unfit(model, schema, options, owners)
        names = make_part(schema, owners.native, None, threads=1)
        numbers = range(owners.workers)
        self.graphs: Final = tuple(
            make_part(schema, owners.native, number, names=names, threads=options.threads)
            for number in numbers
        )
        self.engines: Final = tuple(
            Engine(self.graphs[number], model, _of_part(options, number)) for number in numbers
        )
        exchange = _core.LocalExchange(owners.workers)
        for number in numbers:
            exchange.join(self.engines[number].core.native, number)
        super().__init__(
            names,
            owners,
            self.engines[0].outputs,
            [
                LocalPart(graph, engine, exchange)
                for graph, engine in zip(self.graphs, self.engines, strict=True)
            ],
            lambda _: exchange.begin(),
        )


def _of_part(options: EngineOptions, part: int) -> EngineOptions:
    if options.state_dir is None:
        return options
    return EngineOptions(threads=options.threads, state_dir=Path(options.state_dir) / f"part-{part}")
