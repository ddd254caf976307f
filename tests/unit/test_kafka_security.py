"""Settings of Kafka's client for TLS and SASL: from a deployment to the client, and errors that say why."""

import pickle
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from livegnn.deployment import Deployment
from livegnn.deployment.parsing import parse_value
from livegnn.deployment.sections import SourceSection
from livegnn.errors import InputError, LogError
from livegnn.log.client_settings import (
    check_client_settings,
    check_registry_settings,
    place_client_settings,
    read_client_settings,
)
from livegnn.log.kafka.connection import Connection, read_topics
from livegnn.workers import KafkaPlace

CLIENT = {
    "security.protocol": "sasl_ssl",
    "ssl.ca.location": "authority.pem",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "livegnn",
    "sasl.password": "env:TEST_KAFKA_PASSWORD",
    "ssl.key.password": "file:password.txt",
}


def deployment(folder: Path) -> Deployment:
    kafka = {"kafka": "127.0.0.1:1", "topic": "payments", "client": CLIENT}
    content = {"graph": {"path": "g.npz"}, "log": kafka, "sources": {"orders": kafka}}
    return Deployment.parse(content, folder)


def test_secrets_are_read_when_a_client_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = deployment(tmp_path)
    for section in (read.log, read.sources["orders"]):
        assert section.client["ssl.ca.location"] == str(tmp_path / "authority.pem")
        with pytest.raises(InputError, match="in the environment variable TEST_KAFKA_PASSWORD"):
            read_client_settings(section.client)
        monkeypatch.setenv("TEST_KAFKA_PASSWORD", "the secret")
        with pytest.raises(InputError, match=r"in the file .*password\.txt"):
            read_client_settings(section.client)
        (tmp_path / "password.txt").write_text("another secret\n", encoding="utf-8")
        found = read_client_settings(section.client)
        assert (found["sasl.password"], found["ssl.key.password"]) == ("the secret", "another secret")
        monkeypatch.delenv("TEST_KAFKA_PASSWORD")
        (tmp_path / "password.txt").unlink()


def test_settings_reach_every_client_and_no_repr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KAFKA_PASSWORD", "the secret")
    place = KafkaPlace("127.0.0.1:1", "payments", tmp_path, client={"sasl.password": CLIENT["sasl.password"]})
    assert b"the secret" not in pickle.dumps(place)  # as Ray sends it
    assert "the secret" not in repr(vars(place))
    settings = place._settings()
    connection = Connection("127.0.0.1:1", "payments", settings)
    assert connection._common()["sasl.password"] == "the secret"
    assert "the secret" not in repr(connection)
    wrong = Connection("127.0.0.1:1", "payments", {**settings, "ssl.nonsense": "x"})
    for make in (wrong.admin, wrong.consumer, lambda: wrong.producer(1000)):
        with pytest.raises(LogError, match=r'No such configuration property: "ssl\.nonsense"') as raised:
            make()
        assert "the secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sasl.password": "swordfish"}, r"sasl\.password in client must be 'env:NAME' or 'file:PATH'"),
        ({"ssl.key.pem": "-----"}, r"ssl\.key\.pem in client must be"),
        ({"sasl.oauthbearer.assertion.private.key.pem": "-----"}, "in client must be"),
        ({"sasl.oauthbearer.assertion.private.key.passphrase": "swordfish"}, "in client must be"),
        ({"enable.idempotence": "false"}, "client may have settings of librdkafka that begin with security"),
        ({"bootstrap.servers": "evil:1"}, "client may have settings"),
    ],
)
def test_other_settings_and_open_secrets_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        check_client_settings(given)
    assert "swordfish" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "url in registry must be that of a schema registry, got None"),
        ({"url": "here"}, "url in registry must be that of a schema registry, got 'here'"),
        ({"url": "http://ann:swordfish@here"}, "must have no password: write it as basic.auth.user.info"),
        (
            {"url": "http://a", "basic.auth.user.info": "a:swordfish"},
            "info in registry must be 'env:NAME' or",
        ),
        ({"url": "http://a", "bearer.auth.token": "swordfish"}, "token in registry must be 'env:NAME' or"),
        ({"url": "http://a", "max.retries": "9"}, "registry may have settings that begin with url, basic"),
    ],
)
def test_settings_of_a_registry(given: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        check_registry_settings(given)
    assert "swordfish" not in str(raised.value)
    with pytest.raises(
        InputError, match='registry is for rows in Avro, format = "rows" or "debezium", got it'
    ):
        SourceSection("a:1", "b", registry={"url": "http://a"})
    secret = {"basic.auth.user.info": "env:NO_SUCH_SECRET"}
    with pytest.raises(InputError, match=r"basic\.auth\.user\.info in registry must be in the environment"):
        read_client_settings(secret, "registry")


def test_paths_do_not_depend_on_where_a_process_begins() -> None:
    given = {"ssl.ca.location": "ca.pem", "sasl.password": "file:password"}
    placed = place_client_settings(given, Path("folder"))
    assert placed["ssl.ca.location"] == str(Path("folder/ca.pem").absolute())
    assert placed["sasl.password"] == f"file:{Path('folder/password').absolute()}"


def test_a_table_has_texts_alone(tmp_path: Path) -> None:
    content = {"graph": {"path": "g"}, "log": {"kafka": "a", "topic": "b", "client": {"ssl.ca.location": 1}}}
    with pytest.raises(InputError, match=r"client in \[log\] must be a table of texts"):
        Deployment.parse(content, tmp_path)
    content["log"] = {"path": "events.db", "client": {"client.id": "me"}}
    with pytest.raises(InputError, match="client must stand with kafka"):
        Deployment.parse(content, tmp_path)
    assert parse_value("p", str, "x", tmp_path) == "x"


@contextmanager
def listening(context: ssl.SSLContext | None) -> Iterator[str]:
    """Something that accepts connections, with TLS or without, and then closes them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def run() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    if ended.is_set():
                        return
                    try:
                        if context is not None:
                            connection = context.wrap_socket(connection, server_side=True)
                        connection.recv(100)
                    except OSError:
                        continue
                    finally:
                        connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        address = "{}:{}".format(*listener.getsockname())
        try:
            yield address
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


@pytest.mark.parametrize(("tls", "said"), [(True, "certificate verify failed"), (False, "SSL_HANDSHAKE")])
def test_a_handshake_that_fails_is_in_the_error(
    tls: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker with a certificate of another authority, and one without TLS."""
    monkeypatch.setattr("livegnn.log.kafka.connection._SECONDS", 0.5)
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    settings = {"security.protocol": "ssl", "ssl.ca.location": str(tmp_path / "ca.pem")}
    with listening(context) as servers, pytest.raises(LogError, match=said) as raised:
        read_topics(Connection(servers, "payments", settings))
    assert "check the settings of TLS and SASL" in str(raised.value)
