"""The engine: keeps embeddings exact while the graph changes.

Names are loaded on first use (`livegnn.lazy_names`), so that a forward pass alone loads no engine.
"""

from typing import TYPE_CHECKING, Final

import livegnn.lazy_names as lazy_names

if TYPE_CHECKING:
    from livegnn.compiler.plan import Keep as Keep
    from livegnn.inference.degrees import Degrees as Degrees
    from livegnn.inference.engine import Engine as Engine
    from livegnn.inference.forward import SampledForward as SampledForward
    from livegnn.inference.options import EngineOptions as EngineOptions
    from livegnn.inference.options import Mode as Mode
    from livegnn.inference.options import NonFinite as NonFinite
    from livegnn.inference.row_predictor import RowPredictor as RowPredictor
    from livegnn.inference.scrub import Scrubbed as Scrubbed
    from livegnn.inference.scrub_rounds import Scrub as Scrub
    from livegnn.inference.scrub_rounds import ScrubPolicy as ScrubPolicy
    from livegnn.inference.update import QueryWork as QueryWork
    from livegnn.inference.update import Update as Update
    from livegnn.inference.update import Work as Work
    from livegnn.inference.what_if import WhatIf as WhatIf
    from livegnn.oracle.exactness import Verification as Verification

_HOMES: Final = {
    "Degrees": "livegnn.inference.degrees",
    "Engine": "livegnn.inference.engine",
    "EngineOptions": "livegnn.inference.options",
    "Keep": "livegnn.compiler.plan",
    "Mode": "livegnn.inference.options",
    "NonFinite": "livegnn.inference.options",
    "QueryWork": "livegnn.inference.update",
    "RowPredictor": "livegnn.inference.row_predictor",
    "SampledForward": "livegnn.inference.forward",
    "Scrub": "livegnn.inference.scrub_rounds",
    "ScrubPolicy": "livegnn.inference.scrub_rounds",
    "Scrubbed": "livegnn.inference.scrub",
    "Update": "livegnn.inference.update",
    "Verification": "livegnn.oracle.exactness",
    "WhatIf": "livegnn.inference.what_if",
    "Work": "livegnn.inference.update",
}

__all__ = list(_HOMES)

lazy_names.register(__name__, _HOMES)


def __getattr__(name: str) -> object:
    value = globals()[name] = lazy_names.load(__name__, name)
    return value
