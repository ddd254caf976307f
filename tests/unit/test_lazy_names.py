"""Names that are loaded when they are first used, and what `livegnn.model` shows of other rooms."""

import importlib
import json
import subprocess
import sys

import pytest

import livegnn
from livegnn import importers, lazy_names, oracle, verification

OTHER_ROOMS = (
    "livegnn.importers",
    "livegnn.oracle",
    "livegnn.verification",
    "livegnn.compiler",
    "torch",
    "z3",
)


def run(code: str) -> object:
    """What a fresh process prints last, as JSON."""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(result.stdout.splitlines()[-1])


def test_a_name_is_that_of_its_module_or_a_module() -> None:
    lazy_names.register("somewhere", {"dumps": "json", "decoder": "json.decoder", "lost": "json"})
    assert lazy_names.load("somewhere", "dumps") is json.dumps
    assert lazy_names.load("somewhere", "decoder") is json.decoder
    with pytest.raises(AttributeError, match="module 'somewhere' has no attribute 'loads'"):
        lazy_names.load("somewhere", "loads")
    with pytest.raises(AttributeError, match="module 'json' has no attribute 'lost'"):
        lazy_names.load("somewhere", "lost")


def test_a_module_that_is_missing_is_named() -> None:
    lazy_names.register("somewhere", {"name": "livegnn.missing"})
    with pytest.raises(ModuleNotFoundError, match=r"livegnn\.missing"):
        lazy_names.load("somewhere", "name")


@pytest.mark.parametrize("package", ["livegnn", "livegnn.model", "livegnn.inference"])
def test_every_registered_name_is_shown(package: str) -> None:
    names = lazy_names.names(package)
    assert names
    for name in names:
        assert getattr(importlib.import_module(package), name) is lazy_names.load(package, name)


def test_the_model_shows_names_of_other_rooms() -> None:
    assert livegnn.model.verify is verification.verify
    assert livegnn.model.reference is oracle.reference
    assert livegnn.model.exactness is oracle.exactness
    assert livegnn.model.explain_import is importers.explanation.explain_import
    assert livegnn.model.propose is verification.proposals.propose


def test_a_model_alone_loads_no_other_room() -> None:
    code = f"""
import json, sys
from livegnn.model import Convolution, Input, Model, Propagate, Step
Model({{"x": Input("node", 2)}}, (Step("relu", ("x",), "y"),), {{}}, "y", ("x", "y"))
Model.from_convolutions([Convolution()], in_channels=2, verify=False)
print(json.dumps([room for room in {OTHER_ROOMS} if room in sys.modules]))
"""
    assert run(code) == []


def test_what_needs_no_torch_loads_none() -> None:
    code = """
import json, sys
from livegnn.model import Convolution, exactness, propose, reference, verify
verify(Convolution(), in_channels=2)
print(json.dumps("torch" in sys.modules))
"""
    assert run(code) is False


def test_without_torch_importing_says_what_to_install() -> None:
    code = """
import json, sys
sys.modules["torch"] = None
from livegnn import Model, ModelError
messages = []
for call in (lambda: Model.from_pyg(None), lambda: Model.from_exported("model.pt2")):
    try:
        call()
    except ModelError as error:
        messages.append(str(error))
print(json.dumps(messages))
"""
    assert run(code) == [
        "importing a PyG module needs torch, which is not installed: pip install 'livegnn[torch]'",
        "importing an exported program needs torch, which is not installed: pip install 'livegnn[torch]'",
    ]
