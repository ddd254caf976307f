"""Whether something can do what it is there for: one value, for servers, workers and functions alike."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Readiness(NamedTuple):
    """reasons: why it is not ready, by what is wrong, such as "log"; none where it is.

    A reason says what was found. Health routes and metrics answer from this value.
    """

    reasons: Mapping[str, str] = MappingProxyType({})

    @property
    def ready(self) -> bool:
        """Whether nothing is wrong."""
        return not self.reasons
