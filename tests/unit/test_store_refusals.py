"""What a store refuses for good is told at once; what may pass is asked for again."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from livegnn.errors import LiveGNNError, ObjectMissingError, SnapshotError, StoreUnavailableError
from livegnn.snapshots.stores import open_store


class Refusing(ThreadingHTTPServer):
    """Answers each request with `status` and an error of S3's named `code`."""

    status, code = 500, ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)


class _Refusal(BaseHTTPRequestHandler):
    server: Refusing

    def do_GET(self) -> None:
        body = f"<Error><Code>{self.server.code}</Code><Message>Why.</Message></Error>".encode()
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[Refusing]:
    with Refusing() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "InvalidBucketName", SnapshotError),
        (400, "AuthorizationHeaderMalformed", SnapshotError),  # as for another region
        (400, "ExpiredToken", SnapshotError),
        (400, "IllegalLocationConstraintException", SnapshotError),
        (401, "Unauthorized", SnapshotError),
        (403, "SignatureDoesNotMatch", SnapshotError),
        (404, "NoSuchBucket", SnapshotError),
        (404, "NoSuchKey", ObjectMissingError),
        (400, "RequestTimeout", StoreUnavailableError),
        (500, "InternalError", StoreUnavailableError),
        (503, "SlowDown", StoreUnavailableError),
    ],
)
def test_a_refusal_is_lasting_or_may_pass(
    refusing: Refusing, status: int, code: str, kind: type[LiveGNNError]
) -> None:
    refusing.status, refusing.code = status, code
    store = open_store(
        "s3://bucket/place",
        endpoint=f"http://127.0.0.1:{refusing.server_port}",
        allow_http="true",
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        virtual_hosted_style_request="false",
    )
    with pytest.raises(LiveGNNError) as error:
        store.get("manifest")
    assert type(error.value) is kind
    if kind is SnapshotError:
        assert f"refuses manifest in s3://bucket/place: {code}, Why. Give the right" in str(error.value)
