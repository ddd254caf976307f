"""One run of the demo: the graph at the cut-off, the runtime, and the replay."""

import time
from collections.abc import Callable
from importlib.resources import as_file, files

import numpy as np

from livegnn.demo.meter import Meter
from livegnn.demo.ratings import Ratings
from livegnn.demo.replay import Replay
from livegnn.demo.standing import Standings
from livegnn.graph import Graph
from livegnn.inference import Engine, Verification
from livegnn.model import Model
from livegnn.runtime import Change, Runtime


def load_model() -> Model:
    """The model that the package ships."""
    with as_file(files("livegnn.demo") / "data" / "bitcoin_otc.lgnn") as path:
        return Model.load(path)


def graph_at_cutoff(ratings: Ratings) -> tuple[Graph, Standings]:
    """The network as it was when the model was trained, and every member's standing in it."""
    standings, cutoff = Standings(), ratings.cutoff
    for row in zip(
        ratings.src[:cutoff].tolist(),
        ratings.dst[:cutoff].tolist(),
        ratings.rating[:cutoff].tolist(),
        ratings.time[:cutoff].tolist(),
        strict=True,
    ):
        standings.record(*row)
    src, dst = ratings.src[:cutoff], ratings.dst[:cutoff]
    members = np.unique(np.concatenate([src, dst]))
    graph = Graph.from_edges(
        src, dst, x=standings.features(members.tolist()), ids=members, weight=ratings.weight[:cutoff]
    )
    return graph, standings


def start_engine(graph: Graph) -> Engine:
    """An engine with the model that the package ships, and all predictions computed."""
    return Engine(graph, load_model())


class Session:
    """Everything that belongs to one run. Made by `open_session`."""

    def __init__(
        self,
        ratings: Ratings,
        standings: Standings,
        runtime: Runtime,
        address: tuple[str, int],
        *,
        speed: float | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.ratings, self.standings, self.runtime = ratings, standings, runtime
        self.address = address
        self.start_date = float(ratings.time[ratings.cutoff - 1])
        self.meter = Meter(np.unique(np.concatenate([ratings.src, ratings.dst])), clock)
        self.replay = Replay(ratings, standings, self.meter, address, speed=speed, clock=clock)
        self.verification: Verification | None = None
        self.verification_seconds = 0.0
        self.closed = False
        members = runtime.graph.ids().astype(np.int64)
        self.meter.start(members, runtime.predict(members).values[:, 0], self.start_date)
        self._unsubscribe = runtime.subscribe(self._updated)

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.address
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @property
    def total(self) -> int:
        """The number of ratings to replay."""
        return len(self.ratings) - self.ratings.cutoff

    @property
    def done(self) -> bool:
        """Whether every rating was replayed."""
        return self.replay.position == len(self.ratings)

    def verify(self) -> Verification:
        """Compare every prediction with a computation from scratch."""
        begun = time.perf_counter()
        verification = self.runtime.engine.verify()
        self.verification_seconds = time.perf_counter() - begun
        self.verification = verification
        return verification

    def close(self) -> None:
        """End the replay and the feeds."""
        self.closed = True
        self._unsubscribe()
        self.replay.stop()

    def _updated(self, change: Change) -> None:
        risks = change.predictions[:, 0]
        self.meter.updated(
            change.ids.astype(np.int64), risks, self.replay.date, change.affected, change.seconds
        )
