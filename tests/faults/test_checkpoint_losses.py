"""A machine that loses power at any write, flush or rename of a checkpoint, or of the log beside it.

Each seed is a history: appends, batches, checkpoints, trims behind them, and losses of power. Whatever is
left starts again, with every acknowledged event applied once, bit for bit as a replay of all of them. Each
file that has a checkpoint's name is whole; one that the disk has spoiled is passed over, and named.
"""

import logging
import os
import random
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crashing_disk import CrashingDisk, losses_ignored
from crashing_folder import CrashingFolder
from faulty_world import FIRST_SEED, apply_batches, check_bits, seed_shown
from livegnn import Engine, Events, LogError
from livegnn.log import Batch, Rejection
from livegnn.log.sqlite import SqliteLog
from livegnn.runtime import CheckpointPolicy, Runtime, list_checkpoints, restore
from livegnn.runtime.checkpoints import seq_of
from streams import make_graph, make_model, make_stream

SEEDS = int(os.environ.get("LIVEGNN_FAULT_SEEDS", "20"))
LOSSES = 4
APPENDS = 40  # between two losses at most


@dataclass
class Witness:
    """Entries that were acknowledged, and batches that were recorded, as the log has not forgotten them."""

    entries: dict[int, Events] = field(default_factory=dict)
    unsure: Events | None = None
    batches: list[Batch] = field(default_factory=list)
    rejected: set[int] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    spoiled: dict[str, bytes] = field(default_factory=dict)  # checkpoints, by name

    def bad(self, folder: Path) -> list[Path]:
        """Those checkpoints that are spoiled, the newest first."""
        named = list_checkpoints(folder)
        return [path for path in named if path.read_bytes() == self.spoiled.get(path.name)]


class NotingLog(SqliteLog):
    def __init__(self, path: Path, vfs: str | None, witness: Witness) -> None:
        super().__init__(path, vfs=vfs)
        self._witness = witness

    def record_batch(self, batch: Batch, *rejections: Rejection) -> None:
        super().record_batch(batch, *rejections)
        self._witness.batches.append(batch)
        self._witness.rejected |= {one.seq for one in rejections}

    def trim(self, up_to: int) -> int:
        """Two checkpoints that are whole go on from there, whatever else lies beside them."""
        folder = self.path.parent / "checkpoints"
        bad = self._witness.bad(folder)
        whole = [path for path in list_checkpoints(folder) if path not in bad and seq_of(path) >= up_to]
        if len(whole) < 2:
            self._witness.problems.append(f"the log is trimmed to {up_to}, where only {whole} can be used")
        return super().trim(up_to)


def start(place: Path, vfs: str | None, witness: Witness) -> Runtime:
    """What a start after the loss makes; raises what shows that something was lost."""
    folder = place / "checkpoints"
    log = NotingLog(place / "log.db", vfs, witness)
    try:
        graph, views = restore(
            {"engine": Engine.factory(make_model(), threads=1)}, make_graph, directory=folder, log=log
        )
        from_checkpoint = graph.seq
        bad = witness.bad(folder)
        named = [seq_of(path) for path in list_checkpoints(folder) if path not in bad]
        assert from_checkpoint == max(named, default=0), "a file with a checkpoint's name is not whole"
        note_what_is_left(log, witness, from_checkpoint)
        policy = CheckpointPolicy(folder, every_events=20, beside=False, trim_log=True)
        runtime = Runtime(log, graph, views["engine"], max_batch_events=16, checkpoints=policy)
        expected = apply_batches(witness.entries, witness.batches, witness.rejected)
        assert isinstance(runtime.engine, Engine)
        check_bits(runtime.engine, expected)
    except BaseException:
        log.close()
        raise
    return runtime


def note_what_is_left(log: SqliteLog, witness: Witness, from_checkpoint: int) -> None:
    """Boundaries that the loss took back; the entry that was stored and not acknowledged."""
    left = log.batches(from_checkpoint)
    witness.batches = [batch for batch in witness.batches if batch.seq <= from_checkpoint] + list(left)
    begin = log.first_seq() - 1
    assert begin <= from_checkpoint
    entries = {entry.seq: entry.events for entry in log.entries(begin)}
    lost = [seq for seq, events in witness.entries.items() if seq > begin and entries.get(seq) != events]
    assert lost == [], f"acknowledged and lost: {lost}"
    more = [seq for seq in entries if seq not in witness.entries]
    assert [entries[seq] for seq in more] in ([], [witness.unsure])
    witness.entries |= {seq: entries[seq] for seq in more}
    end = witness.batches[-1].seq if witness.batches else 0
    witness.rejected = {seq for seq in witness.rejected if seq <= end}
    witness.unsure = None


def go_on(runtime: Runtime, draw: random.Random, witness: Witness, stream: list[Events]) -> None:
    for _ in range(draw.randrange(APPENDS)):
        witness.unsure = Events.concatenate([stream.pop()])
        witness.entries[runtime.append(witness.unsure)] = witness.unsure
        witness.unsure = None
        if draw.random() < 0.5:
            runtime.step()
    if draw.random() < 0.2:
        runtime.stop()


def spoil(folder: Path, draw: random.Random, witness: Witness, begin: int) -> None:
    """Now and then the disk spoils the newest checkpoint, if there is one more for a log from `begin` on."""
    whole = [path for path in list_checkpoints(folder) if path not in witness.bad(folder)]
    named = [path for path in whole if seq_of(path) >= begin]
    if len(named) < 2 or draw.random() < 0.6:
        return
    content = bytearray(named[0].read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    named[0].write_bytes(content[: draw.choice([len(content), draw.randrange(len(content))])])
    witness.spoiled[named[0].name] = named[0].read_bytes()


@losses_ignored()
def run(seed: int, directory: Path, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Witness:
    draw, witness = random.Random(seed), Witness()
    stream = make_stream(LOSSES * APPENDS, seed=seed)
    place = directory / "0"
    (place / "checkpoints").mkdir(parents=True)
    for loss in range(LOSSES):
        disk = CrashingDisk(f"checkpoint loss {seed} {loss} {secrets.token_hex(4)}", None)
        folder = CrashingFolder(disk, place / "checkpoints")
        caplog.clear()
        with folder.in_use(patch):
            bad = witness.bad(place / "checkpoints")
            runtime = start(place, disk.name, witness)
            said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
            newest = max(
                (seq_of(path) for path in list_checkpoints(folder.path) if path not in bad), default=0
            )
            assert [line.split(": ")[0] for line in said] == [
                f"passing over the checkpoint {path}" for path in bad if seq_of(path) > newest
            ]
            disk.left = draw.randrange(250)
            with suppress(LogError, OSError):
                go_on(runtime, draw, witness, stream)
        assert disk.dead or disk.left >= 0
        assert witness.problems == []
        begin, mark = runtime.log.first_seq() - 1, place / "log.db-mark"
        place = directory / str(loss + 1)
        disk.lose_power(place, draw)
        folder.lose_power(place / "checkpoints", draw)
        if mark.exists() and draw.random() < 0.5:
            (place / mark.name).write_bytes(mark.read_bytes())
        with suppress(LogError):
            runtime.log.close()  # the machine is gone, but this process is not
        spoil(place / "checkpoints", draw, witness, begin)
    runtime = start(place, None, witness)
    while runtime.step():
        pass
    assert runtime.seq == max(witness.entries, default=0)
    runtime.stop()
    runtime.log.close()
    return witness


@pytest.mark.parametrize("part", range(2))
def test_no_loss_of_power_takes_a_checkpoint_or_what_it_relies_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: int
) -> None:
    applied = 0
    for seed in range(FIRST_SEED + part, FIRST_SEED + SEEDS, 2):
        with seed_shown(seed):
            applied += len(run(seed, tmp_path / str(seed), monkeypatch, caplog).entries)
    assert applied > 0
