"""The engine: embeddings that are kept exact while the graph changes."""

from livegnn.inference.engine import Engine, Update, Work
from livegnn.inference.guard import NonFinite
from livegnn.inference.scrub import Scrub, Scrubbed, ScrubPolicy
from livegnn.inference.what_if import WhatIf
from livegnn.oracle.exactness import Verification

__all__ = [
    "Engine",
    "NonFinite",
    "Scrub",
    "ScrubPolicy",
    "Scrubbed",
    "Update",
    "Verification",
    "WhatIf",
    "Work",
]
