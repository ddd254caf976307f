"""The loop between the log and the answers, its checkpoints, and the predictions that it serves."""

from livegnn.runtime.admission import Admission
from livegnn.runtime.ahead import AheadPolicy
from livegnn.runtime.binding import schema_properties
from livegnn.runtime.checkpoints import CheckpointPolicy, list_checkpoints, oldest_kept
from livegnn.runtime.loop import Chore, Loop
from livegnn.runtime.pace import Pace
from livegnn.runtime.predictions import Change, Prediction, Runtime, SupposedPrediction
from livegnn.runtime.recovery import ViewFactory, count_recorded, restore
from livegnn.runtime.replay import replay
from livegnn.runtime.sources import Source
from livegnn.runtime.statistics import Statistics
from livegnn.runtime.views import Views, WhenViewFails

__all__ = [
    "Admission",
    "AheadPolicy",
    "Change",
    "CheckpointPolicy",
    "Chore",
    "Loop",
    "Pace",
    "Prediction",
    "Runtime",
    "Source",
    "Statistics",
    "SupposedPrediction",
    "ViewFactory",
    "Views",
    "WhenViewFails",
    "count_recorded",
    "list_checkpoints",
    "oldest_kept",
    "replay",
    "restore",
    "schema_properties",
]
