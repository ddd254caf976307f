"""Asks a language model for a convolution as six operators, and verifies the answer.

    python examples/propose_convolution.py http://localhost:8000/v1 MODEL

The server must answer ``POST /chat/completions`` as OpenAI's does. The language model gets the source of a
layer, and the names and shapes of its parameters, never their values. It answers with source code, which runs
in this process without a sandbox. The operators are used only if they pass verification against the layer.
"""

import argparse
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from livegnn.errors import ModelError
from livegnn.model import ConvolutionRequest, propose


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


def mean_layer(h, edge_index, weight, edge_attr):
    """The layer for which operators are wanted: the mean over in-neighbours, times a matrix."""
    out = np.zeros((len(h), len(WEIGHT)), np.float32)
    for v in set(edge_index[1].tolist()):
        out[v] = WEIGHT @ h[edge_index[0, edge_index[1] == v]].mean(axis=0)
    return out


WEIGHT = np.array([[0.5, -1.0], [1.0, 0.25], [0.0, 2.0]], np.float32)
REQUEST = ConvolutionRequest(
    name="mean layer",
    source="def forward(self, x, edge_index):\n    return self.lin(mean(x[edge_index[0]], edge_index[1]))\n",
    in_channels=2,
    out_channels=3,
    parameters={"lin.weight": WEIGHT},
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="the address of the server, up to /chat/completions")
    parser.add_argument("model", help="the name of the language model on the server")
    options = parser.parse_args()
    proposer = OpenAIProposer(options.url, options.model, os.environ.get("API_KEY"))
    print(propose(REQUEST, proposer, mean_layer, allow_code=True))


if __name__ == "__main__":
    main()
