"""The broker that the tests on Kafka share, one in each file."""

from collections.abc import Iterator

import pytest

from kafka_broker import Broker


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file run one after the other, on one broker: a start takes ten seconds of a core."""
    for item in items:
        if "broker" in getattr(item, "fixturenames", ()) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    one = Broker()
    yield one
    one.close()
