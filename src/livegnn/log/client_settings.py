"""Settings of a client of Kafka for security, as a deployment file has them: text, and places of secrets.

A value ``env:NAME`` is read from the environment of the process, ``file:PATH`` from a file, when a client is
made; so neither the deployment nor its `repr` has a secret. This module loads no client.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from livegnn.errors import InputError
from livegnn.wording import quoted

_ADMITTED: Final = ("security.", "ssl.", "sasl.", "https.", "enable.ssl.", "client.id")
_ADMITTED_BY_REGISTRY: Final = ("url", "basic.auth.user.info", "bearer.auth.", "ssl.")
_REGISTRY_SECRET: Final = ("basic.auth.user.info", "token", "secret", "password")
_SECRET: Final = ("password", "passphrase", "secret", "key.pem", "sasl.oauthbearer.config")
_PATHS: Final = (".location", ".file")
_MOST_BYTES: Final = 1 << 20


def check_client_settings(given: Mapping[str, str]) -> None:
    """Raises InputError for other settings than those of security, and for a secret that stands there
    itself."""
    _check(given, "client", "settings of librdkafka", _ADMITTED, _SECRET)


def check_registry_settings(given: Mapping[str, str]) -> None:
    """The same, for the client of a schema registry."""
    _check(given, "registry", "settings", _ADMITTED_BY_REGISTRY, _REGISTRY_SECRET)
    where = urlsplit(given.get("url", ""))
    if where.scheme not in ("http", "https") or not where.hostname:
        raise InputError(f"url in registry must be that of a schema registry, got {quoted(given.get('url'))}")
    if where.username or where.password:
        raise InputError("url in registry must have no password: write it as basic.auth.user.info")


def _check(
    given: Mapping[str, str], key: str, what: str, admitted: tuple[str, ...], secret: tuple[str, ...]
) -> None:
    for name, value in given.items():
        if not name.startswith(admitted):
            raise InputError(
                f"{key} may have {what} that begin with {', '.join(admitted)}, got {quoted(name)}"
            )
        if name.endswith(secret) and not value.startswith(("env:", "file:")):
            raise InputError(f"{name} in {key} must be 'env:NAME' or 'file:PATH', got the secret itself")


def place_client_settings(given: Mapping[str, str], directory: Path) -> dict[str, str]:
    """The same with paths that begin in `directory`; a worker of a cluster begins elsewhere."""
    placed, directory = {}, directory.absolute()
    for name, value in given.items():
        if value.startswith("file:"):
            placed[name] = f"file:{directory / value.removeprefix('file:')}"
        elif name.endswith(_PATHS) and value != "probe":
            placed[name] = str(directory / value)
        else:
            placed[name] = value
    return placed


def read_client_settings(given: Mapping[str, str], key: str = "client") -> dict[str, str]:
    """The settings with their secrets, for a client. key: under which they stand. Raises InputError for one
    that is missing."""
    return {name: read_secret(f"{name} in {key}", value) for name, value in given.items()}


def read_secret(name: str, value: str) -> str:
    """The text that `value` names; else the value itself. name: in errors. Raises InputError."""
    kind, _, place = value.partition(":")
    if kind == "env":
        if place not in os.environ:
            raise InputError(f"{name} must be in the environment variable {place}, got none")
        return os.environ[place]
    if kind == "file":
        try:
            with open(place, "rb") as file:
                return file.read(_MOST_BYTES).decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name} must be text in the file {place}: {error}") from error
    return value
