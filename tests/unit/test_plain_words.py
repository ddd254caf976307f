"""Pages are in plain English: phrases that are hard to read in a second language are refused.

Docstrings of the package and the messages of its errors are searched too. Code is not: fenced and indented
blocks, and text between backticks.
"""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = {"benchmarks/results/results.md", "benchmarks/results/xeon/results.md", "tests/practitioners.md"}
"""Pages that programs write: their sentences are titles of benchmarks and messages of errors."""
PAGES = sorted(
    page
    for path in ROOT.rglob("*.md")
    if not {part for part in path.relative_to(ROOT).parts if part.startswith(".") or part == "build"}
    and (page := path.relative_to(ROOT).as_posix()) not in PROGRAMS
)


class Phrase(NamedTuple):
    """A space in `pattern` stands for any white space. It finds `old`; `plain` is the same, rewritten."""

    pattern: str
    reason: str
    old: str
    plain: str


class Finding(NamedTuple):
    line: int
    text: str
    phrase: Phrase


START: Final = r"(?:^[#*|\-\x20]*|[.!?:|] |\*\* )"
"""The start of a sentence, a heading or a cell of a table. Case counts in patterns that begin with it."""

PHRASES: Final = [
    Phrase(
        START + r"(?:What|Who|Whom|Whose|Whoever|Whatever)\b(?! if\b)(?![^.?!|\n]*\?)",
        "a clause is the subject: name the thing",
        "What is no HTTP never reaches the application.",
        "Requests that are not valid HTTP never reach the application.",
    ),
    Phrase(
        START + r"Of\b",
        "the subject comes late: begin with it",
        "Of requests, a few bytes for each start of a worker stay.",
        "The stream keeps a few bytes for each start of a worker.",
    ),
    Phrase(
        r"\b(?:of|in|by|with|from|to|as|for|than|on|is|are) what\b",
        "a clause stands for a noun: name the thing",
        "It differs from what the store returns.",
        "It differs from the rows of the store.",
    ),
    Phrase(
        r"\bwhat (?:is|was) left\b",
        "a clause stands for a noun: name the rest",
        "At the end, what is left is read.",
        "At the end, the remaining bytes are read.",
    ),
    Phrase(
        r"\bwhatever\b", "vague: say 'any', with its noun", "It works whatever the size.", "Any size works."
    ),
    Phrase(
        r"\bwho (?:asks|needs|wants|reads|has|only)\b",
        "'who' without a noun: say 'you', 'a client', 'a reader'",
        "Or who only samples says so.",
        "If you only sample, set this option.",
    ),
    Phrase(
        r"\b(?:for|from|of|those|to|with) whom\b",
        "old style: use a noun and 'that'",
        "those whom it serves",
        "the clients that it serves",
    ),
    Phrase(
        r"\b(?:nobody|somebody|someone|whoever)\b",
        "a person in place of the caller, the client or the process",
        "Nothing runs while nobody asks.",
        "No worker runs while there are no requests.",
    ),
    Phrase(
        r"\bthe ones? (?:before|after|behind)\b",
        "name the thing that is before or after",
        "Predictions stay on the one before.",
        "Predictions stay on the previous snapshot.",
    ),
    Phrase(
        r"\bthose of (?:it|them|these)\b",
        "two words that point elsewhere: repeat the noun",
        "It reads those of it.",
        "It reads the rows of the base.",
    ),
    Phrase(
        r"\bthat with\b",
        "a noun is left out: repeat it",
        "of parallel edges, that with the key",
        "the edge with the given key",
    ),
    Phrase(
        r"(?<!there) (?:is|are|was|were) no\b",
        "say 'is not', or 'has no'",
        "An edge that does not exist is no error.",
        "An edge that does not exist is not an error.",
    ),
    Phrase(r"\bso many\b", "say the number", "after so many seconds", "after this number of seconds"),
    Phrase(r"\banew\b", "say 'again', or use 're-'", "It is summed anew.", "It is summed again."),
    Phrase(r"\bas ever\b", "say 'still', or nothing", "It is refused as ever.", "It is still refused."),
    Phrase(
        r"\bon the way\b",
        "an idiom: say during which step",
        "It is never on the way of a batch.",
        "It is never called while a batch is applied.",
    ),
    Phrase(r"\bin the place of\b", "say 'instead of'", "in the place of a list", "instead of a list"),
    Phrase(r"\bbut for\b", "say 'except'", "All but for the last.", "All except the last."),
    Phrase(r"\ball the same\b", "say 'still'", "It is kept all the same.", "It is still kept."),
    Phrase(
        r"\b(?:gives?|gave|given) (?:it |them |that )?back\b",
        "say 'releases' or 'frees'",
        "Memory is given back.",
        "Memory is released.",
    ),
    Phrase(
        r"\bgiven out\b",
        "say 'used' or 'assigned'",
        "Indices are given out again.",
        "Indices are reused.",
    ),
    Phrase(
        r"\b(?:comes?|coming|came)\b",
        "things do not walk: they are added, received, returned, read or called",
        "An edge comes.",
        "An edge is added.",
    ),
    Phrase(
        r"\b(?:goes|went|gone)\b",
        "things do not walk: they are removed, sent, written, continued or changed",
        "A node goes.",
        "A node is removed.",
    ),
    Phrase(r"\b(?:dies|died)\b", "say 'ends', 'crashes' or 'is lost'", "A worker dies.", "A worker crashes."),
    Phrase(
        r"\b(?:gives?|gave) way\b",
        "say 'is evicted', 'is removed' or 'waits'",
        "The cache gives way.",
        "The cache is evicted.",
    ),
    Phrase(r"\bbelie(?:ve|ves|ved)\b", "say 'accepts' or 'uses'", "It is not believed.", "It is rejected."),
    Phrase(
        r"\b(?:is|are|was|were|be|been) told\b",
        "say 'receives', 'is notified' or 'is called'",
        "All are told of it.",
        "All subscribers are called.",
    ),
    Phrase(
        r"\btells?\b",
        "say 'names', 'shows', 'returns' or 'describes'",
        "It tells the size.",
        "It returns it.",
    ),
    Phrase(
        r"\b(?:is|are|was|were|be|been) asked\b|\basks\b",
        "say 'is called', 'is read', 'requests' or 'on request'",
        "It is computed when it is asked for.",
        "It is computed on request.",
    ),
    Phrase(
        r"\b(?:hears?|speaks?) of\b", "say 'receives' or 'refers to'", "It speaks of it.", "It refers to it."
    ),
    Phrase(r"\bspoil(?:s|ed|ing)?\b", "say 'damaged'", "A spoiled row.", "A damaged row."),
    Phrase(r"\bknobs?\b", "say 'setting'", "The knobs of the store.", "The settings of the store."),
]

CLAUSE: Final = Phrase(
    r"\A(?:How|Where|Which|Whose)\b",
    "a docstring begins with a clause: name the thing",
    "How many requests wait.",
    "The number of requests that wait.",
)
"""Refused at the beginning of a docstring alone, beside `PHRASES`."""


def compiled(phrase: Phrase) -> re.Pattern[str]:
    flags = re.MULTILINE if phrase.pattern.startswith(START) else re.MULTILINE | re.IGNORECASE
    return re.compile(phrase.pattern.replace(" ", r"\s+"), flags)


PATTERNS = [(compiled(phrase), phrase) for phrase in PHRASES]


def prose(text: str) -> str:
    """The text with code and the targets of links as blanks, line by line as it was."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_", match[0])

    text = re.sub(r"^```.*?^```", blank, text, flags=re.MULTILINE | re.DOTALL)
    for code in (r"^ {4}.*$", r"`[^`\n]+`", r"(?<=\])\([^)\s]*\)"):
        text = re.sub(code, blank, text, flags=re.MULTILINE)
    return text


def findings(text: str) -> Iterator[Finding]:
    text = prose(text)
    for pattern, phrase in PATTERNS:
        for match in pattern.finditer(text):
            yield Finding(text.count("\n", 0, match.end()) + 1, " ".join(match[0].split()), phrase)


def complaints(page: str, text: str, first_line: int = 1) -> list[str]:
    """One for each finding: page and line, the phrase, why it is refused, and an example of the plain way."""
    return [
        complaint(page, first_line - 1 + line, found, phrase)
        for line, found, phrase in sorted(findings(text))
    ]


def complaint(page: str, line: int, found: str, phrase: Phrase) -> str:
    return f"{page}:{line}: {found!r}: {phrase.reason}; not {phrase.old!r} but {phrase.plain!r}"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_in_plain_words(page: str) -> None:
    found = complaints(page, read(page))
    assert not found, "\n" + "\n".join(found)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, its classes and functions, each with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found = ast.get_docstring(node)
            if found:
                yield node.body[0].lineno, found


def complaints_of_docstrings(path: str, text: str) -> list[str]:
    found = []
    for line, docstring in docstrings(text):
        found += complaints(path, docstring, line)
        first = compiled(CLAUSE).match(docstring)
        if first:
            found.append(complaint(path, line, first[0], CLAUSE))
    return found


def messages(text: str) -> Iterator[tuple[int, str]]:
    """The texts in the `raise` statements of a module, each with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from texts(node.exc)


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The string constants and f-strings of an expression; a value in an f-string is `_` in its text."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node.value
        return
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.JoinedStr):
        joined = [str(part.value) if isinstance(part, ast.Constant) else "_" for part in parts]
        yield node.lineno, "".join(joined)
        parts = [part for part in parts if not isinstance(part, ast.Constant)]
    for part in parts:
        yield from texts(part)


def complaints_of_messages(path: str, text: str) -> list[str]:
    return [one for line, message in messages(text) for one in complaints(path, message, line)]


def check_package(complaints_of: Callable[[str, str], list[str]]) -> None:
    """Fails if there is a complaint of a module, given its path and text."""
    found = [
        one
        for path in sorted(ROOT.glob("src/livegnn/**/*.py"))
        for one in complaints_of(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert not found, "\n".join([f"{len(found)} findings:", *found])


def test_docstrings_are_plain() -> None:
    check_package(complaints_of_docstrings)


def test_messages_are_plain() -> None:
    check_package(complaints_of_messages)


def test_a_docstring_is_searched_where_it_is() -> None:
    text = '"""A graph."""\n\n\ndef count():\n    """How many nodes.\n\n    Summed anew.\n    """\n'
    assert [one.split(": ")[:2] for one in complaints_of_docstrings("graph.py", text)] == [
        ["graph.py:7", "'anew'"],
        ["graph.py:5", "'How'"],
    ]


def test_a_message_is_searched_where_it_is() -> None:
    text = (
        'def check(n):\n    note = "summed anew"\n    raise ValueError(\n'
        '        f"{n} is " f"no number: {name(n) or \'all the same\'}, `anew`" + "; it goes"\n    )\n'
    )
    assert [one.split(": ")[:2] for one in complaints_of_messages("graph.py", text)] == [
        ["graph.py:4", "'is no'"],
        ["graph.py:4", "'all the same'"],
        ["graph.py:4", "'goes'"],
    ]


@pytest.mark.parametrize("phrase", [*PHRASES, CLAUSE], ids=lambda phrase: phrase.old)
def test_a_phrase_is_found_and_its_plain_form_is_not(phrase: Phrase) -> None:
    assert compiled(phrase).search(phrase.old)
    assert not list(findings(phrase.plain))


def test_a_complaint_names_page_line_phrase_and_plain_way() -> None:
    text = "# Engine\n\nThe sum is computed\nanew, `anew`.\n\n```\nanew\n```\n"
    assert complaints("docs/x.md", text) == [
        "docs/x.md:4: 'anew': say 'again', or use 're-'; not 'It is summed anew.' but 'It is summed again.'"
    ]


def test_questions_and_what_if_are_not_found() -> None:
    assert not list(
        findings("What should you do then? Read on.\n\n## What if\n\nWhat if an edge is added?\n")
    )
