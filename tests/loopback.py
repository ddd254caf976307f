"""HTTPX's calls for servers on this machine: a slow one is waited for as long as a test has patience."""

from functools import partial

import httpx

from waiting import PATIENCE

Client = partial(httpx.Client, timeout=PATIENCE)
request = partial(httpx.request, timeout=PATIENCE)
get, head, post, put = (
    partial(one, timeout=PATIENCE) for one in (httpx.get, httpx.head, httpx.post, httpx.put)
)
stream = partial(httpx.stream, timeout=PATIENCE)
