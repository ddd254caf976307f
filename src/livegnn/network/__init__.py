"""A graph neural network as data: steps in topological order, with their weights. Needs no torch.

Users import these names, and those for writing, importing and verifying models, from `livegnn.model`.
"""

from livegnn.network.model import Model
from livegnn.network.propagation import Degree, Propagate
from livegnn.network.steps import EdgeInput, Function, Input, Step

__all__ = ["Degree", "EdgeInput", "Function", "Input", "Model", "Propagate", "Step"]
