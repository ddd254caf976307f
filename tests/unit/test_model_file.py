import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_examples import EDGES, make_sage
from safetensors.numpy import save as save_tensors

from livegnn.errors import FileFormatError, InputError, ModelError
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.network import file
from livegnn.query import Query

MODEL = make_sage()
DATA = file.encode(MODEL)


def seal(data: bytes) -> bytes:
    """Puts the right checksum where the zeros are."""
    return data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1)


def describe(**changes) -> bytes:
    """A file with a right checksum, whose description is changed."""
    description = {"version": 1, "sha256": "0" * 64, **MODEL.to_json(), **changes}
    return seal(save_tensors(dict(MODEL.tensors), metadata={"livegnn.model": json.dumps(description)}))


def test_a_file_holds_the_whole_model(tmp_path):
    path = tmp_path / "model.lgnn"
    MODEL.save(path)
    model = Model.load(path)
    assert model.inputs == MODEL.inputs
    assert model.steps == MODEL.steps
    assert model.output == MODEL.output
    assert model.layers == MODEL.layers
    assert model.digest == MODEL.digest
    assert model.tensors.keys() == MODEL.tensors.keys()
    for name, tensor in MODEL.tensors.items():
        assert model.tensors[name].tobytes() == tensor.tobytes()
    assert path.read_bytes() == DATA


def make_attention() -> Model:
    """A layer that reads both ends of an edge, its features and its weight, and a loop of its own."""
    operators = Propagate(EDGES, ("coefficient",), "sum", "divide", skip_loops=True, own_message=True)
    steps = (
        Step("source", ("x",), "u", attrs={"edge_type": EDGES}),
        Step("target", ("x",), "v", attrs={"edge_type": EDGES}),
        Step("concat", ("u", "v", "features", "weight"), "all"),
        Step("sum_channels", ("all",), "logits", attrs={"heads": 1}),
        Step("exp", ("logits",), "c"),
        Step("sum_channels", ("x",), "own", attrs={"heads": 1}),
        Step("propagate", ("x", "c", "x", "own"), "y", attrs=operators.to_attrs()),
    )
    columns = {"features": EdgeInput(EDGES, 2), "weight": EdgeInput(EDGES, 1, "weight")}
    return Model({"x": Input("node", 3)}, steps, {}, "y", ("x", "y"), columns)


def test_inputs_on_edges_come_back(tmp_path):
    model = make_attention()
    model.save(tmp_path / "model.lgnn")
    loaded = Model.load(tmp_path / "model.lgnn")
    assert loaded.edge_inputs == model.edge_inputs
    assert loaded.steps == model.steps
    assert loaded.digest == model.digest
    assert file.encode(loaded) == file.encode(model)
    assert loaded.to_json()["edge_inputs"] == {
        "features": {"edge_type": list(EDGES), "width": 2, "column": "edge_attr"},
        "weight": {"edge_type": list(EDGES), "width": 1, "column": "weight"},
    }
    assert "edge_inputs" not in MODEL.to_json()


def test_digest_tells_inputs_on_edges_apart():
    model = make_attention()
    other = {**model.edge_inputs, "weight": EdgeInput(EDGES, 1)}
    changed = Model(model.inputs, model.steps, {}, model.output, model.layers, other)
    assert changed.digest != model.digest


def test_the_query_of_a_model_comes_back(tmp_path):
    query = Query("node").hop(EDGES, 25, direction="in").hop(EDGES, 10, direction="in", by="latest")
    model = MODEL.with_query(query)
    model.save(tmp_path / "model.lgnn")
    loaded = Model.load(tmp_path / "model.lgnn")
    assert loaded.query == query
    assert loaded.digest == MODEL.digest
    assert "query" not in MODEL.to_json()
    assert Model.load(tmp_path / "model.lgnn").with_query(None).to_json() == MODEL.to_json()


QUERY = Query("node").hop(EDGES, 25).hop(EDGES, 10).to_json()
assert isinstance(QUERY, dict)
BAD_QUERIES = {
    "version": ({**QUERY, "version": 2}, "version 1, got 2"),
    "hops": (Query("node").hop(EDGES, 25).to_json(), "must have 2, got 1"),
    "seeds": ({**QUERY, "seed_type": "shop"}, "gap"),
    "text": ("latest", "Query.to_json"),
}


@pytest.mark.parametrize("name", BAD_QUERIES)
def test_a_file_whose_query_does_not_fit_is_refused(name):
    query, message = BAD_QUERIES[name]
    with pytest.raises(FileFormatError, match=message):
        file.decode(describe(query=query), Model)


def test_a_model_with_functions_is_not_saved(tmp_path):
    step = Step("call", ("x",), "y", attrs={"function": "f", "width": 3})
    model = Model({"x": Input("node", 3)}, (step,), {}, "y", ("x", "y"), functions={"f": np.tanh})
    with pytest.raises(ModelError, match=r"a model with functions \(f\) cannot be saved, .* holds no code"):
        model.save(tmp_path / "model.lgnn")
    assert not list(tmp_path.iterdir())


def test_equal_models_have_equal_bytes():
    assert file.encode(make_sage()) == DATA


@given(position=st.integers(0, len(DATA) * 8 - 1))
def test_a_flipped_bit_is_found(position):
    damaged = bytearray(DATA)
    damaged[position // 8] ^= 1 << position % 8
    with pytest.raises(FileFormatError):
        file.decode(bytes(damaged), Model)


@given(position=st.integers(0, len(DATA) - 1), value=st.integers(0, 255))
def test_a_replaced_byte_is_found(position, value):
    damaged = bytearray(DATA)
    damaged[position] = value
    if damaged == DATA:
        return
    with pytest.raises(FileFormatError):
        file.decode(bytes(damaged), Model)


@given(length=st.integers(0, len(DATA) - 1))
def test_a_truncated_file_is_found(length):
    with pytest.raises(FileFormatError):
        file.decode(DATA[:length], Model)


@given(more=st.binary(min_size=1, max_size=70))
def test_bytes_after_the_end_are_found(more):
    with pytest.raises(FileFormatError, match="checksum"):
        file.decode(DATA + more, Model)


@given(data=st.binary(max_size=300))
def test_any_other_bytes_are_refused(data):
    with pytest.raises(FileFormatError):
        file.decode(data, Model)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "at least 8 bytes, got 0"),
        (b"\xff" * 16, "the header must be .* bytes, got 8"),
        (b"\x02" + b"\0" * 7 + b"{}", "no readable 'livegnn.model'"),
        (save_tensors({"w": np.zeros(3, np.float32)}), "no readable 'livegnn.model'"),
        (save_tensors({}, metadata={"livegnn.model": "[]"}), "must be a JSON object, got list"),
        (describe(version=2), "must be of version 1, got 2: update livegnn"),
        (describe(sha256=None), "the checksum must be there, got none"),
        (describe(output="nowhere"), "holds no valid model: the output must be a value of the model"),
        (describe(inputs=[]), "holds no valid model: inputs and edge_inputs must be objects"),
        (describe(inputs={"x": {"node_type": "node"}}), "holds no valid model"),
        (describe(steps=[{"op": "relu"}]), "holds no valid model"),
        (describe(layers=None), "holds no valid model"),
        (describe(edge_inputs=[]), "inputs and edge_inputs must be objects"),
        (describe(edge_inputs={"e": {"edge_type": ["a", "b", "c"], "width": 1}}), "holds no valid model"),
        (
            describe(edge_inputs={"e": {"edge_type": ["a", "b"], "width": 1, "column": "edge_attr"}}),
            "holds no valid model",
        ),
        (
            describe(edge_inputs={"e": {"edge_type": ["a", "b", "c"], "width": 1, "column": "time"}}),
            "column must be 'edge_attr' or 'weight', got 'time'",
        ),
    ],
)
def test_what_is_no_model_is_refused(data, message):
    with pytest.raises(FileFormatError, match=message):
        file.decode(data, Model)


def test_an_error_names_the_file(tmp_path):
    path = tmp_path / "model.lgnn"
    path.write_bytes(DATA[:-1])
    with pytest.raises(FileFormatError, match=r"model\.lgnn: the checksum must be"):
        Model.load(path)


def test_a_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Model.load(tmp_path / "none.lgnn")


def test_saving_replaces_a_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "model.lgnn"
    path.write_bytes(b"old")
    MODEL.save(str(path))
    assert path.read_bytes() == DATA
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.lgnn"]


def test_a_save_that_fails_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"folder must be a regular file, .* got a directory"):
        MODEL.save(tmp_path / "folder")
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def test_loading_needs_no_torch(tmp_path):
    path = tmp_path / "model.lgnn"
    MODEL.save(path)
    code = f"import sys, livegnn; livegnn.Model.load({str(path)!r}); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
