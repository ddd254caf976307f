"""What a person reads of graphs, models, engines and events, and of likely slips."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, SAGEConv

import livegnn as lg
from livegnn.wording import format_count, format_size, show
from waiting import PATIENCE


def papers(**kwargs: object) -> lg.Graph:
    return lg.Graph.from_edges([0, 1, 2], [1, 2, 0], x=np.eye(3, 4, dtype=np.float32), **kwargs)  # type: ignore[arg-type]


def shop() -> lg.Graph:
    edges = {
        ("user", "buys", "item"): lg.EdgeSchema(weighted=True, timed=True, edge_dim=2, time_to_live=60.0),
        ("user", "knows", "user"): lg.EdgeSchema(undirected=True),
    }
    graph = lg.Graph(lg.Schema({"user": 4, "item": 0}, edges, text_ids=True))
    events = lg.Events().add_nodes(["ada", "bob"], node_type="user").add_nodes(["tea"], node_type="item")
    graph.apply(events.add_edges(["ada"], ["tea"], edge_type=("user", "buys", "item")))
    return graph


def sage() -> lg.Model:
    return lg.Model.from_pyg(SAGEConv(4, 5))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (99_960, "100 kB"),
        (999_400, "999 kB"),
        (999_600, "1.0 MB"),
        (13_100_000_000, "13.1 GB"),
        (10**18, "1000 PB"),
    ],
)
def test_sizes_have_three_digits(number: int, text: str) -> None:
    assert format_size(number) == text


def test_counts_have_a_plural() -> None:
    assert [format_count(n, "node") for n in (0, 1, 1_234_567)] == ["0 nodes", "1 node", "1,234,567 nodes"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("item", "'item'"),
        (None, "None"),
        ((1, "a"), "(1, 'a')"),
        ("x" * 300, "str"),
        ([{}], "list"),
        (np.float32(1), "numpy.float32"),
    ],
)
def test_what_came_is_shown_as_it_was_written_where_that_is_short(value: object, text: str) -> None:
    assert show(value) == text


def test_a_graph_of_one_type_is_a_line() -> None:
    assert re.fullmatch(r"Graph\(3 nodes, x=4, 3 edges, seq=0, [\d.]+ [kM]B\)", repr(papers()))
    graph = papers(weight=[1, 2, 3], time=[1, 2, 3], undirected=True)
    assert "3 edges, undirected, weighted, timed, seq=" in repr(graph)
    assert "Graph(0 nodes, 0 edges, seq=0, " in repr(lg.Graph())


def test_a_graph_of_several_types_has_a_line_for_each() -> None:
    lines = repr(shop()).split("\n")
    assert lines[:5] == [
        "Graph(",
        "  user: 2 nodes, x=4",
        "  item: 1 node",
        "  user,buys,item: 1 edge, weighted, timed, edge_dim=2, time_to_live=60.0",
        "  user,knows,user: 0 edges, undirected",
    ]
    assert re.fullmatch(r"  text ids, seq=4, [\d.]+ [kM]B", lines[5])


def test_a_schema_shows_what_is_special() -> None:
    assert repr(lg.EdgeSchema()) == "EdgeSchema()"
    assert repr(lg.Schema()) == "Schema({'node': 0}, {('node', 'to', 'node'): EdgeSchema()})"
    schema = shop().schema
    names = {"Schema": lg.Schema, "EdgeSchema": lg.EdgeSchema}
    assert eval(repr(schema), names) == schema
    assert "time_to_live=60.0" in repr(schema)
    assert "capacity" not in repr(schema)


def test_a_model_shows_what_goes_in_and_out() -> None:
    model = sage()
    shown = r"Model\(x: node\[4\] -> node\[5\], 1 layer, 1 propagation, \d+ steps, 45 parameters\)"
    assert re.fullmatch(shown, repr(model))


def test_an_engine_shows_its_graph_and_model() -> None:
    graph = papers()
    engine = lg.Engine(graph, sage())
    engine.apply(lg.Events().add_edges(0, 2))
    lines = repr(engine).split("\n")
    assert lines[:3] == ["Engine(", f"  {graph!r},", f"  {engine.model!r},"]
    assert re.fullmatch(r"  eager, seq=1, state [\d.]+ (bytes|kB)", lines[3])
    lazy = lg.Engine(papers(), sage(), mode="lazy")
    lazy.apply(lg.Events().add_edges(0, 2))
    assert "lazy, 1 pending prediction, seq=1" in repr(lazy)


def test_events_are_counted_by_kind_and_type() -> None:
    events = lg.Events()
    for i in range(1_500):
        events.add_edges(i, i + 1)
    events.remove_nodes([1, 2], node_type="user").add_edges(1, 2, edge_type=("user", "buys", "item"))
    expected = "Events(1,500 add_edges, 2 remove_nodes of user, 1 add_edges of user,buys,item)"
    assert repr(events) == expected
    assert repr(lg.Events()) == "Events()"
    for i in range(20):
        events.add_nodes(1, node_type=f"type {i}")
    assert repr(events).endswith("and 15 kinds more)")


def test_a_verification_says_whether_it_is_ok() -> None:
    assert repr(lg.Engine(papers(), sage()).verify()).startswith("Verification(ok: ")


def test_what_is_not_ready_can_be_shown() -> None:
    for made in (lg.Graph, lg.Model, lg.Engine):
        assert repr(made.__new__(made)) == f"<{made.__name__} that is not ready>"


def test_showing_waits_for_no_batch() -> None:
    graph = papers()
    engine = lg.Engine(graph, sage())
    shown: list[str] = []
    with graph.writer:
        reader = threading.Thread(target=lambda: shown.extend([repr(graph), repr(engine)]))
        reader.start()
        reader.join(PATIENCE)
    assert len(shown) == 2


@pytest.mark.parametrize("given", [[(1, 2)], {"event": "add_edge"}, None, np.zeros((2, 3))])
def test_what_is_no_events_is_named(given: object, tmp_path: Path) -> None:
    graph = papers()
    engine = lg.Engine(graph, sage())
    for apply in (graph.apply, engine.apply, engine.what_if):
        with pytest.raises(lg.InputError, match=r"expected Events, got .*: write lg.Events\(\).add_edges"):
            apply(given)
    assert engine.seq == 0


def test_a_graph_and_a_model_in_the_wrong_places_are_named() -> None:
    graph, model = papers(), sage()
    with pytest.raises(lg.InputError, match=r"got them swapped: write Engine\(graph, model\)"):
        lg.Engine(model, graph)  # type: ignore[arg-type]
    with pytest.raises(
        lg.InputError, match=r"expected a Model, got torch_geometric.*Model.from_pyg\(module\)"
    ):
        lg.Engine(graph, SAGEConv(4, 5))  # type: ignore[arg-type]
    with pytest.raises(lg.InputError, match=r"expected a Graph, got torch_geometric.*Graph.from_pyg\(data\)"):
        lg.Engine(Data(x=torch.zeros(1, 4)), model)  # type: ignore[arg-type]


def test_a_file_of_torch_is_named(tmp_path: Path) -> None:
    for zipped in (True, False):
        torch.save(GCNConv(4, 5).state_dict(), tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        with pytest.raises(
            lg.FileFormatError, match=r"x\.pt: .*torch\.save.*load_state_dict.*Model\.from_pyg"
        ):
            lg.Model.load(tmp_path / "x.pt")
    (tmp_path / "x.txt").write_text("12345678 something else", encoding="utf-8")
    with pytest.raises(lg.FileFormatError):
        lg.Model.load(tmp_path / "x.txt")


def test_what_is_no_module_is_named() -> None:
    with pytest.raises(lg.ModelError, match=r"got dict: .*load them into its module"):
        lg.Model.from_pyg({"weight": torch.zeros(1)})  # type: ignore[arg-type]
    for given in (papers(), Data(edge_index=torch.zeros(2, 1)), HeteroData()):
        with pytest.raises(lg.ModelError, match=r"Graph\.from_pyg\(data\) imports the graph"):
            lg.Model.from_pyg(given)  # type: ignore[arg-type]


def test_what_is_no_edges_is_named() -> None:
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    with pytest.raises(lg.InputError, match=r"got torch_geometric.*Data: use Graph\.from_pyg\(data\)"):
        lg.Graph.from_edges(data)
    with pytest.raises(lg.InputError, match=r"pass Graph\.from_edges\(edge_index\[0\], edge_index\[1\]\)"):
        lg.Graph.from_edges(data.edge_index.numpy())
    for given in (data.edge_index, sage(), [(0, 1)]):
        with pytest.raises(lg.InputError, match=r"expected PyG's Data or HeteroData, got "):
            lg.Graph.from_pyg(given)
