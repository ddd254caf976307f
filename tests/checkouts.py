"""Modules out of checkouts of other people's repositories, without what these need to run.

A file is imported as Python imports it, with two differences. Of what it says at its top only imports,
definitions and plain constants are executed, so that nothing is read, downloaded or trained. And a library
that is not here is replaced by names that may be called, inherited from and asked for anything.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from torch import nn
from torch_geometric import utils


class _Anything(type):
    """Of a class that stands for a library's: its names, indices and decorators are such classes too."""

    def __getattr__(cls, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return absent(name)

    def __getitem__(cls, _: object):
        return cls

    def __iter__(cls):
        return iter(())


class Absent(metaclass=_Anything):
    """A library's class or function that is not here."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __init_subclass__(cls, **kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **kwargs: object):
        if len(args) == 1 and not kwargs and callable(args[0]):  # a decorator
            return args[0]
        return Absent()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent()


def absent(name: str) -> type:
    return _Anything(name, (Absent,), {})


class LightningModule(nn.Module):
    """Of what Lightning adds, nothing is needed to predict."""

    def save_hyperparameters(self, *args: object, **kwargs: object) -> None:
        pass

    def log(self, *args: object, **kwargs: object) -> None:
        pass


class ModelHubMixin:
    """Of the model hub."""


def _scatter(reduce: str) -> Callable[..., object]:
    def scatter(src, index, dim=-1, out=None, dim_size=None, reduce=reduce):
        while index.dim() > 1:  # torch_scatter's indices may be as wide as the rows
            index = index.select(-1, 0)
        dim_size = out.size(dim) if out is not None and dim_size is None else dim_size
        got = utils.scatter(src, index, dim, dim_size, {"add": "sum"}.get(reduce, reduce))
        return got if out is None else out + got

    return scatter


def _softmax(src, index, dim=-1, dim_size=None):
    return utils.softmax(src, index, num_nodes=dim_size, dim=dim)


_PRESENT: dict[str, dict[str, object]] = {
    "torch_scatter": {
        **{f"scatter_{kind}": _scatter(kind) for kind in ("add", "sum", "mean", "min", "max", "mul")},
        "scatter": _scatter("sum"),
        "scatter_softmax": _softmax,
    },
    "pytorch_lightning": {"LightningModule": LightningModule},
    "lightning": {"LightningModule": LightningModule},
    "lightning.pytorch": {"LightningModule": LightningModule},
    "huggingface_hub": {"PyTorchModelHubMixin": ModelHubMixin},
}
"""What stands for parts of libraries by which a module computes."""


class _Library(ModuleType):
    """A library that is not here."""

    __path__: Sequence[str] = ()
    __all__: Sequence[str] = ()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        made = _PRESENT.get(self.__name__, {}).get(name) or absent(name)
        setattr(self, name, made)
        return made


class Checkout(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules in folders of checkouts, and replaces those that are nowhere.

    roots: folders in which modules are looked for, the first one first. constants: names whose values are
    calls, which are executed all the same. given: names that every file finds, instead of its own.
    """

    def __init__(
        self, roots: Sequence[Path], constants: Sequence[str] = (), given: dict[str, object] | None = None
    ) -> None:
        self.roots, self.constants, self.given = roots, frozenset(constants), given or {}

    def load(self, file: Path) -> ModuleType:
        """A file of the checkout as a module; also its finder for what the file imports, from now on."""
        for root in self.roots:
            for one in root.iterdir() if root.is_dir() else ():
                name = one.stem
                known = sys.modules.get(name)
                if known is not None and name not in sys.stdlib_module_names and self._is_ours(known):
                    del sys.modules[name]
        if sys.meta_path[0] is not self:
            sys.meta_path.insert(0, self)
            sys.meta_path.append(_Replacements())
        return importlib.import_module(self._name(file))

    @staticmethod
    def _is_ours(module: ModuleType) -> bool:
        """Whether it is a module of these tests, which a checkout's may have the name of."""
        return Path(getattr(module, "__file__", None) or "/").parent == Path(__file__).parent

    def _name(self, file: Path) -> str:
        for root in self.roots:
            if file.is_relative_to(root):
                return ".".join(file.relative_to(root).with_suffix("").parts)
        raise ValueError(f"{file} is in none of {', '.join(map(str, self.roots))}")

    # -- importlib

    def find_spec(self, fullname: str, path: object = None, target: object = None):
        for root in self.roots:
            place = root.joinpath(*fullname.split("."))
            if place.with_suffix(".py").is_file():
                return importlib.util.spec_from_file_location(fullname, place.with_suffix(".py"), loader=self)
            if place.is_dir() and (fullname.count(".") or self._holds_python(place)):
                spec = importlib.machinery.ModuleSpec(fullname, self, is_package=True)
                spec.submodule_search_locations = [str(place)]
                spec.origin = str(place / "__init__.py")
                spec.has_location = True
                return spec
        return None

    @staticmethod
    def _holds_python(folder: Path) -> bool:
        return next(folder.rglob("*.py"), None) is not None

    def create_module(self, spec: object) -> None:
        return None

    def get_source(self, fullname: str) -> str:
        return Path(sys.modules[fullname].__file__ or "").read_text(encoding="utf-8", errors="replace")

    def exec_module(self, module: ModuleType) -> None:
        file = Path(module.__spec__.origin or "")
        if not file.is_file():
            return
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
        vars(module).update(self.given)
        for node in tree.body:
            if self._is_wanted(node):
                self._execute(node, module, str(file))

    def _is_wanted(self, node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.ClassDef() | ast.FunctionDef():
                return getattr(node, "name", None) not in self.given
            case ast.Try():
                return all(isinstance(one, ast.Import | ast.ImportFrom | ast.Assign) for one in node.body)
            case ast.Assign(value=value, targets=targets):
                return self._is_constant(value, targets)
            case ast.AnnAssign(value=value, target=target) if value is not None:
                return self._is_constant(value, [target])
        return False

    def _is_constant(self, value: ast.expr, targets: Sequence[ast.expr]) -> bool:
        names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        calls = any(isinstance(one, ast.Call) for one in ast.walk(value))
        return not names & set(self.given) and (not calls or bool(names & self.constants))

    def _execute(self, node: ast.stmt, module: ModuleType, file: str) -> None:
        code = compile(ast.Module([node], []), file, "exec", dont_inherit=True)
        try:
            exec(code, vars(module))
        except Exception as error:
            names = {one.name for one in ast.walk(node) if isinstance(one, ast.alias)}
            if not names and not isinstance(node, ast.Assign | ast.AnnAssign | ast.ClassDef):
                raise
            vars(module).setdefault("__failed__", {})[getattr(node, "name", "")] = error
            if isinstance(node, ast.Import | ast.ImportFrom):
                for one in node.names:
                    vars(module).setdefault(one.asname or one.name.partition(".")[0], absent(one.name))


class _Replacements(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds libraries that no one else finds."""

    def find_spec(self, fullname: str, path: object = None, target: object = None):
        if fullname.partition(".")[0] in ("torch", "torch_geometric", "livegnn"):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Library(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def made_of(module: ModuleType, name: str) -> type[nn.Module]:
    """A class of a file. Raises what its definition raised."""
    failed = vars(module).get("__failed__", {})
    if name in failed:
        raise failed[name]
    return getattr(module, name)
