"""Workers in containers: the commands that an engine gets, by an engine that runs them as processes here."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import livegnn
from functions import ENVIRONMENT, HANG, KILL, asked, body, expected, function
from livegnn.functions.containers import ContainerHost
from livegnn.functions.scheduler import Limits
from livegnn.functions.settings import MachineSettings
from livegnn.functions.stage import Stage
from livegnn.functions.worker_host import WorkerDied
from processes import runs
from waiting import PATIENCE, until

ENGINE = '''#!/bin/sh
"exec" "{python}" "$0" "$@"
"""Takes the command line of `docker run` and `docker kill`, and runs what a container would run."""
import json, os, pathlib, signal, sys

folder = pathlib.Path({folder!r})
words = sys.argv[1:]
with open(folder / "commands", "a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "kill":
    os.kill(int((folder / words[1]).read_text()), signal.SIGKILL)
else:
    place = words.index("livegnn:test")
    name = words[words.index("--name") + 1]
    (folder / name).write_text(str(os.getpid()))
    assert words[place + 1] == "python"
    os.execv(sys.executable, [sys.executable, *words[place + 2:]])
'''


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Path:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "docker"
    path.write_text(ENGINE.format(python=sys.executable, folder=str(tmp_path)), encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def commands(engine: Path) -> list[list[str]]:
    return [
        json.loads(line) for line in (engine.parent / "commands").read_text(encoding="utf-8").splitlines()
    ]


def test_the_scheduler_drives_containers(tmp_path, engine) -> None:
    host = ContainerHost(
        function(tmp_path, memory=300 * 2**20),
        "livegnn:test",
        engine=str(engine),
        options=["--volume", "/data:/data:ro"],
    )

    async def work() -> None:
        stage = Stage(host, Limits(2))
        answers = await asyncio.gather(*(stage.call(body(id)) for id in range(5)))
        for id, answer in enumerate(answers):
            found = json.loads(answer.body)["predictions"]
            assert np.allclose(found, expected(id), atol=1e-5)
        hanging = asyncio.create_task(stage.call(body(HANG)))
        await until(lambda: asked(tmp_path, HANG))
        await stage.close()
        with pytest.raises(Exception, match="the node stops"):
            await hanging

    asyncio.run(work())
    launched = [words for words in commands(engine) if words[0] == "run"]
    killed = [words[1] for words in commands(engine) if words[0] == "kill"]
    assert len(launched) == 2
    for number, run in enumerate(sorted(launched, key=lambda words: words[words.index("--name") + 1])):
        name = run[run.index("--name") + 1]
        assert name.endswith(f"-{number}")
        assert run[: run.index("livegnn:test")] == [
            *("run", "--rm", "--interactive", "--init", "--name", name),
            *("--memory", "314572800b", "--memory-swap", "314572800b"),
            *("--env", "MALLOC_ARENA_MAX=1", "--env", "OPENBLAS_NUM_THREADS=1"),
            *("--env", "RUST_MIN_STACK=524288"),
            *("--volume", "/data:/data:ro"),
        ]
        assert run[run.index("livegnn:test") + 1 : -1] == ["python", "-m", "livegnn.functions.worker"]
        assert json.loads(run[-1])["memory"] == 314572800, "the worker keeps to it, too"
    assert killed, "the one that hangs"
    assert set(killed) <= {run[run.index("--name") + 1] for run in launched}
    assert not runs(asked(tmp_path, HANG)[0])


def test_a_node_sets_containers_up(tmp_path, engine) -> None:
    settings = MachineSettings(
        str(tmp_path),
        "none",
        opener="functions:open_snapshot",
        place="containers",
        workers=1,
        sampling_workers=1,
        memory=2**30,
        image="livegnn:test",
        engine=str(engine),
    )

    async def work() -> None:
        node = settings.open()
        answer = await node.predict(body(3))
        assert np.allclose(json.loads(answer.body)["predictions"], expected(3), atol=1e-5)
        await node.close()

    asyncio.run(work())
    functions = [json.loads(words[-1]) for words in commands(engine)]
    assert [one["stage"] for one in functions] == ["sample", "infer"]
    assert functions[0]["arguments"] == {"snapshot_url": str(tmp_path), "model_path": "none"}


def test_a_container_that_dies_and_an_engine_that_is_not_there(tmp_path, engine) -> None:
    async def work() -> None:
        host = ContainerHost(function(tmp_path), "livegnn:test", engine=str(engine))
        worker = await host.launch(0)
        with pytest.raises(WorkerDied, match="signal 9"):
            await worker.call(body(KILL))
        missing = ContainerHost(function(tmp_path), "livegnn:test", engine=str(tmp_path / "podman"))
        with pytest.raises(WorkerDied, match=r"cannot start .*podman"):
            await missing.launch(0)

    asyncio.run(work())


TESTS = Path(__file__).parents[1]


def _real_host(folder: Path) -> ContainerHost | None:
    """Of an image that LIVEGNN_IMAGE names, with this package in it; or of this machine's own files, which
    podman takes in the place of an image."""
    given = function(folder, memory=400 * 2**20)
    answers = ["--volume", f"{folder}:{folder}"]
    image = os.environ.get("LIVEGNN_IMAGE")
    for engine in ("docker", "podman"):
        if image is not None and _succeeds(engine, "info"):
            inside = ["--volume", f"{TESTS}:/tests:ro", "--env", "PYTHONPATH=/tests"]
            return ContainerHost(given, image, engine=engine, options=[*answers, *inside])
    if _succeeds("podman", "run", "--rm", "--network=host", "--rootfs", "/:O", "true"):
        path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
        modules = f"PYTHONPATH={Path(livegnn.__file__).parents[1]}:{TESTS}"
        here = ["--network=host", "--env", path, "--env", modules, "--rootfs"]
        return ContainerHost(given, "/:O", engine="podman", options=[*answers, *here])
    return None


def _succeeds(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False).returncode == 0


def test_a_real_engine_runs_workers(tmp_path) -> None:
    host = _real_host(tmp_path)
    if host is None:
        pytest.skip("no container engine runs anything here: start docker or podman")

    async def work() -> None:
        stage = Stage(host, Limits(2))
        answers = await asyncio.gather(*(stage.call(body(id)) for id in range(5)))
        for id, answer in enumerate(answers):
            assert np.allclose(json.loads(answer.body)["predictions"], expected(id), atol=1e-5)
        await stage.close()

    asyncio.run(work())
