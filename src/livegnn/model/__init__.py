"""A graph neural network as data: steps in topological order, with their weights. Needs no torch.

What only those need who write or verify operators, or import modules, is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from livegnn.model.model import EdgeInput, Function, Input, Model
from livegnn.model.propagation import Degree, Propagate
from livegnn.model.steps import Step

if TYPE_CHECKING:
    from livegnn.importers.explanation import ImportExplanation as ImportExplanation
    from livegnn.importers.explanation import explain_import as explain_import
    from livegnn.importers.exported import explain_exported as explain_exported
    from livegnn.importers.proposal import ConvolutionRequest as ConvolutionRequest
    from livegnn.importers.proposal import OpenAIProposer as OpenAIProposer
    from livegnn.importers.proposal import Proposer as Proposer
    from livegnn.importers.proposal import propose as propose
    from livegnn.model.own_convolution import Convolution as Convolution
    from livegnn.verification.conditions import Condition as Condition
    from livegnn.verification.verification import VerificationReport as VerificationReport
    from livegnn.verification.verification import verify as verify

_HOMES = {
    "Condition": "livegnn.verification.conditions",
    "Convolution": "livegnn.model.own_convolution",
    "ConvolutionRequest": "livegnn.importers.proposal",
    "ImportExplanation": "livegnn.importers.explanation",
    "OpenAIProposer": "livegnn.importers.proposal",
    "Proposer": "livegnn.importers.proposal",
    "VerificationReport": "livegnn.verification.verification",
    "explain_exported": "livegnn.importers.exported",
    "explain_import": "livegnn.importers.explanation",
    "propose": "livegnn.importers.proposal",
    "verify": "livegnn.verification.verification",
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
