"""The images of examples/serverless, as far as they are made without a container engine: each instruction
runs in a folder and a fresh environment in the place of the image, and what is started there answers."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_lambda import Instance, http_event

import loopback
from functions import body, expected
from livegnn.functions.options import PREDICTOR
from livegnn.remote.memory_model import MemoryModel
from livegnn.snapshots.writer import write_snapshot
from ports import free_port
from streams import make_graph, make_model
from waiting import wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "serverless"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What lies beside a Dockerfile: the source, a model and its memory model."""
    folder = tmp_path_factory.mktemp("context")
    tools = make_environment(folder / "tools")
    subprocess.run([tools / "pip", "install", "--quiet", "build"], check=True)
    subprocess.run([tools / "python", "-m", "build", "--sdist", "--outdir", folder, ROOT], check=True)
    shutil.rmtree(folder / "tools")
    model = make_model()
    model.save(folder / "model.lgnn")
    counts = np.arange(25).reshape(5, 5)
    memory = MemoryModel.fit(counts, counts.sum(1) + 1, model=model.digest, limit=1 << 26)
    memory.save(folder / "model.lgnn.memory")
    return folder


def make_environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin"


class Image:
    """The last stage of a Dockerfile, in a folder."""

    def __init__(self, dockerfile: Path, context: Path, folder: Path) -> None:
        self.entry: list[str] = []
        self.variables: dict[str, str] = {}
        stages: dict[str, Path] = {}
        text = dockerfile.read_text(encoding="utf-8").replace("\\\n", " ")
        for number, stage in enumerate(re.split(r"^FROM ", text, flags=re.MULTILINE)[1:]):
            first, *lines = stage.splitlines()
            self.root, self.bin = folder / str(number), make_environment(folder / f"bin{number}")
            self.root.mkdir()
            if " AS " in first:
                stages[first.split(" AS ")[1]] = self.root
            for line in lines:
                if line and not line.startswith("#"):
                    self._obey(*line.split(" ", 1), context=context, stages=stages)

    def _obey(self, word: str, rest: str, *, context: Path, stages: dict[str, Path]) -> None:
        if word == "WORKDIR":
            self.place = rest
        elif word == "COPY":
            source = context
            if rest.startswith("--from="):
                name, rest = rest.removeprefix("--from=").split(" ", 1)
                source = stages[name]
                rest = re.sub(r"^/\w+/", "", rest)
            *patterns, target = rest.split()
            found = [path for pattern in patterns for path in source.glob(pattern)]
            assert found, f"COPY finds nothing: {rest}"
            for path in found:
                if path.is_dir():
                    shutil.copytree(path, self.root / target)
                else:
                    shutil.copy(path, self.root / target)
        elif word == "RUN":
            subprocess.run(["bash", "-ec", rest], cwd=self.root, env=self.environment(), check=True)
        elif word == "ENV":
            name, _, value = rest.partition("=")
            assert value.startswith(f"{self.place}/")
            self.variables[name] = str(self.root / value.removeprefix(f"{self.place}/"))
        else:
            assert word in ("ENTRYPOINT", "CMD")
            self.entry += json.loads(rest)

    def environment(self, **more: str) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return {**outside, **self.variables, **more, "PATH": f"{self.bin}:{os.environ['PATH']}"}


@pytest.mark.explored
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dockerfile", ["Dockerfile", "Dockerfile.lambda"])
def test_an_image_answers(context: Path, tmp_path: Path, dockerfile: str) -> None:
    image = Image(EXAMPLES / dockerfile, context, tmp_path)
    write_snapshot(make_graph(), str(tmp_path / "snapshot"), seq=5)
    assert Path(f"{image.variables['LIVEGNN_MODEL']}.memory").exists()
    snapshot = {"LIVEGNN_SNAPSHOT": str(tmp_path / "snapshot")}
    if dockerfile == "Dockerfile.lambda":
        command = [str(image.bin / image.entry[0]), *image.entry[1:]]
        variables = {**image.environment(**snapshot), "LIVEGNN_FUNCTION": PREDICTOR}
        with Instance(tmp_path, command, **variables, PYTHONPATH="") as instance:
            answer = instance.invoke(http_event("POST", "/v1/predictions", body(3, 9).decode()))
        content = json.loads(answer["body"])
    else:
        port = str(free_port())
        process = subprocess.Popen(
            image.entry, cwd=image.root, env=image.environment(**snapshot, PORT=port), stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            assert b"listens at" in process.stdout.readline(), shlex.join(image.entry)
            wait_until(lambda: loopback.get(f"http://127.0.0.1:{port}/v1/health").status_code == 200)
            asked = {"content": body(3, 9), "headers": {"content-type": "application/json"}}
            content = loopback.post(f"http://127.0.0.1:{port}/v1/predictions", **asked).json()
        finally:
            process.kill()
            process.communicate()
    assert content["seq"] == 5
    assert np.allclose(content["predictions"], expected(3, 9), atol=1e-5)
