"""Whether something can do what it is there for: one value, for servers, workers and functions alike."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Readiness(NamedTuple):
    """reasons: the causes for which it is not ready, by part, such as "log"; empty if it is ready.

    A reason describes the finding. Health routes and metrics answer from this value.
    """

    reasons: Mapping[str, str] = MappingProxyType({})

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons
