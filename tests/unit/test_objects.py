"""Objects by ranges: joined, in parallel, repeated while a store fails; and written once."""

import random
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from faulty_store import FaultyStore
from livegnn.errors import (
    InputError,
    ObjectDamagedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreUnavailableError,
)
from livegnn.snapshots.objects import BYTES_AT_ONCE, PARTS_AT_ONCE, Objects, Ranges, open_objects, with_gap
from livegnn.snapshots.stores import PART, Store, _fill, open_store
from throttled_store import ThrottledStore


@pytest.fixture(params=["folder", "memory"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return open_objects(str(tmp_path) if request.param == "folder" else f"memory://{tmp_path}")


def test_any_ranges_are_read_as_they_lie(objects: Objects, rng: np.random.Generator) -> None:
    chosen = random.Random(int(rng.integers(1 << 30)))
    content = np.frombuffer(chosen.randbytes(200_000), dtype=np.uint8)
    objects.put_new("a/b", content.tobytes())
    for _ in range(60):
        count = chosen.choice([0, 1, 2, 40, 400])
        starts = np.array([chosen.randrange(len(content)) for _ in range(count)], dtype=np.int64)
        if chosen.random() < 0.3:
            starts = np.sort(starts)
        longest = chosen.choice([1, 100, 5000])
        lengths = np.array(
            [min(chosen.randrange(longest + 1), len(content) - start) for start in starts], dtype=np.int64
        )
        gap = chosen.choice([0, 10, 16 << 10])
        found = Objects(objects.store, gap=gap).get_ranges("a/b", starts, lengths)
        expected = [content[start : start + length] for start, length in zip(starts, lengths, strict=True)]
        np.testing.assert_array_equal(found, np.concatenate([np.empty(0, np.uint8), *expected]))


def test_ranges_that_lie_close_are_one_request(objects: Objects) -> None:
    objects.put_new("one", bytes(range(256)) * 1000)
    starts = np.arange(0, 100_000, 1000)
    lengths = np.full(100, 10)
    objects.get_ranges("one", starts, lengths)
    assert objects.requests == 2  # the put and one for all
    apart = Objects(objects.store, gap=100)
    apart.get_ranges("one", starts, lengths)
    assert (apart.requests, apart.bytes_read) == (100, 1000)


def test_a_long_range_is_several_requests(objects: Objects) -> None:
    content = np.arange(PART // 2 + 7, dtype=np.uint32).view(np.uint8)
    upload = objects.upload("large")
    upload.write(memoryview(content[: len(content) // 2]))
    upload.write(memoryview(content[len(content) // 2 :]))
    with pytest.raises(ObjectMissingError):
        objects.size("large")
    upload.finish()
    assert objects.size("large") == len(content)
    found = objects.get_ranges("large", np.array([3]), np.array([len(content) - 3]))
    np.testing.assert_array_equal(found, content[3:])
    assert objects.requests == -(-(len(content) - 3) // (BYTES_AT_ONCE // PARTS_AT_ONCE)) == 33


def test_several_objects_are_read_at_once(objects: Objects) -> None:
    for name in ("a", "b", "c"):
        objects.put_new(name, name.encode() * 100)
    some = np.array([0, 50]), np.array([2, 3])
    found = objects.read([Ranges(name, *some) for name in ("c", "a", "b")])
    assert [one.tobytes() for one in found] == [b"ccccc", b"aaaaa", b"bbbbb"]


def test_an_object_is_written_once(objects: Objects) -> None:
    objects.put_new("x/1", b"first")
    with pytest.raises(ObjectExistsError, match="expected no object x/1"):
        objects.put_new("x/1", b"second")
    with pytest.raises(ObjectExistsError):
        objects.put_new("x/1", b"first")  # another writer's, even if it wrote the same
    assert objects.get("x/1") == b"first"


def test_only_one_of_many_writers_writes(objects: Objects) -> None:
    won, lost = [], []

    def write(number: int) -> None:
        try:
            objects.put_new("race", b"%d" % number)
            won.append(number)
        except ObjectExistsError:
            lost.append(number)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    assert objects.get("race") == b"%d" % won[0]


def test_objects_are_listed_in_order_and_deleted(objects: Objects) -> None:
    for name in ("m/3", "m/1", "m/2", "other"):
        objects.put_new(name, name.encode())
    assert [(one.path, one.size) for one in objects.list("m")] == [("m/1", 3), ("m/2", 3), ("m/3", 3)]
    assert [one.path for one in objects.list("m", "m/1")] == ["m/2", "m/3"]
    objects.delete("m/2")
    objects.delete("m/2")
    assert [one.path for one in objects.list("m")] == ["m/1", "m/3"]


def test_a_folder_is_made_by_writing_and_empty_ones_go(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    objects = open_objects(str(folder))
    assert objects.list("") == []
    assert not folder.exists()
    objects.put_new("a/b/c", b"1")
    objects.put_new("a/d", b"2")
    objects.delete("a/b/c")
    assert [one.name for one in (folder / "a").iterdir()] == ["d"]


def test_what_is_missing_or_too_short_is_said(objects: Objects) -> None:
    objects.put_new("short", b"12345")
    with pytest.raises(ObjectMissingError, match="expected the object none in"):
        objects.get("none")
    with pytest.raises(ObjectMissingError):
        objects.get_ranges("none", np.array([0]), np.array([1]))
    for start, length in ((0, 6), (3, 3), (5, 1), (100, 10)):
        quick = Objects(objects.store, patience=0.1)
        with pytest.raises(ObjectDamagedError, match="truncated"):
            quick.get_ranges("short", np.array([start]), np.array([length]))


@pytest.mark.parametrize("fault", ["error", "silent", "truncated"])
def test_a_store_that_fails_for_a_while_is_asked_again(fault: str) -> None:
    left = [3]
    pauses: list[float] = []

    def fails(operation: str, path: str) -> str | None:
        left[0] -= 1
        return fault if left[0] >= 0 else None

    inner = open_store("memory://fails")
    inner.put(f"one-{fault}", b"content", create=True)
    faulty = FaultyStore(inner, fails)  # type: ignore[arg-type]
    objects = Objects(faulty, sleep=pauses.append)
    found = objects.get_ranges(f"one-{fault}", np.array([2]), np.array([3]))
    assert found.tobytes() == b"nte"
    assert faulty.struck == objects.retries == 3
    assert len(pauses) == 3
    for pause, longest in zip(pauses, (0.05, 0.1, 0.2), strict=True):
        assert 0.5 * longest <= pause <= longest


class Talkative:
    """A store that answers with more bytes than it is asked for."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.url = inner, inner.url

    def get_ranges(self, path: str, starts: list[int], into: list[memoryview]) -> list[int]:
        return [_fill(there, memoryview(bytes(len(there) + 1))) for there in into]

    def size(self, path: str) -> int:
        return self.inner.size(path)


def test_more_bytes_than_were_asked_for_are_none() -> None:
    inner = open_store("memory://talkative")
    inner.put("one", b"content", create=True)
    objects = Objects(Talkative(inner), sleep=lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(ObjectDamagedError, match=r"expected 3 bytes of one .* got 4: .* answers wrongly"):
        objects.get_ranges("one", np.array([2]), np.array([3]))
    assert (objects.requests, objects.retries) == (4, 3)


def test_patience_ends() -> None:
    objects = Objects(FaultyStore(open_store("memory://down"), lambda *_: "error"), patience=0.2)
    with pytest.raises(StoreUnavailableError, match=r"does not answer for it .* asked again for 0.2 seconds"):
        objects.get("it")
    with pytest.raises(StoreUnavailableError):
        objects.put_new("it", b"")
    with pytest.raises(StoreUnavailableError):
        objects.list("it")


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        ({}, "10s"),
        ({"patience": 3.0}, "3s"),
        ({"patience": 0.25, "timeout": 5.0}, "250ms"),
        ({"patience": float("inf"), "timeout": 2.0}, "2s"),
        ({"patience": float("inf"), "timeout": float("inf")}, "1day"),
    ],
)
def test_no_attempt_takes_longer_than_patience(given: dict[str, float], longest: str) -> None:
    """A network that swallows packets ends an attempt by its time alone."""
    store = open_objects("s3://bucket/place", skip_signature="true", **given).store  # type: ignore[arg-type]
    assert isinstance(store, Store)
    options = store._reads.client_options  # type: ignore[union-attr]
    assert options is not None
    for name in ("timeout", "connect_timeout"):
        assert options[name] == longest  # type: ignore[literal-required]


@pytest.mark.parametrize("name", ["patience", "timeout"])
@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), "3", None])
def test_wrong_times_are_refused(name: str, wrong: object) -> None:
    with pytest.raises(InputError, match=f"{name} must be a number above 0, got"):
        open_objects("s3://bucket/place", **{name: wrong})  # type: ignore[arg-type]


def test_a_put_whose_answer_is_lost_is_not_another_writers() -> None:
    heard = {"put unheard": 1}

    def fails(operation: str, path: str) -> str | None:
        heard[operation] = heard.get(operation, 0) - 1
        return "silent" if heard[operation] >= 0 and operation == "put unheard" else None

    objects = Objects(FaultyStore(open_store("memory://lost"), fails))  # type: ignore[arg-type]
    objects.put_new("one", b"mine")
    assert objects.get("one") == b"mine"
    heard["put unheard"] = 0
    with pytest.raises(ObjectExistsError):
        objects.put_new("one", b"mine")


def test_a_throttle_takes_as_long_as_it_says() -> None:
    inner = open_store("memory://throttled")
    inner.put("one", bytes(1 << 20), create=True)
    throttled = ThrottledStore(inner, bandwidth=100e6, latency=0.02)
    began = time.monotonic()
    assert len(throttled.get("one")) == 1 << 20
    alone = time.monotonic() - began
    began = time.monotonic()
    throttled.get_ranges("one", [0] * 20, [memoryview(bytearray(1)) for _ in range(20)])
    twenty = time.monotonic() - began
    # It may take longer on a busy machine, never shorter.
    assert alone >= 0.02 + (1 << 20) / 100e6
    assert twenty >= 0.02


@pytest.mark.parametrize("url", ["ftp://x/y", "http://host/x", "s4://bucket"])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="must begin with s3://"):
        open_objects(url)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="opens no store"):
        open_objects("s3://bucket", colour="red")
    with pytest.raises(InputError, match="a folder takes no options"):
        open_objects(str(tmp_path), region="here")


def test_memory_is_one_store_for_all_that_name_it() -> None:
    open_objects("memory://shared-name").put_new("a", b"1")
    assert open_objects("memory://shared-name").get("a") == b"1"
    assert open_objects("memory://another-name").list("") == []


def test_a_gap_is_read_from_the_url(tmp_path: Path) -> None:
    """Of each kind of store; without one, that of a folder is small and that of a network is large."""
    starts, lengths = np.array([0, 90, 300]), np.array([10, 10, 10])
    for url in (f"file://{tmp_path}", f"memory://{tmp_path}", str(tmp_path / "a folder?")):
        objects = open_objects(with_gap(url, 100))
        objects.put_new("one", bytes(1000))
        objects.get_ranges("one", starts, lengths)
        assert (objects.requests, objects.bytes_read) == (3, 110), "one request reads 80 bytes along"
    assert open_objects("s3://bucket/place?gap=7", skip_signature="true").store.url == "s3://bucket/place"
    with pytest.raises(InputError, match="gap must be an integer from 0 to"):
        open_objects("s3://bucket/place?gap=99999999999999999999")
    for wrong in ("?gap=", "?gap=-1", "?gap=1&region=x", "?region=x", "?"):
        with pytest.raises(InputError, match=r"with \?gap=BYTES"):
            open_objects(f"s3://bucket/place{wrong}")
    for wrong in (-1, 1.5, True, "1", 10**20):
        with pytest.raises(InputError, match="gap must be"):
            open_objects("s3://bucket/place", gap=wrong)  # type: ignore[arg-type]
