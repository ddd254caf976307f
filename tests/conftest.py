"""How every test runs: checked types, seeds that are shown and can be set, and what may be imported.

The modules beside this file, such as `streams`, and those of benchmarks/ can be imported from every test.
"""

import gc
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from jaxtyping import install_import_hook

# Before anything imports livegnn: the oracle's arrays are checked at each call. Of other rooms see
# shapes.py.
install_import_hook("livegnn.oracle.reference", "beartype.beartype")

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import livegnn._core as _core  # noqa: E402
import oldest  # noqa: E402
import parts_beside  # noqa: E402
import shapes  # noqa: E402
from gate import (  # noqa: E402
    EXPLORING,
    LISTED,
    NOT_THERE,
    SEED_VARIABLE,
    WHOLE,
    ignore_local_constants,
    listed_as,
    seed_of_run,
)
from logging_state import kept_logging  # noqa: E402
from processes import children  # noqa: E402

shapes.install()

# No deadline, and none of Hypothesis' opinions on how fast a test draws: shared machines stall, and the
# first call into torch takes seconds.
_ANYWHERE = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
# A find is remembered, and made as small as it can be.
hypothesis.settings.register_profile("explore", **_ANYWHERE)
# The same cases everywhere: none that an earlier run has left behind. To find the smallest example is
# for whoever explores.
hypothesis.settings.register_profile(
    "gate",
    **_ANYWHERE,
    max_examples=15,
    database=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
PROFILE = "explore" if EXPLORING else "gate"


def load_profile() -> None:
    hypothesis.settings.load_profile(PROFILE)
    if not EXPLORING:
        ignore_local_constants()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """One seed rules all randomness of a run; pytest-xdist's workers inherit it with the environment."""
    os.environ[SEED_VARIABLE] = str(seed_of_run())
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ[SEED_VARIABLE]
    load_profile()
    if not WHOLE and _runs_all(config):
        asked = config.option.markexpr or "explored or not explored"
        config.option.markexpr = f"({asked}) and not explored"
    if not hasattr(config, "workerinput"):
        _make_temporary_folder(config)


def _runs_all(config: pytest.Config) -> bool:
    """Whether no test is named."""
    return config.args_source.name == "TESTPATHS"


def _make_temporary_folder(config: pytest.Config) -> None:
    """One that ends with the run: PyG alone leaves two thousand files. What pytest makes stays."""
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    # A short name: a socket's path has room for a hundred letters.
    folder = tempfile.TemporaryDirectory(prefix="livegnn-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    Path(folder.name).chmod(0o711)  # tests that become another user have folders inside
    os.environ["TMPDIR"] = folder.name
    tempfile.tempdir = None  # it is looked up again
    os.environ["LIVEGNN_TEST_MODELS"] = str(Path(folder.name, "models"))  # of `modules.import_once`
    Path(folder.name, "models").mkdir()


def pytest_collection_finish() -> None:
    """What is imported stays: later garbage collections, of which an import makes many, leave it aside.

    And they are fewer: they take a tenth of an import of a model.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    found = set[str]()
    for item in items:
        if (line := listed_as(item.nodeid)) is not None:
            item.add_marker(pytest.mark.explored)
            found.add(line)
    config.stash[NOT_THERE] = sorted(LISTED - found)
    for item in items if oldest.IS_OLDEST else ():
        if reason := oldest.REASONS.get(item.nodeid.rpartition("/")[2].partition("@")[0]):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_report_header(config: pytest.Config) -> str:
    return f"livegnn: {PROFILE}, seed {os.environ[SEED_VARIABLE]} (set {SEED_VARIABLE} to draw from another)"


@pytest.fixture(scope="session", autouse=True)
def _check_waiting() -> None:
    """Whoever is about to wait for a native lock with the interpreter's is told so, wherever it happens."""
    _core.check_waiting(True)


@pytest.fixture(scope="session", autouse=True)
def _environment() -> Iterator[None]:
    """Tests, and the processes that they start, talk to servers of this machine, and read what is printed."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            patch.delenv(name)
        for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):  # each has the command line print colours
            patch.delenv(name, raising=False)
        patch.setenv("COLUMNS", "120")
        yield


@pytest.fixture(scope="module", autouse=True)
def _logging_of_a_module() -> Iterator[None]:
    """A command that runs in this process sets up its log."""
    with kept_logging():
        yield


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    with kept_logging():
        yield


@pytest.fixture(autouse=True)
def _parts_beside(request: pytest.FixtureRequest) -> Iterator[None]:
    """The engines of a test, in parts as well."""
    with parts_beside.follow_test(request.path.name):
        yield


@pytest.fixture
def started() -> Callable[[], set[int]]:
    """Returns the processes that the test has started and not waited for; servers of other tests stay."""
    others = children()
    return lambda: children() - others


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of a test's own, from the seed of the run and the test's name."""
    return np.random.default_rng([int(os.environ[SEED_VARIABLE]), zlib.crc32(request.node.nodeid.encode())])


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A server that CI was given must be used: tests that are skipped or not found fail the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    everything = not session.config.option.keyword and session.config.args_source.name == "TESTPATHS"
    if reporter is None or not (everything and os.environ.get("CI")):
        return
    for variable, tests in (
        ("LIVEGNN_KAFKA_HOME", "test_kafka.py"),
        ("LIVEGNN_S3_HOME", "test_snapshot_stores.py"),
    ):
        ran = any(tests in report.nodeid for report in reporter.stats.get("passed", []))
        if os.environ.get(variable) and not ran:
            reporter.write_line(f"{variable} is set, but no test ran on its server", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
