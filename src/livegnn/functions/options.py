"""The command line's options of a node: names, defaults, helps. Their display must not wait for NumPy."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

KEEP_ALIVE: Final = 600.0
"""Seconds for which a worker may be idle, as in the paper."""

PREDICTOR: Final = "livegnn.remote.predictor:open_predictor"
"""Opens the predictor of a snapshot and a model, `snapshot_url` and `model_path`."""


def _option(default: Any, help: str, **shown: object) -> Any:
    return field(default=default, metadata={"help": help, **shown})


@dataclass(frozen=True)
class MachineOptions:
    """Options of `livegnn function serve`; the metadata of each field are arguments of `typer.Option`."""

    snapshot: str = field(
        metadata={
            "metavar": "URL",
            "envvar": "LIVEGNN_SNAPSHOT",
            "help": "URL or folder of the snapshot: docs/snapshots.md",
        }
    )
    model: str = field(
        metadata={"metavar": "FILE", "envvar": "LIVEGNN_MODEL", "help": "model file: docs/model-file.md"}
    )
    workers: int = _option(4, "maximum number of prediction workers")
    sampling_workers: int = _option(
        0, "maximum number of sampling workers, which fetch subgraphs; 0: each worker does both"
    )
    waiting: int = _option(100, "maximum number of waiting requests; further requests are refused")
    keep_alive: float = _option(KEEP_ALIVE, "seconds after which an idle worker ends", metavar="SECONDS")
    memory: int | None = _option(
        None,
        "memory limit of a worker, or of all threads together, in MiB (default: none)",
        metavar="MIB",
    )
    refresh: float | None = _option(
        None, "seconds between checks for a newer snapshot (default: 60)", metavar="SECONDS"
    )
    gap: int | None = _option(
        None,
        "largest gap, in bytes, between two ranges of an object that one request reads (default: 65536, "
        "4096 for a folder)",
        metavar="BYTES",
    )
    cache: str | None = _option(
        None,
        "one cache of features for all workers, or one in each worker (default: shared if workers are "
        "processes)",
        metavar="shared|private",
    )
    place: str = _option("processes", "kind of workers: processes or threads")
    opener: str = _option(PREDICTOR, "function that opens the predictor", metavar="MODULE:NAME")


@dataclass(frozen=True)
class ClientOptions:
    """Options of `livegnn function serve` that say which clients it admits, as `AccessSettings` has them."""

    keys: Path | None = field(
        default=None,
        metadata={
            "metavar": "KEYS.JSON",
            "help": "file of keys that clients must send: docs/security.md (default: none)",
        },
    )
    hosts: list[str] | None = field(
        default=None,
        metadata={
            "metavar": "NAME",
            "help": "name of this node, besides addresses and localhost; may be repeated",
        },
    )
    origins: list[str] | None = field(
        default=None,
        metadata={"metavar": "ORIGIN", "help": "origin of pages that may send requests; may be repeated"},
    )
    insecure: bool = field(default=False, metadata={"help": "listen beyond this machine without keys"})
    requests_per_address: int = field(
        default=256, metadata={"help": "most open requests of one address; 0 for any number"}
    )
    tls_certificate: Path | None = field(
        default=None,
        metadata={"metavar": "PEM", "help": "certificate of this node with its chain, for HTTPS"},
    )
    tls_key: Path | None = field(
        default=None, metadata={"metavar": "PEM", "help": "private key of the certificate"}
    )
    tls_clients: Path | None = field(
        default=None,
        metadata={"metavar": "PEM", "help": "authorities whose certificates clients must have"},
    )
    http2: bool = field(default=False, metadata={"help": "speak HTTP/2 over TLS too"})
