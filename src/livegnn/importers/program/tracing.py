"""Changes torch, PyG and Python while a module is traced, and restores them afterwards.

Only `ordinary` is thread-safe: a caller that traces must hold a lock, since functions of torch and PyG are
replaced for all threads.
"""

import builtins
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch_geometric
from torch import nn
from torch.export import _trace
from torch.fx.experimental import symbolic_shapes
from torch.overrides import TorchFunctionMode
from torch_geometric.nn.dense import HeteroLinear
from torch_geometric.utils import num_nodes

from livegnn.importers.program.copying import keeping_random
from livegnn.importers.program.failures import code_lines


@contextmanager
def tracing() -> Iterator[None]:
    """Makes PyG traceable: replaces kernels that cannot be traced by equivalent operations."""
    length = builtins.len

    def symbolic_length(of: Any) -> int:
        """The first size of a tensor as a symbol; the original `len` would turn it into a number."""
        return of.shape[0] if isinstance(of, torch.Tensor) and of.dim() else length(of)

    with (
        _replacing(torch_geometric.backend, "use_segment_matmul", False),
        _replacing(HeteroLinear, "forward", _hetero_linear),
        _replacing(builtins, "len", symbolic_length),  # gives the same results in other threads
        warnings.catch_warnings(),
        torch.no_grad(),
        keeping_random(),
        _silent(),
        # mkldnn's kernels compute whole layers; if its TF32 is set, in any way, torch warns. A cache by
        # symbols grows: each trace makes new symbols.
        torch.backends.mkldnn.flags(enabled=False, allow_tf32=None),
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _replacing(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replaces an attribute of a module or a class."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class _Defaults:
    """Defaults that all threads share: the first import sets them, the last running one restores them."""

    def __init__(self) -> None:
        self._lock, self._imports = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._imports == 0:
                self._dtype = torch.get_default_dtype()
                torch.set_default_dtype(torch.float32)
                self._stance = torch.compiler.set_stance("force_eager")
            self._imports += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._imports -= 1
            if self._imports == 0:
                self._stance.__exit__(None, None, None)
                torch.set_default_dtype(self._dtype)


_defaults = _Defaults()


@contextmanager
def ordinary() -> Iterator[None]:
    """Runs with torch's defaults for dtype, device, precision and inference mode, in place of the caller's.
    Any thread may call.

    Compiled code runs as it was written: to compile it would take seconds for each of our small graphs.
    """
    # A device costs a tenth of a trace, since torch calls it each time.
    on_cpu = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    with _defaults, torch.inference_mode(False), torch.autocast("cpu", enabled=False), on_cpu:
        yield


_STRUCTURED = "torch.__trace"


@contextmanager
def _silent() -> Iterator[None]:
    """Suppresses the logs of torch in this thread, and its prints; the error has the same information.

    The logger of structured traces stays as it is: its handler removes itself at the first record, unless the
    user requests such a trace, and to gather records that are never written takes a tenth of an export.
    """
    own = threading.get_ident()
    loggers = dict(logging.Logger.manager.loggerDict)
    quiet = [one for name, one in loggers.items() if name.startswith("torch") and name != _STRUCTURED]
    handlers = [handler for one in quiet for handler in getattr(one, "handlers", ())]

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    for handler in handlers:
        handler.addFilter(of_others)
    vars(_trace)["print"] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del vars(_trace)["print"]
        for handler in handlers:
            handler.removeFilter(of_others)


@contextmanager
def catching_tests() -> Iterator[list[str]]:
    """Collects the tests of values that tracing refuses, since some modules catch that error and go on."""
    found: list[str] = []
    kind = symbolic_shapes.GuardOnDataDependentSymNode
    before = kind.__init__

    def note(self: Exception, *args: object, **kwargs: object) -> None:
        before(self, *args, **kwargs)
        found.append(" by way of ".join(code_lines("".join(traceback.format_stack()))))

    with _replacing(kind, "__init__", note):
        yield found


@contextmanager
def running_hooks(module: nn.Module) -> Iterator[None]:
    """Makes PyG's layers run their hooks, which they skip while they are compiled."""
    kinds = ("_propagate", "_message", "_aggregate", "_edge_update")
    changed: list[tuple[dict[str, object], object]] = []
    for part in module.modules():
        if not any(
            held for name, held in vars(part).items() if name.endswith("_hooks") and name.startswith(kinds)
        ):
            continue
        for name in ("propagate", "edge_updater"):
            names = getattr(getattr(part, name, None), "__globals__", {})
            if "is_compiling" in names:
                changed.append((names, names["is_compiling"]))
                names["is_compiling"] = lambda: False
    try:
        yield
    finally:
        for names, before in reversed(changed):
            names["is_compiling"] = before


NODES: list[object] = []
"""The number of nodes in the call that is traced; empty if there are several types of nodes."""
GROUPED: list[object] = []
"""The groups whose numbers the call that is traced is given, for each node."""


@contextmanager
def counting_nodes() -> Iterator[None]:
    """Makes PyG's functions use the number of all nodes by default, instead of one more than the last node
    with an edge. If that makes a difference, the import's final check finds it."""
    counted = num_nodes.maybe_num_nodes
    named = [one for name, one in sys.modules.items() if name.startswith("torch_geometric")]
    users = [one for one in named if getattr(one, "maybe_num_nodes", None) is counted]

    def count(edge_index: object, num_nodes: object = None) -> object:
        numbers = len(NODES) == 1 and not (GROUPED and _has_size(edge_index, NODES[0]))
        return NODES[0] if num_nodes is None and numbers else counted(edge_index, num_nodes)

    def groups(edge_index: object, num_nodes: object = None) -> object:
        """A softmax by groups of any number that is large enough, such as that of edges, is the same."""
        of_one_type = isinstance(num_nodes, torch.SymInt) and len(NODES) == 1
        if GROUPED and _has_size(edge_index, NODES[0] if of_one_type else None):
            return counted(edge_index, num_nodes)
        return NODES[0] if of_one_type else count(edge_index, num_nodes)

    with ExitStack() as replaced:
        replaced.callback(NODES.clear)
        replaced.callback(GROUPED.clear)
        for user in users:
            of_softmax = user.__name__ == "torch_geometric.utils._softmax"
            replaced.enter_context(_replacing(user, "maybe_num_nodes", groups if of_softmax else count))
        yield


def _has_size(index: object, size: object) -> bool:
    """Whether there is a number for each row of a size. To compare the sizes would fix them."""
    if not isinstance(index, torch.Tensor) or index.dim() != 1 or not isinstance(size, torch.SymInt):
        return False
    own = index.shape[0]
    return isinstance(own, torch.SymInt) and bool(own.node.expr == size.node.expr)


class _OfNumbers(type):
    """The class of `_Whole`, which is as good as `int` in tests of types."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, int)

    def __subclasscheck__(cls, one: type) -> bool:
        return issubclass(one, int)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        number = args[0].item() if args and isinstance(args[0], torch.Tensor) else None
        if not isinstance(number, torch.SymInt):
            return int(*args, **kwargs)
        torch._check(number >= 1)  # else sizes made of it are compared with 1
        return number


class _Whole(metaclass=_OfNumbers):
    """In place of `int`: a number out of a tensor stays a symbol, as in ``int(edge_index.max()) + 1``."""


@contextmanager
def keeping_symbols(module: nn.Module) -> Iterator[None]:
    """Makes ``int`` keep symbols in the files of a module's classes, and in PyG's that count nodes."""
    named = {type(part).__module__ for part in module.modules()}
    named |= {f"torch_geometric.{name}" for name in ("utils._scatter", "utils.num_nodes", "nn.aggr.base")}
    files = [vars(sys.modules[name]) for name in named if name in sys.modules]
    files = [names for names in files if "int" not in names]
    for names in files:
        names["int"] = _Whole
    try:
        yield
    finally:
        for names in files:
            names.pop("int", None)


class Detaching(TorchFunctionMode):
    """Replaces ``tensor.data`` by ``tensor.detach()``, which can be traced and is the same value."""

    _data = torch.Tensor.data.__get__

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return args[0].detach() if func == self._data else func(*args, **(kwargs or {}))


def _hetero_linear(self: HeteroLinear, x: torch.Tensor, type_vec: torch.Tensor) -> torch.Tensor:
    result = torch.einsum("ni,nio->no", x, self.weight[type_vec])
    return result if self.bias is None else result + self.bias[type_vec]
