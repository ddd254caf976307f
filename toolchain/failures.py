"""Why an installation or a build failed, in one line, from its whole output."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from re import Match, Pattern
from typing import NamedTuple


class Cause(NamedTuple):
    pattern: Pattern[str]
    say: Callable[[Match[str]], str]


def _cause(pattern: str, say: Callable[[Match[str]], str]) -> Cause:
    return Cause(re.compile(pattern), say)


_MEMORY = (
    "the machine is short of memory, which ended a compiler: end other programs, add swap, or compile fewer "
    "files at once with CMAKE_BUILD_PARALLEL_LEVEL=1"
)
_NO_INDEX = " or leave PIP_NO_INDEX unset," if os.environ.get("PIP_NO_INDEX") else ""
_NETWORK = (
    f"connect this machine to the network,{_NO_INDEX} or name an index that it reaches with PIP_INDEX_URL=..."
)

# The first that is found anywhere in the output is the reason: what follows from another stands after it.
_CAUSES = [
    _cause(
        r"No space left on device|Disk quota exceeded",
        lambda found: (
            f"no room on the disk ({found[0]}): free some, or name another folder for temporary files "
            "with TMPDIR=..."
        ),
    ),
    _cause(
        r"Killed signal terminated|virtual memory exhausted|out of memory alloc|std::bad_alloc|MemoryError",
        lambda found: _MEMORY,
    ),
    _cause(r"^\s*(livegnn needs .+)", lambda found: found[1]),  # toolchain/machine.cmake
    _cause(
        r"(\S+?):(\d+)(?::\d+)?: (?:fatal )?error: (.+)",
        lambda found: f"{_short(found[1])}:{found[2]}: {found[3]}",
    ),
    _cause(r"undefined reference to (.+)|ld returned \d+ exit status", lambda found: found[0]),
    _cause(r"CMake Error at (\S+)(?: \(.+\))?:(.*)", lambda found: f"{found[1]}: {found[2].strip()}"),
    _cause(
        r"requires a different Python: (\S+) not in '(.+?)'",
        lambda found: f"livegnn needs Python {found[2]}, found {found[1]}: name a newer one with PYTHON=...",
    ),
    _cause(
        r"Could not find a version that satisfies the requirement (.+?) \(from versions: (?!none)(.+)\)",
        lambda found: f"no index has {found[1]}, there is {found[2].split(', ')[-1]}",
    ),
    _cause(
        r"CERTIFICATE_VERIFY_FAILED|SSLCertVerificationError",
        lambda found: (
            f"the certificate of a package index is not trusted here ({found[0]}): "
            "name yours with PIP_CERT=..."
        ),
    ),
    _cause(
        r"(NewConnectionError|NameResolutionError|\w+TimeoutError|ProxyError|ProtocolError|Max retries).*",
        lambda found: f"packages cannot be downloaded ({_network_error(found)}): {_NETWORK}",
    ),
    _cause(
        r"Could not find a version that satisfies the requirement (.+?) \(from versions: none\)",
        lambda found: f"no package index that can be reached has {found[1]}: {_NETWORK}",
    ),
    _cause(
        r"\[Errno 13\] Permission denied: (\S+)|([^:\s]+): Permission denied",
        lambda found: f"no permission to write {found[1] or found[2]}",
    ),
    # Of an error of pip's own, a traceback, the last line says most.
    _cause(r"^\s*ERROR: (?!Exception:)(.+)", lambda found: found[1]),
]


def find_reason(log: Path) -> str:
    with log.open(encoding="utf-8", errors="replace") as lines:
        return reason(lines)


def reason(lines: Iterable[str]) -> str:
    first: dict[int, str] = {}
    last = "it wrote nothing"
    for line in _whole(lines):
        last = line.strip() or last
        for place, cause in enumerate(_CAUSES):
            if place not in first and (found := cause.pattern.search(line)):
                first[place] = cause.say(found)
                break
    text = first[min(first)] if first else last
    return re.sub("[\u2018\u2019]", "'", text)


def _whole(lines: Iterable[str]) -> Iterator[str]:
    """Lines, but an error of CMake's, a heading and a text of several lines, as one."""
    heading, text = "", []  # type: ignore[var-annotated]
    for line in lines:
        if re.match(r"\s*CMake Error at .*:$", line):
            heading, text = line.strip(), []
        elif not heading:
            yield line
        elif line.strip() and not line.strip().startswith("Call Stack"):
            text.append(line.strip())
        elif text:
            yield from _said_by_cmake(heading, " ".join(text))
            heading = ""
    if heading:
        yield from _said_by_cmake(heading, " ".join(text))


def _said_by_cmake(heading: str, text: str) -> Iterator[str]:
    yield text if text.startswith("livegnn needs ") else f"{heading} {text}"


def _network_error(found: Match[str]) -> str:
    inner = re.search(r"\[Errno -?\d+\] ([^\"')]+)|(timed out|Tunnel connection failed[^\"')]*)", found[0])
    return (inner[1] or inner[2]).strip() if inner else found[1]


def _short(path: str) -> str:
    here = f"{Path.cwd()}/"
    return path.removeprefix(here)
