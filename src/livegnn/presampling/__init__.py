"""Samples that are ready before a request (Helios): updated with every batch, and predicted on."""

from livegnn.presampling.engine import Predictor, SampledEngine, check_predictor, predictor_factory
from livegnn.presampling.presampler import Presampler

__all__ = ["Predictor", "Presampler", "SampledEngine", "check_predictor", "predictor_factory"]
