"""What of PyG is imported: its examples, its convolutions, and the modules of `imported_modules`; a row each.

A row says whether its module is exported and read, what its propagations read, and how far it is from
itself in float64: as it was read, in normal form, and as a model, before and after batches of events.
Writes what was found as JSON, and the tables of docs/models.md from it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

import imported_modules
import pyg_convolutions
import pyg_examples
from import_findings import Found, judge_row
from imported_modules import Case
from separate import separately

LIMIT = 240
"""Seconds for a row."""

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "models.md", ROOT / "tests" / "models_table.json"
BEGIN, END = "<!-- models-table: begin -->", "<!-- models-table: end -->"
TITLES = {
    "convolutions": "Every convolution of PyG",
    "examples": "The models of PyG's examples",
    "modules": "Further modules",
}

FAILS = "not to be called in PyG itself here"
WHOLES = {"convolutions": "convolutions", "examples": "files"}
EXPLAINED = {
    "examples": (
        "A row is a file that defines or uses a model with messages along edges and a prediction for each "
        "node of a graph, made and called as the file does it; a file with several models has several. Left "
        f"out are {len(pyg_examples.LEFT_OUT)} files: "
        + "; ".join(
            f"{reason} ({count})" for reason, count in Counter(pyg_examples.LEFT_OUT.values()).items()
        )
        + "."
    )
}


# -- rows


def rows(pyg: Path | None) -> dict[str, dict[str, Case]]:
    examples = {"examples": pyg_examples.cases(pyg)} if pyg else {}
    return {
        "convolutions": pyg_convolutions.CONVOLUTIONS,
        **examples,
        "modules": imported_modules.CASES,
    }


def apart(group: str, name: str, case: Case) -> Found:
    """Judges a row in a process of its own."""
    made, reason = separately(lambda: asdict(judge_row(Found(group, name), case)), LIMIT)
    return Found(group, name, reason=reason) if made is None else Found(**made)


# -- tables


def table(found: Sequence[Mapping[str, object]]) -> str:
    """Rows as Markdown."""
    lines = [
        "| module | imported | a change is | engine | oracle | remarks |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        cells = [
            f"`{row['name']}`",
            "yes" if row["imports"] else "no",
            str(row["upkeep"]),
            differences(row["engine"]),
            differences(row["oracle"]),
            remark(row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(pair: Sequence[float] | None) -> str:
    return " → ".join(f"{value:.0e}" for value in pair) if pair else ""


def remark(row: Mapping[str, object]) -> str:
    return str(row["reason"]).replace("|", "\\|").replace("<", "&lt;")


def page(results: Mapping[str, object]) -> str:
    """What stands between the marks of the page."""
    parts = [BEGIN]
    rows = results["rows"]
    assert isinstance(rows, list)
    for group, title in TITLES.items():
        found = [row for row in rows if row["group"] == group]
        if found:
            parts += [f"#### {title}", counted(found, EXPLAINED.get(group, "")), table(found)]
    return "\n\n".join([*parts, END])


def counted(found: Sequence[Mapping[str, object]], explained: str) -> str:
    """How many rows, and how many files or classes, are imported, refused, or fail in PyG itself."""
    rows = dict.fromkeys(("imported", "refused", FAILS), 0)
    files: dict[str, set[str]] = {}
    for row in found:
        status = "imported" if row["imports"] else FAILS if fails(row) else "refused"
        rows[status] += 1
        files.setdefault(pyg_examples.file_of(str(row["name"])), set()).add(status)
    whole = dict.fromkeys(rows, 0)
    for statuses in files.values():  # a file whose rows differ counts as the best of them
        whole[next(status for status in rows if status in statuses)] += 1

    def say(of: Mapping[str, int]) -> str:
        return ", ".join(f"{number} {status}" for status, number in of.items() if number)

    text = f"{len(found)} rows: {say(rows)}."
    if len(files) < len(found):
        text += f" These are {len(files)} {WHOLES.get(found[0]['group'], 'modules')}: {say(whole)}."
    return f"{text} {explained}".rstrip()


def fails(row: Mapping[str, object]) -> bool:
    """Whether PyG itself cannot call a row's module, most often because a library is missing."""
    return str(row["reason"]).startswith("PyG itself")


def write_page(results: Mapping[str, object]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + page(results) + after, encoding="utf-8")


def merge(file: Path, found: Sequence[Found]) -> dict[str, object]:
    """What was found, with the rows of a file that were not asked for now, in the order of the groups."""
    old = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    new = {(one.group, one.name): asdict(one) for one in found}
    rows = {(row["group"], row["name"]): row for row in old} | new
    order = list(TITLES)
    return {
        "torch": version("torch"),
        "torch_geometric": version("torch_geometric"),
        "rows": sorted(rows.values(), key=lambda row: order.index(str(row["group"]))),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pyg",
        type=Path,
        metavar="FOLDER",
        default=os.environ.get("LIVEGNN_PYG"),
        help="a copy of PyG's repository; without it the examples are left out",
    )
    parser.add_argument("--only", metavar="NAME", help="the rows whose name begins so")
    parser.add_argument("--group", choices=("examples", "convolutions", "modules"))
    parser.add_argument("--json", type=Path, metavar="FILE", help="put what is found into FILE")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/models.md from FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    every: list[Found] = []
    results: dict[str, object] = {}
    for group, cases in rows(options.pyg and Path(options.pyg)).items():
        for name, case in cases.items():
            if (options.only and not name.startswith(options.only)) or options.group not in (None, group):
                continue
            started = time.perf_counter()
            found = apart(group, name, case)
            every.append(found)
            took = time.perf_counter() - started
            print(f"{took:5.1f} s  {found}", flush=True)
            if options.json:
                results = merge(options.json, every)
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.page:
        write_page(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
