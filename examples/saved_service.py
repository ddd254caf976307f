"""A folder that `livegnn serve` can serve: a model, a graph, and the deployment that names them."""

from pathlib import Path

import livegnn as lg
from livegnn import checkpoint

DEPLOYMENT = """\
[log]
path = "events.db"

[graph]
path = "graph.lgck"

[model]
path = "{name}.lgnn"
"""


def save_service(folder: Path, name: str, model: lg.Model, graph: lg.Graph) -> None:
    """Writes the folder, and prints the command that serves it. name: of the model's file."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / f"{name}.lgnn")
    checkpoint.write(folder / "graph.lgck", {"graph": graph.state()}, 0)
    (folder / "deployment.toml").write_text(DEPLOYMENT.format(name=name), encoding="utf-8")
    print(f"livegnn serve {folder / 'deployment.toml'}")
