"""Modules that practitioners published: what is imported, how exact it is, and whether a refusal is true.

A row of `practitioners_modules` or `practitioners_papers` names a class of a public repository, how it is
made and what it is called with. It is read from a checkout (`checkouts`) and given to `Model.from_pyg` by
one who says nothing; as long as it is refused, once more with what the reason says to give, and at last with
all that can be said. The model is held against the module in float64 while a multigraph with loops, parallel
edges and nodes without edges changes: with features N(0, 1), then on a lazy engine with columns of
magnitudes from 1e-3 to 1e4 and means far from 0; and on graphs of no node and of one.

    python tests/practitioners.py --repositories FOLDER --json FILE --page
    python tests/practitioners.py --repositories FOLDER --only IBM/Multi-GNN
    python tests/practitioners.py --list

The first is what `make practitioners-table` runs, the second looks at one repository, the third prints which
repositories at which commits FOLDER has as checkouts called `OWNER__NAME`. Names, commits, arguments and what
was found are kept; the code of others is not.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import json
import math
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import expression_interpreter as interpreter
import import_findings
import practitioners_modules
import practitioners_papers
from import_findings import first_line, record_import
from imported_modules import NODE, Case, answer, called, double, flat
from layered_modules import RELATIONS
from livegnn import EdgeSchema, Engine, Events, Graph, Model, ModelError, Schema
from livegnn.errors import InputError
from livegnn.importers.expressions.expressions import Atom
from livegnn.importers.program.export import Given, Record, leaves
from livegnn.importers.reading.reader import Program
from livegnn.oracle.exactness import Verification, judge
from practitioners_modules import Row
from separate import separately
from typed_mirror import TypedMirror, edge_type

ROWS = (*practitioners_modules.ROWS, *practitioners_papers.ROWS)
COMMITS = dict(sorted({**practitioners_modules.COMMITS, **practitioners_papers.COMMITS}.items()))

LIMIT = 900
"""Seconds for a row."""

NEARBY = 16
"""Graphs beside which a difference is looked at once more: see `hold`."""

PAIRS = 12
"""How many pairs of nodes are scored by a module that takes pairs."""

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "tests" / "practitioners.json", ROOT / "tests" / "practitioners.md"

STATUSES = ("exact", "refused", "wrong", "internal error", "fails by itself")


@dataclass
class Attempt:
    """One import. given: what was said beside the module. reason: of the refusal; empty if there was none."""

    given: list[str]
    reason: str = ""


@dataclass
class Found:
    """What was found of a row.

    status: one of `STATUSES`. attempts: the refusals, and the last import. untold: the import succeeded only
    with something that the reason before it did not name. true: whether the last refusal is the one that
    whoever read the module expects. differences: the worst of each stream, as a part of what is allowed.
    """

    name: str
    status: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    untold: bool = False
    true: bool | None = None
    differences: dict[str, float] = field(default_factory=dict)
    detail: str = ""

    @property
    def good(self) -> bool:
        return is_good(asdict(self))

    def __str__(self) -> str:
        tries = "; ".join(f"[{', '.join(one.given)}] {one.reason}" for one in self.attempts if one.reason)
        marks = f"{' UNTOLD' if self.untold else ''}{' UNTRUE' if self.true is False else ''}"
        figures = " ".join(f"{name} {value:.1e}" for name, value in self.differences.items())
        return f"{self.name}: {self.status}{marks} {figures} {self.detail} {tries}".rstrip()


def is_good(found: Mapping[str, Any]) -> bool:
    """Whether what was found is as it should be."""
    if found["status"] == "refused":
        return bool(found["true"])
    return found["status"] in ("exact", "fails by itself") and not found["untold"]


# -- graphs


class Multigraph(TypedMirror):
    """Parallel edges stay apart, some nodes never have edges, and columns may be of any magnitude.

    Edges are by type, ends and key. wide: whether columns have means and magnitudes of their own.
    """

    def __init__(self, given: Sequence[Given], seed: int, *, wide: bool) -> None:
        super().__init__([one for one in given if not one.atom.pairs], seed)
        self.pair_atoms = list(dict.fromkeys(one.atom for one in given if one.atom.pairs))
        self.wide = {
            (atom, name): (
                self.random.normal(size=one.channels),
                10.0 ** self.random.uniform(-3, 4, one.channels),
            )
            for atom, columns in self.columns.items()
            for name, one in columns.items()
            if wide and one.dtype.is_floating_point
        }

    def make_graph(self) -> Graph:
        """The same, live; still empty."""
        edges = {
            edge_type(atom): EdgeSchema(
                weighted=self.weight(atom) is not None, edge_dim=self.width(atom), duplicates="keep"
            )
            for atom in self.edge_atoms
        }
        return Graph(Schema({atom.name: self.width(atom) for atom in self.node_atoms}, edges))

    def fill(self, nodes: int, edges: int, *, apart: int = 2) -> Events:
        """A first graph; so many of its nodes are apart."""
        events = super().fill(nodes, edges if nodes else 0)
        for atom in self.node_atoms:
            self.add_nodes(events, atom, apart)
        return events

    def draw(self, atom: Atom) -> dict[str, np.ndarray]:
        row = super().draw(atom)
        for name, values in row.items():
            if (atom, name) in self.wide:
                centre, size = self.wide[atom, name]
                drawn = values * size if name == self.weight(atom) else (values + centre) * size
                row[name] = np.asarray(drawn, np.float32)
        return row

    def rows(self) -> interpreter.Rows:
        """All of it, as a module is called; edges in the order of their ends, parallel ones as they came."""
        edges = {atom: dict(sorted(edges.items())) for atom, edges in self.edges.items()}
        place = {atom: {node: i for i, node in enumerate(nodes)} for atom, nodes in self.nodes.items()}
        sizes = {atom: len(rows) for atom, rows in {**self.nodes, **edges}.items()}
        ends, inputs = {}, {}
        for atom, keys in edges.items():
            pairs = [(place[atom.source][u], place[atom.target][v]) for u, v, _ in keys]
            ends[atom] = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T.contiguous()
        for atom in self.pair_atoms:
            places = [
                [place[end][node] for node in nodes.tolist()]
                for end, nodes in zip((atom.source, atom.target), self.pairs(atom), strict=True)
            ]
            ends[atom], sizes[atom] = torch.tensor(places, dtype=torch.int64).reshape(2, -1), len(places[0])
        for atom, columns in self.columns.items():
            carried = (self.nodes if atom.source is None else edges)[atom]
            for name, one in columns.items():
                values = np.array([row[name] for row in carried.values()], np.float64)
                inputs[name] = torch.from_numpy(values.reshape(len(carried), *one.channels)).to(one.dtype)
        return interpreter.Rows(sizes, ends, inputs)

    def pairs(self, atom: Atom) -> tuple[np.ndarray, np.ndarray]:
        """The ids of both ends of some pairs of nodes, the same as long as the nodes are."""
        random = np.random.default_rng(PAIRS)
        ids = [self.ids(end) for end in (atom.source, atom.target) if end is not None]
        count = PAIRS if all(map(len, ids)) else 0
        sources, targets = (random.choice(one, count) if count else one[:0] for one in ids)
        return sources, targets

    def act(self, events: Events, kind: str) -> None:
        if kind not in ("remove edges", "re-add edges"):
            super().act(events, kind)
            return
        atom = self.edge_atoms[int(self.random.integers(len(self.edge_atoms)))] if self.edge_atoms else None
        if atom is None or not self.edges[atom]:
            return
        known = list(self.edges[atom])
        source, target, _ = known[int(self.random.integers(len(known)))]
        if kind == "re-add edges":  # one more beside it
            self.add_edge(events, atom, (source, target))
            return
        events.remove_edges([source], [target], edge_type=edge_type(atom))
        del self.edges[atom][source, target, self._keys(atom, source, target)[-1]]

    def _keys(self, atom: Atom, source: int, target: int) -> list[int]:
        return sorted(key for u, v, key in self.edges[atom] if (u, v) == (source, target))

    def remove_node(self, events: Events, atom: Atom, node: int) -> None:
        events.remove_nodes([node], node_type=atom.name)
        del self.nodes[atom][node]
        for edge_atom, edges in self.edges.items():
            for u, v, key in list(edges):
                if (edge_atom.source == atom and u == node) or (edge_atom.target == atom and v == node):
                    del edges[u, v, key]

    def add_edge(self, events: Events, atom: Atom, pair: tuple[int, int]) -> None:
        row, weight = self.draw(atom), self.weight(atom)
        self.edges[atom][(*pair, max(self._keys(atom, *pair), default=-1) + 1)] = row
        columns: Mapping[str, object] = {
            **({"weight": [float(row[weight])]} if weight else {}),
            **({"edge_attr": self.packed(atom, row)[None]} if self.width(atom) else {}),
        }
        events.add_edges([pair[0]], [pair[1]], edge_type=edge_type(atom), **columns)


# -- what is said to the importer


def said_without_data(row: Row, case: Case, module: nn.Module) -> dict[str, object]:
    """What `inputs` says of each argument without data; what only data can say is not there."""
    inputs: dict[str, object] = {one.name: "node" for one in case.parameters}
    plain, seen = import_findings.is_plain(case), set[Given]()
    for name, one in import_findings.arguments_of(module, case).items():
        if not isinstance(one, Given):
            if not isinstance(one, Mapping | list | Record):
                inputs[name] = one
            continue
        if one in seen:
            continue  # without data, rows that are given twice would be others
        seen.add(one)
        of = ("node" if one.atom.source is None else "edge") if plain else import_findings.kind_of(one.atom)
        if one.ends:
            inputs[name] = import_findings.attribute(one) if plain else of
        elif one.count:
            inputs[name] = "num_nodes"
        elif import_findings.attribute(one) == "edge_weight":
            inputs[name] = "edge_weight"
        else:
            whole = () if one.dtype.is_floating_point else (int,)
            inputs[name] = (of, *(one.channels or (() if whole else (0,))), *whole)
    return inputs


def literal(reason: str) -> dict[str, object]:
    """What a reason says of arguments word by word: ``inputs={'x': ['x', 'edge_index']}``."""
    said: dict[str, object] = {}
    for text in re.findall(r"inputs=(\{[^{}]*\})", reason):
        with contextlib.suppress(ValueError, SyntaxError):
            found = ast.literal_eval(re.sub(r"\bint\b", "'int'", text))
            said |= {
                name: tuple(int if part == "int" else part for part in one) if isinstance(one, tuple) else one
                for name, one in found.items()
                if one is not ...
            }
    return said


def follow(reason: str, given: Mapping[str, Any], row: Row, case: Case, module: nn.Module) -> dict[str, Any]:
    """What a user gives who does what a reason says, beside what was given; the same if it says no more."""
    now, reason = (
        dict(given),
        re.sub(r"\.py:\d+, '.*?'(?=:|;| by way)", "", reason),
    )  # without the module's lines
    known = {**literal(reason), **said_without_data(row, case, module)}
    for text in re.findall(r"inputs=\{([^{}]*)\}", reason):
        for name in re.findall(r"'([^']+)':", text):
            if name in known and "data" not in given:
                now["inputs"] = {**now.get("inputs", {}), name: known[name]}
    for keyword, of_edges in (("in_channels", False), ("edge_channels", True)):
        widths = [
            one.channels[0]
            for name, argument in import_findings.arguments_of(module, case).items()
            for one in (leaves(argument) if name not in now.get("inputs", {}) else ())
            if (one.atom.source is not None) == of_edges and one.dtype.is_floating_point
            if len(one.channels) == 1
        ]
        if keyword in reason and widths and "data" not in given:
            now[keyword] = widths[0]
    if "output_type=" in reason:
        now["output_type"] = row.output_type or re.findall(r"'(\w+)'", reason)[0]
    if "output=" in reason and row.output:
        now["output"] = row.output
    numbered = "edge_type" in import_findings.arguments_of(module, case)
    if "relations=" in reason and numbered and "data" not in given:
        now["relations"] = [(NODE.name, f"relation {number}", NODE.name) for number in range(RELATIONS)]
    if now == given and "data" not in given and re.search(r"\bdata\b", reason):
        return with_data(given, row, case, module)
    return now


def without_code(reason: str) -> str:
    """A reason without the lines that it quotes of the module, and random names of files that PyG makes."""
    reason = re.sub(r"(?<=_propagate)_\w{8}(?=\.py:)", "", reason)
    return re.sub(r"""(\.py:\d+), ('.*?'|".*?")(?=:|;| by way|\)|$)""", r"\1", reason)


def with_data(given: Mapping[str, Any], row: Row, case: Case, module: nn.Module) -> dict[str, Any]:
    """All that can be said: data, and what each argument is."""
    data = import_findings.data_of(case, import_findings.draw(case, row.graph, 0))
    rest = {name: value for name, value in given.items() if name in ("method", "output", "output_type")}
    inputs = import_findings.inputs_of(module, case)
    return {"data": data, **rest, **({"inputs": inputs} if inputs else {})}


# -- the judgement


def study(row: Row, folder: Path) -> Found:
    """Imports a row's module, and holds the model against it; what the module writes is thrown away."""
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here), contextlib.redirect_stdout(None):
        return judge_row(row, folder)


def judge_row(row: Row, folder: Path) -> Found:
    found = Found(row.title)
    case = row.case(folder)
    try:
        module = import_findings.make(case)
        graph = import_findings.draw(case, row.graph, 0)
        answer(copy.deepcopy(module), case, graph)
    except Exception as error:
        found.status, found.detail = "fails by itself", told(error)
        return found
    imported = attempt(row, case, module, found)
    if imported is None:
        found.status = "internal error" if is_internal(found.attempts[-1].reason) else "refused"
        told_so = row.refused and re.search(row.refused, found.attempts[-1].reason)
        found.true = found.status == "refused" and bool(told_so)
        return found
    model, program, changed = imported
    missing = left_out(case, program)
    if missing:
        found.detail = f"{found.detail} called without {', '.join(missing)}".strip()
    try:
        hold(row, case, changed, model, program, found)
    except Exception as error:
        found.status, found.detail = "internal error", told(error)
    return found


def attempt(row: Row, case: Case, module: nn.Module, found: Found) -> tuple[Model, Program, nn.Module] | None:
    """Imports with nothing said, then with what each refusal says, then with all that can be said."""
    given: dict[str, Any] = {**row.given}
    if case.method != "forward":
        given["method"] = case.method
    if not import_findings.is_plain(case):
        given["metadata"] = metadata_of(case)
    changes = list(row.changes)
    while True:
        names = sorted(given)
        try:
            model, program = record_import(copy.deepcopy(module).float(), **given)
            if "relations" in given:  # of one type for each number; it is held as it is with data
                found.attempts.append(Attempt(names))
                given = with_data(given, row, case, module)
                names = sorted(given)
                model, program = record_import(copy.deepcopy(module).float(), **given)
            mirror = Multigraph(in_order(case, program), 0, wide=False)
            Engine(mirror.make_graph(), model, threads=1)  # a user's graph may not be what was imported
        except (ModelError, InputError) as error:
            reason = without_code(first_line(error))
            found.attempts.append(Attempt(names, reason))
            now = follow(reason, given, row, case, module)
            change = next((one for one in changes if re.search(one.told, reason)), None)
            if change is not None:
                changes.remove(change)
                module, now = change.change(copy.deepcopy(module)), given
                found.detail = f"{found.detail} {change.what}".strip()
            elif now == given:
                if "data" in given:
                    found.untold = False
                    return None
                now, found.untold = with_data(given, row, case, module), True
            elif len(found.attempts) > 8:
                return None
            given = now
        else:
            found.attempts.append(Attempt(names))
            return model, program, module


def metadata_of(case: Case) -> tuple[list[str], list[tuple[str, str, str]]]:
    atoms = dict.fromkeys(
        end
        for one in import_findings.given_of(case)
        for end in (one.atom.source, one.atom.target, one.atom)
        if end and not end.pairs
    )
    return [one.name for one in atoms if one.source is None], [edge_type(one) for one in atoms if one.source]


def is_internal(reason: str) -> bool:
    """Whether a refusal is an error of the importer that was caught on its way out."""
    return bool(re.search(r"cannot be imported: .*\b[A-Z]\w*(Error|Exception)\b", reason))


def in_order(case: Case, program: Program) -> list[Given]:
    """The rows that a case is called with, in the order in which the model's graph holds them.

    Rows that the importer calls otherwise are those of the same shape that it does not name. Those that the
    model is not called with are the last.
    """
    given = {
        (str(one.atom), import_findings.attribute(one)): one
        for one in import_findings.given_of(case)
        if not one.count
    }
    ordered: list[Given] = []
    for one in dict.fromkeys(one for one in program.given if not one.count):
        key = str(one.atom), import_findings.attribute(one)
        if key not in given:
            alike = [
                k
                for k, other in given.items()
                if k[0] == key[0] and other.ends == one.ends and other.channels == one.channels
            ]
            if not alike:
                continue  # only their number counts, or the module is called without them
            key = alike[0]
        ordered.append(given.pop(key))
    return [*ordered, *given.values()]


def left_out(case: Case, program: Program) -> list[str]:
    """What a case is called with, and the imported model is not."""
    called = {(str(one.atom), one.channels, one.ends) for one in program.given}
    given = [one for one in import_findings.given_of(case) if not one.count]
    return sorted({one.name for one in given if (str(one.atom), one.channels, one.ends) not in called})


def hold(row: Row, case: Case, module: nn.Module, model: Model, program: Program, found: Found) -> None:
    """Compares before and after a stream of events, on columns of two kinds, and on the smallest graphs."""
    given = in_order(case, program)
    worst: dict[str, Verification] = {}
    for number, (kind, mode) in enumerate((("plain", "eager"), ("wide", "lazy"))):
        mirror = Multigraph(given, seed=[2026, number], wide=kind == "wide")
        graph = mirror.make_graph()
        graph.apply(mirror.fill(nodes=10, edges=30))
        engine = Engine(graph, model, threads=1, mode=mode, non_finite="allow")
        verdicts = [compare(row, case, module, model, mirror, engine)]
        for events in mirror.batches(18):
            engine.apply(events)
        verdicts.append(compare(row, case, module, model, mirror, engine))
        worst[kind] = max(verdicts, key=lambda one: one.part)
    for kind, nodes, edges in (("no node", 0, 0), ("one node", 1, 0), ("one loop", 1, 1)):
        mirror = Multigraph(given, seed=[2026, nodes, edges], wide=False)
        graph = mirror.make_graph()
        graph.apply(mirror.fill(nodes=nodes, edges=edges, apart=0))
        try:
            answer(copy.deepcopy(module), case, mirror.rows())
        except Exception:
            continue  # the module itself wants more
        engine = Engine(graph, model, threads=1, non_finite="allow")
        worst[kind] = compare(row, case, module, model, mirror, engine)
    found.differences = {kind: one.part for kind, one in worst.items()}
    beyond = [f"{kind}: {one}" for kind, one in worst.items() if not one.ok]
    found.status = "wrong" if beyond else "exact"
    found.detail = "; ".join([*filter(None, [found.detail]), *beyond])


def compare(
    row: Row, case: Case, module: nn.Module, model: Model, mirror: Multigraph, engine: Engine
) -> Verification:
    """The engine's predictions beside what the module says in float64.

    What is beyond the bound is judged once more beside the worst that the module in float32 does on graphs
    whose features are some roundings away, as in `wild`.
    """
    got, node_type = ask(row, model, mirror, engine)

    def say(dtype: torch.dtype, rows: interpreter.Rows) -> np.ndarray:
        inputs = {name: v.to(dtype) if v.is_floating_point() else v for name, v in rows.inputs.items()}
        graph = interpreter.Rows(rows.sizes, rows.ends, inputs)
        with double() if dtype is torch.float64 else contextlib.nullcontext():
            result = called(copy.deepcopy(module).to(dtype), case, graph)
        result = (
            result[node_type]
            if isinstance(result, Mapping) and node_type in result
            else row.pick(list(flat(result)))
        )
        whole = result.dim() > 0 and len(result) == len(got)  # a final squeeze may take the nodes away
        return result.reshape(len(got), math.prod(result.shape[1:]) if whole else -1).numpy()

    rows = mirror.rows()
    expected = say(torch.float64, rows)
    verdict = judge(got, expected, lambda: say(torch.float32, rows))
    if verdict.ok:
        return verdict
    worst, random = np.abs(say(torch.float32, rows) - expected), torch.Generator().manual_seed(0)
    for _ in range(NEARBY):
        inputs = {
            name: (v * (1 + (torch.rand(v.shape, generator=random, dtype=torch.float64) * 2 - 1) * 2.0**-20))
            .float()
            .double()
            if v.is_floating_point()
            else v
            for name, v in rows.inputs.items()
        }
        near = interpreter.Rows(rows.sizes, rows.ends, inputs)
        worst = np.fmax(worst, np.abs(say(torch.float32, near) - say(torch.float64, near)))
    return judge(got, expected, expected + worst)


def ask(row: Row, model: Model, mirror: Multigraph, engine: Engine) -> tuple[np.ndarray, str | None]:
    """The rows of an engine in the order of the mirror, and the type of their nodes if they are of nodes.

    They are those of the model's edge output that the row names, of edges or of pairs, or its prediction.
    """
    if not row.scores:
        node_type = model.node_type(model.output)
        atom = next(atom for atom in mirror.node_atoms if atom.name == node_type)
        return engine.predict(mirror.ids(atom)), node_type
    if mirror.pair_atoms:
        return engine.score(*mirror.pairs(mirror.pair_atoms[0]), output=row.scores), None
    kind = model.edge_scores[row.scores].edge_type
    atom = next(atom for atom in mirror.edge_atoms if edge_type(atom) == kind)
    sources, targets, keys = np.array(sorted(mirror.edges[atom]), np.int64).reshape(-1, 3).T
    return engine.predict_edges(sources, targets, key=keys, output=row.scores), None


def told(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {first_line(error)} [{Path(frame.filename).name}:{frame.lineno}]"


# -- the table


def counted(found: Sequence[Mapping[str, Any]]) -> str:
    """How many rows there are of each kind, and the part that is exact."""
    kinds = Counter(kind_of(one) for one in found)
    repositories = {one["name"].split(" ")[0] for one in found}
    most = sorted(kinds.items(), key=lambda one: -one[1])
    parts = ", ".join(f"{number} {kind}" for kind, number in most)
    exact = sum(one["status"] == "exact" for one in found) / max(1, len(found))
    return f"{len(found)} modules of {len(repositories)} repositories: {parts}. {exact:.0%} are exact."


def kind_of(one: Mapping[str, Any]) -> str:
    if one["status"] == "refused":
        return "refused rightly" if one["true"] else "refused for a reason that is not the true one"
    if one["status"] == "exact" and one["untold"]:
        return "exact, but the refusal did not say how"
    if one["status"] == "exact" and any(a["reason"] for a in one["attempts"]):
        return "exact after doing what the refusal says"
    return str(one["status"])


def page(results: Mapping[str, Any]) -> str:
    rows = results["rows"]
    lines = [
        "# Modules of practitioners",
        "",
        "Written by `make practitioners-table`; see `practitioners.py`. The numbers are the largest",
        "difference from the module in float64, as a part of what is promised: on features N(0, 1), and on",
        "columns of any magnitude. In bold, what was then given.",
        "",
        counted(rows),
        "",
        "| module | found | plain | wide | what refusals say, and what was done |",
        "|---|---|---|---|---|",
    ]
    for one in rows:
        tries = one["attempts"]
        said = []
        for before, after in zip(tries, [*tries, None][1:], strict=True) if tries else ():
            new = sorted(set(after["given"]) - set(before["given"])) if after else []
            if before["reason"] and (after is None or before["reason"] != after["reason"]):
                said.append(before["reason"] + (f" **{', '.join(new)}**" if new else ""))
        if one["detail"]:
            said.append(one["detail"])
        cells = [
            f"`{one['name']}`",
            kind_of(one),
            *(
                f"{one['differences'][kind]:.0e}" if kind in one["differences"] else ""
                for kind in ("plain", "wide")
            ),
            "; ".join(said).replace("|", "\\|").replace("<", "&lt;"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def merge(file: Path, found: Sequence[Found]) -> dict[str, Any]:
    """What was found, with the rows of the file that were not asked for now, in the order of the list."""
    old = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    rows = {row["name"]: row for row in old} | {one.name: asdict(one) for one in found}
    titles = [row.title for row in ROWS]
    return {
        "repositories": COMMITS,
        "rows": [rows[title] for title in titles if title in rows],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=Path, metavar="FOLDER", help="checkouts, OWNER__NAME each")
    parser.add_argument("--only", metavar="NAME", help="the rows whose name begins so")
    parser.add_argument("--json", type=Path, metavar="FILE", help="put what is found into FILE")
    parser.add_argument("--page", action="store_true", help="write practitioners.md from FILE")
    parser.add_argument("--list", action="store_true", help="print the repositories and their commits")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name} {commit}" for name, commit in COMMITS.items()))
        return 0
    torch.set_num_threads(1)
    every: list[Found] = []
    for row in ROWS if options.repositories else ():
        if options.only and not row.title.startswith(options.only):
            continue
        started = time.perf_counter()
        made, reason = separately(lambda row=row: study(row, options.repositories), LIMIT)
        found = Found(row.title, "internal error", detail=reason) if made is None else made
        every.append(found)
        print(f"{time.perf_counter() - started:5.1f} s  {found}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(merge(options.json, every), indent=1) + "\n", encoding="utf-8")
    if options.page and options.json:
        PAGE.write_text(page(json.loads(options.json.read_text(encoding="utf-8"))), encoding="utf-8")
    return 0 if all(one.good for one in every) else 1


if __name__ == "__main__":
    sys.exit(main())
