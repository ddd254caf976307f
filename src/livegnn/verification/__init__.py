"""Whether a model can be kept exact incrementally: conditions of its operators, proved by Z3 or tested."""

from livegnn.verification.conditions import Condition
from livegnn.verification.verification import VerificationReport, verify

__all__ = ["Condition", "VerificationReport", "verify"]
