"""Checks, as tests run, that arrays have the shapes and types that annotations of livegnn give them.

The package names its annotations in quotes, so that whoever imports it need not load jaxtyping. Here they are
evaluated: what public functions take and return, and what dataclasses and named tuples hold. One name is one
number in a call.
"""

import builtins
import collections.abc
import dataclasses
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Iterator

import jaxtyping
import numpy as np

ROOMS = ("arguments", "events", "graph", "inference", "runtime", "sampling", "server")
ALL_UNTIL, ONE_IN = 16, 64
"""Calls of a function that are checked: so many first, and then one in so many."""
SHAPED = re.compile(r"\b(Bool|Float32|Float64|Int64|Shaped|UInt32)\[")


class _Names(dict[str, object]):
    """Of a module's annotations; what only type checkers import, is anything."""

    def __missing__(self, name: str) -> object:
        for home in (jaxtyping, collections.abc, builtins):
            if hasattr(home, name):
                return getattr(home, name)
        return typing.Any


def evaluate(annotation: object, module: types.ModuleType) -> object:
    if not isinstance(annotation, str) or not SHAPED.search(annotation):
        return None
    code = re.sub(r"(?:npt\.)?NDArray\[np\.\w+\]", "np.ndarray", annotation)
    return eval(code, {"__builtins__": {}}, _Names(vars(module) | {"np": np}))


def fits(value: object, annotation: object) -> bool:
    """Whether arrays in a value are as annotated; of anything else the type checker says it."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(fits(value, one) for one in typing.get_args(annotation))
    if annotation is None or annotation is type(None):
        return value is None
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, collections.abc.Mapping) and all(fits(v, args[1]) for v in value.values())
    if origin in (list, tuple, collections.abc.Sequence):
        return isinstance(value, (list, tuple))
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        if isinstance(value, np.ndarray) and value.dtype == np.int64:
            # Arrays of the native core are of C's long long, which is another type with the same values.
            value = value.view(np.int64)
        return isinstance(value, annotation)
    return not isinstance(value, np.ndarray) if isinstance(annotation, type) else True


def check(value: object, annotation: object, what: str) -> None:
    if annotation is not None and not fits(value, annotation):
        shown = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else repr(value)[:80]
        raise AssertionError(f"{what}: expected {annotation}, got {shown}")


def is_due(calls: "Iterator[int]") -> bool:
    """The first calls are checked, and then some: there are functions that each batch calls."""
    number = next(calls)
    return number < ALL_UNTIL or number % ONE_IN == 0


def checked(function: typing.Callable[..., object], module: types.ModuleType) -> typing.Callable[..., object]:
    """The function, which checks what its annotations give a shape; as it is where they give none.

    What it is given is checked if it is an array, and not refused: of anything else the function says itself
    what is wrong.
    """
    annotations = {
        name: found
        for name, annotation in function.__annotations__.items()
        if (found := evaluate(annotation, module)) is not None
    }
    if not annotations:
        return function
    signature, returned, calls = (
        inspect.signature(function),
        annotations.pop("return", None),
        itertools.count(),
    )

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> object:
        result = function(*args, **kwargs)
        if is_due(calls):
            given = signature.bind(*args, **kwargs).arguments
            with jaxtyping.jaxtyped("context"):
                for name, annotation in annotations.items():
                    if isinstance(given.get(name), np.ndarray):
                        check(given[name], annotation, f"{function.__qualname__}, {name}")
                check(result, returned, f"{function.__qualname__} returns")
        return result

    return call


def check_fields(class_: type, module: types.ModuleType) -> None:
    """Makes a dataclass or a named tuple check what it is made of."""
    fields = {
        name: found
        for name, annotation in class_.__annotations__.items()
        if (found := evaluate(getattr(annotation, "__forward_arg__", annotation), module)) is not None
    }
    if not fields:
        return
    is_dataclass = dataclasses.is_dataclass(class_)
    make, calls = class_.__init__ if is_dataclass else class_.__new__, itertools.count()

    @functools.wraps(make)
    def made(self: object, *args: object, **kwargs: object) -> object:
        result = make(self, *args, **kwargs)
        if is_due(calls):
            with jaxtyping.jaxtyped("context"):
                for name, annotation in fields.items():
                    value = getattr(self if is_dataclass else result, name)
                    check(value, annotation, f"{class_.__name__}.{name}")
        return result

    setattr(class_, "__init__" if is_dataclass else "__new__", made)


def modules() -> Iterator[types.ModuleType]:
    for room in ROOMS:
        package = importlib.import_module(f"livegnn.{room}")
        yield package
        for one in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
            yield importlib.import_module(one.name)


def install() -> None:
    """From now on, what is annotated with a shape is checked."""
    replaced = {}
    for module in modules():
        for own in list(vars(module).values()):
            if getattr(own, "__module__", None) != module.__name__:
                continue
            if isinstance(own, type):
                install_in_class(own, module)
            elif inspect.isfunction(own):
                replaced[own] = checked(own, module)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "livegnn":
            for attribute, value in list(vars(module).items()):
                if inspect.isfunction(value) and replaced.get(value, value) is not value:
                    setattr(module, attribute, replaced[value])


def install_in_class(class_: type, module: types.ModuleType) -> None:
    for name, member in list(vars(class_).items()):
        if isinstance(member, property) and member.fget is not None:
            setattr(
                class_, name, property(checked(member.fget, module), member.fset, member.fdel, member.__doc__)
            )
        elif inspect.isfunction(member):
            setattr(class_, name, checked(member, module))
    if dataclasses.is_dataclass(class_) or (issubclass(class_, tuple) and hasattr(class_, "_fields")):
        check_fields(class_, module)
