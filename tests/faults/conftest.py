"""The broker that the tests on Kafka share, one in each file."""

from collections.abc import Iterator

import pytest

from kafka_broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    one = Broker()
    yield one
    one.close()
