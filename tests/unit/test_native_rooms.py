"""The rooms of the C++ core form layers: each includes itself and what is below it."""

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
CPP = ROOT / "cpp"

# From the top. Rooms of one layer do not know of each other.
LAYERS = (
    ("bindings", "fuzz"),
    ("presampling",),
    ("inference", "sampling"),
    ("views",),
    ("program", "store"),
    ("placement",),
    ("ids",),
    ("memory",),
    ("hashing", "json", "threads"),
)
# The folders of a room in the same way; "" stands for its files outside of folders. Tests may include all of
# their room.
FOLDERS = {
    "inference": (
        ("",),
        ("forward", "halo", "lazy"),
        ("propagation",),
        ("rounding",),
        ("rows",),
        ("edges", "evaluation"),
    ),
    "store": (("",), ("samtree",)),
    "presampling": (("",), ("cache", "shard", "view"), ("samples",), ("tables",)),
}
TESTING = "testing"  # what tests are written with, and knows of no room but the lowest
HEIGHTS = {room: height for height, rooms in enumerate(reversed(LAYERS)) for room in rooms}
FOLDER_HEIGHTS = {
    room: {folder: height for height, folders in enumerate(reversed(layers)) for folder in folders}
    for room, layers in FOLDERS.items()
}


def is_test(path: str) -> bool:
    return path.startswith(("fuzz/", f"{TESTING}/")) or path.endswith(("_test.cc", "_model.h"))


def folder_of(path: str) -> str:
    """The folder of a room in which a file is, "" at the top of the room."""
    return "/".join(path.split("/")[1:-1])


def is_upwards(path: str, included: str) -> bool:
    """Whether a file includes one of its room that is in no folder below its own. Tests may."""
    if is_test(path):
        return False
    heights = FOLDER_HEIGHTS.get(path.split("/", 1)[0], {"": 0})
    own, other = folder_of(path), folder_of(included)
    return own != other and heights[other] >= heights[own]


def complaints(sources: Mapping[str, str]) -> list[str]:
    """What is wrong with the includes of `sources`: texts, by paths below `cpp/`."""
    wrong = []
    for path, text in sorted(sources.items()):
        room = path.split("/")[0]
        height = 1 if room == TESTING else HEIGHTS[room]
        for included in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
            other = included.split("/")[0]
            if included not in sources:
                wrong.append(f'{path}: "{included}" is no header below cpp/; others are included as <...>')
            elif other == TESTING:
                if not is_test(path):
                    wrong.append(f"{path}: {included} is for tests")
            elif other != room and HEIGHTS[other] >= height:
                wrong.append(f"{path}: {included} is not below {room}")
            elif other == room and is_upwards(path, included):
                wrong.append(f"{path}: {included} is not below {room}/{folder_of(path)}")
            elif is_test(included) and not is_test(path):
                wrong.append(f"{path}: {included} is for tests")
    return wrong


def read_sources() -> dict[str, str]:
    return {
        path.relative_to(CPP).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(CPP.glob("*/**/*"))
        if path.suffix in (".h", ".cc", ".cpp")
    }


def test_rooms_include_what_is_below_them() -> None:
    sources = read_sources()
    assert {path.split("/")[0] for path in sources} == {*HEIGHTS, TESTING}
    for room in (*HEIGHTS, TESTING):
        folders = {folder_of(path) for path in sources if path.startswith(f"{room}/")}
        assert folders == set(FOLDER_HEIGHTS.get(room, {""}))
    assert complaints(sources) == []


def test_an_include_upwards_is_found() -> None:
    sources = {
        "store/graph.h": "",
        "store/graph_model.h": "",
        "testing/testing.h": "",
        "program/kernels.h": "",
        "memory/table.h": '#include <memory>\n#include "store/graph.h"\n',
        "program/steps.cc": '#include "program/kernels.h"\n#include "store/graph.h"\n',
        "store/graph.cc": "".join(
            f'#include "{header}"\n' for header in ("graph.h", "testing/testing.h", "store/graph_model.h")
        ),
        "store/graph_test.cc": '#include "testing/testing.h"\n#include "store/graph_model.h"\n',
        "inference/engine.h": "",
        "inference/engine_model.h": "",
        "inference/lazy/lazy.h": "",
        "inference/rows/rows.h": "",
        "inference/forward/pass.cc": '#include "inference/rows/rows.h"\n#include "inference/lazy/lazy.h"\n',
        "inference/rows/rows.cc": '#include "inference/rows/rows.h"\n#include "inference/engine.h"\n',
        "inference/rows/rows_test.cc": '#include "inference/engine_model.h"\n',
    }
    assert complaints(sources) == [
        "inference/forward/pass.cc: inference/lazy/lazy.h is not below inference/forward",
        "inference/rows/rows.cc: inference/engine.h is not below inference/rows",
        "memory/table.h: store/graph.h is not below memory",
        "program/steps.cc: store/graph.h is not below program",
        'store/graph.cc: "graph.h" is no header below cpp/; others are included as <...>',
        "store/graph.cc: testing/testing.h is for tests",
        "store/graph.cc: store/graph_model.h is for tests",
    ]


def test_the_map_shows_the_layers() -> None:
    for layers, page in ((LAYERS, "ARCHITECTURE.md"), (FOLDERS["inference"], "docs/internals/inference.md")):
        line = " → ".join("`" + (" | ".join(names) or ".") + "`" for names in layers)
        assert line in (ROOT / page).read_text(encoding="utf-8")


def test_every_room_is_built() -> None:
    text = (CPP / "CMakeLists.txt").read_text(encoding="utf-8")
    libraries = re.findall(r"^set\((?:store|core|presampling)_rooms (.*)\)$", text, re.MULTILINE)
    assert sorted(" ".join(libraries).split()) == sorted(set(HEIGHTS) - {"bindings", "fuzz"})


# What has no test of its own beside it, and why.
UNTESTED = {
    f"program/kernels_{name}.cc": "kernels_impl.h for one instruction set: kernels_test.cc runs all of them"
    for name in ("generic", "avx2", "avx512")
}


def test_every_source_has_its_test() -> None:
    sources = read_sources()
    without = {
        path
        for path in sources
        if path.endswith(".cc") and not is_test(path) and not path.startswith("bindings/")
        if f"{path.removesuffix('.cc')}_test.cc" not in sources
    }
    assert without == set(UNTESTED)


def test_models_have_names_of_their_own() -> None:
    """The linker keeps one of two inline variables, or of two types' functions, of one name."""
    owners: dict[str, list[str]] = {}
    for path, text in read_sources().items():
        if not path.endswith("_model.h"):
            continue
        namespace = re.findall(r"^namespace ([\w:]+)", text, re.MULTILINE)[-1].removeprefix("livegnn::")
        for variable, type_ in re.findall(
            r"^(?:inline const\S* .*?\b(k\w+)|(?:struct|class) (\w+))", text, re.MULTILINE
        ):
            owners.setdefault(f"{namespace}::{variable}{type_}", []).append(path)
    assert {name: paths for name, paths in owners.items() if len(paths) > 1} == {}
