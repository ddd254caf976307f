"""Serves one run of the demo: its log, and the server with the routes of the page."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import uvicorn

from livegnn.demo.ratings import Ratings, load
from livegnn.demo.routes import add_routes
from livegnn.demo.session import Session, graph_at_cutoff, start_engine
from livegnn.http.guard import Access, is_local
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import Runtime
from livegnn.server import create_app, listen


@contextmanager
def open_session(
    folder: Path, host: str, port: int, *, speed: float | None, ratings: Ratings | None = None
) -> Iterator[Session]:
    """Start the log in `folder` and the server at `host`:`port`, and stop them when the block ends.

    The caller starts the replay. `ratings` are by default all ratings that the package ships.
    """
    ratings = load() if ratings is None else ratings
    graph, standings = graph_at_cutoff(ratings)
    engine = start_engine(graph)
    with bind(host, port) as listener:
        address = listener.getsockname()[:2]
        log = SqliteLog(folder / "events.db")
        runtime = Runtime(log, graph, engine)
        session = Session(ratings, standings, runtime, address, speed=speed)
        # By its name if others may see the demo; it takes no orders from pages of strangers.
        app = create_app(runtime, access=Access(hosts=() if is_local(host) else ("*",)))
        add_routes(app, session)
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=2)
        )
        thread = Thread(target=server.run, args=([listener],), name="server", daemon=True)
        runtime.start()
        thread.start()
        try:
            yield session
        finally:
            session.close()
            app.state.feed.close()
            server.should_exit = True
            thread.join()
            runtime.stop()
            log.close()


def bind(host: str, port: int) -> socket.socket:
    """A listening socket at `host`:`port`, or at a free port if that is taken."""
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    return listen(host, 0)
