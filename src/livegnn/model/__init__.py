"""A graph neural network as data: steps in topological order, with their weights. Needs no torch.

Names for writing and verifying operators and for importing modules are loaded when they are first used. Most
are in higher layers of the library; `livegnn/__init__.py` registers the place of each (`livegnn.lazy_names`).
"""

from typing import TYPE_CHECKING

from livegnn import lazy_names
from livegnn.model.inputs import EdgeInput, Input
from livegnn.model.model import Model
from livegnn.model.propagation import Degree, Propagate
from livegnn.model.steps import Function, Step

if TYPE_CHECKING:
    from livegnn.importers.explanation import ImportExplanation as ImportExplanation
    from livegnn.importers.explanation import explain_import as explain_import
    from livegnn.importers.exported import explain_exported as explain_exported
    from livegnn.importers.proposals.proposer import ConvolutionRequest as ConvolutionRequest
    from livegnn.importers.proposals.proposer import OpenAIProposer as OpenAIProposer
    from livegnn.importers.proposals.proposer import Proposer as Proposer
    from livegnn.importers.proposals.proposer import propose as propose
    from livegnn.model.own_convolution import Convolution as Convolution
    from livegnn.oracle import exactness as exactness
    from livegnn.oracle import reference as reference
    from livegnn.verification import Condition as Condition
    from livegnn.verification import VerificationReport as VerificationReport
    from livegnn.verification import verify as verify

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
    value = globals()[name] = lazy_names.load(__name__, name)
    return value
