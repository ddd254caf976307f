"""Checks whether a model can be kept exact incrementally: proves or tests conditions of its operators."""

from livegnn.verification.conditions import Condition
from livegnn.verification.verification import VerificationReport, verify

__all__ = ["Condition", "VerificationReport", "verify"]
