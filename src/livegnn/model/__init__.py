"""A graph neural network as data: steps in topological order, with their weights. Needs no torch.

What only those need who write or verify operators, or import modules, is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.propagation import Degree, Propagate
from livegnn.model.steps import Step

if TYPE_CHECKING:
    from livegnn.model.conditions import Condition as Condition
    from livegnn.model.convolution import Convolution as Convolution
    from livegnn.model.importer.explanation import ImportExplanation as ImportExplanation
    from livegnn.model.importer.explanation import explain_import as explain_import
    from livegnn.model.importer.exported import explain_exported as explain_exported
    from livegnn.model.proposal import ConvolutionRequest as ConvolutionRequest
    from livegnn.model.proposal import OpenAIProposer as OpenAIProposer
    from livegnn.model.proposal import Proposer as Proposer
    from livegnn.model.proposal import propose as propose
    from livegnn.model.verification import VerificationReport as VerificationReport
    from livegnn.model.verification import verify as verify

_HOMES = {
    "Condition": "livegnn.model.conditions",
    "Convolution": "livegnn.model.convolution",
    "ConvolutionRequest": "livegnn.model.proposal",
    "ImportExplanation": "livegnn.model.importer.explanation",
    "OpenAIProposer": "livegnn.model.proposal",
    "Proposer": "livegnn.model.proposal",
    "VerificationReport": "livegnn.model.verification",
    "explain_exported": "livegnn.model.importer.exported",
    "explain_import": "livegnn.model.importer.explanation",
    "propose": "livegnn.model.proposal",
    "verify": "livegnn.model.verification",
}

__all__ = [
    "Condition",
    "Convolution",
    "ConvolutionRequest",
    "Degree",
    "EdgeInput",
    "Function",
    "ImportExplanation",
    "Input",
    "Model",
    "OpenAIProposer",
    "Propagate",
    "Proposer",
    "Step",
    "VerificationReport",
    "explain_exported",
    "explain_import",
    "propose",
    "verify",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
