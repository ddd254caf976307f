"""Says why a module cannot be traced, with the line of the user's code."""

import re
import traceback
from collections.abc import Mapping
from pathlib import PurePath

from torch import fx, nn
from torch.export import ExportedProgram

from livegnn.errors import ModelError


class CallFails(ModelError):
    """A module's own call fails on a small graph, without being traced."""


def code_lines(trace: str) -> list[str]:
    """The innermost line of the user's code in a stack, and the innermost line of PyG, if any."""
    frames = [
        (file, f"{PurePath(file).name}:{line}" + (f", {code!r}" if code else ""))
        for file, line, code in _FRAME.findall(trace)
    ]
    own = [line for file, line in frames if not any(library in file for library in _LIBRARIES)]
    below = [line for file, line in frames if "/torch_geometric/" in file]
    return own[-1:] + below[-1:]


def where(node: fx.Node) -> str:
    """The code lines of a node, as the beginning of an error; empty if they are not known."""
    lines = code_lines(node.meta.get("stack_trace") or "")
    return " by way of ".join(lines) + ": " if lines else ""


def refuse_assertions(program: ExportedProgram, name: str) -> None:
    """Raises `ModelError` for assertions on values, which a prediction that is kept up to date would skip."""
    for node in program.graph.nodes:
        if str(node.target).startswith("aten._assert_async"):
            raise ModelError(
                f"{name}: {where(node)}a value is asserted, which a prediction that is kept up to date does "
                "not check: check the data before the call, and leave it out here"
            )


def way_out(trace: str) -> str:
    """Returns advice on a function that a stack contains; empty if there is none."""
    return next((way for name, way in _WAYS.items() if f"{name}(" in trace or f", in {name}" in trace), "")


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in [^\n]+(?:\n\s*(?!File ")(\S.*\S))?')
_LIBRARIES = ("/torch/", "/torch_geometric/", "/livegnn/importers/", "torch_geometric.nn.", "<string>")
"""Parts of the names of files that are not the user's; PyG generates the code of some of its layers."""


def line_of(error: BaseException) -> str:
    """The innermost line of the user's code in an error's traceback; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not any(library in one.filename for library in _NOT_OWN)]
    return f"{PurePath(own[-1].filename).name}:{own[-1].lineno}, {own[-1].line!r}" if own else ""


_NOT_OWN = ("/torch/", "torch_geometric", "/livegnn/importers/", "/livegnn/model/", "/livegnn/oracle/", "<")
"""Like `_LIBRARIES`, for tracebacks of errors, which also go through the rest of the package."""


def explain_failure(error: Exception, module: nn.Module) -> str:
    """Torch's message, with the line of the user's code, and advice if there is any."""
    ordered = ordered_layer(module)
    if ordered:
        return ordered
    text = str(error) or type(error).__name__
    said = " ".join(text.strip().split("\n\n")[0].split())[:400]
    formatted = "".join(traceback.format_exception(error))
    advice = way_out(formatted) or next((advice for mark, advice in ADVICE.items() if mark in text), "")
    lines = code_lines(formatted.split(_CAUSE)[0])
    place = f"{' by way of '.join(lines)}{': ' if lines else ''}"
    return place + (f"{advice} ({said})" if advice else said)


def ordered_layer(module: nn.Module) -> str:
    """Names a layer that depends on an order, which a graph does not have; empty if there is none."""
    for path, part in module.named_modules():
        for kind, reason in _ORDERED.items():
            if any(of.__name__ == kind for of in type(part).__mro__):
                return f"{path or type(part).__name__} is a {type(part).__name__}, which {reason}"
    return ""


def fixed_by(module: nn.Module, text: str) -> tuple[str, str, str] | None:
    """The class, keyword and value of a layer, named in an error, that reduces the whole graph where it is
    not given a number; None if there is none."""
    for path, part in module.named_modules():
        named = not path or re.search(rf"(^|[ :]){re.escape(path)} ", text)
        for kind, (keyword, value) in _FIXED.items():
            if named and any(of.__name__ == kind for of in type(part).__mro__):
                return kind, keyword, value
    return None


_CAUSE = "The above exception was the direct cause"
_SORTS = "sorts the messages of each node: use sum, mean, max, min, std, var or softmax"
_ORDERED: Mapping[str, str] = {
    **dict.fromkeys(("MedianAggregation", "QuantileAggregation", "SortAggregation"), _SORTS),
    **dict.fromkeys(
        ("LSTMAggregation", "GRUAggregation", "MLPAggregation"),
        "depends on the order of the edges, and a graph has none: use sum, mean, max or softmax",
    ),
    "SetTransformerAggregation": "lets the messages of a node meet each other: use softmax or attention",
}
UNTRACED = "found a fake tensor in the exported"
"""Part of torch's message for a tensor that it did not see being made."""
_FIXED: Mapping[str, tuple[str, str]] = {"ChebConv": ("lambda_max", "2.0")}
"""Layers that take a number from the whole graph -> the keyword that gives it, and its default."""
ADVICE: Mapping[str, str] = {
    "data-dependent": (
        "the way of its computation, a size, or an assertion depends on data: give what is fixed as an "
        "argument, choose with torch.where, and check the data before the call"
    ),
    "Constraints violated": "it works for one number of nodes or edges alone: a size decides what it does",
    UNTRACED: (
        "it makes a tensor in a way that cannot be traced: make it with torch's functions, of the tensors "
        "that the module has or is given"
    ),
    "torch._dynamo.exc": "it calls what cannot be traced",
}
_WAYS: Mapping[str, str] = {
    "to_homogeneous": (
        "it makes one list of the nodes of all types, whose places change with the graph: call it before the "
        "module, which then takes x and edge_index, and edge_type with relations=[...]"
    ),
    "to_undirected": (
        "it makes a list of edges without repetitions: leave it out, and let the graph be undirected, as in "
        "Graph.from_edges(..., undirected=True)"
    ),
    ".numpy": "it leaves torch, which traces nothing else: compute it with torch",
}
"""Functions that cannot be read -> advice."""
