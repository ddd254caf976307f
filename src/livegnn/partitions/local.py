"""Parts of a graph in one process, a thread for each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Unpack

import livegnn._core as _core
from livegnn.graph.division import make_part
from livegnn.inference import Engine, EngineOptions
from livegnn.inference.options import EngineSettings, choose_options
from livegnn.network import Model
from livegnn.partitions.divided import Partitions
from livegnn.partitions.fitting import owners_of_types, refuse_unfit
from livegnn.partitions.part import LocalPart
from livegnn.placement import Owners
from livegnn.schema import Schema
from livegnn.types import NodeType


class LocalPartitions(Partitions):
    """An empty graph in parts, and engines of `model` whose predictions are those of one `Engine` on one
    graph, bit by bit, after the same batches.

    owners: of the nodes of all types, or of each type, by a hash of ids or as Fennel places nodes when they
    arrive; there are as many parts as their `workers`. options: of every engine; its fields may also be given
    one by one, as keywords. A `state_dir` gets a directory for each part.

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
        **settings: Unpack[EngineSettings],
    ) -> None:
        options = choose_options(options, settings)
        refuse_unfit(model, schema, options, owners)
        rules = owners_of_types(owners, schema)
        natives = [rule.native for rule in rules.values()]
        names = make_part(schema, natives, None, threads=1)
        numbers = range(next(iter(rules.values())).workers)
        self.graphs: Final = tuple(
            make_part(schema, natives, number, names=names, threads=options.threads) for number in numbers
        )
        self.engines: Final = tuple(
            Engine(self.graphs[number], model, _of_part(options, number)) for number in numbers
        )
        exchange = _core.LocalExchange(len(numbers))
        for number in numbers:
            exchange.join(self.engines[number].core.native, number)
        super().__init__(
            names,
            model,
            options,
            [
                LocalPart(graph, engine, exchange)
                for graph, engine in zip(self.graphs, self.engines, strict=True)
            ],
            exchange.begin,
        )


def _of_part(options: EngineOptions, part: int) -> EngineOptions:
    if options.state_dir is None:
        return options
    return EngineOptions(threads=options.threads, state_dir=Path(options.state_dir) / f"part-{part}")
