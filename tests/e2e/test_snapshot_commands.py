"""A server that keeps a snapshot, from the command line: another process reads the graph without it."""

import urllib.request
from pathlib import Path

import numpy as np

from livegnn import Events
from livegnn.errors import SnapshotError
from livegnn.snapshots.snapshot_source import SnapshotSource
from serving import Server, write_deployment
from waiting import PATIENCE, REQUEST_SECONDS, wait_until


def wait_for(source: SnapshotSource, seq: int) -> None:
    def shows() -> bool:
        try:
            return source.newest().seq >= seq
        except SnapshotError:
            return False

    wait_until(shows, f"a snapshot at event {seq}")


def test_a_server_keeps_a_snapshot(tmp_path: Path) -> None:
    """From its start on, and after a kill."""
    file = write_deployment(tmp_path)
    file.write_text(
        file.read_text(encoding="utf-8") + '\n[snapshots]\nurl = "snapshots"\ninterval = 0.05\n',
        encoding="utf-8",
    )
    source = SnapshotSource(str(tmp_path / "snapshots"))
    for turn in range(2):
        server = Server(file)
        try:
            wait_for(source, turn)  # without an event of its own
            events = Events().add_nodes([900 + turn], [[turn, 1, 2, 3]])
            request = urllib.request.Request(
                f"{server.address}/v1/events?wait=true&timeout={REQUEST_SECONDS}",
                events.to_json_lines().encode(),
                {"content-type": "application/x-ndjson"},
            )
            urllib.request.urlopen(request, timeout=PATIENCE).close()
            wait_for(source, turn + 1)
            snapshot = source.newest()
            rows = snapshot.rows_of(np.array([900 + turn]))
            assert snapshot.features(None, rows).tolist() == [[turn, 1, 2, 3]]
        finally:
            server.kill()
