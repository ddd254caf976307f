"""The model of a serving worker in the Open Inference Protocol."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from livegnn.errors import InputError, TooLargeError
from livegnn.http.inference_protocol import InferRequest, check_model, describe_model, write_infer
from livegnn.http.refusals import UnknownPath
from livegnn.model import Model
from livegnn.server.bodies import Limits, to_json
from livegnn.server.inference_routes import FEWER, answer_ready, to_response
from livegnn.types import FloatArray, IntArray
from livegnn.wording import quoted
from livegnn.workers.plan import integer_ids
from livegnn.workers.serving import ServingWorker
from livegnn.workers.waiting import Waiters

if TYPE_CHECKING:
    from jaxtyping import Float32, Int64

MOST_IDS: Final = 100_000  # one to three seconds of a core


def seeds_of(ids: Sequence[int | str]) -> "Int64[IntArray, 'ids']":
    """The requested seeds. Raises InputError for text, and for more than a worker takes at once."""
    if len(ids) > MOST_IDS:
        raise InputError(f"a request may have {MOST_IDS:,} ids at most, got {len(ids):,}: send several")
    return integer_ids(list(ids))


class WorkerModel:
    """The one model that a serving worker may have. Its outputs are those of the nodes that are seeds."""

    def __init__(self, worker: ServingWorker, waiters: Waiters) -> None:
        self._worker, self._waiters = worker, waiters

    def ready(self) -> bool:
        """Whether the worker answers."""
        return self._worker.readiness().ready

    async def describe(self, name: str, version: str | None) -> Response:
        """The inputs and outputs of the model."""
        model = self._model(name, version)
        return to_json(describe_model(name, model.digest, self._widths(model), text_ids=False))

    async def report_ready(self, name: str, version: str | None) -> Response:
        """200 while the worker answers."""
        self._model(name, version)
        return answer_ready(name, ready=self.ready())

    async def find(self, name: str, version: str | None) -> None:
        """Raises UnknownPath if the worker has no such model."""
        self._model(name, version)

    async def infer(self, name: str, version: str | None, asked: InferRequest) -> Response:
        """The rows of all requested outputs, each of the same samples."""
        model = self._model(name, version)
        left = await self._waiters.wait(asked.min_seq, asked.timeout)
        return await run_in_threadpool(self._predict, model, name, asked._replace(timeout=left))

    def _model(self, name: str, version: str | None) -> Model:
        model = self._worker.model
        if model is None:
            raise UnknownPath(f"there is no model {quoted(name)}: this serving worker has no model")
        check_model(name, version, model.digest)
        if not self._widths(model):
            raise UnknownPath(
                f"there is no model {quoted(name)} of seeds: that of this worker predicts others"
            )
        return model

    def _widths(self, model: Model) -> dict[str, int]:
        seeds = self._worker.plan.query.seed_type
        return {
            output: model.width(value)
            for output, value in model.outputs.items()
            if model.node_type(value) == seeds
        }

    def _predict(self, model: Model, name: str, asked: InferRequest) -> Response:
        widths = self._widths(model)
        outputs = asked.form.names(list(widths))
        ids, most = seeds_of(asked.ids), Limits().numbers
        each = sum(widths[output] for output in outputs)
        if len(ids) * each > most:
            raise TooLargeError(
                f"an answer may have {most:,} numbers at most, got {len(ids):,} ids with {each:,} each: "
                f"{FEWER}"
            )
        seq, rows = self._rows(ids, outputs, asked)
        return to_response(write_infer(asked.form, name, model.digest, seq, rows))

    def _rows(
        self, ids: "Int64[IntArray, 'ids']", outputs: list[str], asked: InferRequest
    ) -> "tuple[int, dict[str, Float32[FloatArray, 'ids out']]]":
        worker, first, others = self._worker, outputs[0], outputs[1:]
        if not others:
            found = worker.predict(ids, min_seq=asked.min_seq, timeout=asked.timeout, output=first)
            return found.seq, {first: found.values}
        found, samples = worker.predict_with_samples(
            ids, min_seq=asked.min_seq, timeout=asked.timeout, output=first
        )
        return found.seq, {first: found.values, **{it: worker.predict_on(samples, it) for it in others}}
