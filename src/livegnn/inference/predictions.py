"""What answers for predictions, each with the event that it reflects: a runtime, or a serving worker."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from livegnn.types import FloatArray

if TYPE_CHECKING:
    from jaxtyping import Float32

    from livegnn.events.chunk import IdsLike


class Prediction(NamedTuple):
    """Rows of the model's output, `values[n, out]`, as they are after event `seq`."""

    seq: int
    values: "Float32[FloatArray, 'nodes channels']"


class Predictions(Protocol):
    """All that a route needs to answer requests for predictions. Any thread may call it.

    min_seq: an event that the answer shows. output, model: by default the first, and the one that serves.
    """

    def predict(
        self,
        ids: "IdsLike",
        *,
        min_seq: int = 0,
        timeout: float = 10.0,
        output: str | None = None,
        model: str | None = None,
    ) -> Prediction:
        """Predictions of nodes. Waits `timeout` seconds for `min_seq`, then raises TimeoutExpired; raises
        UnknownNodeError, and InputError if there is no such output or model."""

    def predict_at_once(
        self, ids: "IdsLike", *, min_seq: int = 0, output: str | None = None, model: str | None = None
    ) -> Prediction | None:
        """What `predict` returns, None where it would have to wait. For event loops."""
