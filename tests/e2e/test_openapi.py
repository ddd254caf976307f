"""Clients made of the OpenAPI document: schemathesis draws requests, and checks each answer by it."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings

from gate import draws
from livegnn import Engine
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app
from streams import make_graph, make_model
from waiting import PATIENCE

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import positive_data_acceptance

# Of an old release of its client for ASGI.
pytestmark = pytest.mark.filterwarnings("ignore:The anyio.abc.BlockingPortal alias:DeprecationWarning")

ENDLESS = "/v1/changes"
# Whether ids are integers or texts is known of a graph, not of the document. And 503 is the answer to a
# request that waits for an event in vain; the test has a check of its own for other failures of the server.
UNCHECKED = [positive_data_acceptance, not_a_server_error]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    log, graph = SqliteLog(tmp_path_factory.mktemp("server") / "events.db"), make_graph()
    runtime = Runtime(log, graph, Engine(graph, make_model(), threads=1))
    runtime.start()
    yield create_app(runtime)
    runtime.stop()
    log.close()


def operations(app: FastAPI) -> dict[str, Any]:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    found = [one.ok() for one in schema.get_all_operations()]
    return {f"{one.method} {one.path}": one for one in found if one.path != ENDLESS}


def test_every_answer_is_one_that_the_document_names(app: FastAPI) -> None:
    for name, operation in operations(app).items():

        @settings(max_examples=draws(5, 200), deadline=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy())
        def ask(case: Any) -> None:
            for part in (case.query, case.body):
                if isinstance(part, dict) and "min_seq" in part:
                    part.setdefault("timeout", 0.01)  # no event of that number may ever come
            answer = case.call_and_validate(timeout=PATIENCE, excluded_checks=UNCHECKED)
            if answer.status_code >= 500:
                assert (answer.status_code, answer.json()["type"]) == (503, "/problems/timeout")

        try:
            ask()
        except Exception as error:
            error.add_note(name)
            raise


def test_every_route_is_in_the_document(app: FastAPI) -> None:
    paths = {f"{one.path}" for one in operations(app).values()} | {ENDLESS}
    routes = {getattr(route, "path", "").replace(":node_id", "") for route in app.routes}
    assert {path for path in routes if path.startswith(("/v1", "/v2"))} <= paths
