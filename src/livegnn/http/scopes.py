"""The scope that each request needs: one table for every process, because a path means the same in each."""

from functools import lru_cache
from typing import Final

from livegnn.http.keys import Scope
from livegnn.http.problems import is_page

HEALTH: Final = ("/healthz", "/livez", "/readyz", "/v1/health", "/v2/health/live", "/v2/health/ready")
_READING_POSTS: Final = (
    "/v1/predictions",
    "/v1/what-if",
    "/v1/samples",
    "/v1/edge-scores",
    "/v1/edge-scores/explain",
    "/v1/candidates",
)
_WRITING: Final = ("POST", "/v1/events")


@lru_cache(1024)
def scope_of(method: str, path: str) -> Scope | None:
    """The scope that a request needs, None if it needs none: see docs/security.md."""
    gets = method in ("GET", "HEAD")
    if gets and (path in HEALTH or is_page(path)):
        return None
    reads = path in _READING_POSTS or (path.startswith("/v2/models/") and path.endswith("/infer"))
    if gets or (method == "POST" and reads):
        return "read"
    return "write" if (method, path) == _WRITING else "admin"
