"""examples/kuberay.yaml says what the command line takes, and lets only its own pods reach Ray."""

import shlex
from pathlib import Path

import typer
import yaml

from livegnn.cli import app
from livegnn.cluster.watch import KINDS

ROOT = Path(__file__).parents[2]


def read() -> dict[str, dict]:
    text = (ROOT / "examples" / "kuberay.yaml").read_text(encoding="utf-8")
    return {one["kind"]: one for one in yaml.safe_load_all(text)}


def container_of(pod: dict) -> dict:
    (container,) = pod["spec"]["containers"]
    return container


def test_the_commands_of_the_example_exist() -> None:
    front = container_of(read()["Deployment"]["spec"]["template"])
    shell, option, line = front["command"]
    assert (shell, option) == ("sh", "-c")
    parsed = {}
    for words in (shlex.split(one) for one in line.split("&&")):
        command = [word for word in words if word != "exec"]
        if command[0] == "livegnn":
            group = typer.main.get_command(app).commands[command[1]]  # type: ignore[attr-defined]
            parsed[command[2]] = group.commands[command[2]].make_context(command[2], command[3:]).params
        else:
            assert command[:2] == ["ray", "start"]
    assert parsed["up"]["detach"]
    assert not parsed["front"]["addresses"]
    assert parsed["front"]["port"] == front["readinessProbe"]["httpGet"]["port"]
    assert parsed["front"]["deployment"] == parsed["up"]["deployment"]
    service = read()["Service"]["spec"]
    assert [one["port"] for one in service["ports"]] == [parsed["front"]["port"]]
    guide = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert f"livegnn cluster status {parsed['up']['deployment']}" in guide


def test_only_pods_of_the_example_reach_ray_and_all_have_its_token() -> None:
    kinds = read()
    ray, front = kinds["RayCluster"], kinds["Deployment"]["spec"]["template"]
    head, (group,) = ray["spec"]["headGroupSpec"]["template"], ray["spec"]["workerGroupSpecs"]
    pods = [head, group["template"], front]
    token = container_of(head)["env"]
    assert {one["name"] for one in token} == {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"}
    assert all(container_of(pod)["env"] == token for pod in pods)
    rules = kinds["NetworkPolicy"]["spec"]
    chosen = rules["podSelector"]["matchLabels"].items()
    assert all(chosen <= pod["metadata"]["labels"].items() for pod in pods)
    inside, clients = rules["ingress"]
    assert [one["podSelector"]["matchLabels"].items() for one in inside["from"]] == [chosen]
    assert clients == {"ports": kinds["Service"]["spec"]["ports"]}
    assert all(f"livegnn_{kind}" in group["rayStartParams"]["resources"] for kind in KINDS)
