"""The engine: embeddings that are kept exact while the graph changes."""

from livegnn.inference.engine import Engine, Update, Verification, Work
from livegnn.inference.scrub import Scrub, ScrubPolicy
from livegnn.inference.what_if import WhatIf

__all__ = ["Engine", "Scrub", "ScrubPolicy", "Update", "Verification", "WhatIf", "Work"]
