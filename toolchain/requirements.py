"""What LiveGNN needs of the machine that builds it.

Each check returns one line (what is needed, what was found, what to do), or None where nothing is missing.
Python 3.6 must understand this file, so that whoever has an old Python hears at once what else is missing.
"""

import errno
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Iterable, List, Mapping, Optional

import resources

ROOT = Path(__file__).resolve().parent.parent
PROBE = Path("toolchain", "cxx20.cc")
COMPILERS = ("c++", "g++", "clang++")  # the order in which CMake looks for one
COMPILER_NEED = "livegnn needs a compiler for C++20 (GCC 11, Clang 14, or newer)"


def missing(aim: str) -> List[Optional[str]]:
    """Everything that keeps `make demo` or `make test` (`aim`) from working here."""
    lines = [missing_plain_folder(ROOT)]
    headers = None
    if sys.version_info >= (3, 11):  # otherwise these are another Python's
        headers = sysconfig.get_paths()["include"]
        lines.append(missing_headers(headers))
        if lines[-1]:
            headers = None
        if sys.prefix == sys.base_prefix:  # in an environment, none has to be made any more
            lines.append(missing_modules())
    lines.append(missing_compiler(os.environ, headers))
    lines += [unwritable(folder) for folder in (ROOT, ROOT / ".venv", ROOT / "build") if folder.exists()]
    lines.append(resources.missing_memory(resources.read_memory()))
    lines += resources.missing_room(aim, ROOT)
    return lines


def missing_plain_folder(folder: Path) -> Optional[str]:
    """The letters that make, CMake, ninja and the shell read as their own, or that no PATH can name."""
    found = [letter for letter in '":;$#%\\`\n' if letter in str(folder)]
    if not found:
        return None
    return (
        f"livegnn needs a folder whose name the build tools do not read as their own, found "
        f"{' and '.join(map(repr, found))} in {str(folder)!r}: move the sources to another"
    )


def missing_modules() -> Optional[str]:
    """Of the standard library, of which Debian and Ubuntu make several packages."""
    found = {name: importlib.util.find_spec(name) for name in ("venv", "ensurepip")}
    # A folder that is left without the module's files has no origin.
    absent = [name for name, spec in found.items() if spec is None or spec.origin is None]
    if not absent:
        return None
    return (
        f"livegnn needs Python's modules venv and ensurepip, {sys.executable} lacks {' and '.join(absent)}: "
        f"install them (on Debian and Ubuntu the package {_python()}-venv)"
    )


def missing_headers(folder: str) -> Optional[str]:
    if Path(folder, "Python.h").is_file():
        return None
    return (
        f"livegnn needs the headers of {_python()}, found no Python.h in {folder}: "
        f"install them (on Debian and Ubuntu the package {_python()}-dev, on Fedora python3-devel)"
    )


def missing_compiler(environment: Mapping[str, str], headers: Optional[str]) -> Optional[str]:
    """headers: the folder of Python.h, which is then compiled too."""
    command = shlex.split(environment.get("CXX", ""))
    path = environment.get("PATH", os.defpath)
    if not command:
        command = [name for name in COMPILERS if shutil.which(name, path=path)][:1]
        if not command:
            return (
                f"{COMPILER_NEED}, found none of {', '.join(COMPILERS)} on PATH: "
                "install one (on Debian and Ubuntu the package g++), or name it with CXX=..."
            )
    if shutil.which(command[0], path=path) is None:
        return (
            f"{COMPILER_NEED}, CXX names {command[0]}, which is not a program here: "
            "name another, or leave CXX unset"
        )
    probe = [str(PROBE), "-std=c++20", "-fsyntax-only"]
    if headers is not None:
        probe += ["-DLIVEGNN_PYTHON_HEADERS", "-isystem", headers]
    flags = shlex.split(environment.get("CXXFLAGS", ""))
    status, output = _run([*command, *flags, *probe], environment)
    if status == 0:
        return None
    found = f"found {_version(command, environment)}, which says {_first_error(output)!r}"
    if flags and _run([*command, *probe], environment)[0] == 0:
        return f"{COMPILER_NEED}, {found} with CXXFLAGS={' '.join(flags)}: leave CXXFLAGS unset, or mend it"
    return f"{COMPILER_NEED}, {found}: install a newer one, or name it with CXX=..."


def unwritable(folder: Path) -> Optional[str]:
    try:
        with tempfile.TemporaryFile(dir=str(folder)):
            return None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return None  # room is another check
        return (
            f"livegnn writes its environment and its builds below {ROOT}, cannot write into {folder} "
            f"({error.strerror}): give yourself the permission, or copy the sources to a folder of yours"
        )


def _python() -> str:
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _run(command: List[str], environment: Mapping[str, str]) -> "tuple[int, str]":
    # In English, whatever the user's language.
    environment = {**environment, "LC_ALL": "C"}
    try:
        child = subprocess.Popen(
            command,
            cwd=str(ROOT),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return 1, str(error)
    output = child.communicate()[0]
    return child.returncode, output.decode("utf-8", "replace")


def _version(command: List[str], environment: Mapping[str, str]) -> str:
    """As in `g++ 8.3.0`."""
    first = _run([*command, "--version"], environment)[1].partition("\n")[0]
    # What a distribution calls its own version stands in parentheses.
    number = re.search(r"\d+\.\d+[.\d]*", re.sub(r"\(.*?\)", "", first))
    name = "clang" if "clang" in first else Path(command[0]).name
    return f"{name} {number.group()}" if number else f"{name} of an unknown version"


def _first_error(output: str) -> str:
    lines: Iterable[str] = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), next(iter(lines), "nothing"))
