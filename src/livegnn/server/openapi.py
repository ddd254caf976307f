"""The OpenAPI document of the server: its routes as the framework knows them, and the form of failures."""

from typing import Any, Final

from livegnn.http.problems import PROBLEM_JSON

_METHODS: Final = ("get", "post", "put", "delete")
_TEXT: Final = {"type": "string"}
_PROBLEM: Final = {
    "title": "Problem",
    "description": "Why a request failed, as RFC 9457 has it: docs/problems.md.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
}
_PROTOCOL_ERROR: Final = {
    "title": "InferenceError",
    "description": "Why a request of the Open Inference Protocol failed.",
    "type": "object",
    "required": ["error"],
    "properties": {"error": _TEXT},
}
_PROTOCOL: Final = "/v2"


def describe_failures(document: dict[str, Any]) -> dict[str, Any]:
    """Changes a document of FastAPI, and returns it: failures are problems on every route, in place of the
    framework's 422."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for schema in (_PROBLEM, _PROTOCOL_ERROR):
        schemas[schema["title"]] = schema
    for path, methods in document["paths"].items():
        of_protocol = path == _PROTOCOL or path.startswith(f"{_PROTOCOL}/")
        name, kind = ("InferenceError", "application/json") if of_protocol else ("Problem", PROBLEM_JSON)
        content = {kind: {"schema": {"$ref": f"#/components/schemas/{name}"}}}
        for method in _METHODS:
            if method in methods:
                responses = methods[method]["responses"]
                responses.pop("422", None)
                responses["default"] = {"description": "A failure", "content": content}
    return document
