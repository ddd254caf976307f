"""The page at /docs: what `/openapi.json` says, as HTML that needs nothing from elsewhere."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

_METHODS: Final = ("get", "post", "put", "delete")
_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { font-size: 1rem; margin: 2rem 0 0.25rem }
code { background: #8882; padding: 0.1rem 0.3rem }
table { border-collapse: collapse }
td { padding: 0.15rem 1rem 0.15rem 0; vertical-align: top }
p { margin: 0.25rem 0 }
:root { color-scheme: light dark }
"""


def render(schema: Mapping[str, Any]) -> str:
    """The page of an OpenAPI schema."""
    info = schema["info"]
    title = f"{info['title']} {info['version']}"
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
            f"<h1>{escape(title)}</h1>",
            f"<p>{escape(info.get('description', ''))}</p>",
            '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
            *(line for path, methods in schema["paths"].items() for line in _path(path, methods)),
            "</body></html>",
        ]
    )


def _path(path: str, methods: Mapping[str, Any]) -> Iterator[str]:
    for method in _METHODS:
        if method not in methods:
            continue
        operation = methods[method]
        yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        for text in operation.get("description", operation.get("summary", "")).split("\n\n"):
            yield f"<p>{escape(text)}</p>"
        if parameters := operation.get("parameters"):
            yield "<table>"
            for one in parameters:
                said = one.get("description") or one["schema"].get("title", "")
                if "default" in one["schema"]:
                    said += f" (default {one['schema']['default']})"
                needed = ", needed" if one.get("required") else ""
                yield (
                    f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}{needed}</td>"
                    f"<td>{escape(said)}</td></tr>"
                )
            yield "</table>"
        for kind in operation.get("requestBody", {}).get("content", {}):
            yield f"<p>Body: <code>{escape(kind)}</code></p>"
