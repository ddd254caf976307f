"""Takes out each protection against faults once, in a copy of the sources, and shows which test fails then.

    make mutants                                 all of them, as a table
    python tests/faults/mutants.py NAME...       those whose names have one of these texts in them

A protection whose removal no test notices ends with status 1. What needs a broker runs where
LIVEGNN_KAFKA_HOME is set (tests/README.md).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import livegnn._core as _core

ROOT = Path(__file__).parents[2]
SECONDS = 240  # for a test: what hangs without a protection is caught as well


class Mutant(NamedTuple):
    """A protection by name, what takes it out of a file of src/livegnn, and the test that must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = [
    Mutant(
        "appends are flushed before they are acknowledged",
        "log/sqlite/sequence.py",
        'connect(path, format, "FULL", vfs)',
        'connect(path, format, "NORMAL", vfs)',
        "test_power_loss.py::test_no_loss_of_power_takes_what_was_acknowledged",
    ),
    Mutant(
        "the mark is written after the flush",
        "log/sqlite/__init__.py",
        "        outcomes = _add_all(writer, given)\n        self._appends",
        "        outcomes = _add_all(writer, given)\n        self._mark.write(writer.tail.seq)\n"
        "        self._appends",
        "test_power_loss.py::test_no_loss_of_power_takes_what_was_acknowledged",
    ),
    Mutant(
        "a key that is known stores nothing",
        "log/sqlite/entry_rows.py",
        "known = self.known.get(key) or self._keys.find(key)",
        "known = self.known.get(key)",
        "test_deliveries.py::test_keys_in_any_order_from_several_producers",
    ),
    Mutant(
        "a key is stored together with its entry",
        "log/sqlite/__init__.py",
        "            self._keys.add(writer.known.values())",
        "            pass",
        "test_kills.py",
    ),
    Mutant(
        "an offset that is known stores nothing",
        "log/sqlite/entry_rows.py",
        "if reached is not None and origin.offset <= reached.offset:",
        "if reached is not None and origin.offset == reached.offset:",
        "test_deliveries.py::test_messages_of_a_broker_that_are_delivered_again",
    ),
    Mutant(
        "one process owns a log",
        "log/location.py",
        "            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        "test_second_starts.py",
    ),
    Mutant(
        "an owner in Kafka ends when another has taken over",
        "log/kafka/__init__.py",
        "                if self._history.epoch != self._control.epoch:\n                    raise",
        "                if False:\n                    raise",
        "test_kafka.py::test_an_owner_that_slept_acknowledges_nothing_more",
    ),
    Mutant(
        "a clock that is set makes no key old",
        "log/idempotency.py",
        "return self._began + time.monotonic()",
        "return time.time()",
        "test_clock_jumps.py::test_keys_are_known_for_a_day_and_not_for_ever",
    ),
    Mutant(
        "boundaries are recorded",
        "runtime/loop.py",
        "self.log.record_batch(turn.batch, *turn.rejections)",
        "pass",
        "test_kills.py",
    ),
    Mutant(
        "boundaries are recorded before the commit",
        "runtime/loop.py",
        "on_staged=None if turn.recorded else record,\n            tell=lambda change: map(self._show,",
        "tell=lambda change: map(lambda turn, change: (record(change), self._show(turn, change)),",
        "test_full_disk.py::test_a_batch_that_cannot_be_recorded_is_not_visible",
    ),
    Mutant(
        "the loop waits while the disk is full",
        "runtime/loop.py",
        "            if not may_pass(error):\n                raise\n",
        "            raise\n",
        "test_full_disk.py",
    ),
    Mutant(
        "nothing becomes due in a year because a clock was set back",
        "runtime/loop.py",
        "clock = clock if clock is time.monotonic else SteadyClock(clock)",
        "clock = clock",
        "test_clock_jumps.py::test_a_runtime_whose_own_clock_jumps_goes_on",
    ),
    Mutant(
        "mass expiry waits for a person",
        "expiry.py",
        "        if edges < self._policy.least_asked or edges <= self._policy.max_share * of:\n",
        "        if edges >= 0:\n",
        "test_clock_jumps.py::test_no_edges_expire_by_a_clock_that_is_wrong",
    ),
    Mutant(
        "a checkpoint is flushed before it has its name",
        "atomic_file.py",
        "                stream.flush()\n                os.fsync(handle)\n",
        "                stream.flush()\n",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "its folder is flushed before the log is trimmed",
        "atomic_file.py",
        "        sync_directory(target.parent)\n",
        "",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "the log is flushed before a checkpoint has its name",
        "runtime/checkpoints.py",
        "        self._log.sync()\n",
        "",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "a start falls back to the checkpoint before",
        "runtime/recovery.py",
        '            _logger.warning("passing over the checkpoint %s: %s", path, error)\n',
        "            raise\n",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "a checkpoint that was passed over is not one of those that are kept",
        "runtime/checkpoints.py",
        "{path for path in there if path.name > _name_of(since)}",
        "set()",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "the log is trimmed behind the oldest checkpoint, not the newest",
        "runtime/checkpoints.py",
        "_trim_behind(oldest, self._log, ",
        "_trim_behind(writing.path, self._log, ",
        "test_checkpoint_losses.py",
    ),
    Mutant(
        "a subscriber that raises does not end the loop",
        "graph/delta.py",
        "if self.sheltered or isinstance(error, Exception):",
        "if False:",
        "test_clients.py::test_a_subscriber_that_blocks_or_raises_holds_up_no_append",
    ),
    Mutant(
        "events are refused when the loop has ended",
        "server/appends.py",
        "        if runtime.failure is not None:\n            raise LoopEnded(",
        "        if False:\n            raise LoopEnded(",
        "../e2e/test_failing_servers.py::test_a_server_may_wait_after_its_loop_has_failed",
    ),
]


def copy_tree(to: Path) -> None:
    """What the tests need, without the environment; the native core is the one that is installed."""
    for name in ("src", "tests", "benchmarks", "docs"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)
    shutil.copy(_core.__file__, to / "src" / "livegnn")


def run(mutant: Mutant, tree: Path) -> tuple[str, str]:
    """The seed with which the test failed (or what else there is to say), and the last line of the failure;
    no texts if it passed.
    """
    path = tree / "src" / "livegnn" / mutant.file
    source = path.read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.file} must have this once: {mutant.old!r}"
    path.write_text(source.replace(mutant.old, mutant.new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(
            [*command, f"tests/faults/{mutant.test}"],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it hangs", ""
    finally:
        path.write_text(source, encoding="utf-8")
    if done.returncode == 0:
        return ("not tried here", "needs a broker") if " passed" not in done.stdout else ("", "")
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    errors = re.findall(r"^E   +(.+)$", done.stdout, re.MULTILINE)
    said = next((line for line in reversed(errors) if "seed" in line), errors[0] if errors else "")
    seed = re.search(r"seed (\d+): ?(.*)", said)
    return (f"seed {seed[1]}", seed[2]) if seed else ("any", said)


def main(wanted: list[str]) -> int:
    """Prints the table; returns how many were not caught."""
    missed = 0
    print("| without | failing test | seed | message |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="livegnn-mutants-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        copy_tree(tree)
        for mutant in MUTANTS:
            if wanted and not any(text in mutant.name for text in wanted):
                continue
            seed, said = run(mutant, tree)
            missed += not seed
            said = re.sub(r"/\S*/", "", said).replace("|", "\\|").replace("`", "'")[:90]
            said = f"`{said}`" if said else ""
            print(f"| {mutant.name} | `{mutant.test}` | {seed or 'NOT CAUGHT'} | {said} |", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
