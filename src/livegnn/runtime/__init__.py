"""The loop between the log and the answers, its checkpoints, and the predictions that it serves."""

from livegnn.inference.predictions import Prediction
from livegnn.runtime.admission import Admission
from livegnn.runtime.checkpoint_files import list_checkpoints
from livegnn.runtime.checkpoints import CheckpointPolicy, oldest_kept
from livegnn.runtime.comparison import Comparison, DegreeClass
from livegnn.runtime.future_events import AheadPolicy
from livegnn.runtime.history import history_state, schema_properties
from livegnn.runtime.intake import SinkStand, Source
from livegnn.runtime.loop import Loop
from livegnn.runtime.model_register import ModelRegister, Nothing
from livegnn.runtime.models import Models, ModelState, Switch
from livegnn.runtime.pace import Pace
from livegnn.runtime.predictions import Change, Runtime, SampledPrediction, SupposedPrediction
from livegnn.runtime.quality_stand import QualityFigures, QualityStand
from livegnn.runtime.recovery import ViewFactory, count_recorded, grows_later, restore
from livegnn.runtime.replay import replay
from livegnn.runtime.statistics import Statistics
from livegnn.runtime.views import Views, WhenViewFails

__all__ = [
    "Admission",
    "AheadPolicy",
    "Change",
    "CheckpointPolicy",
    "Comparison",
    "DegreeClass",
    "Loop",
    "ModelRegister",
    "ModelState",
    "Models",
    "Nothing",
    "Pace",
    "Prediction",
    "QualityFigures",
    "QualityStand",
    "Runtime",
    "SampledPrediction",
    "SinkStand",
    "Source",
    "Statistics",
    "SupposedPrediction",
    "Switch",
    "ViewFactory",
    "Views",
    "WhenViewFails",
    "count_recorded",
    "grows_later",
    "history_state",
    "list_checkpoints",
    "oldest_kept",
    "replay",
    "restore",
    "schema_properties",
]
