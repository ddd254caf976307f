"""A proposal is used only if it passes verification; a wrong one goes back with what is wrong."""

import json
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from livegnn.errors import InputError, ModelError
from livegnn.model import Convolution, ConvolutionRequest, Model, propose
from ports import closed_port

EXAMPLE = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parents[2] / "examples" / "propose_convolution.py"))
)
OpenAIProposer = EXAMPLE.OpenAIProposer

WEIGHT = np.array([[0.5, -1.0], [1.0, 0.25], [0.0, 2.0]], np.float32)
REQUEST = ConvolutionRequest(
    name="convs.0",
    source="def forward(self, x, edge_index):\n    return self.lin(mean(x[edge_index[0]], edge_index[1]))\n",
    in_channels=2,
    out_channels=3,
    parameters={"lin.weight": WEIGHT},
)


def mean_layer(h, edge_index, weight, edge_attr):
    """The original layer: the mean over in-neighbours, times a matrix."""
    out = np.zeros((len(h), 3), np.float32)
    for v in set(edge_index[1].tolist()):
        out[v] = WEIGHT @ h[edge_index[0, edge_index[1] == v]].mean(axis=0)
    return out


MEAN_AS_AGGREGATE = "convolution = Convolution(transform=lambda h: h @ lin_weight.T, aggregate=np.mean)"
SUM_ONLY = "convolution = Convolution(transform=lambda h: h @ lin_weight.T)"
RIGHT = """
import numpy as np

def divide(context, aggregate):
    return aggregate / context

convolution = Convolution(
    neighbor_context="count",
    combine=divide,
    combine_inverse=lambda context, combined: combined * context,
    transform=lambda h: h @ lin_weight.T,
)
"""


class Answers:
    """A proposer that says what it was told to, and keeps what it was asked."""

    def __init__(self, *answers: Convolution | str | None) -> None:
        self.answers = list(answers)
        self.feedback: list[str | None] = []

    def __call__(self, request: ConvolutionRequest, feedback: str | None) -> Convolution | str | None:
        self.feedback.append(feedback)
        return self.answers.pop(0)


class Server(HTTPServer):
    """Answers /chat/completions with the given contents, one after the other; keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents: list[str] = []
        self.raw: bytes | None = None
        self.status = 200
        self.asked: list[dict[str, object]] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.headers.append(dict(self.headers))
        body = self.server.raw
        if body is None:
            message = {"role": "assistant", "content": self.server.contents.pop(0)}
            body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_wrong_proposal_is_rejected_and_a_right_one_used(server):
    server.contents = [
        f"A mean of the neighbours:\n```python\n{MEAN_AS_AGGREGATE}\n```\n",
        f"The count is the context.\n```python\n{RIGHT}```\nThat is all.",
    ]
    proposer = OpenAIProposer(server.url, "a-model", api_key="secret")
    convolution = propose(REQUEST, proposer, mean_layer, allow_code=True)
    assert convolution.name == "convs.0"
    assert convolution.neighbor_context == "count"

    first, second = (asked["messages"] for asked in server.asked)
    assert [one["role"] for one in first] == ["system", "user"]
    assert first[0]["content"] == EXAMPLE.PROMPT
    assert "`lin_weight`: [3, 2]" in first[1]["content"]
    assert "return self.lin(mean(" in first[1]["content"]
    assert second[:2] == first
    assert MEAN_AS_AGGREGATE in second[2]["content"]
    assert "2 aggregate is associative of 'convs.0': refuted: m_1 = " in second[2]["content"]
    assert server.asked[0]["model"] == "a-model"
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(proposer)

    h = np.array([[1, 2], [3, 4], [5, -6]], np.float32)
    edges = np.array([[0, 1, 2], [2, 2, 0]])
    np.testing.assert_allclose(convolution.compute(h, edges), mean_layer(h, edges, None, None), rtol=1e-6)
    assert Model.from_convolutions([convolution], 2).width("h1.combine") == 3


def test_a_decomposition_of_another_layer_is_rejected(server):
    server.contents = [f"```python\n{SUM_ONLY}\n```"] * 2
    with pytest.raises(ModelError, match=r"convs\.0: no proposal passed verification") as error:
        propose(REQUEST, OpenAIProposer(server.url, "m"), mean_layer, attempts=2, allow_code=True)
    assert str(error.value).count("the operators equal the reference of 'convs.0': refuted: edges") == 2
    assert "Authorization" not in server.headers[0]
    assert len(server.asked) == 2


def test_code_is_not_executed_unless_allowed(tmp_path):
    trace = tmp_path / "trace"
    source = f"open({str(trace)!r}, 'w').close()\n{RIGHT}"
    with pytest.raises(ModelError, match="only with allow_code=True: it can do all that this process"):
        propose(REQUEST, Answers(source), mean_layer)
    with pytest.raises(InputError, match="allow_code must be True or False, got 'no'"):
        propose(REQUEST, Answers(source), mean_layer, allow_code="no")
    assert not trace.exists()
    propose(REQUEST, Answers(source), mean_layer, allow_code=True)
    assert trace.exists()


def test_a_convolution_needs_no_permission():
    right = Convolution(
        neighbor_context="count", combine=lambda c, a: a / c, update=lambda h, a: a @ WEIGHT.T
    )
    wrong = Convolution(transform=lambda h: h @ WEIGHT.T)
    answers = Answers(wrong, right)
    assert propose(REQUEST, answers, mean_layer).update is right.update
    assert answers.feedback[0] is None
    assert answers.feedback[1].startswith("Your last proposal\nwas rejected:\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("convolution = (", "the code fails: SyntaxError"),
        ("convolution = Convolution(aggregate='mean')", "aggregate must be one of 'sum', 'min', 'max'"),
        ("convolution = nothing", "the code fails: NameError: name 'nothing' is not defined"),
        ("x = 1", "must assign a Convolution to `convolution`, got None"),
        ("convolution = Convolution(transform=lambda h: h @ lin_weight)", "transform failed on two rows"),
    ],
)
def test_code_that_fails_goes_back(source, message):
    answers = Answers(source, RIGHT)
    assert propose(REQUEST, answers, mean_layer, allow_code=True).name == "convs.0"
    assert source in answers.feedback[1]
    assert message in answers.feedback[1]


def test_everything_that_failed_is_told():
    with pytest.raises(ModelError) as error:
        propose(REQUEST, Answers(MEAN_AS_AGGREGATE, SUM_ONLY, None), mean_layer, allow_code=True)
    text = str(error.value)
    assert "attempt 1: the model cannot be kept exact incrementally" in text
    assert "2 aggregate is associative" in text
    assert "attempt 2: " in text
    assert "attempt 3: the proposer had no proposal" in text
    with pytest.raises(ModelError, match="attempts must be at least 1, got 0"):
        propose(REQUEST, Answers(), mean_layer, attempts=0)


def test_the_example_prints_a_convolution(server, monkeypatch, capsys):
    server.contents = [f"```python\n{RIGHT}```"]
    monkeypatch.setattr(sys, "argv", ["propose_convolution.py", server.url, "a-model"])
    EXAMPLE.main()
    assert "neighbor_context='count'" in capsys.readouterr().out


def test_an_answer_without_code_is_no_proposal(server):
    server.contents = ["I cannot do that."]
    assert OpenAIProposer(server.url + "/", "m")(REQUEST, None) is None


def test_servers_that_fail(server):
    proposer = OpenAIProposer(server.url, "m")
    server.raw, server.status = b"no such model", 404
    with pytest.raises(ModelError, match="must answer with status 200, got 404: no such model"):
        proposer(REQUEST, None)
    server.status = 200
    for body in (b"<html>", b"[]", b'{"choices": []}'):
        server.raw = body
        with pytest.raises(ModelError, match="must answer as /chat/completions does"):
            proposer(REQUEST, None)
    with pytest.raises(ModelError, match="cannot be reached within 2 s"):
        OpenAIProposer(f"http://127.0.0.1:{closed_port()}/v1", "m", timeout=2)(REQUEST, None)
    with pytest.raises(ModelError, match="must begin with http:// or https://, got 'file:///etc'"):
        OpenAIProposer("file:///etc", "m")


def leaky(x):
    return np.where(x > 0, x, 0.2 * x)


def test_the_examples_of_the_prompt_are_right(rng):
    wide, bias = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(3).astype(np.float32)

    def mean_and_root(h, edge_index, weight, edge_attr):
        mean = np.zeros_like(h)
        for v in set(edge_index[1].tolist()):
            mean[v] = h[edge_index[0, edge_index[1] == v]].mean(axis=0)
        return np.concatenate([h, mean], axis=1) @ wide.T + bias

    request = ConvolutionRequest("mean", "", 2, 3, {"lin.weight": wide, "lin.bias": bias})
    propose(request, Answers(EXAMPLE.MEAN_EXAMPLE), mean_and_root, attempts=1, allow_code=True)

    one, other = rng.standard_normal((2, 3)).astype(np.float32)

    def attention(h, edge_index, weight, edge_attr):
        rows = h @ WEIGHT.T
        out = np.zeros((len(h), 3)) + bias
        for v in set(edge_index[1].tolist()):
            neighbours = edge_index[0, edge_index[1] == v]
            scores = np.exp(leaky(rows[neighbours] @ one + rows[v] @ other))
            out[v] += scores / scores.sum() @ rows[neighbours]
        return out

    parameters = {"lin.weight": WEIGHT, "att_src": one, "att_dst": other, "bias": bias}
    request = ConvolutionRequest("attention", "", 2, 3, parameters)
    propose(request, Answers(EXAMPLE.ATTENTION_EXAMPLE), attention, attempts=1, allow_code=True)
    assert EXAMPLE.MEAN_EXAMPLE in EXAMPLE.PROMPT
    assert EXAMPLE.ATTENTION_EXAMPLE in EXAMPLE.PROMPT


def test_a_proposer_that_raises_or_answers_with_junk_is_asked_no_more():
    answers = Answers()  # it has none, and raises IndexError
    with pytest.raises(ModelError, match=r"convs\.0: the proposer raised IndexError: pop from") as caught:
        propose(REQUEST, answers, mean_layer)
    assert isinstance(caught.value.__cause__, IndexError)
    assert answers.feedback == [None]
    answers = Answers(Convolution, RIGHT)
    with pytest.raises(ModelError, match=r"convs\.0: the proposer must return .*Convolution, .*, got type$"):
        propose(REQUEST, answers, mean_layer, allow_code=True)
    assert answers.feedback == [None]
