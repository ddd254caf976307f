"""A runtime on a graph in parts, of which one is lost, or whose log fails, at a step of a batch."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")

import livegnn.checkpoint as checkpoint
from divided_deployment import opened, write
from gate import in_gate
from livegnn import Events, Graph, InputError, Model
from livegnn.errors import DiskFullError, LiveGNNError, WorkerUnavailableError
from livegnn.graph import EdgeSchema, Schema
from livegnn.log import Batch, Rejection
from livegnn.model import Input, Propagate, Step
from livegnn.partitions.remote import RemotePartitions
from livegnn.placement import Owners
from livegnn.runtime import Change, Runtime
from streams import WIDTH, make_overflow

IDS = np.arange(20)
OWNERS = Owners("jump", 2)


def first() -> Events:
    events = Events().add_nodes(IDS, np.random.default_rng(0).normal(size=(20, WIDTH)))
    return events.add_edges(IDS, np.roll(IDS, 1))


def second() -> Events:
    return Events().set_features(IDS, np.ones((20, WIDTH))).add_edges(IDS, np.roll(IDS, 7))


def expected(directory: Path, *batches: Events) -> list[bytes]:
    """The predictions of a runtime on a graph in one piece, after each batch."""
    rows = []
    with opened(write(directory, "whole", log="whole.db")) as runtime:
        for events in batches:
            runtime.append(events)
            runtime.step()
            rows.append(runtime.predict(IDS).values.tobytes())
    return rows


def at_record(runtime: Runtime, before: Callable[[], None], after: Callable[[], None]) -> None:
    """Calls functions around the record of each batch, when all parts have prepared it."""
    record = runtime.log.record_batch

    def call(batch: Batch, *rejections: Rejection) -> None:
        before()
        record(batch, *rejections)
        after()

    runtime.log.record_batch = call  # type: ignore[method-assign]


@pytest.mark.parametrize(("recorded", "part"), in_gate([(False, 1), (True, 0), (True, 1), (False, 0)]))
def test_a_part_that_is_lost_before_the_decision(tmp_path: Path, recorded: bool, part: int) -> None:
    """The batch is recorded: all other parts show it, and after a restart all do."""
    rows = expected(tmp_path, first(), second())
    deployment = write(tmp_path, "parts", 2)
    held, lost = (IDS[(OWNERS.of_id(IDS) == part) == of_it] for of_it in (False, True))
    with opened(deployment) as runtime:
        runtime.append(first())
        runtime.step()
        assert runtime.predict(IDS).values.tobytes() == rows[0]
        engine = cast("RemotePartitions", runtime.models.engine)

        def kill() -> None:
            engine.processes[part].kill()
            engine.processes[part].wait()

        at_record(runtime, *((lambda: None, kill) if recorded else (kill, lambda: None)))
        seq = runtime.append(second())
        with pytest.raises(LiveGNNError, match=f"part {part} must answer"):
            runtime.step()
        assert runtime.seq == seq
        assert (
            runtime.predict(held).values.tobytes()
            == np.frombuffer(rows[1], np.float32).reshape(20, -1)[held].tobytes()
        )
        with pytest.raises(WorkerUnavailableError, match=f"part {part} must answer"):
            runtime.predict(lost)
        assert f"part {part} must answer" in runtime.readiness().reasons["predictor"]
        runtime.append(Events().remove_nodes([1]))
        with pytest.raises(LiveGNNError, match="not all parts of the graph show the last batch"):
            runtime.step()
        assert runtime.seq == seq
    with opened(deployment) as runtime:
        assert runtime.seq == seq
        assert runtime.predict(IDS).values.tobytes() == rows[1]


def test_a_batch_that_cannot_be_recorded_is_abandoned_by_all_parts(tmp_path: Path) -> None:
    """And prepared again, when there is space."""
    rows = expected(tmp_path, first(), second())
    full = [False]

    def fail() -> None:
        if full[0]:
            raise DiskFullError("the disk is full")

    with opened(write(tmp_path, "parts", 2)) as runtime:
        runtime.append(first())
        runtime.step()
        at_record(runtime, fail, lambda: None)
        full[0] = True
        seq = runtime.append(second())
        for _ in range(2):
            with pytest.raises(DiskFullError):
                runtime.step()
            assert runtime.predict(IDS).values.tobytes() == rows[0]
        full[0] = False
        runtime.step()
        assert (runtime.seq, runtime.predict(IDS).values.tobytes()) == (seq, rows[1])


def test_subscribers_learn_that_changes_are_not_known(tmp_path: Path) -> None:
    """The part with changed predictions is lost after its batch."""
    told: list[Change] = []
    with opened(write(tmp_path, "parts", 2)) as runtime:
        runtime.append(first())
        runtime.step()
        engine = cast("RemotePartitions", runtime.models.engine)

        def kill() -> bool:
            engine.processes[0].kill()
            engine.processes[0].wait()
            return True

        runtime.subscribe(told.append, wanted=kill)
        seq = runtime.append(second())
        runtime.step()
    assert [(one.seq, one.known, len(one.ids)) for one in told] == [(seq, False, 0)]


def test_refusals_are_those_of_one_engine(tmp_path: Path) -> None:
    """Of a batch of several entries, those that are to blame are refused, with the same texts."""
    entries = [
        first(),
        Events().set_features([3], [make_overflow()]),
        Events().add_edges([3, 4], [5, 6], weight=[2.0, 1.5]),
        Events().remove_nodes([77]),
        Events().set_features([5], np.ones((1, WIDTH))).set_features([4], [make_overflow()]),
        Events().remove_nodes([6]),
    ]
    outcomes = []
    for partitions in (0, 1, 2, 5):
        path = write(tmp_path, f"of {partitions}", partitions, log=f"{partitions}.db")
        with opened(path) as runtime:
            for events in entries:
                runtime.append(events)
            while runtime.step():
                pass
            rows = runtime.predict([3, 4, 5, 7]).values.tobytes()
            outcomes.append((runtime.seq, rows, list(runtime.log.listed())))
    reasons = [message for _, _, message in outcomes[0][2]]
    assert [reason.count("would be infinite") for reason in reasons] == [1, 0, 1]
    assert all(one == outcomes[0] for one in outcomes)


@pytest.mark.parametrize("owners", in_gate(["fennel", "jump"]))
def test_several_types_of_nodes_begin_with_a_checkpoint(tmp_path: Path, owners: str) -> None:
    """Of an empty graph, since arrays have one type alone."""
    rng, rows = np.random.default_rng(0), []
    edge_type = ("user", "buys", "item")
    schema = Schema({"user": 3, "item": 2}, {edge_type: EdgeSchema(weighted=True)})
    operators = Propagate(edge_type=edge_type, message_local=("weight",))
    model = Model(
        inputs={"x": Input("user", 3)},
        steps=(Step("propagate", ("x",), "out", attrs=operators.to_attrs()),),
        tensors={},
        output="out",
        layers=("x", "out"),
    )
    batches = [Events().add_nodes(IDS, rng.normal(size=(20, 3)), node_type="user")]
    batches.append(Events().add_nodes(IDS, node_type="item"))
    for _ in range(10):
        src, dst = rng.choice(IDS, (2, 30))
        batches.append(Events().add_edges(src, dst, weight=rng.normal(size=30), edge_type=edge_type))
    for partitions in (0, 3):
        path = write(tmp_path, f"of {partitions}", partitions, log=f"{partitions}.db", owners=owners)
        path.write_text(path.read_text(encoding="utf-8").replace('auto_add_nodes = ["node"]', ""), "utf-8")
        checkpoint.write(tmp_path / "graph.npz", {"graph": Graph(schema).state()}, 0)
        model.save(tmp_path / "model.lgnn")
        with opened(path) as runtime:
            for events in batches:
                runtime.append(events)
                runtime.step()
            rows.append(runtime.predict(IDS).values.tobytes())
    assert rows[0] == rows[1]
    assert np.frombuffer(rows[0], np.float32).any()


def test_closed_parts_apply_nothing(tmp_path: Path) -> None:
    with opened(write(tmp_path, "parts", 1)) as runtime:
        runtime.append(first())
        runtime.step()
    engine = cast("RemotePartitions", runtime.models.engine)
    with pytest.raises(InputError, match="the parts must be open"):
        engine.apply(second())
