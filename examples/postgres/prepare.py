"""Writes the model and the empty graph that deployment.toml names.

The model is written by hand, so that its scores can be read: an account is suspicious if it was reported, or
if it received money from accounts that are. A model of yours is trained, and imported from PyTorch Geometric.
"""

import numpy as np

import livegnn as lg
from livegnn import checkpoint
from livegnn.model import Input, Model, Propagate, Step

PAYS = ("account", "pays", "account")
received = Propagate(PAYS, message_local=("weight",))  # the sum of amount * suspicion of all payments

model = Model(
    inputs={"reported": Input("account", width=1)},
    steps=(
        Step("propagate", ("reported",), "from_reported", attrs=received.to_attrs()),
        Step("log1p", ("from_reported",), "direct"),
        Step("add", ("reported", "direct"), "suspicion"),
        Step("propagate", ("suspicion",), "from_suspects", attrs=received.to_attrs()),
        Step("log1p", ("from_suspects",), "indirect"),
        Step("concat", ("reported", "direct", "indirect"), "evidence"),
        Step("linear", ("evidence",), "logit", {"weight": "weight", "bias": "bias"}),
        Step("sigmoid", ("logit",), "score"),
    ),
    tensors={
        "weight": np.array([[6.0, 0.5, 0.2]], np.float32),
        "bias": np.array([-4.0], np.float32),
    },
    output="score",
    layers=("reported", "suspicion", "score"),
)
model.save("model.lgnn")

schema = lg.Schema(
    {"account": 1},
    {PAYS: lg.EdgeSchema(weighted=True, timed=True, duplicates="keep")},
    text_ids=True,
    auto_add=["account"],
)
checkpoint.write("graph.lgck", {"graph": lg.Graph(schema).state()}, 0)
