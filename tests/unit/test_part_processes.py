"""The processes of parts, as their leader hears them."""

import os
import resource
from contextlib import ExitStack

import pytest

from livegnn.errors import WorkerUnavailableError
from livegnn.partitions.processes import ChildProcess
from waiting import PATIENCE

MANY_FILES = 1100  # more than select.select takes


def test_a_process_is_heard_by_a_leader_of_many_open_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * MANY_FILES), hard))
    with ExitStack() as opened:
        for _ in range(MANY_FILES):
            opened.callback(os.close, os.dup(0))
        speaking = ChildProcess(program=("-c", "print('terms'); input()"))
        opened.callback(speaking.end, 0)
        assert speaking.hear(PATIENCE) == "terms\n"
        with pytest.raises(WorkerUnavailableError, match="within 0 seconds"):
            speaking.hear(0)
