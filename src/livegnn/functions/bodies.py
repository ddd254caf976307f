"""Requests and answers of a function, in the server's formats, without a library for HTTP."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

from livegnn.arguments import check_lengths
from livegnn.errors import InputError, TooLargeError
from livegnn.http.inference_protocol import AnswerForm, check_model, headers_of, read_infer
from livegnn.http.problems import (
    PAGE_TYPE,
    PROBLEM_JSON,
    find_page,
    is_protocol,
    problem_of,
    read_problem,
    seconds,
    write,
)
from livegnn.http.refusals import BodyTooLarge
from livegnn.http.strict_json import read_json
from livegnn.wording import quoted

if TYPE_CHECKING:
    from livegnn.types import IntArray

LARGEST_BODY: Final = 2**20
"""The Python objects of a body are thirty times as large."""
MOST_IDS: Final = 100_000
MOST_NUMBERS: Final = 500_000
"""Numbers of a request, and of the predictions in its answer; a server has the same limits."""
LONGEST_WAIT: Final = 300.0

_FIELDS = ("ids", "min_seq", "timeout")
_LARGEST_INTEGER = 2**63 - 1


class Asked(NamedTuple):
    """A request for predictions, of either protocol, or for a description of the model.

    min_seq: the least event that the snapshot must show. timeout: seconds in which it must be answered. form:
    of the answer in the Open Inference Protocol; None for the server's own. version: of the model that the
    request names; None for any. describes: whether the description is requested, and no prediction. checks:
    whether workers first make sure that what they predict from can be read.
    """

    ids: "list[int] | list[str] | IntArray"
    min_seq: int = 0
    timeout: float = 10.0
    form: AnswerForm | None = None
    version: str | None = None
    describes: bool = False
    checks: bool = False


class Answer(NamedTuple):
    """Status and body of an answer over HTTP. retry_after: seconds after which to ask again. store_requests,
    store_bytes: what was read of the store for it. store_retries: those requests that were sent again.
    json_length: of the JSON, if bytes of tensors are behind it."""

    status: int
    body: bytes
    retry_after: float | None = None
    content_type: str = "application/json"
    store_requests: int = 0
    store_bytes: int = 0
    store_retries: int = 0
    json_length: int | None = None

    def headers(self) -> dict[str, str]:
        """The headers of the answer, names in lower case."""
        found = {"content-type": self.content_type}
        if self.json_length is not None:
            found = headers_of(self.json_length)
        if self.retry_after is not None:
            found["retry-after"] = seconds(self.retry_after)
        return found


def read_asked(body: bytes | str) -> Asked:
    """The body of a request to /v1/predictions. Raises InputError."""
    _check_size(len(body if isinstance(body, bytes) else body.encode(errors="replace")))
    content = read_json(body, LARGEST_BODY)
    if not isinstance(content, dict) or "ids" not in content:
        raise InputError(f"the body must be an object with the field 'ids', got {quoted(content)}")
    if unknown := [name for name in content if name not in _FIELDS]:
        raise InputError(f"the body may have the fields {', '.join(_FIELDS)}, got {quoted(unknown[0])}")
    min_seq, timeout = content.get("min_seq", 0), content.get("timeout", 10.0)
    if type(min_seq) is not int or not 0 <= min_seq <= _LARGEST_INTEGER:
        raise InputError(f"min_seq must be an integer from 0 to 2^63 - 1, got {quoted(min_seq)}")
    if type(timeout) not in (int, float) or not 0 < timeout <= LONGEST_WAIT:
        raise InputError(
            f"timeout must be a number of seconds above 0, at most {LONGEST_WAIT:g}, got {quoted(timeout)}"
        )
    return Asked(_ids(content["ids"]), min_seq, float(timeout))


def read_infer_asked(body: bytes, json_length: str | None, name: str, version: str | None) -> Asked:
    """The body of a request of the Open Inference Protocol. json_length: the header `LENGTH`. name, version:
    of the model. Raises InputError, and UnknownPath for another name."""
    check_model(name, None, "")
    _check_size(len(body))
    found = read_infer(body, json_length, LARGEST_BODY)
    return Asked(_ids(found.ids), found.min_seq, found.timeout, found.form, version)


def _check_size(size: int) -> None:
    if size > LARGEST_BODY:
        raise BodyTooLarge(
            f"the body must be at most {LARGEST_BODY:,} bytes, got {size:,}: send fewer ids at once"
        )


def check_numbers(count: int, width: int) -> None:
    """Raises TooLargeError for `count` predictions of `width` numbers each that have no room in an answer."""
    if count * width > MOST_NUMBERS:
        raise TooLargeError(
            f"an answer may have {MOST_NUMBERS:,} numbers at most, got {count:,} ids with {width:,} each: "
            f"ask for {max(1, MOST_NUMBERS // width):,} ids at once"
        )


def refuse_parameters(query: str | Iterable[str]) -> None:
    """Raises InputError if an address has parameters, which none here takes. query: what stands after its
    "?", or the names in it."""
    if isinstance(query, str):
        query = [name for name, _ in parse_qsl(query, keep_blank_values=True)]
    for name in query:
        raise InputError(f"this address takes no parameters, got {quoted(name)}")


def answer_error(error: Exception) -> Answer:
    """The answer for an error: a problem, as the server's."""
    problem = problem_of(error)
    return Answer(problem.status, problem.encode(), problem.retry_after, PROBLEM_JSON)


def in_form_of(answer: Answer, path: str) -> Answer:
    """The answer in the form of the protocol that a path belongs to, which is about errors."""
    if answer.content_type != PROBLEM_JSON or not is_protocol(path):
        return answer
    body, headers = write(read_problem(answer.body), path)
    return answer._replace(body=body, content_type=headers["content-type"])


def answer_page(path: str) -> Answer | None:
    """The page of problems at a path; None if there is none."""
    page = find_page(path)
    return None if page is None else Answer(200, page.encode(), content_type=PAGE_TYPE)


def answer_json(content: object, status: int = 200) -> Answer:
    """`content` as the body of an answer."""
    return Answer(status, json.dumps(content, separators=(",", ":")).encode())


def _ids(given: object) -> list[int] | list[str]:
    if not isinstance(given, list):
        raise InputError(f"ids must be a list of integers or of texts, got {quoted(given)}")
    if len(given) > MOST_IDS:
        raise TooLargeError(f"a request may have {MOST_IDS:,} ids at most, got {len(given):,}: send several")
    kinds = set(map(type, given))
    if kinds <= {int}:
        if given and not 0 <= min(given) <= max(given) <= _LARGEST_INTEGER:
            wrong = next(id for id in given if not 0 <= id <= _LARGEST_INTEGER)
            raise InputError(f"ids must be integers from 0 to 2^63 - 1, got {wrong}")
    elif kinds != {str}:
        wrong = [id for id in given if type(id) not in (int, str)]
        found = f"{quoted(wrong[0])} in it" if wrong else "both"
        raise InputError(f"ids must be a list of integers or of texts, got {found}")
    else:
        check_lengths(given, "ids")
        for id in given:
            if "\0" in id or any("\ud800" <= letter <= "\udfff" for letter in id):
                raise InputError(
                    f"a text id must have no NUL and no half of a surrogate pair, got {quoted(id)}"
                )
    return given
