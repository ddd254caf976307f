"""What cannot be had (memory, addresses, space on a disk) is missed before anything changes: the batch is
refused, and everything is as it was. Each case runs in a process of its own, under a limit of the system's.
"""

import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

_PREAMBLE = """
import resource, sys
import numpy as np
from livegnn import Engine, Events, Graph
from livegnn import EdgeSchema, Schema
from streams import make_arrays, make_model

rng = np.random.default_rng(1)
MIB = 1 << 20

def frozen(state):
    return state.meta, {name: array.tobytes() for name, array in state.arrays.items()}

def used(what):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(what + ":"))

def limit(which, more, what):
    resource.setrlimit(which, (used(what) + more, resource.getrlimit(which)[1]))

def lift(which):
    most = resource.getrlimit(which)[1]
    resource.setrlimit(which, (most, most))
"""


def _set_stacks() -> None:
    """Threads take as much address space as on most machines, whatever this user has set."""
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    stack = 8 << 20 if most == resource.RLIM_INFINITY else min(most, 8 << 20)
    resource.setrlimit(resource.RLIMIT_STACK, (stack, most))


def run(body: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PREAMBLE) + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
        check=False,
        preexec_fn=_set_stacks,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(("mode", "history"), [("eager", 0), ("eager", 1_000_000), ("lazy", 0)])
def test_a_batch_for_which_there_is_no_memory_changes_nothing(mode: str, history: int) -> None:
    out = run(
        f"""
        arrays = make_arrays(500, 2000)
        known = arrays["ids"] = arrays["ids"] * 1003
        arrays["src"], arrays["dst"] = arrays["src"] * 1003, arrays["dst"] * 1003
        graph = Graph.from_edges(**arrays)
        engine = Engine(graph, make_model(), mode={mode!r}, threads=2, history={history})
        count, refused = 60_000, 0
        x = rng.standard_normal((count, 4)).astype(np.float32)
        for turn, room in enumerate([1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 96, 1024]):
            ids = 1_000_000_000 + np.arange(count) * 7
            src, weight = rng.choice(known, count), np.ones(count)
            events = Events().add_nodes(ids, x).add_edges(src, ids, weight=weight)
            before = frozen(graph.state()), engine.predict(known).tobytes()
            limit(resource.RLIMIT_DATA, room * MIB, "VmData")
            try:
                engine.apply(events)
            except MemoryError:
                refused += 1
            else:
                break
            finally:
                lift(resource.RLIMIT_DATA)
            meta, arrays = frozen(graph.state())
            assert meta == before[0][0], (turn, meta)
            assert not [name for name in arrays if arrays[name] != before[0][1][name]], turn
            assert engine.predict(known).tobytes() == before[1], turn
            assert not graph.contains(ids).any()
            engine.apply(Events().add_edges(rng.choice(known, 5), rng.choice(known, 5), weight=np.ones(5)))
            assert engine.verify().ok
        assert 3 <= refused < 15, refused
        assert graph.contains(ids).all() and engine.verify(sample=100).ok
        print("refused", refused)
        """
    )
    assert "refused" in out


@pytest.mark.parametrize("where", ["features_dir", "state_dir"])
def test_a_batch_for_which_there_is_no_space_in_files_changes_nothing(where: str, tmp_path: Path) -> None:
    features_dir, state_dir = (
        str(tmp_path) if where == name else None for name in ("features_dir", "state_dir")
    )
    run(
        f"""
        graph = Graph.from_edges(**make_arrays(), features_dir={features_dir!r})
        engine = Engine(graph, make_model(), state_dir={state_dir!r})
        known = graph.ids()
        ids = 1000 + np.arange(20_000)
        events = Events().add_nodes(ids, rng.standard_normal((len(ids), 4)).astype(np.float32))
        before = frozen(graph.state()), frozen(engine.state())
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        for turn in range(3):
            try:
                engine.apply(events)
            except OSError as error:
                assert "a file cannot grow" in str(error), error
            else:
                raise AssertionError("applied without space")
            assert (frozen(graph.state()), frozen(engine.state())) == before
        engine.apply(Events().add_edges(known[:5], known[5:10], weight=np.ones(5)))
        assert engine.verify().ok
        lift(resource.RLIMIT_FSIZE)
        engine.apply(events)
        assert graph.contains(ids).all() and engine.verify().ok
        """
    )


def test_many_edge_types_fit_into_few_addresses() -> None:
    """Each directed type has two heaps of blocks; they reserve addresses as they grow."""
    run(
        """
        types = {("node", f"r{i}", "node"): EdgeSchema() for i in range(16)}
        limit(resource.RLIMIT_AS, 1024 * MIB, "VmSize")
        graph = Graph(Schema({"node": 0}, types))
        graph.apply(Events().add_nodes(np.arange(1000)))
        for edge_type in types:
            src, dst = rng.integers(0, 1000, (2, 20_000))
            graph.apply(Events().add_edges(src, dst, edge_type=edge_type))
            expected = len({*zip(src.tolist(), dst.tolist())})
            assert graph.degree(np.arange(1000), edge_type=edge_type).sum() == expected
        """
    )


def test_threads_that_cannot_be_started_are_named_as_what_failed(tmp_path: Path) -> None:
    """Whatever else is asked for: no directory is to blame, and those that were started have ended."""
    out = run(
        f"""
        import os
        graph, model = Graph.from_edges(**make_arrays()), make_model()
        before, begun = frozen(graph.state()), len(os.listdir("/proc/self/task"))
        for settings in ({{}}, {{"state_dir": {str(tmp_path)!r}}}):
            for make in (lambda threads: Engine(graph, model, threads=threads, **settings),
                         lambda threads: Graph(threads=threads, features_dir=settings.get("state_dir"))):
                limit(resource.RLIMIT_AS, 200 * MIB, "VmSize")
                try:
                    make(1000)
                except OSError as error:
                    assert "expected to work with 1000 threads, got" in str(error), error
                    assert "ask for fewer with threads=" in str(error), error
                    assert "_dir" not in str(error), error
                else:
                    raise AssertionError("started a thousand threads in 200 MiB")
                finally:
                    lift(resource.RLIMIT_AS)
                assert len(os.listdir("/proc/self/task")) == begun
        assert frozen(graph.state()) == before
        assert Engine(graph, model, threads=2).verify().ok
        print("refused")
        """
    )
    assert "refused" in out
