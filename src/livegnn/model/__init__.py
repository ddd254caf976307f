"""Models: writes, imports, explains and verifies them. Only importing needs torch.

The names of other packages are loaded when they are first used (`livegnn.lazy_names`).
"""

from typing import TYPE_CHECKING

import livegnn.lazy_names as lazy_names
import livegnn.model.entry_points as entry_points
from livegnn.network import Degree, EdgeInput, Function, Input, Model, Propagate, Step
from livegnn.network.model import ENTRY_POINTS
from livegnn.network.transforms import Transforms

if TYPE_CHECKING:
    from livegnn.importers.explanation import ImportExplanation as ImportExplanation
    from livegnn.importers.explanation import explain_import as explain_import
    from livegnn.importers.exported import explain_exported as explain_exported
    from livegnn.network.own_convolution import Convolution as Convolution
    from livegnn.oracle import exactness as exactness
    from livegnn.oracle import reference as reference
    from livegnn.verification import Condition as Condition
    from livegnn.verification import VerificationReport as VerificationReport
    from livegnn.verification import verify as verify
    from livegnn.verification.proposals import ConvolutionRequest as ConvolutionRequest
    from livegnn.verification.proposals import Proposer as Proposer
    from livegnn.verification.proposals import propose as propose

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
    "Propagate",
    "Proposer",
    "Step",
    "Transforms",
    "VerificationReport",
    "explain_exported",
    "explain_import",
    "propose",
    "verify",
]

ENTRY_POINTS.register(entry_points)
lazy_names.register(
    __name__,
    {
        "Condition": "livegnn.verification",
        "Convolution": "livegnn.network.own_convolution",
        "ConvolutionRequest": "livegnn.verification.proposals",
        "ImportExplanation": "livegnn.importers.explanation",
        "Proposer": "livegnn.verification.proposals",
        "VerificationReport": "livegnn.verification",
        "exactness": "livegnn.oracle.exactness",
        "explain_exported": "livegnn.importers.exported",
        "explain_import": "livegnn.importers.explanation",
        "propose": "livegnn.verification.proposals",
        "reference": "livegnn.oracle.reference",
        "verify": "livegnn.verification",
    },
)


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value
