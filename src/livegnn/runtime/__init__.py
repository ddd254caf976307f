"""The loop between the log and the answers, its checkpoints, and the predictions that it serves."""

from livegnn.runtime.ahead import AheadPolicy
from livegnn.runtime.checkpoints import CheckpointPolicy, ViewFactory, list_checkpoints, restore
from livegnn.runtime.loop import Chore, Loop
from livegnn.runtime.predictions import Change, Prediction, Runtime, SupposedPrediction
from livegnn.runtime.statistics import Statistics
from livegnn.runtime.views import Views, WhenViewFails

__all__ = [
    "AheadPolicy",
    "Change",
    "CheckpointPolicy",
    "Chore",
    "Loop",
    "Prediction",
    "Runtime",
    "Statistics",
    "SupposedPrediction",
    "ViewFactory",
    "Views",
    "WhenViewFails",
    "list_checkpoints",
    "restore",
]
