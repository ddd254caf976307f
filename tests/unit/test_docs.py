"""What the pages say: snippets run, commands and options exist, links lead somewhere, every room is shown."""

import ast
import json
import re
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from livegnn.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {part for part in path.relative_to(ROOT).parts if part.startswith(".") or part == "build"}
)
CLI = typer.main.get_command(app)
assert isinstance(CLI, TyperGroup)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def code(text: str) -> str:
    """Code that is not Python: between backticks, in fenced blocks and in indented ones, line by line."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [block for language, block in fenced if language != "python"]
    return "\n".join(
        [*lines, *re.findall(r"`([^`\n]+)`", rest), *re.findall(r"^ {4}(.+)$", rest, re.MULTILINE)]
    )


def slug(heading: str) -> str:
    """The anchor of a heading, as on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


WITH_SNIPPETS = [page for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name)
def test_the_snippets_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one namespace a page, in order; what a `print` has in its comment is what it prints."""
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    module = ModuleType("snippet")  # PyG looks for the module of a class that is defined in a snippet
    monkeypatch.setitem(sys.modules, "snippet", module)
    namespace = vars(module)
    expected = []
    for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        first_line = text[: match.start(1)].count("\n")
        exec(compile("\n" * first_line + match[1], name(page), "exec"), namespace)
        expected += re.findall(r"\bprint\(.*\) +# (.+)$", match[1], re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == expected


def test_pages_with_snippets_are_known() -> None:
    assert {"README.md", "docs/engine.md", "docs/events.md", "docs/graph.md"} <= set(map(name, WITH_SNIPPETS))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{name(page)} links to {target}"


def test_every_guide_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)", read("docs/README.md")))
    assert linked == {path.name for path in DOCS.glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    text = code(page.read_text(encoding="utf-8"))
    for command, rest in re.findall(r"(?<![\w/.'-])livegnn (-*\w+)(.*)", text):
        if command.startswith("-"):
            assert command in {"--help", *options(CLI)}, f"{name(page)}: livegnn {command}"
            continue
        known = commands(CLI)
        if command not in known:  # a group of commands
            if not rest.split() and any(one.startswith(f"{command} ") for one in known):
                continue
            command = " ".join([command, *rest.split()[:1]])
        assert command in known, f"{name(page)}: livegnn {command}"
        for option in re.findall(r"--[\w-]+", rest):
            assert option in {"--help", *options(known[command])}, f"{name(page)}: livegnn {command} {option}"
    targets = set(re.findall(r"^([\w-]+):", read("Makefile"), re.MULTILINE))
    for target in re.findall(r"(?<![\w-])make ([\w-]+)", text):
        assert target in targets, f"{name(page)}: make {target}"


def test_help_shows_names_in_brackets() -> None:
    """Rich takes a name in brackets for markup, and leaves it out."""
    for command, definition in {"": CLI, **commands(CLI)}.items():
        texts = [definition.help, *(one.help for one in definition.params)]  # type: ignore[attr-defined]
        for text in texts:
            assert not re.search(r"(?<!\\)\[[a-z]", text or ""), f"livegnn {command} --help: {text}"


def options(command: object) -> dict[str, TyperOption]:
    """The options of a command by their spellings, but for --help, which all have."""
    parameters = [one for one in command.params if isinstance(one, TyperOption)]  # type: ignore[attr-defined]
    return {spelling: one for one in parameters for spelling in [*one.opts, *one.secondary_opts]}


def commands(group: object) -> dict[str, object]:
    """The commands of a group by their names, those of groups in it with the group's before theirs."""
    found: dict[str, object] = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            found |= {f"{name} {inner}": one for inner, one in commands(command).items()}
        else:
            found[name] = command
    return found


def default_of(option: TyperOption) -> str:
    return "" if option.default is None else f"`{option.default}`"


def test_every_option_is_documented_with_its_default() -> None:
    sections = re.findall(
        r"^## `livegnn ?([^`]*)`\n(.*?)(?=^## |\Z)", read("docs/cli.md"), re.MULTILINE | re.DOTALL
    )
    documented = {}
    for heading, body in sections:
        rows = re.findall(r"^\| ((?:`--?[\w-]+`(?:, )?)+) \| (.*?) ?\|", body, re.MULTILINE)
        documented[heading] = {
            option: default for some, default in rows for option in re.findall(r"--?[\w-]+", some)
        }
    expected = {"": {"--help": "", **dict.fromkeys(options(CLI), "")}}
    for command, definition in commands(CLI).items():
        parameters = definition.params  # type: ignore[attr-defined]
        arguments = [
            one.metavar or str(one.name).upper() for one in parameters if isinstance(one, TyperArgument)
        ]
        expected[" ".join([command, *arguments])] = {
            option: ("on" if made.default else "off") if made.is_flag else default_of(made)
            for option, made in options(definition).items()
        }
    assert documented == expected


def test_the_map_shows_every_module() -> None:
    shown = set(re.findall(r"`([\w./]+)`", read("docs/internals/map.md")))
    source = ROOT / "src" / "livegnn"
    assert {path.relative_to(source).as_posix() for path in source.rglob("*.py")} - shown == set()
    native = {name(path) for path in (ROOT / "cpp").rglob("*.*") if path.suffix in (".h", ".cc", ".cpp")}
    native = {path for path in native if not path.endswith("_test.cc")}
    assert native == {path for path in shown if path.startswith("cpp/") and not path.endswith("/")}


def test_the_map_shows_the_layers_as_they_are_checked() -> None:
    contract = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    assert " → ".join(f"`{layer}`" for layer in contract["layers"]) in read("ARCHITECTURE.md")


def test_torch_is_forbidden_in_each_package_but_two() -> None:
    layers = tomllib.loads(read("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]["layers"]
    packages = {f"livegnn.{one.strip()}" for layer in layers for one in layer.split("|")}
    (torch,) = tomllib.loads(read("toolchain/run_time_imports.toml"))["tool"]["importlinter"]["contracts"]
    assert set(torch["source_modules"]) == packages - {"livegnn.importers", "livegnn.training"}


PATHS = sorted((DOCS / "internals").glob("path-of-a-*.md"))
_NAMED_BY = {"module", "function", "where"}
"""The columns of tables that name modules, and after each of them functions in it."""


def file_of(module: str) -> Path:
    return ROOT / module if module.startswith("cpp/") else ROOT / "src" / "livegnn" / module


def defined_in(module: str) -> set[str]:
    """The names of the functions that a module defines: `function`, `Class.method`, `function.inner`."""
    text = read(file_of(module))
    if not module.endswith(".py"):
        return set(re.findall(r"^(?!(?:using|return|throw) )[\w:].*?\b([\w:]+)\(", text, re.MULTILINE))
    found = set()

    def visit(node: ast.AST, before: str) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                if not isinstance(inner, ast.ClassDef):
                    found.add(before + inner.name)
                visit(inner, f"{before}{inner.name}.")
            else:
                visit(inner, before)

    visit(ast.parse(text), "")
    return found


def wrong_names(text: str) -> list[str]:
    """The modules that a page names, and functions in its tables, that do not exist."""
    modules = set(re.findall(r"\b[a-z]\w*/[\w/]+\.(?:py|cc|h)\b", text))
    wrong = sorted(module for module in modules if not file_of(module).is_file())
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        header = (header or cells) if cells else []
        named = " ".join(cell for name, cell in zip(header, cells, strict=False) if name in _NAMED_BY)
        module = ""
        for one in re.findall(r"`([\w./:]+)`", named):
            if "/" in one:
                module = one
            elif module not in wrong and (not module or one not in defined_in(module)):
                wrong.append(f"{module} {one}")
    return wrong


@pytest.mark.parametrize("page", PATHS, ids=name)
def test_paths_name_functions_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^\| \d+ \| `", text, re.MULTILINE)) > 10
    assert wrong_names(text) == []
    assert f"](docs/internals/{page.name})" in read("ARCHITECTURE.md")


def test_a_wrong_name_on_a_path_is_found() -> None:
    assert len(PATHS) == 4
    table = "| step | module | function |\n|---|---|---|\n"
    rows = {
        "| 1 | `server/app.py` | `serve`, `ServerApplication.__call__` |": [],
        "| 1 | `server/app.py` | `ServerApplication.call` |": ["server/app.py ServerApplication.call"],
        "| 1 | `server/event_routes.py` | `add_event_routes.append_events` |": [],
        "| 1 | `server/apps.py` | `serve` |": ["server/apps.py"],
        "| 1 | `cpp/views/commit.cc` | `commit` |": [],
        "| 1 | `cpp/views/commit.cc` | `publish` |": ["cpp/views/commit.cc publish"],
    }
    assert {row: wrong_names(table + row) for row in rows} == rows
    assert wrong_names("```\nserver/app.py ─► server/apps.py\n```") == ["server/apps.py"]


def test_the_drift_tolerance_is_told() -> None:
    (tolerance,) = re.findall(r"kDriftTolerance = ([\d.e-]+)f;", read("cpp/inference/rounding/rounding.h"))
    assert f"`kDriftTolerance` ({tolerance})" in read("ARCHITECTURE.md")
    assert f"it passes {tolerance} of" in read("docs/engine.md")


def test_the_guide_to_the_demo_quotes_the_figures_of_the_model() -> None:
    worth = json.loads((files("livegnn.demo") / "data" / "bitcoin_otc.json").read_text(encoding="utf-8"))
    text = read("docs/demo.md")
    for figure in worth["figures"]:
        assert f"| {figure['name']} | {figure['roc_auc']:.3f} | {figure['average_precision']:.3f} |" in text
    assert (
        f"{worth['test']['ratings']:,} ratings, {worth['test']['negative_share']:.1%}".replace("%", " %")
        in text
    )


def test_the_changes_name_the_version() -> None:
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## {re.escape(version)}\b", read("CHANGELOG.md"), re.MULTILINE)
