"""A deployment of the small model on an empty graph, in parts or in one piece."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from livegnn.deployment import Deployment
from livegnn.runtime import Runtime
from streams import WIDTH, make_model

DEPLOYMENT = """
[model]
path = "model.lgnn"
[graph]
path = "graph.npz"
auto_add_nodes = ["node"]
[log]
path = "{log}"
[engine]
threads = 1
[server]
port = 0
when_failed = "{when_failed}"
"""

CLUSTER = """
[cluster]
partitions = {partitions}
owners = "{owners}"
silent_seconds = {silent_seconds}
"""


def write(
    directory: Path,
    name: str,
    partitions: int = 0,
    *,
    log: str = "events.db",
    owners: str = "jump",
    when_failed: str = "exit",
    silent_seconds: float = 5.0,
    cluster: str = "",
    text_ids: bool = False,
    more: str = "",
) -> Path:
    """The file `name` of a deployment in `directory`, with its model and its graph. cluster: further keys of
    its section; more: sections."""
    make_model().save(directory / "model.lgnn")
    weight, x = np.empty(0, np.float32), np.empty((0, WIDTH), np.float32)
    none = np.empty(0, np.str_ if text_ids else np.int64)
    np.savez(directory / "graph.npz", src=none, dst=none, weight=weight, x=x, ids=none)
    text = DEPLOYMENT.format(log=log, when_failed=when_failed)
    if partitions:
        text += CLUSTER.format(partitions=partitions, owners=owners, silent_seconds=silent_seconds)
        text += cluster
    path = directory / f"{name}.toml"
    path.write_text(text + more, encoding="utf-8")
    return path


@contextmanager
def opened(path: Path) -> Iterator[Runtime]:
    """The runtime of a deployment, which is stopped in the end."""
    runtime = Deployment.read(path).open()
    try:
        yield runtime
    finally:
        runtime.stop()
        runtime.log.close()
