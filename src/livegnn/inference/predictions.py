"""The interface of a runtime or serving worker for predictions, each with the event that it reflects."""

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
    """The calls that a route needs to answer requests for predictions. Any thread may call them.

    min_seq: an event that the answer must reflect. output: by default the first. model: by default the
    serving one.
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
        """Returns predictions of nodes. Waits `timeout` seconds for `min_seq`, then raises TimeoutExpired.
        Raises UnknownNodeError, and InputError if there is no such output or model."""

    def predict_at_once(
        self, ids: "IdsLike", *, min_seq: int = 0, output: str | None = None, model: str | None = None
    ) -> Prediction | None:
        """Returns the result of `predict`, or None if `predict` would have to wait. For event loops."""
