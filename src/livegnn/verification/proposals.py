"""Decompositions from an external proposer, such as a language model, which are verified before use.

A proposal is not trusted: `propose` accepts a convolution only if `livegnn.model.verify` confirms the
conditions of theorem 1 and the operators equal the original layer on small graphs. The proposer gets the
errors as feedback and may try again.

Proposed source code is executed only with ``allow_code=True``. It runs in this process with all rights of the
process. It gets the names NumPy, `Convolution` and the parameters, but this is not a sandbox: allow it only
if you would also run the proposer's code by hand.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from livegnn.arguments import check_bool
from livegnn.errors import ModelError
from livegnn.network.own_convolution import Convolution
from livegnn.network.steps import Function
from livegnn.types import FloatArray
from livegnn.verification.verification import verify
from livegnn.wording import kind_of


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


def propose(
    request: ConvolutionRequest,
    proposer: Proposer,
    reference: Function,
    *,
    attempts: int = 3,
    allow_code: bool = False,
) -> Convolution:
    """The first proposal that passes verification, including equality with the original layer.

    reference: (h, edge_index, weight, edge_attr) -> output: the original layer. attempts: the number of calls
    of the proposer. allow_code: whether source code may be executed; it runs without a sandbox.

    Raises `ModelError` with all failures if no proposal passes. Raises it at once if the proposer raises (its
    error is the ``__cause__``), returns something that is not a proposal, or returns source code and
    `allow_code` is not set.
    """
    allow_code = check_bool(allow_code, "allow_code")
    if attempts < 1:
        raise ModelError(f"attempts must be at least 1, got {attempts}")
    failed: list[str] = []
    feedback = None
    for attempt in range(attempts):
        proposal = _proposal(proposer, request, feedback)
        if proposal is None:
            failed.append(f"attempt {attempt + 1}: the proposer had no proposal")
            break
        if isinstance(proposal, str) and not allow_code:
            raise ModelError(
                f"{request.name}: the proposer answered with source code, which is executed only with "
                "allow_code=True: it can do all that this process can"
            )
        try:
            convolution = _run(proposal, request) if isinstance(proposal, str) else proposal
            convolution = replace(convolution, name=request.name, reference=reference)
            report = verify(convolution, in_channels=request.in_channels, edge_dim=request.edge_dim)
            report.raise_for_failure()
        except ModelError as error:
            failed.append(f"attempt {attempt + 1}: {error}")
            feedback = _feedback(proposal, str(error))
            continue
        return convolution
    raise ModelError(f"{request.name}: no proposal passed verification\n" + "\n".join(failed))


def _proposal(
    proposer: Proposer, request: ConvolutionRequest, feedback: str | None
) -> Convolution | str | None:
    """The proposer's answer. Raises `ModelError` if it is not a valid one."""
    try:
        proposal: object = proposer(request, feedback)
    except ModelError:
        raise  # its message is already clear
    except Exception as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ModelError(f"{request.name}: the proposer raised {what}") from error
    if proposal is None or isinstance(proposal, Convolution | str):
        return proposal
    raise ModelError(
        f"{request.name}: the proposer must return a livegnn.model.Convolution, the source code of one as "
        f"text, or None, got {kind_of(proposal)}"
    )


def _run(source: str, request: ConvolutionRequest) -> Convolution:
    """Executes source code, without a sandbox."""
    names: dict[str, object] = {
        "np": np,
        "Convolution": Convolution,
        **{variable_of(name): array for name, array in request.parameters.items()},
    }
    try:
        exec(compile(source, f"<proposal for {request.name}>", "exec"), names)
    except Exception as error:
        raise ModelError(f"the code fails: {type(error).__name__}: {error}") from error
    convolution = names.get("convolution")
    if not isinstance(convolution, Convolution):
        raise ModelError(f"the code must assign a Convolution to `convolution`, got {convolution!r}")
    return convolution


def _feedback(proposal: Convolution | str, error: str) -> str:
    shown = f"```python\n{proposal.strip()}\n```" if isinstance(proposal, str) else "Your last proposal"
    return f"{shown}\nwas rejected:\n{error}\nPropose one for which this is mended."


def variable_of(name: str) -> str:
    """The name of a parameter in proposed source code."""
    return re.sub(r"\W", "_", name)
