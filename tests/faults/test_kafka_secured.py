"""Connections to Kafka with TLS and passwords, on a real broker with a secure listener beside a plain one."""

import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from typer.testing import CliRunner

from kafka_broker import Broker, needs_broker
from kafka_reading import Produced, make_topic, wait_for
from livegnn import Events, Graph
from livegnn.cli import app
from livegnn.connectors import kafka_partitions
from livegnn.connectors.kafka import KafkaTopic, check_skip
from livegnn.deployment import Deployment
from livegnn.errors import LogError, SourceError
from livegnn.log.client_settings import read_client_settings
from livegnn.log.kafka import KafkaLog, connection, create_topics
from livegnn.log.kafka.tail import KafkaTail
from livegnn.log.sqlite import SqliteLog
from livegnn.log.streams import Record
from livegnn.runtime import Runtime
from livegnn.workers import KafkaPlace
from ports import free_port
from serving import write_deployment

pytestmark = [pytest.mark.xdist_group("kafka"), needs_broker]
TOPICS = map("secured{}".format, itertools.count())
# The broker may end the connection before its client has read that the answer is none of TLS.
REFUSED_HANDSHAKE = r"(SSL handshake failed|SSL_HANDSHAKE).*check the settings of TLS and SASL"
PASSWORD = "correct horse battery staple"
SETTINGS = """
"security.protocol" = "sasl_ssl"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "livegnn"
"sasl.password" = "file:password"
"ssl.ca.location" = "authority.pem"
"""


@dataclass
class Secured:
    """A broker, `servers` its secure listener, and a folder with what its clients need."""

    plain: Broker
    servers: str
    folder: Path

    def client(self, password: str | None = None) -> dict[str, str]:
        """The settings of a client. password: the place of one, the right one's by default."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "livegnn",
            "sasl.password": password or f"file:{self.folder / 'password'}",
            "ssl.ca.location": str(self.folder / "authority.pem"),
        }

    def settings(self, password: str | None = None) -> dict[str, str]:
        return read_client_settings(self.client(password))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, authority, port = tmp_path_factory.mktemp("secured"), trustme.CA(), free_port()
    signed = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(signed.private_key_pem.bytes(), None)
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Kafka reads no other
    (folder / "broker.pem").write_bytes(content + b"".join(one.bytes() for one in signed.cert_chain_pems))
    authority.cert_pem.write_to_path(folder / "authority.pem")
    (folder / "password").write_text(PASSWORD + "\n", encoding="utf-8")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker = Broker(
        secure=port,
        settings=[
            "listener.name.secure.ssl.keystore.type=PEM",
            f"listener.name.secure.ssl.keystore.location={folder / 'broker.pem'}",
            "listener.name.secure.sasl.enabled.mechanisms=PLAIN",
            f'listener.name.secure.plain.sasl.jaas.config={module} required user_livegnn="{PASSWORD}";',
        ],
    )
    yield Secured(broker, f"127.0.0.1:{port}", folder)
    broker.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that do not answer are given up soon."""
    monkeypatch.setattr(connection, "_SECONDS", 0.1)
    monkeypatch.setattr(connection, "_MORE_SECONDS", 0.1)
    monkeypatch.setattr(kafka_partitions, "_SECONDS", 0.1)


def test_every_connection_has_the_settings(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVEGNN_TEST_PASSWORD", PASSWORD)
    topic, settings = next(TOPICS), secured.settings("env:LIVEGNN_TEST_PASSWORD")
    create_topics(secured.servers, topic, settings=settings)
    place = KafkaPlace(secured.servers, topic, tmp_path, client=secured.client())
    place.create({"numbers": 1})
    with closing(KafkaLog(secured.servers, topic, settings=settings)) as log:
        assert log.append(Events().add_nodes([1])) == 1
        with closing(place.tail("reader")) as tail:
            assert [entry.seq for entry in tail.entries()] == [1]
    with closing(place.write("numbers", 0)) as stream, closing(place.read("numbers", 0)) as reader:
        stream.append_all([Record("number", b"7")])
        assert [record.payload for record in reader.records(0)] == [b"7"]


def test_a_deployment_names_settings_and_secrets(secured: Secured, tmp_path: Path) -> None:
    topic, orders = next(TOPICS), Produced(secured.plain.servers, make_topic(secured.plain))
    deployment = write_deployment(tmp_path)
    for name in ("password", "authority.pem"):
        (tmp_path / name).write_bytes((secured.folder / name).read_bytes())
    text = deployment.read_text(encoding="utf-8").replace(
        '[log]\npath = "events.db"',
        f'[log]\nkafka = "{secured.servers}"\ntopic = "{topic}"\n[log.client]{SETTINGS}',
    )
    source = f'[sources.orders]\nkafka = "{secured.servers}"\ntopic = "{orders.topic}"\n'
    deployment.write_text(f"{text}{source}[sources.orders.client]{SETTINGS}", encoding="utf-8")
    assert CliRunner().invoke(app, ["log", "create", str(deployment)]).exit_code == 0
    read = Deployment.read(deployment)
    assert PASSWORD not in repr(read)
    orders.send(0)
    orders.flush()
    with closing(read.log.open()) as log:
        runtime = Runtime(log, Graph(), auto_add=["node"])
        runtime.start()
        (reading,) = read.connect(runtime)
        reading.start()
        wait_for(lambda: log.last_seq() == 1)
        reading.stop()
        runtime.stop()
    read.sources["orders"].check_skip(0, 1)


def test_a_wrong_password_is_said_without_it(
    secured: Secured,
    quick: None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    wrong = "wrong horse"
    (tmp_path / "wrong").write_text(wrong, encoding="utf-8")
    settings = secured.settings(f"file:{tmp_path / 'wrong'}")
    with pytest.raises(
        LogError, match=r"[Aa]uthentication failed.*check the settings of TLS and SASL"
    ) as caught:
        create_topics(secured.servers, next(TOPICS), settings=settings)
    assert wrong not in str(caught.value)
    with pytest.raises(SourceError, match=r"[Aa]uthentication failed"):
        check_skip(secured.servers, "any", 0, 0, settings)
    assert wrong not in "".join([caplog.text, *capfd.readouterr()])


def test_settings_that_do_not_fit_the_listener_are_said(
    secured: Secured, quick: None, tmp_path: Path
) -> None:
    with pytest.raises(LogError, match=REFUSED_HANDSHAKE):
        KafkaLog(secured.plain.servers, "any", settings=secured.settings())
    with pytest.raises(LogError, match=r"brokers end the connection.*check the settings of TLS"):
        KafkaTail(secured.servers, "any", "reader", tmp_path)
    strangers = {**secured.settings(), "ssl.ca.location": str(tmp_path / "stranger.pem")}
    trustme.CA().cert_pem.write_to_path(tmp_path / "stranger.pem")
    with pytest.raises(LogError, match=r"certificate verify failed"):
        KafkaLog(secured.servers, "any", settings=strangers)


def test_a_source_waits_and_says_why(secured: Secured, quick: None, tmp_path: Path) -> None:
    with closing(SqliteLog(tmp_path / "events.db")) as log:
        runtime = Runtime(log, Graph())
        source = KafkaTopic(runtime, secured.plain.servers, "any", settings=secured.settings())
        source.start()
        source.stop()
        runtime.stop()
    assert re.search(REFUSED_HANDSHAKE, source.waits or "")
