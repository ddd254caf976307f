"""The models of a runtime in the Open Inference Protocol."""

from typing import Final

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from livegnn.http.inference_protocol import (
    InferRequest,
    PairsRequest,
    describe_edge_output,
    describe_model,
    write_infer,
)
from livegnn.http.refusals import UnknownPath
from livegnn.inference import RowPredictor
from livegnn.inference.edge_pairs import PairSettings
from livegnn.presampling import Predictor
from livegnn.runtime import ModelState, Runtime
from livegnn.server.bodies import Limits, to_json
from livegnn.server.edge_score_routes import read_scores
from livegnn.server.feed import Feed
from livegnn.server.inference_routes import FEWER, answer_ready, to_response
from livegnn.server.requests import check_listed, check_number, check_width, ids_of
from livegnn.types import FloatArray
from livegnn.wording import quoted

_MARK: Final = ":"  # no name of a model has it
_COLUMNS: Final = {"edge_attr": "edge_attr", "weight": "edge_weight"}


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
        text_ids = runtime.graph.schema.text_ids
        if self.scores_pairs(name):
            scores = model.edge_scores[output := _split(name)[1]]
            columns = {_COLUMNS[one.column]: one.width for one in scores.edge_inputs.values()}
            described = describe_edge_output(
                name, state.digest, output, scores.width, columns, text_ids=text_ids
            )
            return to_json(described)
        widths = {output: model.width(value) for output, value in model.outputs.items()}
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

    def scores_pairs(self, name: str) -> bool:
        """Whether a name, MODEL:OUTPUT, is that of an edge output."""
        return _MARK in name

    async def score(self, name: str, version: str | None, asked: PairsRequest) -> Response:
        """The scores of pairs, from one state of the graph."""
        await self._feed.wait(asked.min_seq, asked.timeout)
        return await run_in_threadpool(self._score, name, version, asked)

    def find_digest(self, name: str, version: str | None) -> str:
        """The version of a model. Raises UnknownPath."""
        return self._state(name, version).digest

    def _state(self, name: str, version: str | None) -> ModelState:
        models, (base, output) = self._runtime.models, _split(name)
        state = next((one for one in models.states() if one.name == base), None)
        if state is None:
            raise UnknownPath(f"there is no model {quoted(base)}: there are {', '.join(models.names)}")
        if _MARK in name and output not in (known := models.find(base).model.edge_outputs):
            there = ", ".join(known) or "none"
            raise UnknownPath(f"{base} has no edge output {quoted(output)}: there are {there}")
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

        first = runtime.models.find(name)
        apart = first.predict_apart(ids, outputs) if isinstance(first, RowPredictor) else None
        if apart is not None:
            digest = self._state(name, version).digest
            seq, rows = apart.seq, dict(zip(outputs, apart.rows, strict=True))
        else:
            seq, (digest, rows) = runtime.read(predict)
        return to_response(write_infer(asked.form, name, digest, seq, rows))

    def _score(self, name: str, version: str | None, asked: PairsRequest) -> Response:
        (base, output), runtime, limits = _split(name), self._runtime, self._limits
        sources, targets = (
            ids_of(runtime.graph.schema.text_ids, ends) for ends in (asked.sources, asked.targets)
        )
        asked.form.names([output])
        check_number(len(sources), limits.ids)
        check_width(len(sources), runtime.models.find(base).model.edge_scores[output].width, limits)

        columns = PairSettings(edge_attr=asked.edge_attr, edge_weight=asked.edge_weight, output=output)

        def score(model: Predictor) -> tuple[str, FloatArray]:
            digest = self._state(name, version).digest  # another model may have got the name meanwhile
            return digest, model.score(sources, targets, **columns)

        first = runtime.models.find(base)
        apart = first.score_apart(sources, targets, **columns) if isinstance(first, RowPredictor) else None
        if apart is not None:
            digest = self._state(name, version).digest
            seq, rows = apart
        else:
            seq, (digest, rows) = read_scores(runtime, base, score)
        return to_response(write_infer(asked.form, name, digest, seq, {output: rows}))


def _split(name: str) -> tuple[str, str]:
    """The names of a model and of its edge output, which is empty if none is named."""
    base, _, output = name.partition(_MARK)
    return base, output
