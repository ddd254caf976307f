"""The engine: embeddings that are kept exact while the graph changes."""

from livegnn.inference.engine import Engine, Update, Verification, Work
from livegnn.inference.what_if import WhatIf

__all__ = ["Engine", "Update", "Verification", "WhatIf", "Work"]
