"""A function whose snapshot is on a real S3 server that goes away and comes back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np

import loopback
from bad_network import Proxy
from functions import ENVIRONMENT, body, expected
from livegnn.snapshots.writer import write_snapshot
from ports import free_port
from s3_server import KEYS, S3Server, needs_proxy, needs_server
from streams import make_graph, make_model
from waiting import REQUEST_SECONDS


def variables_of(server: S3Server, model: Path, port: int | None = None) -> dict[str, str]:
    return {
        "LIVEGNN_SNAPSHOT": "s3://graph/some/place",
        "LIVEGNN_MODEL": str(model),
        "AWS_ENDPOINT": f"http://127.0.0.1:{port or server.port}",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        **{f"AWS_{name.upper()}": value for name, value in KEYS.items()},
    }


@needs_server
def test_it_answers_right_or_says_that_the_store_is_away(tmp_path) -> None:
    server = S3Server()
    try:
        write_snapshot(make_graph(), server.open(), seq=5)
        make_model().save(tmp_path / "model.lgnn")
        variables = variables_of(server, tmp_path / "model.lgnn")
        node = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "function", "serve", "--workers", "1", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, **variables},
        )
        try:
            assert node.stdout is not None
            url = f"{node.stdout.readline().split()[-1]}/v1/predictions"

            def ask(*ids: int, timeout: float = REQUEST_SECONDS) -> tuple[int, dict]:
                headers = {"content-type": "application/json"}
                content = body(*ids, timeout=timeout)
                answer = loopback.post(url, content=content, headers=headers)
                return answer.status_code, json.loads(answer.content)

            status, content = ask(3, 9)
            assert status == 200, content
            assert np.allclose(content["predictions"], expected(3, 9), atol=1e-5)
            server.kill()
            status, content = ask(17, 21, timeout=1)  # it asks again for as long as it may
            assert (status, content["type"]) == (503, "/problems/timeout")
            server.start()
            status, content = ask(17, 21)
            assert status == 200, content
            assert np.allclose(content["predictions"], expected(17, 21), atol=1e-5)
        finally:
            node.kill()
            node.communicate()
    finally:
        server.close()


@needs_server
def test_a_node_without_warm_workers_says_that_the_store_is_away(tmp_path) -> None:
    server = S3Server()
    try:
        write_snapshot(make_graph(), server.open(), seq=5)
        make_model().save(tmp_path / "model.lgnn")
        server.kill()
        node = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "function", "serve", "--workers", "1", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, **variables_of(server, tmp_path / "model.lgnn")},
        )
        try:
            assert node.stdout is not None
            url = f"{node.stdout.readline().split()[-1]}/v1/predictions"
            headers = {"content-type": "application/json"}
            answer = loopback.post(url, content=body(3, timeout=REQUEST_SECONDS), headers=headers)
            error = answer.json()
            assert (answer.status_code, error["type"]) == (503, "/problems/store-unavailable"), error
            server.start()
            answer = loopback.post(url, content=body(3, timeout=REQUEST_SECONDS), headers=headers)
            assert np.allclose(answer.json()["predictions"], expected(3), atol=1e-5)
        finally:
            node.kill()
            node.communicate()
    finally:
        server.close()


@needs_proxy
def test_who_waits_reads_in_time_that_the_network_swallows_what_is_sent(tmp_path) -> None:
    """While no worker is warm, and while one is: within the time of the request."""
    server, port = S3Server(), free_port()
    proxy = Proxy(server.port, port)
    try:
        write_snapshot(make_graph(), server.open(), seq=5)
        make_model().save(tmp_path / "model.lgnn")
        node = subprocess.Popen(
            [sys.executable, "-m", "livegnn", "function", "serve", "--workers", "1", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT, **variables_of(server, tmp_path / "model.lgnn", port)},
        )
        try:
            assert node.stdout is not None
            url = f"{node.stdout.readline().split()[-1]}/v1/predictions"

            def ask(*ids: int, timeout: float) -> httpx.Response:
                headers = {"content-type": "application/json"}
                return loopback.post(url, content=body(*ids, timeout=timeout), headers=headers)

            for ids, seconds in (([3], 25), ([17, 21], 19)):
                proxy.toxic("timeout", timeout=0)
                answer = ask(*ids, timeout=seconds)
                error = answer.json()
                assert (answer.status_code, error["type"]) == (503, "/problems/store-unavailable"), error
                assert answer.headers["retry-after"] == "1"
                proxy.heal()
                answer = ask(*ids, timeout=REQUEST_SECONDS)
                assert np.allclose(answer.json()["predictions"], expected(*ids), atol=1e-5)
        finally:
            node.kill()
            _, logged = node.communicate()
        assert "Traceback" not in logged
        levels = [line.split()[1] for line in logged.splitlines()]
        assert (levels.count("WARNING"), set(levels)) == (2, {"INFO", "WARNING"}), logged
    finally:
        proxy.close()
        server.close()
