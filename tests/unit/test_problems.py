"""The table of problems, from errors to answers, and its page in the guides."""

import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import livegnn.errors
from livegnn.errors import (
    LONGEST_MESSAGE,
    DiskFullError,
    InputError,
    LiveGNNError,
    LogMovedError,
    OverloadedError,
    SnapshotReplacedError,
    TimeoutExpired,
    UnknownNodeError,
)
from livegnn.http import refusals
from livegnn.http.problems import (
    PAGES,
    PROBLEMS,
    find_page,
    kind_of,
    problem_of,
    problem_of_refusal,
    read_problem,
    write,
)

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"
KINDS = {kind.name: kind for kind in PROBLEMS.values()}


def classes_of(module: object) -> set[type[Exception]]:
    return {
        one
        for _, one in inspect.getmembers(module, inspect.isclass)
        if issubclass(one, Exception) and one.__module__ == getattr(module, "__name__", "")
    }


def test_every_error_has_one_kind() -> None:
    # Those with errors of their own.
    for room in ("functions.worker_host", "connectors.kafka_partitions", "channels.errors", "demo.replay"):
        import_module(f"livegnn.{room}")
    own = classes_of(livegnn.errors) | classes_of(refusals)
    assert own | {MemoryError, Exception} == set(PROBLEMS)
    assert len(KINDS) == len({kind.title for kind in KINDS.values()}) == len(PROBLEMS)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in KINDS)
    assert all(kind.status >= 400 for of, kind in PROBLEMS.items() if of is not refusals.NotVisible)

    seen = set[str]()

    def check(error: type[LiveGNNError]) -> None:
        for below in error.__subclasses__():
            seen.add(below.__name__)
            if below not in PROBLEMS:  # an error inside one room: it has the kind of the error that it is
                assert below.__module__ not in ("livegnn.errors", "livegnn.http.refusals")
                assert kind_of(below) == kind_of(error)
            check(below)

    check(LiveGNNError)
    assert {"WorkerDied", "Unreachable", "ReplayError"} <= seen


def test_the_page_of_the_guides_is_the_table() -> None:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], (" ".join(part.split()) for part in parts[2::2]), strict=True))
    assert shown == {
        name: f"Status {kind.status}, {kind.title}. {kind.when} {kind.advice}" for name, kind in KINDS.items()
    }


def test_a_page_says_when_and_what_to_do() -> None:
    for name, kind in KINDS.items():
        page = find_page(f"{PAGES}/{name}")
        assert page is not None
        for said in (kind.title, f"{PAGES}/{name}", str(kind.status), kind.when, kind.advice):
            assert said in page
        assert len(page) < 1000
    listed = find_page(PAGES)
    assert listed is not None
    assert len(listed.splitlines()) == len(KINDS)
    for path in ("/problems/", "/problems/none", "/problem", "/problems/unknown-node/", "", "unknown-node"):
        assert find_page(path) is None


@pytest.mark.parametrize(
    ("error", "name", "status", "retry_after"),
    [
        (UnknownNodeError("no"), "unknown-node", 404, None),
        (type("Own", (UnknownNodeError,), {})("no"), "unknown-node", 404, None),
        (type("Own", (LiveGNNError,), {})("no"), "failed", 500, None),
        (OverloadedError("full", retry_after=2.5), "overloaded", 429, 2.5),
        (TimeoutExpired("late"), "timeout", 503, None),
        (DiskFullError("full"), "disk-full", 503, 1.0),
        (LogMovedError("moved"), "log-moved", 503, None),
        (SnapshotReplacedError("newer"), "snapshot-replaced", 503, 1.0),
        (refusals.ProcessStops(), "process-stops", 503, 1.0),
        (refusals.UnknownMethod("/a", "GET", "PUT"), "unknown-method", 405, None),
        (MemoryError("2 GiB"), "out-of-memory", 500, None),
        (KeyError("a"), "unforeseen", 500, None),
    ],
)
def test_an_error_is_a_problem(error: Exception, name: str, status: int, retry_after: float | None) -> None:
    problem = problem_of(error)
    assert (problem.name, problem.status, problem.retry_after) == (name, status, retry_after)
    assert problem.title == KINDS[name].title
    assert str(error) in problem.detail
    assert problem.is_of(type(error))
    assert not problem.is_of(InputError)
    body, headers = write(problem, "/v1/predictions")
    assert json.loads(body) == {
        "type": f"/problems/{name}",
        "title": problem.title,
        "status": status,
        "detail": problem.detail,
    }
    assert headers["content-type"] == "application/problem+json"
    assert headers.get("retry-after") == (None if retry_after is None else "1" if retry_after <= 1 else "3")
    assert read_problem(body) == problem._replace(retry_after=None)
    body, headers = write(problem, "/v2/models/engine/infer")
    assert (json.loads(body), headers["content-type"]) == ({"error": problem.detail}, "application/json")


def test_a_detail_is_short_and_valid_json() -> None:
    assert len(problem_of(RuntimeError("x" * 10_000)).detail) <= LONGEST_MESSAGE
    assert (
        json.loads(problem_of(InputError("got '\ud800\u00e9'")).encode().decode())["detail"]
        == "got '?\u00e9'"
    )


def test_a_refused_entry_has_the_kind_of_its_error() -> None:
    assert problem_of_refusal("UnknownNodeError", "why")[:2] == (409, "unknown-node")
    assert problem_of_refusal("OwnError", "why")[:2] == (409, "invalid-input")
    assert "retry-after" not in write(problem_of_refusal("OverloadedError", "why"), "/")[1]


def test_the_table_loads_no_framework() -> None:
    said = (
        "import sys; before = set(sys.modules); import livegnn.http.problems\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    heavy = {"fastapi", "starlette", "pydantic", "orjson", "numpy", "torch", "uvicorn"}
    assert "livegnn" in found.stdout.split()
    assert not heavy & set(found.stdout.split())
