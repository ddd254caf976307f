"""What a machine that lacks something hears before LiveGNN is built on it, and while it is."""

import ast
import os
import platform
import pty
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLCHAIN = ROOT / "toolchain"
sys.path.insert(0, str(TOOLCHAIN))

import failures  # noqa: E402
import machine  # noqa: E402
import requirements  # noqa: E402
import resources  # noqa: E402
import steps  # noqa: E402

GB = 10**9


def _why_no_namespaces() -> str | None:
    if shutil.which("unshare") is None:
        return "there is no unshare"
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True)
    return tried.stderr or None


_WHY_NOT = _why_no_namespaces()
needs_namespaces = pytest.mark.skipif(
    _WHY_NOT is not None, reason=f"namespaces are forbidden here: {_WHY_NOT}"
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the toolchain alone, which may be mounted over."""
    shutil.copytree(TOOLCHAIN, tmp_path / "checkout" / "toolchain")
    return tmp_path / "checkout"


def ask(
    root: Path = ROOT, *, python: str = sys.executable, before: str = "true", **environment: str
) -> tuple[int, list[str]]:
    """The status of machine.py and what it says. before: a command in a mount namespace of its own."""
    command = [python, str(root / "toolchain" / "machine.py"), "demo"]
    if before != "true":
        command = ["unshare", "-rm", "sh", "-ec", f'{before}; exec "$@"', "sh", *command]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


# -- before anything is installed ----------------------------------------------------------------------------


def test_a_machine_that_lacks_nothing_hears_nothing() -> None:
    assert ask() == (0, [])


def old_pythons() -> list[str]:
    """Those that this machine has, one of each version."""
    found = (
        Path.home().glob(f".pyenv/versions/{version}.*/bin/python") for version in ("2.7", "3.6", "3.10")
    )
    return [str(paths[0]) for one in found if (paths := sorted(one))]


@pytest.mark.parametrize("python", old_pythons())
def test_an_old_python_is_told_in_one_line(python: str) -> None:
    status, (line,) = ask(python=python)
    assert status == 1
    assert line.startswith("livegnn needs Python 3.11 or newer, found ")
    assert line.endswith(f"({python}): name a newer one with PYTHON=...")


def test_an_old_python_understands_what_tells_it() -> None:
    assert machine.old_python((3, 11, 0, "final", 0), "python3") is None
    said = machine.old_python((3, 10, 13, "final", 0), "/usr/bin/python3")
    assert said == (
        "livegnn needs Python 3.11 or newer, found 3.10.13 (/usr/bin/python3): "
        "name a newer one with PYTHON=..."
    )
    for name in ("machine", "requirements", "resources"):
        ast.parse((TOOLCHAIN / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 6))


NEED = "livegnn needs a compiler for C++20 (GCC 11, Clang 14, or newer), "


def test_no_compiler(tmp_path: Path) -> None:
    status, (line,) = ask(PATH=str(tmp_path), CXX="")
    assert status == 1
    assert line == (
        f"{NEED}found none of c++, g++, clang++ on PATH: "
        "install one (on Debian and Ubuntu the package g++), or name it with CXX=..."
    )


def test_a_named_compiler_that_is_not_there() -> None:
    status, (line,) = ask(CXX="ccache-of-mine g++")
    assert status == 1
    assert (
        line
        == f"{NEED}CXX names ccache-of-mine, which is not a program here: name another, or leave CXX unset"
    )


OLD_COMPILER = """#!/bin/sh
case "$*" in
  *--version*) echo "g++ (Debian 8.3.0-6) 8.3.0" ;;
  *-std=c++20*) echo "g++: error: unrecognized command line option '-std=c++20'" >&2; exit 1 ;;
  *) exec c++ "$@" ;;
esac
"""


@pytest.fixture
def old_compiler(tmp_path: Path) -> str:
    path = tmp_path / "g++"
    path.write_text(OLD_COMPILER)
    path.chmod(0o755)
    return str(path)


def test_an_old_compiler(old_compiler: str) -> None:
    status, (line,) = ask(CXX=old_compiler)
    assert status == 1
    assert line == (
        f"{NEED}found g++ 8.3.0, which says \"g++: error: unrecognized command line option '-std=c++20'\": "
        "install a newer one, or name it with CXX=..."
    )


def test_a_compiler_without_its_library() -> None:
    status, (line,) = ask(CXX="c++ -nostdinc++")
    assert status == 1
    assert line.startswith(f"{NEED}found c")
    assert "error: atomic: No such file or directory" in line


def test_flags_that_the_compiler_does_not_take() -> None:
    status, (line,) = ask(CXXFLAGS="-O1 -fno-such-flag")
    assert status == 1
    assert line.startswith(f"{NEED}found c")
    assert line.endswith(" with CXXFLAGS=-O1 -fno-such-flag: leave CXXFLAGS unset, or mend it")


@pytest.mark.parametrize("letter", ['"', ":", ";", "$", "\\"])
def test_a_folder_that_the_build_tools_misread(letter: str, checkout: Path) -> None:
    moved = checkout.rename(checkout.with_name(f"mine{letter}"))
    status, (line,) = ask(moved)
    assert status == 1
    assert line == (
        "livegnn needs a folder whose name the build tools do not read as their own, "
        f"found {letter!r} in {str(moved)!r}: move the sources to another"
    )


def test_no_headers_of_python(tmp_path: Path) -> None:
    assert requirements.missing_headers(str(tmp_path)).startswith("livegnn needs the headers of python3.")
    (tmp_path / "Python.h").write_text("#error these are compiled, too\n")
    assert requirements.missing_headers(str(tmp_path)) is None
    said = requirements.missing_compiler({**os.environ, "CXX": "c++"}, str(tmp_path))
    assert said is not None
    assert "these are compiled, too" in said


@needs_namespaces
def test_a_python_that_comes_in_several_packages(tmp_path: Path) -> None:
    base = Path(sys._base_executable).resolve()
    found = subprocess.check_output(
        [
            base,
            "-c",
            "import ensurepip, sysconfig; print(ensurepip.__path__[0], sysconfig.get_path('include'))",
        ],
        text=True,
    ).split()
    hidden = "; ".join(f"mount --bind {tmp_path} {folder}" for folder in found)
    status, lines = ask(python=str(base), before=hidden)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert status == 1
    headers, modules = lines
    assert headers == (
        f"livegnn needs the headers of {version}, found no Python.h in {found[1]}: install them "
        f"(on Debian and Ubuntu the package {version}-dev, on Fedora python3-devel)"
    )
    assert modules == (
        f"livegnn needs Python's modules venv and ensurepip, {base} lacks ensurepip: "
        f"install them (on Debian and Ubuntu the package {version}-venv)"
    )


@needs_namespaces
def test_a_folder_without_permission(checkout: Path) -> None:
    status, (line,) = ask(
        checkout, before=f"mount --bind {checkout} {checkout}; mount -o remount,ro,bind {checkout}"
    )
    assert status == 1
    assert line == (
        f"livegnn writes its environment and its builds below {checkout}, cannot write into {checkout} "
        "(Read-only file system): give yourself the permission, or copy the sources to a folder of yours"
    )


@needs_namespaces
def test_a_full_disk(checkout: Path) -> None:
    shutil.copytree(checkout / "toolchain", checkout.parent / "toolchain")
    status, (line,) = ask(
        checkout,
        before=f"mount -t tmpfs -o size=1m none {checkout}; cp -r {checkout.parent}/toolchain {checkout}",
    )
    assert status == 1
    assert line.startswith(f"livegnn needs 190.0 MB of room on the disk in {checkout}, found ")
    assert "kB: free some, or use another disk" in line


def test_room_is_needed_once_for_folders_of_one_disk() -> None:
    folders = [(Path("/here"), 2 * GB), (Path("/tmp"), GB)]
    assert resources.short_of_room(folders, 3 * GB) is None
    said = resources.short_of_room(folders, 3 * GB - 1)
    assert said is not None
    assert said.startswith("livegnn needs 3.0 GB of room on the disk in /here and /tmp, found 3.0 GB: ")


def test_what_is_installed_needs_no_room_again(tmp_path: Path) -> None:
    def needed(aim: str) -> list[Path]:
        return [folder for folder, _ in resources.list_needs(aim, tmp_path, Path("/tmp"))]

    venv = tmp_path / ".venv"
    venv.mkdir()
    assert needed("test") == needed("demo") == [tmp_path, Path("/tmp")]
    (venv / "installed-demo").touch()
    assert (needed("test"), needed("demo")) == ([tmp_path, Path("/tmp")], [tmp_path])
    (venv / "installed-test").touch()
    assert needed("test") == needed("demo") == [tmp_path]


@needs_namespaces
def test_too_little_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 900000 kB\nMemAvailable: 400000 kB\nSwapFree: 100000 kB\n")
    status, (line,) = ask(before=f"mount --bind {tmp_path}/meminfo /proc/meminfo")
    assert status == 1
    assert line == (
        "livegnn needs 1.1 GB of memory to be compiled, found 512.0 MB: end other programs, or add swap"
    )


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemAvailable: 8000000 kB\nSwapFree: 2000000 kB\n")
    return tmp_path / "proc"


def test_memory_without_limits(proc: Path, tmp_path: Path) -> None:
    there = resources.Memory(8_192_000_000, 2_048_000_000)
    assert resources.read_memory(str(proc), str(tmp_path / "cgroups")) == there
    group(
        tmp_path / "cgroups" / "mine", memory__max="max", memory__current="5", memory__stat="inactive_file 1"
    )
    (proc / "self" / "cgroup").write_text("0::/mine\n")
    assert resources.read_memory(str(proc), str(tmp_path / "cgroups")) == there
    assert resources.read_memory(str(tmp_path / "nowhere")) is None
    assert resources.missing_memory(None) is None


def test_memory_under_the_limit_of_a_cgroup_above(proc: Path, tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroups"
    (proc / "self" / "cgroup").write_text("1:name=systemd:/\n0::/pod/mine\n")
    stat = "anon 7\nactive_file 100000000\ninactive_file 200000000"
    group(cgroups / "pod", memory__max=str(2 * GB), memory__current=str(1_500_000_000), memory__stat=stat)
    group(cgroups / "pod" / "mine", memory__max=str(4 * GB), memory__current="1000", memory__stat=stat)
    memory = resources.read_memory(str(proc), str(cgroups))
    assert memory == resources.Memory(800_000_000, limited=True)
    assert resources.missing_memory(memory) == (
        "livegnn needs 1.1 GB of memory to be compiled, found 800.0 MB under the limit of the cgroup: "
        "raise the limit"
    )


def test_memory_under_the_limit_of_a_container_of_the_first_version(proc: Path, tmp_path: Path) -> None:
    (proc / "self" / "cgroup").write_text("4:cpu,memory:/docker/of-the-host\n")
    group(
        tmp_path / "cgroups" / "memory",
        memory__limit_in_bytes=str(3 * GB),
        memory__usage_in_bytes=str(GB),
        memory__stat="total_active_file 0\ntotal_inactive_file 500000000\ninactive_file 7",
    )
    memory = resources.read_memory(str(proc), str(tmp_path / "cgroups"))
    assert memory == resources.Memory(2_500_000_000, limited=True)
    assert resources.missing_memory(memory) is None
    assert [resources.compilers_at_once(memory, cores) for cores in (1, 2, 8)] == [1, 2, 2]


def test_at_least_one_compiler_runs_and_at_most_one_for_each_core() -> None:
    assert resources.compilers_at_once(resources.Memory(0, GB), 4) == 1
    assert resources.compilers_at_once(resources.Memory(64 * GB), 4) == 4
    assert resources.compilers_at_once(None, 4) == 4


def test_builds_side_by_side_share_the_memory() -> None:
    room_for_five = resources.Memory(5 * resources.COMPILER_BYTES)
    assert [resources.compilers_at_once(room_for_five, 4, builds) for builds in (1, 2, 3, 9)] == [4, 2, 1, 1]


# -- while it is installed and built -------------------------------------------------------------------------


def run_steps(log: Path, *command: str, **environment: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(TOOLCHAIN / "steps.py"), str(log), "build", *command],
        env={**os.environ, **environment},
        capture_output=True,
        cwd=log.parent,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout.decode().splitlines()


PIP = """\
Using pip 26.3 from .venv/lib/python3.11/site-packages/pip (python 3.11)
Processing ./.
  Installing build dependencies: started
    Collecting nanobind>=2.4
      Downloading nanobind-3.1.0-py3-none-any.whl (316 kB)
    Installing collected packages: nanobind
  Installing build dependencies: finished with status 'done'
Link requires a different Python (3.11.7 not in: '>=3.12'): numpy-2.5.0.tar.gz
Processing /wheels/numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (from livegnn==0.1.0)
Collecting torch<2.14,>=2.6 (from livegnn==0.1.0)
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (821.5 MB)
Progress 0 of 1000
Progress 250 of 1000
Building wheels for collected packages: livegnn
  Building wheel for livegnn (pyproject.toml): started
  *** Configuring CMake...
  -- The CXX compiler identification is GNU 12.2.0
  [0/2] Re-checking globbed directories...
  [1/4] Building CXX object CMakeFiles/livegnn_store.dir/cpp/store/samtree.cc.o
  [2/4] Building CXX object CMakeFiles/nanobind-static.dir/tmp/overlay/nanobind/src/nb_func.cpp.o
  [3/4] Building CXX object CMakeFiles/livegnn_core.dir/Unity/unity_0_cxx.cxx.o
  [4/4] Linking CXX shared module _core.so
Installing collected packages: numpy, torch, livegnn
Successfully installed livegnn-0.1.0 numpy-2.4.6 torch-2.13.0
"""


def test_the_steps_of_an_installation() -> None:
    read = steps.Steps().read
    found = [step.text for line in PIP.splitlines() if (step := read(line)) is not None]
    assert found == [
        "collecting the sources here",
        "collecting nanobind>=2.4",
        "downloading nanobind-3.1.0 (316 kB)",
        "installing nanobind",
        "collecting numpy-2.4.6",
        "collecting torch<2.14,>=2.6",
        "downloading torch-2.13.0 (821.5 MB)",
        "downloading torch-2.13.0 (821.5 MB), 0 %",
        "downloading torch-2.13.0 (821.5 MB), 25 %",
        "building livegnn",
        "configuring",
        "configuring",
        "[1/4] cpp/store/samtree.cc",
        "[2/4] nb_func.cpp",
        "[3/4] livegnn_core, part 0",
        "[4/4] linking _core.so",
        "installing 3 packages",
    ]


def test_a_long_installation_is_fewer_than_sixty_lines(tmp_path: Path) -> None:
    lines = [
        f"Collecting package-{n}\n  Downloading package-{n}-1.0-py3-none-any.whl (99.1 MB)"
        for n in range(300)
    ]
    lines += [f"Installing collected packages: package-{n}" for n in range(50)]
    lines += [f"[{n}/400] Building CXX object CMakeFiles/core.dir/cpp/store/s{n}.cc.o" for n in range(1, 401)]
    (tmp_path / "output").write_text("\n".join(lines) + "\n")
    log = tmp_path / "build" / "install.log"
    log.parent.mkdir()
    status, said = run_steps(log, "cat", str(tmp_path / "output"))
    assert status == 0
    assert len(said) < 60
    assert said[0] == f"build: its whole output is in {log}"
    assert "build: [400/400] cpp/store/s400.cc" in said
    assert said[-1].startswith("build: done in ")
    assert log.read_text() == (tmp_path / "output").read_text()


def show_on_a_terminal(output: str, folder: Path, **environment: str) -> list[str]:
    """The lines of a terminal that shows the steps of a command with this output."""
    outer, inner = pty.openpty()
    (folder / "output").write_text(output)
    command = [sys.executable, str(TOOLCHAIN / "steps.py"), str(folder / "log"), "build"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "40", **environment}
    with subprocess.Popen([*command, "cat", str(folder / "output")], stdout=inner, env=environment) as child:
        os.close(inner)
        shown = b""
        while True:
            try:
                read = os.read(outer, 2**16)
            except OSError:  # its other end is closed
                break
            if not read:
                break
            shown += read
    os.close(outer)
    assert child.returncode == 0
    return shown.decode().replace("\r\n", "\n").removesuffix("\n").split("\n")


def test_one_line_changes_on_a_terminal(tmp_path: Path) -> None:
    (line,) = show_on_a_terminal(PIP, tmp_path)
    states = [state.removesuffix("\x1b[K") for state in line.split("\r")]
    assert "build (0 s) [1/4] cpp/store/samtree.cc" in states
    assert max(map(len, states)) == 39
    assert states[-1].startswith("build: done in ")


def test_steps_side_by_side_do_not_share_a_line_of_a_terminal(tmp_path: Path) -> None:
    lines = show_on_a_terminal(PIP, tmp_path, LIVEGNN_STEPS_AT_ONCE="2")
    assert "build: [1/4] cpp/store/samtree.cc" in lines
    assert not any("\r" in line for line in lines)


def failed(log: Path, *command: str, **environment: str) -> str:
    """The reason that is given."""
    status, said = run_steps(log, *command, **environment)
    assert status != 0
    head, tail = "build: failed: ", f" (its whole output: {log})"
    assert said[-1].startswith(head)
    assert said[-1].endswith(tail)
    return said[-1].removeprefix(head).removesuffix(tail)


def test_an_error_of_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "wrong.cc").write_text("int main() {\n  return nowhere;\n}\n")
    said = failed(tmp_path / "log", "c++", "-fsyntax-only", str(tmp_path / "wrong.cc"))
    assert said == "wrong.cc:2: 'nowhere' was not declared in this scope"


def test_a_compiler_without_memory(tmp_path: Path) -> None:
    source = str(TOOLCHAIN / "cxx20.cc")
    said = failed(
        tmp_path / "log", "sh", "-c", f"ulimit -v 90000; exec c++ -std=c++20 -fsyntax-only '{source}'"
    )
    assert said.startswith("the machine is short of memory, which ended a compiler: end other programs")


def test_a_compiler_that_was_killed() -> None:
    said = failures.reason(
        [
            "[3/9] Building CXX object a.o",
            "c++: fatal error: Killed signal terminated program cc1plus",
            "ERROR: Failed",
        ]
    )
    assert said.startswith("the machine is short of memory, which ended a compiler")


def test_no_room_left(tmp_path: Path) -> None:
    said = failed(tmp_path / "log", "sh", "-c", "cat /etc/passwd > /dev/full")
    assert said == (
        "no room on the disk (No space left on device): free some, or name another folder for temporary "
        "files with TMPDIR=..."
    )


def test_no_network(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-v", "--retries", "1", "--target", str(tmp_path / "to")]
    index = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_FIND_LINKS": ""}
    said = failed(tmp_path / "log", *pip, "livegnn-is-not-there", **index)
    assert said == (
        "packages cannot be downloaded (Connection refused): connect this machine to the network, "
        "or name an index that it reaches with PIP_INDEX_URL=..."
    )


def test_an_index_that_was_switched_off(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--target", str(tmp_path / "to")]
    index = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    assert failed(tmp_path / "log", *pip, "livegnn-is-not-there", **index) == (
        "no package index that can be reached has livegnn-is-not-there: connect this machine to the network, "
        "or leave PIP_NO_INDEX unset, or name an index that it reaches with PIP_INDEX_URL=..."
    )


RETRYING = "WARNING: Retrying (Retry(total=0)) after connection broken by"
REASONS = {
    f"""
{RETRYING} 'NameResolutionError("HTTPSConnection(host='a', port=443): Failed to resolve 'a' (\
[Errno -3] Temporary failure in name resolution)")': /b/
ERROR: No matching distribution found for b
""": "packages cannot be downloaded (Temporary failure in name resolution): connect this machine",
    f"""
{RETRYING} 'ConnectTimeoutError(<a>, 'Connection to a timed out. (connect timeout=15)')': /b/
""": "packages cannot be downloaded (timed out): ",
    f"""
{RETRYING} 'ProxyError('Unable to connect to proxy', OSError('Tunnel connection failed: 403 Forbidden'))': /b/
ERROR: Could not find a version that satisfies the requirement b>=1 (from versions: none)
""": "packages cannot be downloaded (Tunnel connection failed: 403 Forbidden): ",
    """
ERROR: Could not find a version that satisfies the requirement b>=1 (from versions: none)
ERROR: No matching distribution found for b>=1
""": "no package index that can be reached has b>=1: ",
    """
ERROR: Could not find a version that satisfies the requirement b>=9 (from versions: 1.0, 2.0)
""": "no index has b>=9, there is 2.0",
    """
ERROR: Package 'livegnn' requires a different Python: 3.10.13 not in '>=3.11'
""": "livegnn needs Python >=3.11, found 3.10.13: ",
    """
ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/x'
Check the permissions.
""": "no permission to write '/usr/x'",
    """
  CMake Error at toolchain/machine.cmake:12 (message):
     livegnn needs a compiler
  Call Stack (most recent call first):

ERROR: Failed building wheel for livegnn
""": "livegnn needs a compiler",
    """
CMake Error at CMakeLists.txt:21 (find_package):
  By not providing
  a file

-- Incomplete
""": "CMakeLists.txt:21: By not providing a file",
    """
ERROR: Exception:
Traceback (most recent call last):
  File "a.py", line 1, in main
ValueError: an answer of the index cannot be read
""": "ValueError: an answer of the index cannot be read",
    "": "it wrote nothing",
    "one thing\nthe last thing\n\n": "the last thing",
}


@pytest.mark.parametrize(("output", "said"), REASONS.items())
def test_reasons(output: str, said: str) -> None:
    assert failures.reason(output.splitlines(keepends=True)).startswith(said)


def test_letters_that_the_locale_lacks(tmp_path: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    script = "printf 'gr\\303\\266\\303\\237er \\342\\200\\230x\\342\\200\\231 \\377\\n'; exit 3"
    assert failed(tmp_path / "log", "sh", "-c", script, **locale) == "gr??er 'x' ?"
    assert (tmp_path / "log").read_text(encoding="utf-8") == "größer \u2018x\u2019 \ufffd\n"


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    status, said = run_steps(tmp_path / "log", "no-such-command")
    assert (status, said[-1]) == (
        127,
        "build: failed: [Errno 2] No such file or directory: 'no-such-command'",
    )


def test_one_of_two_that_do_the_same_at_once_is_refused(tmp_path: Path) -> None:
    log, end = tmp_path / "log", tmp_path / "end"
    os.mkfifo(end)
    command = [sys.executable, str(TOOLCHAIN / "steps.py"), str(log), "build"]
    waiting = ["sh", "-c", 'echo "[1/1] one"; cat "$1"', "sh", str(end)]
    with subprocess.Popen([*command, *waiting], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert [first.stdout.readline() for _ in range(2)][1] == "build: [1/1] one\n"
        status, said = run_steps(log, "sh", "-c", f"rm '{end}'")
        end.write_text("its end\n")
        first.communicate()
    assert status == 1
    assert said[-1] == (
        f"build: failed: another make in this folder is at this step ({log}): "
        "wait until it has ended, or use a copy of the sources"
    )
    assert first.returncode == 0
    assert log.read_text() == "[1/1] one\nits end\n"
    assert run_steps(log, "echo", "another")[0] == 0
    assert log.read_text() == "another\n"


def test_an_output_that_cannot_be_kept_ends_the_command() -> None:
    script = "import signal; print('one', flush=True); signal.pause()"
    status, said = run_steps(Path("/dev/full"), sys.executable, "-c", script)
    assert status == 1
    assert said[-1].startswith("build: failed: no room on the disk (No space left on device): free some")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_ends_all_that_it_started(number: int, tmp_path: Path) -> None:
    # The compiler's place is taken by a second Python: what a shell starts in the background ignores SIGINT.
    inner = "import os, signal; print(f'[1/2] {os.getpid()}', flush=True); signal.pause()"
    outer = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {inner!r}])"
    command = [sys.executable, str(TOOLCHAIN / "steps.py"), str(tmp_path / "log"), "build"]
    with subprocess.Popen(
        [*command, sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        started = os.pidfd_open(int(child.stdout.readline().split()[-1]))
        child.send_signal(number)
        waiting = select.poll()  # takes descriptors past 1023, too, which other tests may hold
        waiting.register(started, select.POLLIN)
        ended = waiting.poll(60_000)
        if not ended:
            signal.pidfd_send_signal(started, signal.SIGKILL)
        assert child.wait() == 128 + number
        assert child.stdout.read().splitlines()[-1] == "build: stopped"
    assert ended, "what it started ran on"
    os.close(started)


@needs_namespaces
def test_little_memory_means_few_compilers(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 2000000 kB\nMemAvailable: 1500000 kB\nSwapFree: 0 kB\n")
    script = f'mount --bind {tmp_path}/meminfo /proc/meminfo; exec "$@"'
    build = "echo '[1/1] one'; echo level $CMAKE_BUILD_PARALLEL_LEVEL"
    namespace = ["unshare", "-rm", "sh", "-ec", script, "sh"]
    log = tmp_path / "log"
    command = [*namespace, sys.executable, str(TOOLCHAIN / "steps.py"), str(log), "build", "sh", "-c", build]
    environment = {**os.environ}
    environment.pop("CMAKE_BUILD_PARALLEL_LEVEL", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    cores = resources.count_cores()
    line = (
        f"build: there is memory for 1 of {cores} compilers at once, each takes up to 1.1 GB "
        "(CMAKE_BUILD_PARALLEL_LEVEL=... sets another number)"
    )
    assert (line in done.stdout.splitlines()) == (cores > 1)
    assert log.read_text() == "[1/1] one\nlevel 1\n"
    subprocess.run(
        command, env={**environment, "CMAKE_BUILD_PARALLEL_LEVEL": "7"}, check=True, capture_output=True
    )
    assert log.read_text() == "[1/1] one\nlevel 7\n"


# -- by hand, with CMake -------------------------------------------------------------------------------------


def configure(build: Path, *before: str, **environment: str) -> str:
    """What CMake says of why it stops. before: a command that runs it."""
    tools = [
        shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        for name in ("cmake", "ninja")
    ]
    done = subprocess.run(
        [*before, tools[0], "-S", ROOT, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools[1]}",
         f"-DPython_EXECUTABLE={sys.executable}"],
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    (line,) = [one.strip() for one in done.stderr.splitlines() if "livegnn needs" in one]
    assert failures.reason(done.stderr.splitlines()) == line
    return line


def test_cmake_without_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    environment = {"PATH": str(tmp_path / "empty")}
    said = configure(tmp_path / "build", CXX="/no/such", **environment)
    assert said == f"{NEED}CXX names /no/such, which does not compile: name another, or leave CXX unset"


def test_cmake_asks_a_compiler_again_that_failed_once(tmp_path: Path) -> None:
    compiler, killed = tmp_path / "compiler", tmp_path / "killed"
    compiler.write_text(
        f'#!/bin/sh\ncase " $* " in *" -std=c++20 "*) test -e "{killed}" && exit 1;; esac\nexec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    killed.touch()
    build = tmp_path / "build"
    assert "livegnn needs a compiler" in configure(build, CXX=str(compiler))
    killed.unlink()
    tools = Path(sys.executable).parent
    subprocess.run(
        [tools / "cmake", "-S", ROOT, "-B", build], check=True, capture_output=True
    )  # what pip's next build does, in the same folder


def test_cmake_with_an_old_compiler(tmp_path: Path, old_compiler: str) -> None:
    said = configure(tmp_path / "build", CXX=old_compiler)
    assert said.startswith(f"{NEED}found ")
    assert said.endswith(": install a newer one, or name it with CXX=...")


@needs_namespaces
def test_cmake_without_the_headers_of_python(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    hidden = f'mount --bind {tmp_path}/empty {sysconfig.get_path("include")}; exec "$@"'
    said = configure(tmp_path / "build", "unshare", "-rm", "sh", "-ec", hidden, "sh")
    assert said.startswith(
        f"livegnn needs the headers of Python {platform.python_version()}, found none for "
    )
