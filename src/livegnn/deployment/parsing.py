"""Values of a deployment file, checked against the annotations of its sections."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from livegnn.errors import InputError
from livegnn.log.client_settings import place_client_settings
from livegnn.log.idempotency import CLIENT, check_origin
from livegnn.runtime import ViewFactory
from livegnn.tables import CsvForm, EdgeRows, NodeRows, TableMapping
from livegnn.wording import kind_of

_Section = TypeVar("_Section")


def refuse_moved(content: Mapping[str, object]) -> None:
    """Raises InputError that says where keys are that stood elsewhere before."""
    if "state" in content:
        raise InputError("the section [state] has become the key state_dir in [engine]: write it there")
    runtime = content.get("runtime")
    for name in ("threads", "history", "non_finite"):
        if isinstance(runtime, dict) and name in runtime:
            raise InputError(f"{name} has moved from [runtime] to [engine]: write it there")


def refuse_unknown(content: Mapping[str, object], known: Mapping[str, object], what: str) -> None:
    """Raises InputError for a name of `content` that is none of `known`. what: what it names."""
    for name in content:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"unknown {what} {name!r}: {hint}")


def parse_section(name: str, type_: type[_Section], content: object, directory: Path) -> _Section:
    """One section, its values checked against the annotations of `type_`."""
    if not isinstance(content, dict):
        raise InputError(f"{name} must be a section [{name}], got {content!r}")
    known = {part.metadata.get("key", part.name): part for part in fields(type_)}  # type: ignore[arg-type]
    refuse_unknown(content, known, f"key in [{name}]:")
    hints = get_type_hints(type_)
    values: dict[str, Any] = {}
    for key, part in known.items():
        if key in content:
            place = f"{key} in [{name}]"
            values[part.name] = parse_value(place, hints[part.name], content[key], directory)
        elif part.default is part.default_factory:  # neither is there
            raise InputError(f"[{name}] must have a value for {key!r}, got {', '.join(content) or 'nothing'}")
    try:
        return type_(**values)
    except InputError as error:
        text = str(error)
        for key, part in known.items():  # the key of the file, where a field has another name
            if text.startswith(f"{part.name} "):
                text = key + text.removeprefix(part.name)
        raise InputError(f"[{name}]: {text}") from error


def parse_named(kind: str, type_: type[_Section], content: object, directory: Path) -> dict[str, _Section]:
    """The sections [sources.NAME], or others of a `kind`, by name. Raises InputError."""
    if not isinstance(content, dict):
        raise InputError(f"{kind} must be sections [{kind}.NAME], got {content!r}")
    for name in content:
        check_origin((name, 0, 0))
        if name.startswith(CLIENT):
            raise InputError(
                f"the name of a section [{kind}.NAME] must not begin with {CLIENT!r}, as names of clients' "
                f"streams do, got {name!r}"
            )
    return {name: parse_section(f"{kind}.{name}", type_, one, directory) for name, one in content.items()}


def parse_tables(content: object, directory: Path) -> dict[str, TableMapping]:
    """The sections [tables.NAME], by name: each has lists of tables, nodes and edges, and may have a section
    [tables.NAME.csv]. Raises InputError."""
    if not isinstance(content, dict):
        raise InputError(f"tables must be sections [tables.NAME], got {content!r}")
    mappings = {}
    for name, section in content.items():
        check_origin((name, 0, 0))
        place = f"tables.{name}"
        if not isinstance(section, dict):
            raise InputError(f"{place} must be a section [{place}], got {section!r}")
        refuse_unknown(section, dict.fromkeys(("nodes", "edges", "csv")), f"key in [{place}]:")
        parts: dict[str, Any] = {}
        for kind, type_ in (("nodes", NodeRows), ("edges", EdgeRows)):
            entries = section.get(kind, [])
            if not isinstance(entries, list):
                raise InputError(
                    f"{kind} in [{place}] must be written as [[{place}.{kind}]], got {entries!r}"
                )
            parts[kind] = [parse_section(f"{place}.{kind}", type_, one, directory) for one in entries]
        if "csv" in section:
            parts["csv"] = parse_section(f"{place}.csv", CsvForm, section["csv"], directory)
        try:
            mappings[name] = TableMapping(**parts)
        except InputError as error:
            raise InputError(f"[{place}]: {error}") from error
    return mappings


def parse_views(content: object) -> dict[str, str]:
    """The section [views]. Raises InputError."""
    if not isinstance(content, dict):
        raise InputError(f"views must be a section [views], got {content!r}")
    for name, path in content.items():
        if not isinstance(path, str) or len(path.split(":")) != 2:
            raise InputError(f'{name} in [views] must be text like "module:name", got {path!r}')
    return content


def import_factory(name: str, path: str) -> ViewFactory:
    """The object that `path`, "module:name", names. Raises InputError if it cannot be called."""
    module, _, attribute = path.partition(":")
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{name} in [views]: {path!r} cannot be imported: {error}") from error
    if not callable(made):
        raise InputError(
            f"{name} in [views]: {path!r} must make a view of a graph and a state, got {kind_of(made)}"
        )
    return cast("ViewFactory", made)


def parse_value(place: str, type_: type, value: object, directory: Path) -> object:
    """A value of a key; paths are relative to `directory`. Raises InputError for another type."""
    choices = get_args(type_)
    if type_ == Mapping[str, object]:
        if isinstance(value, dict):
            return value  # the section checks it
        raise InputError(f"{place} must be a table, got {kind_of(value)}")
    if dict[str, list[float]] in choices:
        if isinstance(value, (list, dict)):
            return value
        raise InputError(f"{place} must be a list of node types, or a table of features, got {value!r}")
    if type_ == Mapping[int, int]:
        if isinstance(value, dict) and all(type(one) is int for one in value.values()):
            return value  # the section makes numbers of its keys
        raise InputError(f"{place} must be a table of integers, got {value!r}")
    if type_ == Mapping[str, str]:
        if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()):
            return place_client_settings(value, directory)
        raise InputError(f"{place} must be a table of texts, got {kind_of(value)}")
    if choices and type(None) in choices:  # a value that may be left out
        given = tuple(choice for choice in choices if choice is not type(None))
        choices, type_ = (given, type_) if len(given) > 1 else ((), given[0])
    if type_ == Sequence[str]:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return value
        raise InputError(f"{place} must be a list of texts, got {value!r}")
    if get_origin(type_) is tuple:  # an edge type
        if isinstance(value, list) and len(value) == 3 and all(isinstance(one, str) for one in value):
            return tuple(value)
        raise InputError(f"{place} must be a list of a node type, a relation and a node type, got {value!r}")
    if get_origin(type_) is Literal:
        if value in get_args(type_):
            return value
        raise InputError(f"{place} must be one of {', '.join(get_args(type_))}, got {value!r}")
    if choices:  # text or a list of it
        listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if listed or isinstance(value, str):
            return value
        raise InputError(f"{place} must be text or a list of it, got {value!r}")
    if type_ is Path and isinstance(value, str):
        return directory / value
    if type_ is float and type(value) in (int, float):
        return float(value)  # type: ignore[arg-type]
    if type(value) is type_:
        return value
    names = {Path: "text, a path", str: "text", int: "an integer", float: "a number", bool: "true or false"}
    raise InputError(f"{place} must be {names[type_]}, got {value!r}")
