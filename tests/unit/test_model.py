import copy
import subprocess
import sys

import numpy as np
import pytest
from model_examples import EDGES, make_sage, propagate

from livegnn.errors import ModelError
from livegnn.model import Input, Model, Propagate, Step
from livegnn.model.steps import OPERATORS

W = np.ones((2, 3), dtype=np.float32)


def build(*steps, inputs=None, tensors=None, output=None, layers=None):
    output = output or steps[-1].output
    return Model(
        inputs or {"x": Input("node", 3)},
        steps,
        {} if tensors is None else tensors,
        output,
        layers or ("x", output),
    )


def test_widths_and_types_of_every_value():
    model = make_sage()
    assert [model.width(v) for v in ("x", "a1", "l1", "h1", "c2", "out")] == [3, 3, 4, 4, 8, 2]
    assert model.node_type("out") == "node"
    assert model.edge_types == (EDGES,)
    assert model.layers == ("x", "h1", "out")


def test_several_node_and_edge_types():
    buys, rev = ("user", "buys", "item"), ("item", "bought_by", "user")
    model = build(
        propagate("u", "at_items", Propagate(buys)),
        Step("add", ("at_items", "i"), "items"),
        propagate("items", "out", Propagate(rev)),
        inputs={"u": Input("user", 4), "i": Input("item", 4)},
        layers=("u", "out"),
    )
    assert model.node_type("items") == "item"
    assert model.node_type("out") == "user"
    assert model.edge_types == (buys, rev)


def test_models_are_frozen_copies():
    weight = W.copy()
    model = build(Step("linear", ("x",), "y", {"weight": "w"}), tensors={"w": weight})
    weight[:] = 7
    assert (model.tensors["w"] == 1).all()
    with pytest.raises(ValueError, match="read-only"):
        model.tensors["w"][0] = 2
    with pytest.raises(AttributeError):
        model.output = "x"
    again = copy.deepcopy(model)
    assert again.digest == model.digest


def test_digest_tells_models_apart():
    def make(value=1.0, slope=0.1, output="y"):
        return build(
            Step("linear", ("x",), "h", {"weight": "w"}),
            Step("leaky_relu", ("h",), output, attrs={"slope": slope}),
            tensors={"w": W * np.float32(value)},
        )

    assert make().digest == make().digest
    assert len({make().digest, make(value=2).digest, make(slope=0.2).digest, make(output="z").digest}) == 4


def test_lists_in_attributes_become_tuples():
    step = Step("propagate", ("x",), "y", attrs={"edge_type": ["a", "b", "c"]})
    assert step.attrs["edge_type"] == ("a", "b", "c")


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Step("relu6", ("x",), "y"), "unknown operator, must be one of add, call, concat"),
        (Step("relu", ("z",), "y"), "reads 'z', which no input and no earlier step gives"),
        (Step("relu", ("x",), "x"), "the value 'x' exists already"),
        (Step("relu", ("x", "x"), "y"), r"must have 1 input\(s\), got 2"),
        (Step("add", ("x",), "y"), r"must have 2 input\(s\), got 1"),
        (Step("concat", ("x",), "y"), r"must have 2 or more input\(s\), got 1"),
        (Step("linear", ("x",), "y"), r"takes these tensors: weight, bias \(optional\); 'weight' is missing"),
        (
            Step("relu", ("x",), "y", {"weight": "w"}),
            "takes these tensors: none; 'weight' is not one of them",
        ),
        (Step("linear", ("x",), "y", {"weight": "v"}), "its weight 'v' is not among the model's tensors"),
        (Step("linear", ("x",), "y", {"weight": "b"}), r"weight must have shape \(outputs, 3\)"),
        (
            Step("linear", ("x",), "y", {"weight": "w", "bias": "b"}),
            r"bias must have shape \(2,\).*got \(3,\)",
        ),
        (Step("scale_shift", ("x",), "y"), "must have a scale, a shift or both, got neither"),
        (Step("scale_shift", ("x",), "y", {"shift": "w"}), r"shift must have shape \(3,\).*got \(2, 3\)"),
        (Step("scale", ("x",), "y"), "takes these attributes: value; 'value' is missing"),
        (Step("relu", ("x",), "y", attrs={"slope": 1.0}), "'slope' is not one of them"),
        (Step("scale", ("x",), "y", attrs={"value": True}), "'value' must be a finite number, got True"),
        (
            Step("scale", ("x",), "y", attrs={"value": float("nan")}),
            "'value' must be a finite number, got nan",
        ),
        (Step("layer_norm", ("x",), "y", attrs={"eps": 0}), "'eps' must be a finite number above 0, got 0"),
        (Step("gelu", ("x",), "y", attrs={"approximate": "yes"}), "must be 'none' or 'tanh', got 'yes'"),
        (Step("add", ("x", "narrow"), "y"), "inputs must be of one width, got 3, 2"),
        (
            Step("add", ("x", "other"), "y"),
            "inputs must be rows of one node type or one edge type, got node and item",
        ),
        (propagate("other", "y"), "must read 'node' rows, got 'item'"),
    ],
)
def test_a_step_that_does_not_fit_is_refused(step, message):
    inputs = {"x": Input("node", 3), "narrow": Input("node", 2), "other": Input("item", 3)}
    tensors = {"w": W, "b": np.ones(3, dtype=np.float32)}
    used = (Step("linear", ("x",), "u", {"weight": "w"}), Step("scale_shift", ("x",), "t", {"scale": "b"}))
    with pytest.raises(ModelError, match=message):
        build(*used, step, inputs=inputs, tensors=tensors)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": "z"}, "the output 'z' is no value of the model"),
        ({"layers": ("x", "z", "y")}, "the layer 'z' is no value of the model"),
        ({"layers": ("y",)}, "layers must begin with an input and end with the output 'y'"),
        ({"layers": ("x",)}, "layers must begin with an input and end with the output 'y'"),
        ({"tensors": {"w": W}}, "no step uses the tensor 'w'"),
        ({"inputs": {"x": Input("node", 0)}}, "input 'x' must be at least 1 channel wide, got 0"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        build(Step("relu", ("x",), "y"), **changes)


def test_a_model_without_steps_is_refused():
    with pytest.raises(ModelError, match="must have an input and a step"):
        Model({"x": Input("node", 3)}, (), {}, "x", ("x",))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (W.astype(np.float64), "'w' must be float32, got float64"),
        (W * np.float32(np.nan), "'w' must be finite"),
    ],
)
def test_weights_that_are_no_finite_float32_are_refused(weight, message):
    with pytest.raises(ModelError, match=message):
        build(Step("linear", ("x",), "y", {"weight": "w"}), tensors={"w": weight})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_type": ["node", "to"]}, "edge_type must be .source type, relation, target type"),
        ({"edge_type": ["node", "", "node"]}, "edge_type must be three names"),
        ({"message_local": "weight"}, "message_local must be a list of factors"),
        (
            {"message_local": ["height"]},
            "message_local must be one of 'weight', 'source_rsqrt', 'coefficient'; got 'height'",
        ),
        ({"message_local": ["weight", "weight"]}, "must name a factor once"),
        ({"neighbor_context": "mean"}, "neighbor_context must be one of"),
        ({"combine": "multiply"}, "combine must be one of"),
        ({"aggregate": "mean"}, "aggregate must be one of 'sum', 'min', 'max'; got 'mean'"),
        ({"self_loops": "yes"}, "self_loops must be null or a number, got 'yes'"),
        ({"self_loops": float("inf")}, "self_loops must be null or a finite weight"),
        ({"combine": "rsqrt"}, "combine 'rsqrt' needs a neighbor_context of 'count' or 'sum', got 'none'"),
        ({"message_local": ["source_rsqrt"]}, "source_rsqrt needs a neighbor_context"),
        ({"neighbor_context": "count"}, "neighbor_context 'count' is read by nothing"),
        (
            {"edge_type": ["node", "to", "item"], "self_loops": 1.0},
            "self_loops need edges between nodes of one type",
        ),
        (
            {
                "edge_type": ["node", "to", "item"],
                "message_local": ["source_rsqrt"],
                "neighbor_context": "count",
            },
            "source_rsqrt needs edges between nodes of one type",
        ),
        ({"speed": 3}, "must have the attributes"),
    ],
)
def test_propagate_operators_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        build(propagate("x", "y", None, **changes))


def test_propagate_reads_what_it_writes():
    operators = Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt", "sum", 2.0)
    assert Propagate.from_step(propagate("x", "y", operators)) == operators


def test_combine_inverse_exists_where_the_aggregate_is_a_group():
    inverse = {
        combine: Propagate(EDGES, (), "none" if combine == "identity" else "count", combine).combine_inverse
        for combine in ("identity", "divide", "rsqrt")
    }
    assert inverse == {"identity": "identity", "divide": "multiply", "rsqrt": "sqrt"}
    assert Propagate(EDGES, aggregate="max").combine_inverse is None
    assert Propagate(EDGES, (), "count", "divide", "min").combine_inverse is None


def test_weighted_propagation_is_known():
    assert not Propagate(EDGES, ("source_rsqrt",), "count").weighted
    assert Propagate(EDGES, ("weight",)).weighted
    assert Propagate(EDGES, (), "sum", "divide").weighted


def test_unknown_value():
    with pytest.raises(ModelError, match="the model has no value 'z', only x, a1"):
        make_sage().width("z")


def test_every_operator_says_what_it_computes():
    assert all(operator.summary for operator in OPERATORS.values())


def test_importing_models_needs_neither_torch_nor_the_test_tools():
    code = "import sys, livegnn.model, livegnn.model.file; print({'torch', 'jaxtyping'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
