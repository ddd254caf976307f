"""Scores of edges from a snapshot: of the rows that are predicted for both ends."""

from threading import RLock
from typing import TYPE_CHECKING, Unpack

from livegnn.errors import InputError
from livegnn.inference.edge_pairs import PairSettings
from livegnn.network.outputs import EdgeOutput, Outputs
from livegnn.remote.model_fit import FittedModel
from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32
    from numpy.typing import ArrayLike


class PairScorer:
    """Scores pairs of nodes with the rows of one output, which it predicts."""

    _lock: RLock
    _fitted: FittedModel

    def predict(
        self, ids: "ArrayLike", *, memory_limit: int | None = None
    ) -> "Float32[FloatArray, 'nodes channels']":
        """As `SnapshotPredictor.predict`."""
        raise NotImplementedError

    def score(
        self,
        src: "ArrayLike",
        dst: "ArrayLike",
        *,
        memory_limit: int | None = None,
        **settings: Unpack[PairSettings],
    ) -> "Float32[FloatArray, 'pairs channels']":
        """Scores of the pairs src[i] -> dst[i], float32 [pairs, channels]; `edge_attr`, `edge_weight`,
        `output` and `edge_type` as of `Engine.score`. A node that is an end of several pairs is predicted
        once. memory_limit: as of `predict`.

        Raises the errors of `predict` and of `Engine.score`, and `InputError` if the edge output reads
        another output than the one that this predicts.
        """
        with self._lock:
            decoder = self._fitted.decoder
            chosen, pairs = decoder.check(src, dst, settings)
            self._refuse_others(chosen)
            ends = decoder.ends(chosen, pairs)
            rows = [
                [self.predict(one.ids, memory_limit=memory_limit)] if one.outputs else ()
                for one in ends.nodes
            ]
            return decoder.decode(chosen, pairs, ends, rows)

    def _refuse_others(self, chosen: EdgeOutput) -> None:
        model, own = self._fitted.model, self._fitted.output
        outputs = Outputs(model)
        read = {*chosen.scores.sources.values(), *chosen.scores.targets.values()}
        if any(outputs.find(name).position != own.position for name in read):
            predicted = next(name for name, value in model.outputs.items() if value == own.value)
            raise InputError(
                f"the edge output {chosen.name!r} reads {', '.join(sorted(map(repr, read)))}, and this "
                f"predicts {predicted!r} alone: open a predictor with the output that it reads; an edge "
                "output that reads several is scored by an engine"
            )
