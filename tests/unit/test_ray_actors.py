"""Workers that are Ray actors, in a real cluster of one node."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import numpy as np
import pytest

from functions import ENVIRONMENT, GROW, KILL, ROOM, asked, body, expected, function
from livegnn.functions.function import Function
from livegnn.functions.scheduler import Limits
from livegnn.functions.stage import Stage
from livegnn.functions.worker_host import WorkerDied
from waiting import until

ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One of this test's own, whatever else runs on the machine; names of its sockets must be short."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    folder = tempfile.mkdtemp(prefix="lgray-", dir="/tmp")
    ray.init(
        "local",
        _temp_dir=folder,
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.xdist_group("ray")
@pytest.mark.filterwarnings("ignore")
def test_the_scheduler_drives_actors(tmp_path, cluster) -> None:
    from livegnn.functions.ray_actors import RayHost

    async def work() -> None:
        stage = Stage(RayHost(function(tmp_path), seconds=300), Limits(2, keep_alive=600.0))
        answers = await asyncio.gather(*(stage.call(body(id)) for id in range(6)))
        for id, answer in enumerate(answers):
            assert np.allclose(json.loads(answer.body)["predictions"], expected(id), atol=1e-5)
        assert stage.scheduler.workers == stage.figures.launched == 2

        # One dies while it is idle, one with a request.
        os.kill(int(asked(tmp_path, 5)[0]), signal.SIGKILL)
        await until(lambda: stage.scheduler.workers == 1)
        with pytest.raises(Exception, match="workers fail"):
            await stage.call(body(KILL))
        assert len(asked(tmp_path, KILL)) == 2
        assert (await stage.call(body(7))).status == 200
        await stage.close()

        broken = RayHost(Function("no_module:nothing"), seconds=300)
        with pytest.raises(WorkerDied, match="no_module"):
            await broken.launch(0)

        small = RayHost(function(tmp_path, memory=10**6), seconds=300)
        with pytest.raises(WorkerDied, match="memory must be at least") as died:
            await small.launch(0)
        assert died.value.error_type == "InputError"
        limited = Stage(RayHost(function(tmp_path, memory=10**9), seconds=300), Limits(1))
        told = json.loads((await limited.call(body(ROOM))).body)["error"]["message"]
        assert 0 < int(told.removeprefix("room ")) < 10**9
        failed = json.loads((await limited.call(body(GROW))).body)["error"]
        assert failed["type"] == "MemoryError"
        assert (await limited.call(body(7))).status == 200
        assert limited.figures.died == 0
        await limited.close()

    asyncio.run(work())
