"""The models of a runtime in the Open Inference Protocol."""

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from livegnn.http.inference_protocol import InferRequest, describe_model, write_infer
from livegnn.http.refusals import UnknownPath
from livegnn.runtime import ModelState, Runtime
from livegnn.server.bodies import Limits, to_json
from livegnn.server.feed import Feed
from livegnn.server.inference_routes import FEWER, answer_ready, to_response
from livegnn.server.requests import check_listed, check_number, ids_of
from livegnn.types import FloatArray
from livegnn.wording import quoted


class RuntimeModels:
    """All models that follow the graph of a runtime. Thread safety: that of the runtime."""

    def __init__(self, runtime: Runtime, feed: Feed, limits: Limits) -> None:
        self._runtime, self._feed, self._limits = runtime, feed, limits

    def ready(self) -> bool:
        """Whether the runtime is ready."""
        return self._runtime.readiness().ready

    async def describe(self, name: str, version: str | None) -> Response:
        """The inputs and outputs of a model."""
        state, runtime = self._state(name, version), self._runtime
        model = runtime.models.find(state.name).model
        widths = {output: model.width(value) for output, value in model.outputs.items()}
        text_ids = runtime.graph.schema.text_ids
        return to_json(describe_model(state.name, state.digest, widths, text_ids=text_ids))

    async def report_ready(self, name: str, version: str | None) -> Response:
        """200 while a model follows the graph."""
        following = self._state(name, version).phase == "following"
        return answer_ready(name, ready=following and await run_in_threadpool(self.ready))

    async def find(self, name: str, version: str | None) -> None:
        """Raises UnknownPath if there is no such model, or the version is not its digest."""
        self._state(name, version)

    async def infer(self, name: str, version: str | None, asked: InferRequest) -> Response:
        """The rows of all requested outputs, from one state of the graph."""
        await self._feed.wait(asked.min_seq, asked.timeout)
        return await run_in_threadpool(self._predict, name, version, asked)

    def find_digest(self, name: str, version: str | None) -> str:
        """The version of a model. Raises UnknownPath."""
        return self._state(name, version).digest

    def _state(self, name: str, version: str | None) -> ModelState:
        models = self._runtime.models
        state = next((one for one in models.states() if one.name == name), None)
        if state is None:
            raise UnknownPath(f"there is no model {quoted(name)}: there are {', '.join(models.names)}")
        if version not in (None, state.digest):
            raise UnknownPath(f"the version of {name} is {state.digest}, got {quoted(version)}")
        return state

    def _predict(self, name: str, version: str | None, asked: InferRequest) -> Response:
        runtime, limits = self._runtime, self._limits
        ids = ids_of(runtime.graph.schema.text_ids, asked.ids)
        model = runtime.models.find(name).model
        widths = {output: model.width(value) for output, value in model.outputs.items()}
        outputs = asked.form.names(list(widths))
        check_number(len(ids), limits.ids)
        check_listed(runtime, len(ids), sum(widths[output] for output in outputs), limits, "ids", FEWER)

        def predict() -> tuple[str, dict[str, FloatArray]]:
            digest = self._state(name, version).digest  # another model may have got the name meanwhile
            predictor = runtime.models.find(name)
            return digest, {output: predictor.predict(ids, output=output) for output in outputs}

        seq, (digest, rows) = runtime.read(predict)
        return to_response(write_infer(asked.form, name, digest, seq, rows))
