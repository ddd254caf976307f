"""A graph neural network as data: steps in topological order, with their weights. Needs no torch."""

from livegnn.model.conditions import Condition
from livegnn.model.convolution import Convolution
from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.propagation import Propagate
from livegnn.model.proposal import ConvolutionRequest, OpenAIProposer, Proposer, propose
from livegnn.model.steps import Step
from livegnn.model.verification import VerificationReport, verify

__all__ = [
    "Condition",
    "Convolution",
    "ConvolutionRequest",
    "EdgeInput",
    "Function",
    "Input",
    "Model",
    "OpenAIProposer",
    "Propagate",
    "Proposer",
    "Step",
    "VerificationReport",
    "propose",
    "verify",
]
