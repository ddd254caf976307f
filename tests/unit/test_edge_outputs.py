"""Edge outputs of a model: what they read at the ends of an edge, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from livegnn.errors import ModelError
from livegnn.model import EdgeInput, Input, Model, Step
from livegnn.network.propagation import Propagate
from livegnn.types import EdgeType

PAYS: EdgeType = ("user", "pays", "user")
DECODER = (
    Step("source", ("embedding",), "from", attrs={"edge_type": PAYS}),
    Step("target", ("embedding",), "to", attrs={"edge_type": PAYS}),
    Step("multiply", ("from", "to"), "product"),
    Step("concat", ("product", "amount"), "both"),
    Step("linear", ("both",), "score", {"weight": "decoder"}),
)
MODEL = Model(
    {"x": Input("user", 3)},
    (Step("linear", ("x",), "embedding", {"weight": "w"}), *DECODER),
    {"w": np.ones((4, 3), np.float32), "decoder": np.ones((1, 6), np.float32)},
    "embedding",
    ("x", "embedding"),
    edge_inputs={"amount": EdgeInput(PAYS, 2)},
    outputs={"embedding": "embedding"},
    edge_outputs={"fraud": "score"},
)


def test_an_edge_output_says_what_it_reads() -> None:
    scores = MODEL.edge_scores["fraud"]
    assert (scores.edge_type, scores.width, scores.value) == (PAYS, 1, "score")
    assert (scores.sources, scores.targets) == ({"from": "embedding"}, {"to": "embedding"})
    assert scores.edge_inputs == {"amount": EdgeInput(PAYS, 2)}
    assert scores.steps == DECODER[2:]
    assert "fraud: user,pays,user[1]" in repr(MODEL)


def test_messages_below_the_ends_are_no_part_of_a_score() -> None:
    message = (
        Step("source", ("x",), "sent", attrs={"edge_type": PAYS}),
        Step("concat", ("sent", "amount"), "message"),
        Step("propagate", ("message",), "x1", attrs=Propagate(PAYS).to_attrs()),
        Step("linear", ("x1",), "embedding", {"weight": "w"}),
    )
    tensors = {**MODEL.tensors, "w": np.ones((4, 5), np.float32)}
    model = replace(MODEL, steps=(*message, *DECODER), tensors=tensors)
    assert model.edge_scores["fraud"] == MODEL.edge_scores["fraud"]
    assert (model.num_hops, model.edge_types) == (1, (PAYS,))


def test_a_file_keeps_edge_outputs(tmp_path) -> None:
    MODEL.save(tmp_path / "model.lgnn")
    loaded = Model.load(tmp_path / "model.lgnn")
    assert loaded.edge_scores == MODEL.edge_scores
    assert loaded.digest == MODEL.digest != replace(MODEL, edge_outputs={}).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_outputs": {"fraud": "embedding"}}, "'embedding' must have rows of edges that steps compute"),
        ({"edge_outputs": {"fraud": "amount"}}, "'amount' must have rows of edges that steps compute"),
        ({"edge_outputs": {"fraud": "scores"}}, "an edge output must be a value of the model"),
        ({"edge_outputs": {"embedding": "score"}}, "name of an output or of an edge output, got both"),
        ({"edge_outputs": {"": "score"}}, "edge_outputs must map names to names of values"),
    ],
)
def test_what_is_no_score_of_edges_is_refused(changes, message) -> None:
    with pytest.raises(ModelError, match=message):
        replace(MODEL, **changes)


def test_a_row_at_an_end_must_be_an_output() -> None:
    more = Step("relu", ("embedding",), "last")
    with pytest.raises(ModelError, match="reads 'embedding' at the target of an edge"):
        replace(
            MODEL,
            steps=(MODEL.steps[0], more, *DECODER),
            output="last",
            layers=("x", "last"),
            outputs={"output": "last"},
        )
