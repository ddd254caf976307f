"""The owners of nodes: hashes whose bits streams depend on, tables, and copies of them."""

import copy
import hashlib
import pickle

import numpy as np
import pytest

import livegnn as lg
from livegnn.errors import InputError
from livegnn.placement import Owners
from livegnn.placement.owners import NO_OWNER
from livegnn.workers import WorkerPlan

IDS = np.concatenate([np.arange(-5000, 20000), np.random.default_rng(7).integers(-(2**63), 2**63 - 1, 25000)])
BITS = {
    ("modulo", 1): "946cc2661d32ad83",
    ("modulo", 2): "50fbd66263d2d9d8",
    ("modulo", 3): "5ca01108a5c18a81",
    ("modulo", 7): "1f94e09f86e31dfb",
    ("modulo", 64): "d29566d8f49a3d05",
    ("modulo", 1000): "72d16b8decae9776",
    ("jump", 1): "946cc2661d32ad83",
    ("jump", 2): "db934af6712ab044",
    ("jump", 3): "b9a463c820b9f350",
    ("jump", 7): "a53c34227f0ac64b",
    ("jump", 64): "97014767e3f413f0",
    ("jump", 1000): "9bd9584b9b161ca6",
}
"""Digests of the owners of `IDS`. Streams and checkpoints of workers exist that depend on them."""


@pytest.mark.parametrize(("rule", "workers"), BITS)
def test_no_bit_of_a_hash_has_changed(rule: str, workers: int) -> None:
    owners = Owners(rule, workers).of_id(IDS)  # type: ignore[arg-type]
    assert owners.dtype == np.int64
    assert hashlib.sha256(owners.tobytes()).hexdigest()[:16] == BITS[rule, workers]


def test_a_plan_has_the_owners_of_its_numbers() -> None:
    schema = lg.Schema({"node": 1}, {("node", "to", "node"): lg.EdgeSchema()})
    query = lg.Query("node").hop(("node", "to", "node"), 2)
    plan = WorkerPlan(schema, query, sampling_workers=7, serving_workers=3, moved={5: 2, 9: 0})
    ids = IDS[IDS >= 0]
    np.testing.assert_array_equal(plan.sampling_worker_of(IDS), Owners("modulo", 7).of_id(IDS))
    expected = Owners("jump", 3).of_id(ids)
    expected[ids == 5], expected[ids == 9] = 2, 0
    np.testing.assert_array_equal(plan.serving_worker_of(ids), expected)
    for other in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert other == plan
        np.testing.assert_array_equal(other.serving_worker_of(ids), expected)


def test_a_table_has_an_owner_for_each_index() -> None:
    owners = Owners("table", 3, table=np.array([2, NO_OWNER, 0, 1], np.uint16))
    assert owners.of_index(np.array([0, 1, 3, 4, 99], np.uint32)).tolist() == [
        2,
        NO_OWNER,
        1,
        NO_OWNER,
        NO_OWNER,
    ]
    assert pickle.loads(pickle.dumps(owners)) == owners
    assert owners != Owners("table", 3, table=np.array([2, NO_OWNER, 0, 2], np.uint16))
    assert owners != Owners("modulo", 3)
    empty = Owners("table", 3, table=np.array([], np.uint16))
    assert pickle.loads(pickle.dumps(Owners("fennel", 3))) == Owners("fennel", 3) != empty
    with pytest.raises(ValueError, match="owners of indices"):
        owners.of_id(IDS)
    with pytest.raises(ValueError, match="owners of ids"):
        Owners("jump", 3).of_index(np.zeros(1, np.uint32))


def test_owners_that_cannot_be_are_refused() -> None:
    table = np.array([0, 3], np.uint16)
    for call, message in (
        (lambda: Owners("hash", 2), "rule must be 'modulo', 'jump', 'table' or 'fennel', got 'hash'"),  # type: ignore[arg-type]
        (lambda: Owners("jump", 0), "workers must be an integer from 1 to 4000, got 0"),
        (lambda: Owners("jump", 4001), "workers must be an integer from 1 to 4000, got 4001"),
        (lambda: Owners("jump", 2, moved={3: 2}), "id 3 is moved twice, or to a worker that is none of 2"),
        (lambda: Owners("jump", 2, moved={3: -1}), "there is no such worker"),
        (lambda: Owners("table", 3, table=table), "index 1 is owned by worker 3, which is none of 3"),
        (lambda: Owners("table", 3), "a table is for the rule 'table'"),
        (lambda: Owners("jump", 3, table=table), "a table is for the rule 'table'"),
        (lambda: Owners("table", 4, table=table, moved={3: 2}), "moved ids are for a hash"),
        (lambda: Owners("fennel", 4, moved={3: 2}), "moved ids are for a hash"),
    ):
        with pytest.raises(InputError, match=message):
            call()
