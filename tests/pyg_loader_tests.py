"""PyG's own tests of its loaders and samplers, on a live graph.

    python tests/pyg_loader_tests.py CHECKOUT [--json FILE] [-k EXPRESSION]

CHECKOUT: a folder with PyG's repository, at the version that is installed. Nothing of it is kept. Its
`NeighborLoader` and `LinkNeighborLoader` are replaced by ours on a graph made of the test's data, and its
`NeighborSampler` by PyG's own on our stores where torch-sparse or pyg-lib is there to run it. Prints what
passes, what differs and why, and what could not be run. Fails for a difference that nobody has explained.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch_geometric
import torch_geometric.loader
import torch_geometric.sampler
import torch_geometric.testing
import torch_geometric.transforms as T
import torch_geometric.typing
from torch_geometric.data import Data, HeteroData

import livegnn as lg
from livegnn.training import LinkLoader, LiveFeatureStore, LiveGraphStore, NodeLoader

LOADERS = ("loader/test_neighbor_loader.py", "loader/test_link_neighbor_loader.py")
SAMPLERS = ("sampler/test_sampler_neighbor_sampler.py", "data/test_remote_backend_utils.py")
COMPILED = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
TAKEN = frozenset({"x", "edge_index", "edge_weight", "edge_attr", "edge_time", "num_nodes"})

# Why a test differs, by what its failure says. docs/training.md has the same table.
EXPLAINED = {
    "subgraph_type is an option": "induced subgraphs are drawn from a copy",
    "nodes have no times|no times": "nodes have no times",
    "e_id": "`e_id` are rows of the graph's own features, and only there if edges have them",
    "a store of the test": "the test fills stores of its own; ours are filled by events",
    "is an option of PyG": "an option without a meaning on a live graph",
    "must have as many hops": "the same refusal, in other words",
    "edge_index of .* must be|must be one of none": "data without edges make no graph",
    "missing 1 required positional argument: 'dst'": "of several types, ToUndirected adds reversed ones",
    "num_sampled_edges=": "needs pyg-lib, with PyG's own data too",
    "requires .*pyg-lib|via 'torch-sparse'": "needs pyg-lib, with PyG's own data too",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a folder with PyG's repository")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("-k", default="", help="run only tests whose names match, as of pytest")
    given = parser.parse_args()
    results = Results()
    if COMPILED:
        replace_stores()
        run(given.checkout, SAMPLERS, results, given.k)
    else:
        results.note(SAMPLERS)
    replace_loaders()
    run(given.checkout, LOADERS, results, given.k)
    print(results)
    if given.json is not None:
        given.json.write_text(json.dumps(results.rows, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row["outcome"] == "unexplained" for row in results.rows) else 0


def run(checkout: Path, files: tuple[str, ...], results: Results, expression: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            source = checkout / "test" / file
            if not source.is_file():
                raise SystemExit(f"{source} is missing: give a folder with PyG's repository")
            shutil.copy(source, Path(folder) / source.name)
        options = [
            "-q",
            "--no-header",
            "--tb=no" if not expression else "--tb=short",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            folder,
            "-c",
            "/dev/null",
        ]
        # Data sets would be downloaded.
        pytest.main([*options, "-m", "not dataset", "-k", expression, folder], plugins=[results])


class Results:
    """What each test came to."""

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []

    def note(self, files: tuple[str, ...]) -> None:
        """Notes files that cannot be run here."""
        self.rows += [
            {"test": file, "outcome": "skipped", "why": "needs torch-sparse or pyg-lib"} for file in files
        ]

    def pytest_configure(self, config: pytest.Config) -> None:
        for mark in ("dataset", "nightly", "rag"):
            config.addinivalue_line("markers", f"{mark}: of PyG")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        said = "" if report.passed else last_line(report)
        outcome, why = report.outcome, said
        if report.outcome == "failed":
            why = next((why for what, why in EXPLAINED.items() if re.search(what, said)), "")
            outcome, why = ("differs", why) if why else ("unexplained", said)
        self.rows.append({"test": report.nodeid.split("::")[-1], "outcome": outcome, "why": why})

    def __str__(self) -> str:
        kinds = ("passed", "differs", "skipped", "unexplained")
        lines = [f"PyG {torch_geometric.__version__}, a compiled sampler: {'yes' if COMPILED else 'no'}"]
        for kind in kinds:
            rows = [row for row in self.rows if row["outcome"] == kind]
            lines.append(f"{kind}: {len(rows)}")
            if kind != "passed":
                lines += [f"  {row['test']}: {row['why']}" for row in rows]
        return "\n".join(lines)


def last_line(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return (crash.message if crash is not None else str(report.longrepr)).replace("\n", " ")[:300]


# -- what PyG's tests get in place of PyG's classes


def replace_loaders() -> None:
    """Our loaders in place of PyG's. They need no compiled sampler of PyG's, for want of which its tests skip
    themselves."""
    torch_geometric.loader.NeighborLoader = NeighborLoader
    torch_geometric.loader.LinkNeighborLoader = LinkNeighborLoader
    torch_geometric.testing.onlyNeighborSampler = lambda test: test
    needs = torch_geometric.testing.withPackage
    torch_geometric.testing.withPackage = lambda *names: (
        (lambda test: test) if names == ("pyg_lib",) else needs(*names)
    )
    for flag in ("WITH_TORCH_SPARSE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE"):
        setattr(torch_geometric.typing, flag, True)


def replace_stores() -> None:
    """PyG's own sampler, on our stores of the data that a test gives it."""
    own = torch_geometric.sampler.NeighborSampler.__init__

    def init(self: object, data: object, *args: object, **kwargs: object) -> None:
        if isinstance(data, HeteroData):
            graph, _ = live(data)
            data = LiveFeatureStore(graph), LiveGraphStore(graph)
        own(self, data, *args, **kwargs)

    torch_geometric.sampler.NeighborSampler.__init__ = init


def live(
    data: Data | HeteroData, time_attr: object = None, weight_attr: object = None
) -> tuple[lg.Graph, T.Compose]:
    """A graph of the data, and a transform that gives a batch what ours writes otherwise: `x` and `edge_attr`
    of one dimension, and other types of numbers."""
    if not isinstance(data, (Data, HeteroData)):
        raise TypeError(f"a store of the test: {data}")
    taken, restored = copy.copy(data), []
    for store in taken.stores:
        for name, kept in ((time_attr, "edge_time"), (weight_attr, "edge_weight")):
            if name in store and "edge_index" in store and len(store[name]) == store.num_edges:
                store[kept] = store.pop(name)
                if kept == "edge_time":
                    restored.append((getattr(store, "_key", None), name, store[kept].dtype, 0))
        for name in ("x", "edge_attr"):
            value = store.get(name) if name in store else None
            if isinstance(value, torch.Tensor) and (value.ndim == 1 or not value.is_floating_point()):
                restored.append((getattr(store, "_key", None), name, value.dtype, value.ndim))
                store[name] = value.reshape(len(value), -1).float()
    others = set().union(*(store.to_dict() for store in taken.stores)) - TAKEN
    others -= set() if time_attr is None else {"time"}
    graph = lg.Graph.from_pyg(taken, parallel="keep", leave_out=sorted(others))

    def restore(batch: Data | HeteroData) -> Data | HeteroData:
        for key, name, dtype, ndim in restored:
            store = batch if key is None else batch[key]
            if not ndim and "time" in store:
                store[name] = store["time"].to(dtype)
            elif name in store:
                value = store[name].to(dtype)
                store[name] = value[:, 0] if ndim == 1 else value
        return batch

    return graph, restore


def translated(options: dict[str, object], restore: object) -> dict[str, object]:
    """Options of PyG's loaders as docs/training.md translates them."""
    time = options.pop("time_attr", None)
    weight = options.pop("weight_attr", None)
    if weight is not None:
        options["by"] = "weight"
    if options.pop("temporal_strategy", "uniform") == "last" and time is not None:
        options["by"] = "latest"
    kind = options.pop("subgraph_type", "directional")
    kind = getattr(kind, "value", kind)
    steps = [restore]
    if kind == "bidirectional":
        steps.append(T.ToUndirected(reduce="mean"))
    elif kind != "directional":
        options["subgraph_type"] = kind
    if (own := options.pop("transform", None)) is not None:
        steps.append(own)
    if options.get("is_sorted") is False:
        del options["is_sorted"]
    return {**options, "transform": Steps(steps)}


class Steps:
    def __init__(self, steps: list[object]) -> None:
        self.steps = steps

    def __call__(self, batch: object) -> object:
        for step in self.steps:
            batch = step(batch)
        return batch


class NeighborLoader(NodeLoader):
    def __init__(
        self, data: Data | HeteroData, num_neighbors: object, input_nodes: object = None, **options: object
    ) -> None:
        graph, restore = live(data, options.get("time_attr"), options.get("weight_attr"))
        seeds = (input_nodes, None) if isinstance(input_nodes, str) else input_nodes
        super().__init__(graph, num_neighbors, seeds, **translated(options, restore))


class LinkNeighborLoader(LinkLoader):
    def __init__(
        self,
        data: Data | HeteroData,
        num_neighbors: object,
        edge_label_index: object = None,
        **options: object,
    ) -> None:
        graph, restore = live(data, options.get("time_attr"), options.get("weight_attr"))
        links = edge_label_index
        if isinstance(links, tuple) and isinstance(data, HeteroData):
            edge_type, pairs = (links, None) if isinstance(links[0], str) else links
            links = data._to_canonical(*edge_type), pairs
        super().__init__(graph, num_neighbors, links, **translated(options, restore))


if __name__ == "__main__":
    sys.exit(main())
