"""The model of serving workers, which must have been trained with the query of their plan."""

from livegnn.errors import InputError, ModelError
from livegnn.inference import SampledForward
from livegnn.model import Model
from livegnn.query import Query
from livegnn.sampling.model_query import fit_query
from livegnn.wording import quoted
from livegnn.workers.plan import WorkerPlan


def refuse_model(name: str | None) -> None:
    """Raises InputError for a request that names a model."""
    if name is not None:
        raise InputError(f"a serving worker has one model, got a request for {quoted(name)}")


def fit_model(model: Model | None, plan: WorkerPlan) -> tuple[SampledForward | None, Query]:
    """The forward pass, and the plan's query in the direction of the model's messages. Raises ModelError
    unless the model was trained with the plan's query, and as `fit_query`."""
    if model is None:
        return None, plan.query
    forward = SampledForward(model)
    if model.query != plan.query:
        raise ModelError(
            f"a serving worker's model must carry the query of the plan, got {model.query!r}: give it one "
            "with model.with_query(plan.query)"
        )
    return forward, fit_query(model, plan.schema)
