"""Small requests that are answered as their bytes come, against a server that parses all of them."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gate import draws
from http_connections import JSON, MINE, answers, body, cut, cut_at, request, sized, some_requests
from livegnn.workers.app import create_serving_app, server_config, serving_config
from serving_workers import Setting


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    with ExitStack() as opened:
        yield Setting(tmp_path_factory.mktemp("workers"), opened)


@settings(deadline=None, max_examples=draws(60, 300))
@given(
    st.lists(some_requests(), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.integers(0, 2**20), max_size=2),
)
def test_what_comes_in_pieces_is_answered_as_all_is(
    setting: Setting, requests: list[bytes], near: list[int], anywhere: list[int]
) -> None:
    pieces = cut(b"".join(requests), near, anywhere)
    hot, plain = both(setting)
    found = answers(hot, pieces)
    # A server that parses all refuses a broken request before it answers those that came with it. The other
    # one has answered small ones by then, as if each had come alone.
    ends = list(itertools.accumulate(map(len, requests)))
    assert found in (answers(plain, cut_at(pieces, ends[:alone])) for alone in range(len(ends)))


SMALL = sized(body(MINE[:1]), JSON)
EXPECTS = sized(body(MINE[:1]), JSON, "expect: 100-continue")
TEXT = sized(body(MINE[:1]), "content-type: text/plain")
PARAMETER = sized(body(MINE[:1]), JSON + "; a=b")  # which is for the application, and right


@pytest.mark.parametrize(
    "pieces",
    [
        [EXPECTS],
        [TEXT, SMALL],
        [SMALL, b"GET /v1/health HTTP/1.1\r\nx-one: ", SMALL],  # within a head
        [request(b"", f"content-length: {2 * len(SMALL)}"), SMALL, SMALL, SMALL],  # within a body
    ],
)
def test_what_looks_like_a_small_request(setting: Setting, pieces: list[bytes]) -> None:
    hot, plain = both(setting)
    assert answers(hot, pieces) == answers(plain, pieces)


def test_small_requests_are_answered_in_their_turn(setting: Setting) -> None:
    pieces = [PARAMETER, SMALL, SMALL, PARAMETER, sized(body(MINE[:2]), JSON)]
    hot, plain = both(setting)
    expected = answers(plain, pieces, waits=False)
    assert answers(hot, pieces, waits=False) == expected
    assert expected.count(b"200 OK") == len(pieces)


def test_a_server_that_ends_answers_a_request_whose_head_has_come(setting: Setting) -> None:
    text = body(MINE[:1])
    one = sized(text, JSON)
    head = one[: -len(text)]
    hot, plain = both(setting)
    for pieces, ends_at, answered in (
        ([one, head, text, one], 2, 2),
        ([one, head, text, one], 3, 2),
        ([one], 0, 0),
        ([head[:9], head[9:], text], 1, 0),
    ):
        expected = answers(plain, pieces, ends_at)
        assert answers(hot, pieces, ends_at) == expected
        assert expected.count(b"200 OK") == answered


def test_what_fails_unforeseen_is_told(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(setting.workers[0], "predict", fail)
    hot, plain = both(setting)
    expected = answers(plain, [SMALL])
    assert answers(hot, [SMALL]) == expected
    assert b"500 Internal" in expected


def both(setting: Setting) -> tuple[uvicorn.Config, uvicorn.Config]:
    """A server that answers small requests as they come, and one that does not."""
    hot, plain = serving_config(setting.workers[0]), server_config(create_serving_app(setting.workers[0]))
    plain.http = HttpToolsProtocol
    for config in (hot, plain):
        config.load()
    return hot, plain
