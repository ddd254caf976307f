"""Samples that are ready before the request comes (Helios): kept with every batch, and predicted on."""

from livegnn.presampling.engine import SampledEngine
from livegnn.presampling.predictors import Predictor, check_predictor, predictor_factory
from livegnn.presampling.presampler import Presampler

__all__ = ["Predictor", "Presampler", "SampledEngine", "check_predictor", "predictor_factory"]
