"""A graph whose parts are on several machines, which exchange over encrypted channels.

The machines are network namespaces where those are permitted, else addresses of loopback.
"""

import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import livegnn._core as _core
from divided_samples import check_samples
from divided_streams import EDGES, Stream, apply_alone, follow, schema_of
from livegnn import Engine, Events, Graph
from livegnn.channels.errors import ChannelRefusedError, DeadLinkError
from livegnn.channels.health import Patience
from livegnn.errors import InputError, WorkerUnavailableError
from livegnn.partitions import files
from livegnn.partitions.orders import Plan
from livegnn.partitions.processes import ChildProcess, CommandHosts, Place
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from modules import EDGE_WIDTH, designs_of, make
from network import WHY_NOT, Network, needs_namespaces, network
from processes import children
from streams import WIDTH, make_model

SCHEMA = schema_of("weight", undirected=False, text=False)
OTHER_VERSION = (
    "import livegnn, runpy; livegnn.__version__ = '0.0.0'; "
    "runpy.run_module('livegnn.partitions.worker', run_name='__main__')"
)
SLEEPING = "import time; time.sleep(600)"


class Overheard(ChildProcess):
    """Keeps the lines that it is told."""

    def tell(self, line: str) -> None:
        self.told = [*getattr(self, "told", []), line]
        super().tell(line)


class OverheardHosts(CommandHosts):
    def start(self, parts: int) -> Sequence[ChildProcess]:
        return [Overheard(place.command, interface=place.interface) for place in self.places]


def mechanism_at(address: str) -> bytes:
    """By which a socket of ZeroMQ admits peers (ZMTP 3.1: bytes 12 to 32 of its greeting)."""
    host, port = address.removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as one:
        one.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x01")
        greeting = b""
        while len(greeting) < 32 and (received := one.recv(64)):
            greeting += received
    return greeting[12:32].rstrip(b"\0")


def check_links(parts: RemotePartitions) -> None:
    """All are encrypted, and no command has a key."""
    peers = []
    for process in parts.processes:
        assert isinstance(process, Overheard)
        plan = Plan.model_validate_json(process.told[1])
        peers += [*plan.leader, *plan.peers.values()]
        said = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert said[-3:-1] == [b"-m", b"livegnn.partitions.worker"]
    assert all(peer.key for peer in peers)
    addresses = {peer.address for peer in peers if peer.address}
    assert {mechanism_at(address) for address in addresses} == {b"CURVE"}
    assert len(addresses) == 2 * 3 + 1  # to the leader, and between the parts


@pytest.fixture(scope="module")
def machines() -> Iterator[Network | None]:
    """Two machines."""
    with network(2) if WHY_NOT is None else nullcontext() as found:
        yield found


@pytest.fixture(scope="module")
def hosts(machines: Network | None) -> CommandHosts:
    """The same, for parts."""
    if machines is None:
        return OverheardHosts("127.0.0.1", [Place("127.0.0.2"), Place("127.0.0.3")])
    places = [Place(machines.address(number), (*machines.on(number), sys.executable)) for number in range(2)]
    return OverheardHosts(machines.host, places)


def hiding(hosts: CommandHosts, folder: Path) -> CommandHosts:
    """The same machines, which do not see the files in a folder."""
    if WHY_NOT is not None:
        return replace(hosts, shared=False)
    hide = "sh", "-c", f'mount -t tmpfs none {shlex.quote(str(folder))} && exec "$0" "$@"'
    places = [
        replace(place, command=[*place.command[:-1], *hide, place.command[-1]]) for place in hosts.places
    ]
    return replace(hosts, places=places, shared=False)


def test_parts_on_two_machines_keep_the_bits_of_one_engine(
    hosts: CommandHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a checkpoint, and in samples. The machines do not see the files of the leader."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(files, "_PIECE", 1000)
    hosts = hiding(hosts, tmp_path)
    _, model = make(designs_of("gat_edge")[0])
    schema = schema_of("weight", undirected=False, text=True, edge_dim=EDGE_WIDTH)
    stream = Stream(np.random.default_rng(3), schema.edge_types[EDGES], False, True)
    graph = Graph(schema, threads=1)
    engine = Engine(graph, model, threads=1)
    apply_alone(graph, stream, [40])
    parts = RemotePartitions.from_graph(graph, model, Owners("jump", 2), threads=1, hosts=hosts)
    try:
        follow(parts, graph, engine, stream, [4] * 6)
        check_links(parts)
        check_samples(parts.names, graph, stream, np.random.default_rng(1))
        parts.write(tmp_path)
    finally:
        parts.close()
    parts = RemotePartitions.from_checkpoint(tmp_path, model, threads=1, hosts=hosts)
    try:
        follow(parts, graph, engine, stream, [4] * 2)
    finally:
        parts.close()


@pytest.mark.parametrize(
    ("leader", "places", "error", "message"),
    [
        ("127.0.0.1", [Place("127.0.0.2")], InputError, "places must be 2, one for each part, got 1"),
        (
            "192.0.2.1",
            [Place("127.0.0.2")] * 2,
            InputError,
            "an address of this machine, got tcp://192.0.2.1",
        ),
        (
            "127.0.0.1",
            [Place("192.0.2.1")] * 2,
            InputError,
            "an address of this machine, got tcp://192.0.2.1",
        ),
        (
            "127.0.0.1",
            [Place("127.0.0.2"), Place("127.0.0.3", ("/no/python",))],
            WorkerUnavailableError,
            "part 1 must start, got .*/no/python.*: check its command",
        ),
        (
            "127.0.0.1",
            [Place("127.0.0.2"), Place("127.0.0.3", ("false",))],
            WorkerUnavailableError,
            "must say its addresses, and ended with 1",
        ),
        (
            "127.0.0.1",
            [Place("127.0.0.2", (sys.executable, "-c", SLEEPING))] * 2,
            WorkerUnavailableError,
            "must say its terms within 0.5 seconds, got nothing",
        ),
        (
            "127.0.0.1",
            [Place("127.0.0.2"), Place("127.0.0.3", (sys.executable, "-c", OTHER_VERSION))],
            ChannelRefusedError,
            r"part 1, .* version is .* at worker 0 and .0\.0\.0. at worker 1: install the same version",
        ),
    ],
    ids=["fewer places", "leader elsewhere", "part elsewhere", "no command", "end", "silence", "version"],
)
def test_places_where_parts_cannot_run(
    leader: str, places: list[Place], error: type[Exception], message: str
) -> None:
    """No process is left."""
    before = children()
    patience = Patience(hello_seconds=0.5 if "terms within" in message else 30)
    with pytest.raises(error, match=message):
        RemotePartitions(
            SCHEMA,
            make_model(),
            Owners("jump", 2),
            threads=1,
            hosts=CommandHosts(leader, places),
            patience=patience,
        )
    assert children() == before


@needs_namespaces
def test_a_leader_that_parts_do_not_reach(hosts: CommandHosts) -> None:
    before = children()
    # On a machine that is very slow, the parts have not even begun by then.
    with pytest.raises((DeadLinkError, WorkerUnavailableError), match="got nothing"):
        RemotePartitions(
            SCHEMA,
            make_model(),
            Owners("jump", 2),
            threads=1,
            hosts=CommandHosts("127.0.0.1", hosts.places),
            patience=Patience(hello_seconds=4),
        )
    assert children() == before


def test_arguments_of_hosts() -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"shares_memory": True}, "share no memory"),
        ({"places": [Place("127.0.0.2", "python")]}, "command must be a list of words"),  # type: ignore[arg-type]
    ]
    for given, message in refused:
        places = given.pop("places", [Place("127.0.0.2")])
        with pytest.raises(InputError, match=message):
            RemotePartitions(
                SCHEMA, make_model(), Owners("jump", 1), hosts=CommandHosts("127.0.0.1", places), **given
            )


@needs_namespaces
def test_a_network_that_is_cut_gives_no_wrong_answer(machines: Network | None, hosts: CommandHosts) -> None:
    """The batch is of no part. The other part still answers, and the lost one stays lost when the network is
    mended: it may have missed a batch."""
    assert machines is not None
    graph = Graph(SCHEMA, threads=1)
    engine = Engine(graph, make_model(), threads=1)
    stream = Stream(np.random.default_rng(8), SCHEMA.edge_types[EDGES], False, False)
    apply_alone(graph, stream, [40])
    parts = RemotePartitions.from_graph(
        graph,
        make_model(),
        Owners("modulo", 2),
        threads=1,
        hosts=hosts,
        patience=Patience(silent_seconds=1, hello_seconds=60),
    )
    try:
        follow(parts, graph, engine, stream, [4] * 2)
        names, ids = parts.names.native, np.array(stream.present)
        owners = _core.owners_at(names, 0, names.indices_of(0, ids))
        nodes = [ids[owners == part] for part in range(2)]
        seq = parts.seq
        machines.cut(1)
        try:
            with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
                parts.predict(nodes[1])
            with pytest.raises(WorkerUnavailableError):
                parts.apply(Events().set_features(nodes[0][:1], np.ones((1, WIDTH))))
        finally:
            machines.mend(1)
        assert (parts.seq, graph.seq) == (seq, seq)
        assert parts.predict(nodes[0]).tobytes() == engine.predict(nodes[0]).tobytes()
        with pytest.raises(WorkerUnavailableError, match="part 1 must answer"):
            parts.predict(nodes[1])
    finally:
        parts.close()
