"""Decompositions from an external proposer, such as a language model, which are verified before use.

A proposal is not trusted: `propose` accepts a convolution only if `livegnn.model.verify` confirms the
conditions of theorem 1 and the operators equal the original layer on small graphs. The proposer gets the
errors as feedback and may try again.

Proposed source code is executed only with ``allow_code=True``. It runs in this process with all rights of the
process. It gets the names NumPy, `Convolution` and the parameters, but this is not a sandbox: allow it only
if you would also run the proposer's code by hand.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from livegnn.arguments import switch
from livegnn.errors import ModelError
from livegnn.network.own_convolution import Convolution
from livegnn.network.proposer import ConvolutionRequest, Proposer, variable_of
from livegnn.network.steps import Function
from livegnn.verification.verification import verify
from livegnn.wording import kind_of


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
    allow_code = switch(allow_code, "allow_code")
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
        raise  # its message is already clear, as for `OpenAIProposer`
    except Exception as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise ModelError(f"{request.name}: the proposer raised {what}") from error
    if proposal is None or isinstance(proposal, Convolution | str):
        return proposal
    raise ModelError(
        f"{request.name}: the proposer must return a livegnn.model.Convolution, the source code of one as "
        f"text, or None, got {kind_of(proposal)}"
    )


@dataclass(frozen=True)
class OpenAIProposer:
    """A proposer that calls a server with OpenAI's protocol (``POST base_url/chat/completions``).

    base_url: for instance ``http://localhost:8000/v1``. model: the model's name on the server. api_key: sent
    as a bearer token, if given. timeout: seconds to wait for the server.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 120.0

    def __post_init__(self) -> None:
        if not self.base_url.startswith(("http://", "https://")):
            raise ModelError(f"base_url must begin with http:// or https://, got {self.base_url!r}")

    def __call__(self, request: ConvolutionRequest, feedback: str | None) -> str | None:
        """The last Python block of the server's answer; None if it has none. Raises `ModelError` if there is
        no answer.
        """
        messages = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": request.describe()},
        ]
        if feedback is not None:
            messages.append({"role": "user", "content": feedback})
        content = self._ask({"model": self.model, "messages": messages, "temperature": 0})
        blocks: list[str] = re.findall(r"```(?:python|py)?[ \t]*\n(.*?)```", content, re.DOTALL)
        return blocks[-1] if blocks else None

    def _ask(self, body: Mapping[str, object]) -> str:
        import urllib.error  # imported here since it is slow
        import urllib.request

        url = f"{self.base_url.rstrip('/')}/chat/completions"
        headers = {"Content-Type": "application/json"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(asked, timeout=self.timeout) as response:
                answer = json.load(response)
            content = answer["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            text = error.read(500).decode(errors="replace")
            error.close()
            raise ModelError(f"{url} must answer with status 200, got {error.code}: {text}") from None
        except OSError as error:
            raise ModelError(f"{url} cannot be reached within {self.timeout:g} s: {error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise ModelError(f"{url} must answer as /chat/completions does, got {error!r}") from error
        return content if isinstance(content, str) else ""


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


MEAN_EXAMPLE = """\
# The layer: update(concat(h_v, mean of h_u)). A mean is not associative; its sum is, and the count a context.
convolution = Convolution(
    neighbor_context="count",
    aggregate="sum",
    combine=lambda context, aggregate: aggregate / context,
    combine_inverse=lambda context, combined: combined * context,
    update=lambda h, a: np.concatenate([h, a], axis=1) @ lin_weight.T + lin_bias,
)
"""

ATTENTION_EXAMPLE = """\
# The layer: sum of softmax over in-edges of leaky_relu(att_src . W h_u + att_dst . W h_v), times W h_u.
def message_local(source, target):
    logits = source @ lin_weight.T @ att_src[:, None] + target @ lin_weight.T @ att_dst[:, None]
    return np.exp(np.where(logits > 0, logits, 0.2 * logits))

convolution = Convolution(
    message_local=message_local,
    neighbor_context="sum",
    aggregate="sum",
    combine=lambda context, aggregate: aggregate / context,
    combine_inverse=lambda context, combined: combined * context,
    transform=lambda h: h @ lin_weight.T,
    update=lambda h, a: a + bias,
)
"""

PROMPT = f"""\
You rewrite a layer of a graph neural network as six operators, so that it can be updated incrementally.
For a target node v and its in-edges (u, v):

    mlc_uv = message_local(source, target, weight, edge_attr)   # rows of edges: h_u, h_v, weight, features
    c_v    = neighbor_context of all mlc_uv                     # "none", "count" or "sum"
    a_v    = combine(c_v, aggregate of all mlc_uv * transform(h_u))
    h'_v   = update(h_v, a_v)

Rules:
- Every function works on float32 NumPy arrays [rows, channels], row by row; a row never sees another one.
- message_local takes any of the four parameters, by these names; take `target` only if it must be read.
  It returns [edges, 1], [edges, heads], or as many channels as transform does. Leave it out if it is 1.
- aggregate is "sum", "min" or "max". A mean, a softmax or a degree is never part of it: what depends on all
  neighbours goes into neighbor_context, and combine applies it once a node.
- combine must distribute over aggregate and be monotone in the context; combine_inverse undoes it. Both get
  arrays as wide as the aggregate. With neighbor_context "none" leave both out.
- transform="one" if the message is mlc_uv itself. Operators that are the identity are left out.
- self_loops=True if the layer adds a loop to every node.

Answer with one Python block that assigns `convolution`. `np`, `Convolution` and the parameters are there.
The proposal is verified with a solver, and against the original layer.

First example, with parameters lin_weight [out, 2 * in] and lin_bias [out]:
```python
{MEAN_EXAMPLE}```

Second example, with parameters lin_weight [out, in], att_src [out], att_dst [out] and bias [out]:
```python
{ATTENTION_EXAMPLE}```
"""
"""The system prompt of `OpenAIProposer`. Both examples pass verification."""
