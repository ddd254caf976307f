"""No function and no file of `src/` and `cpp/` is longer than a limit, but those of `EXCEPTIONS`.

A longer one usually holds two concepts. A function is counted from its first line to its last, without its
docstring; a C++ file is read as clang-format leaves it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

FILE_LINES = 500
FUNCTION_LINES = {".py": 60, ".cc": 70, ".cpp": 70, ".h": 70}

# A path, or a path and a function, with what makes it longer. One that is not too long any more fails.
STEPS = "steps that follow each other, each on what the one before made"
ROUTES = "routes, each a short function of its own inside"
TESTS = "tests of one structure, each short"
EXCEPTIONS = {
    "src/livegnn/cli/__init__.py import_model": STEPS,
    "src/livegnn/graph/construction.py read_pyg": STEPS,
    "src/livegnn/compiler/lowering.py _lower_messages": STEPS,
    "src/livegnn/compiler/lowering.py _lower_propagate": STEPS,
    "src/livegnn/compiler/plan.py Plan._build": STEPS,
    "src/livegnn/importers/arguments/arguments.py find_arguments": STEPS,
    "src/livegnn/server/event_routes.py add_event_routes": ROUTES,
    "src/livegnn/server/routes.py create_routes": ROUTES,
}


class Function(NamedTuple):
    name: str
    first: int  # lines, from 1
    last: int
    docstring: int = 0  # lines of it

    @property
    def lines(self) -> int:
        return self.last - self.first + 1 - self.docstring


TOKENS = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | R"\(.*?\)" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' | ^\#(?:\\\n|[^\n])*"""
    r"| [{};()]",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
TYPE_PARAMETERS = re.compile(r"<[^<>]*>")


def functions_in_cpp(text: str) -> Iterator[Function]:
    """Functions of namespaces and classes; those inside others are counted with them."""
    text = re.sub(r"(?<=\d)'(?=\d)", "_", text)  # 100'000
    # Comments, literals and directives become blanks, as long as they were, and with their lines.
    text = TOKENS.sub(lambda m: m[0] if len(m[0]) == 1 else re.sub(r"[^\n]", " ", m[0]), text)
    scopes: list[
        tuple[int, str]
    ] = []  # where a function begins, and its name; or where what it is in begins, and ""
    parentheses, begin = 0, 0
    for token in re.finditer(r"[{};()]", text):
        within = any(name for _, name in scopes)
        if token[0] == "(":
            parentheses += 1
        elif token[0] == ")":
            parentheses -= 1
        elif token[0] == "{":
            name = "" if within or parentheses else name_in(text[begin : token.start()])
            scopes.append((token.start() - len(text[begin : token.start()].lstrip()), name))
        elif token[0] == "}":
            start, name = scopes.pop()
            if name:
                yield Function(name, text.count("\n", 0, start) + 1, text.count("\n", 0, token.start()) + 1)
        if token[0] in "{}" or (token[0] == ";" and parentheses == 0):
            begin = token.end()
    assert not scopes


def name_in(head: str) -> str:
    """Of the function whose body follows `head`; empty where something else follows."""
    while head != (shorter := TYPE_PARAMETERS.sub("", head)):
        head = shorter
    head = re.sub(r"^\s*(template\s*)+", "", head).strip()
    if re.match(r"(inline )?namespace\b|(class|struct|union|enum)\b[^()]*$", head) or head.endswith("="):
        return ""
    found = re.search(r"(TEST\(\w+\))|(operator(?:\(\)|[^\s\w(]+)|[\w:~]+)\s*\(", head)
    return (found[1] or found[2]) if found else ""


def functions_in_python(text: str) -> Iterator[Function]:
    def within(node: ast.AST, names: str) -> Iterator[Function]:
        for child in ast.iter_child_nodes(node):
            inner = names
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{names}{child.name}."
                if not isinstance(child, ast.ClassDef):
                    docstring = 0
                    if ast.get_docstring(child) is not None:
                        docstring = child.body[0].end_lineno - child.body[0].lineno + 1
                    yield Function(inner[:-1], child.lineno, child.end_lineno, docstring)
            yield from within(child, inner)

    yield from within(ast.parse(text), "")


def functions_in(path: Path) -> Iterator[Function]:
    text = path.read_text(encoding="utf-8")
    return functions_in_python(text) if path.suffix == ".py" else functions_in_cpp(text)


def sources() -> list[Path]:
    found = [path for folder in ("src", "cpp") for path in (ROOT / folder).rglob("*.*")]
    return sorted(path for path in found if path.suffix in FUNCTION_LINES)


def test_functions_and_files_are_short() -> None:
    long = {}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if (lines := path.read_text(encoding="utf-8").count("\n")) >= FILE_LINES:
            long[name] = lines
        for function in functions_in(path):
            if function.lines > FUNCTION_LINES[path.suffix]:
                long[f"{name} {function.name}"] = function.lines
    assert {name: lines for name, lines in long.items() if name not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - long.keys() == set(), "these are short: take them out of EXCEPTIONS"


CPP = """
namespace livegnn {
namespace {  // a remark with a { brace

const int kNumbers[] = {1'000, 2};

template <class Key, class Value = Map<Key, int>>
struct Table : Base<Key> {
  explicit Table(size_t n)
      : n_(n), text_("}") {
    grow('{');
  }
  bool operator()(int a) const { return a < kNumbers[0]; }
};

}  // namespace

template <class T>
std::vector<T> Graph::read(
    const T& from, void (*visit)(int)) {
  auto inner = [&](int i) {
    return i;
  };
  for (int i = 0; i < 2; ++i) {
    if (inner(i)) visit(i);
  }
  /* } */
}

TEST(reads) {
  CHECK(true);
}

}  // namespace livegnn
"""

PYTHON = """
class Reader:
    def read(self) -> int:
        \"\"\"Of a file:

        one row a line.
        \"\"\"
        def inner() -> int:
            return 1

        return inner()
"""


def test_functions_are_found() -> None:
    assert [(name, last - first + 1) for name, first, last, _ in functions_in_cpp(CPP)] == [
        ("Table", 4),
        ("operator()", 1),
        ("Graph::read", 11),
        ("TEST(reads)", 3),
    ]
    assert [(function.name, function.lines) for function in functions_in_python(PYTHON)] == [
        ("Reader.read", 5),
        ("Reader.read.inner", 2),
    ]
