"""How long another client waits while a server reads a hurtful body: at most 100 ms, whatever the body is.

    python tests/hurt.py [TEXT]

A server in a process of its own, a client that asks for one prediction after the other, and beside it each
body of `hurtful_bodies.py` for a route. What is compared with the limit is the longest wait. The longest wait
of the half second before, in which nothing was sent, says how quiet the machine was. Writes tests/hurt.json,
unless only those are asked for whose name has TEXT.
"""

import json
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import numpy as np

from hurtful_bodies import MIB, TOPIC, Hurtful, cases
from serving import Server, write_deployment
from streams import make_arrays, make_model

MOST_MS: Final = 100.0
RESULT: Final = Path(__file__).parent / "hurt.json"
_QUIET_SECONDS: Final = 0.5


class Client:
    """Asks for a prediction again and again, in a thread of its own."""

    def __init__(self, address: str, id: str) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
        self._path = f"/v1/predictions?ids={id}"
        self._longest = 0.0
        self._ends = threading.Event()
        self._ask()  # the first answer takes longer, whoever asks
        self._thread = threading.Thread(target=self._ask_on)
        self._thread.start()

    def _ask(self) -> None:
        self._connection.request("GET", self._path)
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200

    def _ask_on(self) -> None:
        while not self._ends.is_set():
            begun = time.perf_counter()
            self._ask()
            self._longest = max(self._longest, time.perf_counter() - begun)
            time.sleep(0.001)

    def take_longest(self) -> float:
        """The longest wait since this was asked last, in milliseconds."""
        longest, self._longest = self._longest, 0.0
        return longest * 1000

    def stop(self) -> None:
        """Ends it after the answer that it waits for."""
        self._ends.set()
        self._thread.join()


def measure(address: str, client: Client, case: Hurtful) -> dict[str, object]:
    """How a body was answered, and the longest wait of the client before it and beside it."""
    body = case.body()
    time.sleep(_QUIET_SECONDS)
    quiet = client.take_longest()
    connection = HTTPConnection(urlsplit(address).netloc, timeout=120)
    begun = time.perf_counter()
    status = 0
    try:
        connection.request(*case.route, body=body, headers={"content-type": case.kind})
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):  # refused before all of it came
        status = 413
    seconds = time.perf_counter() - begun
    time.sleep(_QUIET_SECONDS)  # what was logged is applied
    longest = client.take_longest()
    connection.close()
    return {
        "name": case.name,
        "MiB": round(len(body) / MIB, 2),
        "status": status,
        "seconds": round(seconds, 2),
        "longest_ms": round(longest, 1),
        "quiet_ms": round(quiet, 1),
    }


def write_text_deployment(directory: Path) -> Path:
    """As `write_deployment`, with ids that are texts."""
    path = write_deployment(directory)
    make_model().save(directory / "model.lgnn")
    arrays = make_arrays()
    for name in ("src", "dst", "ids"):
        arrays[name] = np.array([f"n{id}" for id in arrays[name]])
    np.savez(directory / "graph.npz", **arrays)
    return path


def main(text: str = "") -> int:
    """Prints a line for each body; the number of those beside which somebody waited too long."""
    rows: list[dict[str, object]] = []
    for texts in (False, True):
        chosen = [one for one in cases() if one.route != TOPIC and one.text == texts and text in one.name]
        if not chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write = write_text_deployment if texts else write_deployment
            with Server(write(Path(folder))) as server:
                client = Client(server.address, "n1" if texts else "1")
                try:
                    for case in chosen:
                        row = measure(server.address, client, case)
                        rows.append(row)
                        sign = "!!" if row["longest_ms"] > MOST_MS else "  "  # type: ignore[operator]
                        print(sign, json.dumps(row), flush=True)
                finally:
                    client.stop()
    if not text:
        lines = ",\n".join(json.dumps(row) for row in rows)
        RESULT.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return sum(row["longest_ms"] > MOST_MS for row in rows)  # type: ignore[operator]


if __name__ == "__main__":
    sys.exit(min(1, main(*sys.argv[1:])))
