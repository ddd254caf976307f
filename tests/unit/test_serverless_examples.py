"""The files of examples/serverless say what the command line and the handler take."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer
import yaml

from livegnn.cli import app

FOLDER = Path(__file__).parents[2] / "examples" / "serverless"
ROOT = FOLDER.parents[1]


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.lambda"])
def test_an_image_is_made_of_what_the_guide_puts_there(name: str) -> None:
    """No release is needed: the wheel is compiled in the image. The memory model is copied with the model."""
    guide = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
    assert "python -m build --sdist --outdir examples/serverless" in guide
    assert "cp model.lgnn model.lgnn.memory examples/serverless" in guide
    copied = re.findall(r"^COPY (?!--from)(.*) \.$", read(name), re.MULTILINE)
    assert copied == ["livegnn-*.tar.gz", "model.lgnn*"]
    assert fnmatch("model.lgnn.memory", copied[1])
    assert fnmatch("model.lgnn", copied[1])


def test_nobody_calls_the_api_of_the_template_without_a_key() -> None:
    """An API that SAM makes by itself is public."""
    resources = yaml.load(read("template.yaml"), Loader)["Resources"]
    auth = resources["Api"]["Properties"]["Auth"]
    assert auth == {"EnableIamAuthorizer": True, "DefaultAuthorizer": "AWS_IAM"}
    for event in resources["Predictions"]["Properties"]["Events"].values():
        assert event["Properties"]["ApiId"] == "Api"
    assert resources["Predictions"]["Properties"]["FunctionUrlConfig"]["AuthType"] == "AWS_IAM"


def command_of(name: str, word: str) -> list[str]:
    (found,) = re.findall(rf"^{word} (\[.*\])$", (FOLDER / name).read_text(encoding="utf-8"), re.MULTILINE)
    return json.loads(found)


class Loader(yaml.SafeLoader):
    """`!Sub` and `!Ref` of CloudFormation as what they name."""


Loader.add_multi_constructor("!", lambda loader, tag, node: loader.construct_scalar(node))


def test_the_container_runs_a_command_with_the_concurrency_of_the_service(monkeypatch) -> None:
    name, *words = command_of("Dockerfile", "CMD")
    assert name == "livegnn"
    service = yaml.safe_load((FOLDER / "service.yaml").read_text(encoding="utf-8"))
    spec = service["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    monkeypatch.setenv("PORT", "9000")
    group = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    command = group.commands[words[1]]
    assert (
        command.make_context("serve", [*words[2:], "--model", "m"]).params["snapshot"] == "gs://BUCKET/PREFIX"
    )
    (model,) = re.findall(r"^ENV LIVEGNN_MODEL=(.*)$", read("Dockerfile"), re.MULTILINE)
    monkeypatch.setenv("LIVEGNN_MODEL", model)
    given = command.make_context("serve", words[2:]).params
    assert (str(given["model"]), given["port"], given["host"]) == (model, 9000, "0.0.0.0")
    assert given["workers"] + given["waiting"] == spec["containerConcurrency"]
    assert container["startupProbe"]["httpGet"]["path"] == "/readyz"


def test_the_template_of_lambda_names_what_the_handler_reads() -> None:
    assert command_of("Dockerfile.lambda", "ENTRYPOINT") == ["python", "-m", "awslambdaric"]
    (handler,) = command_of("Dockerfile.lambda", "CMD")
    module, _, name = handler.rpartition(".")
    source = (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text(encoding="utf-8")
    assert f"def {name}(event" in source
    template = yaml.load((FOLDER / "template.yaml").read_text(encoding="utf-8"), Loader)
    properties = template["Resources"]["Predictions"]["Properties"]
    variables = {*properties["Environment"]["Variables"]}
    variables |= set(
        re.findall(r"^ENV (\w+)=", (FOLDER / "Dockerfile.lambda").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert variables == {"LIVEGNN_SNAPSHOT", "LIVEGNN_MODEL"}
    assert all(f'"{variable}"' in source for variable in variables)
    assert (FOLDER / template["Resources"]["Predictions"]["Metadata"]["Dockerfile"]).exists()
    routes = {
        (event["Properties"]["Method"], event["Properties"]["Path"])
        for event in properties["Events"].values()
    }
    assert routes == {("post", "/v1/predictions"), ("get", "/v1/health")}
