"""The servers that `serve.py` measures, each a process: `python serve_contestants.py KIND FOLDER [QUICK]`.

- `livegnn`: `livegnn.server` over a runtime with an engine, with keys, the check of hosts, and metrics.
- `fixed`: granian with an ASGI application that knows one answer of 400 bytes.
- `fastapi`: FastAPI on granian; the outputs of PyG's model are rows of an array, which no event changes.

A server prints its address when it listens. `livegnn` keeps its key in FOLDER/key.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from granian.constants import Interfaces
from granian.server.embed import Server

import livegnn as lg
from graphs import SyntheticGraph, make
from livegnn.http.guard import Access
from livegnn.http.keys import KeyFile
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app, listen, serve
from peers import make_model

FIXED = b"x" * 400
GRANIAN = {"interface": Interfaces.ASGINL, "backpressure": 4096, "log_enabled": False}
HIDDEN, OUTPUTS = 128, 40


def shape_of(quick: bool) -> str:
    return "arxiv-tenth" if quick else "arxiv"


def rows_of(graph: SyntheticGraph) -> np.ndarray:
    """The outputs [nodes, 40] of PyG's model."""
    model = make_model(graph.num_features, HIDDEN, OUTPUTS)
    edge_index = torch.from_numpy(np.stack([graph.src, graph.dst]))
    with torch.inference_mode():
        found: np.ndarray = model(torch.from_numpy(graph.x), edge_index).numpy()
    return found


def serve_livegnn(folder: Path, quick: bool) -> None:
    drawn = make(shape_of(quick))
    graph = lg.Graph.from_edges(drawn.src, drawn.dst, x=drawn.x, num_nodes=drawn.num_nodes)
    model = lg.Model.from_pyg(make_model(drawn.num_features, HIDDEN, OUTPUTS))
    with closing(SqliteLog(folder / "events.db")) as log:
        runtime = Runtime(log, graph, lg.Engine(graph, model, threads=1))
        runtime.start()
        app = create_app(runtime, access=Access(KeyFile(folder / "keys.json"), requests_per_address=4096))
        try:
            serve(app, listen("127.0.0.1", 0), ready=say)
        finally:
            runtime.stop()


def say(address: str) -> None:
    print(address, flush=True)


def serve_plain(app: Callable[..., object]) -> None:
    """Any ASGI application, on granian as it is by itself."""
    with socket.socket() as free:  # granian does not say which port it took
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def run() -> None:
        server = Server(app, address="127.0.0.1", port=port, **GRANIAN)

        def stop() -> None:
            server.interrupt_signal = True
            server.main_loop_interrupt.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        serving = asyncio.create_task(server.serve())
        while not listens(port):  # noqa: ASYNC110 (granian has no event for it)
            await asyncio.sleep(0.01)
        say(f"http://127.0.0.1:{port}")
        await serving

    import uvloop

    uvloop.run(run())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def answer_fixed(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
    """An ASGI application."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"400")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": FIXED})


def serve_fastapi(quick: bool) -> None:
    from fastapi import FastAPI

    rows = rows_of(make(shape_of(quick)))
    app = FastAPI()

    @app.get("/v1/predictions")
    def predict(ids: str) -> dict[str, object]:
        asked = [int(id) for id in ids.split(",")]
        return {"ids": asked, "predictions": rows[asked].tolist()}

    serve_plain(app)


def main() -> None:
    kind, folder, *rest = sys.argv[1:]
    quick = bool(rest)
    if kind == "livegnn":
        serve_livegnn(Path(folder), quick)
    elif kind == "fixed":
        serve_plain(answer_fixed)
    else:
        serve_fastapi(quick)


if __name__ == "__main__":
    main()
