"""A real S3 server for tests, in a process of its own, over a folder whose files a test may spoil.

It needs LIVEGNN_S3_HOME, a folder with a script `server DIR PORT` that serves each folder in DIR as a bucket,
with the keys below (tests/README.md). Some tests are content with any server: LIVEGNN_S3_ENDPOINT names one.
Where neither is set they are skipped.
"""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from bad_network import PROXY_HOME
from livegnn.snapshots.objects import Objects, open_objects
from ports import free_port
from waiting import PATIENCE

HOME = os.environ.get("LIVEGNN_S3_HOME")
KEYS = {"access_key_id": "livegnn", "secret_access_key": "livegnn-secret", "region": "us-east-1"}

ENDPOINT = os.environ.get("LIVEGNN_S3_ENDPOINT")
needs_endpoint = pytest.mark.skipif(
    not (HOME or ENDPOINT), reason="LIVEGNN_S3_HOME is not set: see tests/README.md"
)
needs_server = pytest.mark.skipif(not HOME, reason="LIVEGNN_S3_HOME is not set: see tests/README.md")
needs_proxy = pytest.mark.skipif(
    not (HOME and PROXY_HOME), reason="LIVEGNN_TOXIPROXY_HOME is not set: see tests/README.md"
)


class S3Server:
    """`bucket` is the folder of the one bucket, `graph`."""

    def __init__(self) -> None:
        assert HOME is not None
        self._script = Path(HOME).resolve() / "server"
        self.folder = Path(tempfile.mkdtemp(prefix="livegnn-s3-"))
        self.bucket = self.folder / "graph"
        self.bucket.mkdir()
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Begins, or goes on with what is in the folder; returns when it answers."""
        self._process = subprocess.Popen(
            [self._script, self.folder, str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
            except urllib.error.HTTPError:
                return  # it answers, and wants a signature
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        for folder in (self.folder, Path(f"{self.folder}.meta")):  # the second where files have no attributes
            shutil.rmtree(folder, ignore_errors=True)

    def open(self, port: int | None = None, *, patience: float = 20.0, timeout: float = 2.0) -> Objects:
        """Its objects, through a proxy at `port`, if given."""
        return open_objects(
            "s3://graph/some/place",
            patience=patience,
            timeout=timeout,
            endpoint=f"http://127.0.0.1:{port or self.port}",
            virtual_hosted_style_request="false",
            **KEYS,
        )


def open_elsewhere() -> Objects:
    """A place of its own on the server that LIVEGNN_S3_ENDPOINT names, in the bucket LIVEGNN_S3_BUCKET."""
    assert ENDPOINT is not None
    keys = {} if "AWS_ACCESS_KEY_ID" in os.environ else KEYS
    bucket = os.environ.get("LIVEGNN_S3_BUCKET", "graph")
    return open_objects(
        f"s3://{bucket}/livegnn-tests-{secrets.token_hex(8)}",
        endpoint=ENDPOINT,
        virtual_hosted_style_request="false",
        **keys,
    )
