"""What answers for predictions: an engine that keeps rows, or one that keeps samples."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from livegnn.graph import Graph
from livegnn.inference import Engine, EngineOptions
from livegnn.inference.native_engine import lay_out
from livegnn.model import Model
from livegnn.presampling.engine import SampledEngine, check_sampled
from livegnn.types import State

Predictor: TypeAlias = Engine | SampledEngine
PredictorFactory: TypeAlias = Callable[[Graph, State | None], Predictor]


def predictor_factory(model: Model, options: EngineOptions, *, name: str = "engine") -> PredictorFactory:
    """A function that makes what `options.mode` says from a graph and an optional saved state.

    Samples that it makes anew have the seed of those that it made before.
    """
    if options.mode != "presampled":
        return Engine.factory(model, options, name=name)
    seeds = [] if options.sample_seed is None else [options.sample_seed]

    def make(graph: Graph, state: State | None) -> SampledEngine:
        own = options if state is not None or not seeds else replace(options, sample_seed=seeds[-1])
        engine = SampledEngine(graph, model, own, state=state, name=name)
        seeds.append(engine.seed)
        return engine

    return make


def check_predictor(graph: Graph, model: Model, options: EngineOptions) -> None:
    """Raises `ModelError` or `InputError` if no such predictor of `model` can follow the graph."""
    if options.mode == "presampled":
        check_sampled(graph, model, options)
    else:
        lay_out(graph, model, options)
