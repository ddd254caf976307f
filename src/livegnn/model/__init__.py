"""A graph neural network as data: steps in topological order, with their weights. Needs no torch."""

from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.propagation import Propagate
from livegnn.model.steps import Step

__all__ = ["EdgeInput", "Function", "Input", "Model", "Propagate", "Step"]
