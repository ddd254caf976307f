"""What a proposer is asked for, and what it answers; `livegnn.importers.proposals` verifies the answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from livegnn.network.own_convolution import Convolution
from livegnn.types import FloatArray


@dataclass(frozen=True)
class ConvolutionRequest:
    """A request for the six operators of a layer.

    name: of the layer, for error messages. source: the Python text of its forward, message, aggregate and
    update. in_channels, out_channels: of its rows. parameters: name -> float32 array; for code, ``.`` in a
    name becomes ``_``. edge_dim: channels of the edges' features.
    """

    name: str
    source: str
    in_channels: int
    out_channels: int
    parameters: Mapping[str, FloatArray] = field(default_factory=dict)
    edge_dim: int = 0

    def describe(self) -> str:
        """The request in words, without the parameters' values."""
        shapes = [f"- `{variable_of(name)}`: {list(p.shape)}" for name, p in self.parameters.items()]
        return "\n".join(
            (
                (
                    f"The layer `{self.name}` reads {self.in_channels} channels a node and writes "
                    f"{self.out_channels}. Edges have {self.edge_dim} channels of features."
                ),
                "Its parameters, as float32 arrays of these names:",
                *(shapes or ["- none"]),
                "Its source:",
                f"```python\n{self.source.strip()}\n```",
            )
        )


class Proposer(Protocol):
    """A callable that proposes a decomposition."""

    def __call__(self, request: ConvolutionRequest, feedback: str | None) -> Convolution | str | None:
        """Returns a convolution, the Python source of one (it assigns ``convolution``), or None to give up.

        feedback: None at first; later the last proposal, and why it was rejected.
        """
        ...


def variable_of(name: str) -> str:
    return re.sub(r"\W", "_", name)
