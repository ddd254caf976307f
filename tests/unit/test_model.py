import copy
import subprocess
import sys

import numpy as np
import pytest
from model_examples import EDGES, make_sage, propagate

from livegnn.errors import ModelError
from livegnn.model import EdgeInput, Input, Model, Propagate, Step
from livegnn.network.operators import OPERATORS

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
        (Step("relu6", ("x",), "y"), "unknown operator, must be one of abs, "),
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
        (Step("add", ("x", "narrow"), "y"), "inputs must be of one width, or of width 1, got 3, 2"),
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
        ({"output": "z"}, "the output must be a value of the model, .*, got 'z'"),
        ({"layers": ("x", "z", "y")}, "the layer must be a value of the model, .*, got 'z'"),
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


FRIENDS, BUYS = ("node", "knows", "node"), ("node", "buys", "item")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_type": [*EDGES, "node"]}, "edge_type must be .source type, relation, target type"),
        ({"edge_type": []}, "edge_type must be .source type, relation, target type"),
        ({"edge_type": [*EDGES, *BUYS]}, "edges must lead to nodes of one type"),
        ({"skip_loops": 1}, "skip_loops must be true or false, got 1"),
        ({"own_message": "yes"}, "own_message must be true or false, got 'yes'"),
        ({"message_local": ["coefficient"], "aggregate": "max"}, "need aggregate 'sum', got 'max'"),
        ({"own_message": True, "aggregate": "min"}, "need aggregate 'sum', got 'min'"),
        ({"edge_type": [*EDGES, *FRIENDS], "aggregate": "max"}, "need aggregate 'sum', got 'max'"),
        (
            {"message_local": ["coefficient", "weight"]},
            r"go with no other factor and no self_loops, got \['weight'\]: make them part of the coefficient",
        ),
        ({"own_message": True, "message_local": ["weight"]}, "go with no other factor"),
        ({"own_message": True, "self_loops": 1.0}, "go with no other factor and no self_loops, got 1.0"),
        ({"edge_type": [*EDGES, *FRIENDS], "message_local": ["weight"]}, "go with no other factor"),
        (
            {"message_local": ["coefficient"], "neighbor_context": "count", "combine": "divide"},
            "with coefficients neighbor_context must be 'sum' or 'none', got 'count'",
        ),
        (
            {"own_message": True, "neighbor_context": "sum", "combine": "divide"},
            "an own message has no weight: its context must be of coefficients, or a count",
        ),
        (
            {"message_local": ["coefficient"], "neighbor_context": "sum", "combine": "rsqrt"},
            "with coefficients combine must be 'identity' or 'divide', got 'rsqrt'",
        ),
        ({"skip_loops": True, "self_loops": 1.0}, "skip_loops and self_loops contradict each other"),
    ],
)
def test_operators_on_edges_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(ModelError, match=message):
        build(propagate("x", "y", None, **changes))


def on_edges(op: str, value: str, output: str, edge_type=EDGES) -> Step:
    return Step(op, (value,), output, attrs={"edge_type": edge_type})


def with_coefficients(inputs, edge_type=EDGES, **changes) -> Step:
    operators = Propagate(edge_type, ("coefficient",), "sum", "divide", **changes)
    return Step("propagate", inputs, "y", attrs=operators.to_attrs())


def build_on_edges(*steps):
    """x, wide: rows of nodes, i: of items; e, w, three: of edges, f: of others; u, v: gathered from x."""
    return Model(
        {"x": Input("node", 4), "wide": Input("node", 8), "i": Input("item", 4)},
        (on_edges("source", "x", "u"), on_edges("target", "x", "v"), *steps),
        {},
        steps[-1].output,
        ("x", steps[-1].output),
        {
            "e": EdgeInput(EDGES, 4),
            "w": EdgeInput(EDGES, 1, "weight"),
            "three": EdgeInput(EDGES, 3),
            "f": EdgeInput(FRIENDS, 4),
        },
    )


def test_values_on_edges_are_told_from_rows_of_nodes():
    model = build_on_edges(
        Step("add", ("u", "e"), "m"), Step("scale_heads", ("m", "w"), "scaled"), with_coefficients(("x", "m"))
    )
    assert [model.edge_type(v) for v in ("x", "e", "u", "scaled", "y")] == [None, EDGES, EDGES, EDGES, None]
    assert [model.width(v) for v in ("w", "v", "scaled", "y")] == [1, 4, 4, 4]
    assert model.node_type("y") == "node"
    with pytest.raises(ModelError, match=r"'scaled' must have rows of nodes, it has rows of \('node', 'to'"):
        model.node_type("scaled")


def test_several_edge_types_and_an_own_message_have_an_input_each():
    step = with_coefficients(("x", "w", "f", "f", "x", "x"), EDGES + FRIENDS, own_message=True)
    with pytest.raises(ModelError, match="coefficients of one that divides it, got 4, 1, 4, 4, 4, 4"):
        build_on_edges(step)
    model = build_on_edges(
        with_coefficients(("x", "e", "f", "f", "x", "x"), EDGES + FRIENDS, own_message=True)
    )
    assert model.edge_types == (EDGES, FRIENDS)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (on_edges("source", "i", "y"), "step 'source' that writes 'y': must read 'node' rows, got 'item'"),
        (on_edges("target", "x", "y", BUYS), "must read 'item' rows, got 'node'"),
        (on_edges("source", "u", "y"), r"must read 'node' rows, got \('node', 'to', 'node'\)"),
        (Step("source", ("x",), "y"), "takes these attributes: edge_type; 'edge_type' is missing"),
        (on_edges("source", "x", "y", ("node", "to")), "'edge_type' must be three names"),
        (Step("add", ("u", "x"), "y"), "rows of one node type or one edge type, got .*'to'.* and node"),
        (Step("add", ("e", "f"), "y"), "rows of one node type or one edge type"),
        (propagate("f", "y"), r"must read \('node', 'to', 'node'\) rows, got \('node', 'knows', 'node'\)"),
        (
            propagate("e", "y", Propagate(EDGES, ("source_rsqrt",), "count", "rsqrt")),
            "source_rsqrt and self_loops need rows of source nodes, got rows of edges",
        ),
        (propagate("e", "y", Propagate(EDGES, self_loops=1.0)), "self_loops need rows of source nodes"),
        (with_coefficients(("x", "x")), r"must read \('node', 'to', 'node'\) rows, got 'node'"),
        (with_coefficients(("x", "f")), r"must read .*'to'.* rows, got .*'knows'"),
        (with_coefficients(("x", "e", "i", "x"), own_message=True), "must read 'node' rows, got 'item'"),
        (with_coefficients(("x", "e", "x", "e"), own_message=True), "must read 'node' rows, got .*'to'"),
        (with_coefficients(("x",)), r"must have 2 input\(s\) with these operators, got 1"),
        (with_coefficients(("x", "three")), "coefficients of one that divides it, got 4, 3"),
        (
            Step("sum_channels", ("x",), "y", attrs={"heads": 3}),
            "4 channels must be as many for each of the 3",
        ),
        (Step("sum_heads", ("x",), "y", attrs={"heads": 3}), "4 channels must be as many for each of the 3"),
        (Step("sum_heads", ("x",), "y", attrs={"heads": 0}), "'heads' must be a whole number above 0, got 0"),
        (Step("sum_heads", ("x",), "y", attrs={"heads": 2.0}), "'heads' must be a whole number above 0"),
        (Step("scale_heads", ("e", "three"), "y"), "4 channels must be as many for each of the 3 factors"),
        (
            Step("call", ("x",), "y", attrs={"function": "f", "width": 2}),
            "'f' is not among the model's functions",
        ),
        (Step("call", ("x",), "y", attrs={"function": "", "width": 2}), "must be the name of a function"),
        (Step("call", ("x",), "y", attrs={"function": "f", "width": -1}), "a whole number above 0, got -1"),
        (Step("relu", ("u",), "y"), "the output 'y' must have rows of nodes, it has rows of edges"),
    ],
)
def test_a_step_on_edges_that_does_not_fit_is_refused(step, message):
    with pytest.raises(ModelError, match=message):
        build_on_edges(step)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_inputs": {"x": EdgeInput(EDGES, 2)}}, "'x' must be an input or an edge input, got both"),
        ({"edge_inputs": {"w": EdgeInput(EDGES, 2, "weight")}}, "weights 'w' must be 1 channel wide, got 2"),
        ({"edge_inputs": {"e": EdgeInput(EDGES, 0)}}, "input 'e' must be at least 1 channel wide, got 0"),
        ({"functions": {"f": np.tanh}}, "no step calls the function 'f': leave it out"),
        (
            {"layers": ("x", "e", "y"), "edge_inputs": {"e": EdgeInput(EDGES, 2)}},
            "the layer 'e' must have rows of nodes, it has rows of edges",
        ),
    ],
)
def test_inputs_and_functions_that_do_not_fit_are_refused(changes, message):
    given = {"layers": ("x", "y"), **changes}
    with pytest.raises(ModelError, match=message):
        Model(
            inputs={"x": Input("node", 3)},
            steps=(Step("relu", ("x",), "y"),),
            tensors={},
            output="y",
            **given,
        )


def test_propagate_reads_what_it_writes():
    operators = Propagate(EDGES, ("weight", "source_rsqrt"), "sum", "rsqrt", "sum", 2.0)
    assert Propagate.from_step(propagate("x", "y", operators)) == operators
    both = Propagate(EDGES + EDGES, ("coefficient",), "sum", "divide", skip_loops=True, own_message=True)
    assert Propagate.from_step(propagate("x", "y", both)) == both
    assert both.edge_types == (EDGES, EDGES)


def test_later_settings_are_written_only_where_they_are_set():
    assert {"skip_loops", "own_message"}.isdisjoint(Propagate(EDGES).to_attrs())
    assert Propagate(EDGES, own_message=True).to_attrs()["own_message"] is True
    assert "skip_loops" not in Propagate(EDGES, own_message=True).to_attrs()


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
    assert not Propagate(EDGES, ("coefficient",), "sum", "divide").weighted


def test_unknown_value():
    with pytest.raises(ModelError, match="the model has no value 'z', only x, a1"):
        make_sage().width("z")


def test_every_operator_says_what_it_computes():
    assert all(operator.summary for operator in OPERATORS.values())


def test_importing_models_needs_neither_torch_nor_the_test_tools():
    code = "import sys, livegnn.model, livegnn.network.file; print({'torch', 'jaxtyping'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
