"""The loop between the log and the answers, its checkpoints, and the predictions that it serves."""

from livegnn.runtime.admission import Admission
from livegnn.runtime.checkpoints import CheckpointPolicy, ViewFactory, list_checkpoints, restore
from livegnn.runtime.loop import Chore, Loop
from livegnn.runtime.pace import Pace
from livegnn.runtime.predictions import Change, Prediction, Runtime, SupposedPrediction
from livegnn.runtime.statistics import Statistics

__all__ = [
    "Admission",
    "Change",
    "CheckpointPolicy",
    "Chore",
    "Loop",
    "Pace",
    "Prediction",
    "Runtime",
    "Statistics",
    "SupposedPrediction",
    "ViewFactory",
    "list_checkpoints",
    "restore",
]
