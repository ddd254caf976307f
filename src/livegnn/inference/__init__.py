"""The engine: keeps embeddings exact while the graph changes."""

from livegnn.compiler.plan import Keep
from livegnn.inference.degrees import Degrees
from livegnn.inference.engine import Engine
from livegnn.inference.forward import SampledForward
from livegnn.inference.guard import NonFinite
from livegnn.inference.options import EngineOptions, Mode
from livegnn.inference.scrub import Scrub, Scrubbed, ScrubPolicy
from livegnn.inference.update import QueryWork, Update, Work
from livegnn.inference.what_if import WhatIf
from livegnn.oracle.exactness import Verification

__all__ = [
    "Degrees",
    "Engine",
    "EngineOptions",
    "Keep",
    "Mode",
    "NonFinite",
    "QueryWork",
    "SampledForward",
    "Scrub",
    "ScrubPolicy",
    "Scrubbed",
    "Update",
    "Verification",
    "WhatIf",
    "Work",
]
