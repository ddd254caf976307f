"""Channels over real sockets: rounds, bad networks, keys and terms of others, processes that are lost.

Nothing here waits for a time to pass, except for errors that are about silence: those are certain, because
nothing can arrive any more.
"""

import gc
import itertools
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

if "CI" not in os.environ:  # which installs all extras
    pytest.importorskip("zmq", reason="pyzmq is not installed: pip install 'livegnn[cluster]'")
import zmq

from channel_network import Faults, in_threads, plain, sections_for
from gate import draws
from livegnn.channels.admission import Keys, is_readable, require_keys
from livegnn.channels.channel import Channel, Round
from livegnn.channels.errors import (
    BatchAborted,
    ChannelError,
    ChannelRefusedError,
    DeadLinkError,
    SlowWorkerError,
)
from livegnn.channels.frames import Section, SectionKind
from livegnn.channels.health import Patience
from livegnn.channels.link import Limits
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener, ZmqChannel
from livegnn.errors import InputError
from waiting import PATIENCE, wait_until
from zmq_relay import Relay

TERMS = {"version": "1"}
LOOPBACK = "127.0.0.1"
PATIENT = Patience(
    silent_seconds=PATIENCE, round_seconds=PATIENCE, slow_seconds=PATIENCE, hello_seconds=PATIENCE
)
SHORT = Patience(hello_seconds=0.2)  # for those that certainly are not greeted
Address = Callable[[int, int, str], str]
Interface = str | Mapping[tuple[int, int], str | None] | None


def plan_for(
    listeners: Sequence[Listener], number: int, address: Address = lambda _, __, its: its
) -> dict[int, Peer]:
    """The plan that a coordinator would give to one worker."""
    return {
        peer: Peer(
            incarnation=its.here.incarnation,
            address=address(peer, number, its.addresses[number]) if peer < number else None,
            key=its.key,
        )
        for peer, its in enumerate(listeners)
        if peer != number
    }


def listen(workers: int, interface: Interface) -> list[Listener]:
    def between(one: int, other: int) -> str | None:
        return interface[one, other] if isinstance(interface, Mapping) else interface

    return [
        Listener(number, {peer: between(number, peer) for peer in range(number + 1, workers)})
        for number in range(workers)
    ]


@contextmanager
def connected(
    workers: int = 2,
    interface: Interface = None,
    *,
    patience: Patience = PATIENT,
    address: Address = lambda _, __, its: its,
) -> Iterator[list[ZmqChannel]]:
    listeners = listen(workers, interface)
    with ExitStack() as closing:
        made = in_threads(
            [
                lambda number=number, its=its: its.connect(
                    plan_for(listeners, number, address), TERMS, patience=patience
                )
                for number, its in enumerate(listeners)
            ]
        )
        channels = []
        for channel in made:
            assert isinstance(channel, ZmqChannel), channel
            channels.append(channel)
            closing.callback(channel.close)
        yield channels


def run_rounds(channel: Channel, turns: int, rounds: int, seed: int) -> None:
    """Makes rounds whose sections all workers know, and checks those that arrive."""
    for turn in range(1, turns + 1):
        for number in range(rounds):
            round = Round(turn, 0, number, turn)
            given = {peer: sections_for(seed, channel.number, peer, round) for peer in channel.peers}
            found = channel.swap(round, given)
            assert {peer: plain(its) for peer, its in found.items()} == {
                peer: plain(sections_for(seed, peer, channel.number, round)) for peer in channel.peers
            }


MIXED = {(0, 1): None, (0, 2): LOOPBACK, (1, 2): "::1"}


@pytest.mark.parametrize("interface", [None, LOOPBACK, MIXED], ids=["ipc", "tcp", "both"])
def test_workers_swap_in_rounds(interface: Interface) -> None:
    with connected(3, interface) as channels:
        assert [(channel.number, channel.peers) for channel in channels] == [
            (0, [1, 2]),
            (1, [0, 2]),
            (2, [0, 1]),
        ]
        assert in_threads([lambda c=c: run_rounds(c, 20, 3, 5) for c in channels]) == [None] * 3
        counts = channels[0].counts()[1]
        assert (counts.sent, counts.received, counts.resent, counts.damaged) == (60, 60, 0, 0)


def test_the_last_round_arrives_though_its_sender_closes() -> None:
    with connected(2) as channels:
        sent = sections_for(1, 0, 1, Round(1, 0, 0))

        def swap_and_close(channel: ZmqChannel) -> object:
            found = channel.swap(Round(1, 0, 0), {1 - channel.number: sent})
            channel.close()
            return [plain(its) for its in found.values()]

        assert in_threads([lambda c=c: swap_and_close(c) for c in channels]) == [[plain(sent)]] * 2


def test_large_rounds_are_sent_in_parts() -> None:
    """More than may be under way at once."""
    rows = np.random.default_rng(0).random((300_000, 64), np.float32)
    given = Section(SectionKind.ROWS, 0, np.arange(len(rows), dtype=np.uint32), rows)
    assert given.num_bytes > Limits().window_bytes
    with connected(2) as channels:
        round = Round(1, 0, 0)
        found = in_threads([lambda c=c: c.swap(round, {1 - c.number: [given]}) for c in channels])
        for number, its in enumerate(found):
            assert isinstance(its, dict)
            assert plain(its[1 - number]) == plain([given])
            assert len(its[1 - number]) == 5


@pytest.mark.parametrize("seed", range(4))
def test_a_bad_network_is_healed(seed: int, tmp_path: Path) -> None:
    relays: list[Relay] = []

    def relayed(listener: int, peer: int, address: str) -> str:
        own = f"ipc://{tmp_path}/{listener}-{peer}"
        faults = Faults(seed, 0.3, most=15, longest_delay=0.3)
        relays.append(Relay(address, own, faults))
        return own

    with ExitStack() as closing, connected(3, address=relayed) as channels:
        for relay in relays:
            closing.callback(relay.close)
        assert in_threads([lambda c=c: run_rounds(c, 10, 3, seed) for c in channels]) == [None] * 3
        assert sum(relay.faults.left or 0 for relay in relays) < 15 * 3


# -- turns that end


def test_whoever_aborts_ends_the_turn_for_all() -> None:
    with connected(3) as channels:
        round = Round(1, 0, 0)

        def swap_or_abort(channel: ZmqChannel) -> object:
            if channel.number == 2:
                wait_until(lambda: channels[0].report().pulse.waits_for == {2})
                channel.abort(1, "no memory")
            return channel.swap(round, {})

        for number, error in enumerate(in_threads([lambda c=c: swap_or_abort(c) for c in channels])):
            assert isinstance(error, BatchAborted), number
            assert str(error) == "worker 2 has ended turn 1: no memory"
        assert in_threads([lambda c=c: list(c.swap(Round(2, 0, 0), {})) for c in channels]) == [
            [1, 2],
            [0, 2],
            [0, 1],
        ]


def test_another_thread_ends_a_turn() -> None:
    """As the one that listens to the leader does."""
    with connected(2) as (one, other):

        def abort() -> None:
            wait_until(lambda: one.report().pulse.is_waiting)
            one.abort(1, "the leader has said so")

        error, _ = in_threads([lambda: one.swap(Round(1, 0, 0), {}), abort])
        assert str(error) == "worker 0 has ended turn 1: the leader has said so"
        with pytest.raises(BatchAborted, match="worker 0 has ended turn 1: the leader has said so"):
            # Its sections of the first round may arrive before.
            deque((other.swap(Round(1, 0, number), {}) for number in range(2)), 0)


def test_a_turn_that_was_ended_is_not_begun() -> None:
    """Though no thread had the time to send it."""
    with connected(1) as (one,):
        assert one.swap(Round(1, 0, 0), {}) == {}
        with one._lock:
            one.abort(2, "no memory")
        with pytest.raises(BatchAborted, match="worker 0 has ended turn 2: no memory"):
            one.swap(Round(2, 0, 0), {})


def test_a_closed_channel_ends_the_wait() -> None:
    with connected(2) as (one, other):

        def close() -> None:
            wait_until(lambda: one.report().pulse.waits_for == {1})
            other.close()

        error, _ = in_threads([lambda: one.swap(Round(1, 0, 0), {}), close])
        assert isinstance(error, DeadLinkError)
        assert str(error) == "worker 1 has closed its channel before round 0 of turn 1 (seq 0)"
        with pytest.raises(ChannelError, match="the channel of worker 1 was closed: make another one"):
            other.swap(Round(1, 0, 0), {})
        other.abort(1, "nobody hears it")
        other.close()


def test_a_channel_closes_when_its_peers_have_received_all() -> None:
    with connected(2) as (one, other):
        one.close()
        assert other._exchange.links[0].is_closed


def test_ends_that_close_together_end_no_process() -> None:
    """A socket that lingers made libzmq abort here, once in some 200 times."""
    for _ in range(draws(8, 300)):
        with connected() as channels:
            in_threads([lambda channel=channel: run_rounds(channel, 1, 1, 0) for channel in channels])
            in_threads([channel.close for channel in channels])


def test_a_channel_is_closed_while_a_thread_waits() -> None:
    with connected(2) as (one, _):

        def close() -> None:
            wait_until(lambda: one.report().pulse.is_waiting)
            one.close()

        error, _ = in_threads([lambda: one.swap(Round(1, 0, 0), {}), close])
        assert str(error) == "the channel of worker 0 was closed: make another one"


# -- who is slow


def test_a_worker_that_makes_no_round_is_slow() -> None:
    """It answers: its own thread sends echoes."""
    patience = Patience(
        round_seconds=0.2, silent_seconds=PATIENCE, slow_seconds=PATIENCE, hello_seconds=PATIENCE
    )
    with (
        connected(2, patience=patience) as (one, _),
        pytest.raises(SlowWorkerError, match="worker 1 answers, and has computed for"),
    ):
        one.swap(Round(1, 0, 0), {})


def test_a_link_that_is_cut_is_dead(tmp_path: Path) -> None:
    relays: list[Relay] = []

    def relayed(listener: int, peer: int, address: str) -> str:
        relays.append(Relay(address, f"ipc://{tmp_path}/relay", Faults(0, 0.0)))
        return relays[-1].address

    patience = Patience(silent_seconds=0.3, hello_seconds=PATIENCE)
    with connected(2, patience=patience, address=relayed) as (one, _):
        relays[0].cut()
        with pytest.raises(DeadLinkError, match=r"worker 1 must answer within 0.3 seconds, got nothing for"):
            one.swap(Round(1, 0, 0), {})
    relays[0].close()


CHILD = """
import json, sys
from livegnn.channels.channel import Round
from livegnn.channels.plan import Peer
from livegnn.channels.zmq import Listener
listener = Listener(1, {})
print(listener.key, flush=True)
address, key = json.loads(input())
channel = listener.connect({0: Peer(address=address, key=key)}, {"version": "1"})
print("connected", flush=True)
for turn in range(1, 1_000_000):
    channel.swap(Round(turn, 0, 0), {})
"""


@pytest.mark.parametrize(("by", "interface"), [(signal.SIGKILL, None), (signal.SIGSTOP, LOOPBACK)])
def test_a_process_that_is_lost_is_found(by: signal.Signals, interface: str | None) -> None:
    listener = Listener(0, {1: interface})
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            key = child.stdout.readline().strip()
            print(json.dumps([listener.addresses[1], listener.key]), file=child.stdin, flush=True)
            patience = Patience(silent_seconds=0.3, round_seconds=PATIENCE, hello_seconds=PATIENCE)
            channel = listener.connect({1: Peer(key=key)}, TERMS, patience=patience)
            assert child.stdout.readline() == "connected\n"
            child.send_signal(by)
            says = r"worker 1 must answer within 0.3 seconds, got nothing for"
            with pytest.raises(DeadLinkError, match=says):
                deque((channel.swap(Round(turn, 0, 0), {}) for turn in itertools.count(1)), 0)
            channel.close()
        finally:
            child.kill()


# -- what is refused


def attempts(
    listeners: Sequence[Listener], *, terms: Sequence[Mapping[str, str]] = (TERMS, TERMS)
) -> list[object]:
    """The channel of each worker, which is closed, or its error."""
    found = in_threads(
        [
            lambda its=its, number=number, own=own: its.connect(
                plan_for(listeners, number), own, patience=PATIENT
            )
            for number, (its, own) in enumerate(zip(listeners, terms, strict=True))
        ]
    )
    in_threads([one.close for one in found if isinstance(one, ZmqChannel)])
    return found


@pytest.mark.parametrize("interface", [None, LOOPBACK], ids=["ipc", "tcp"])
def test_other_terms_are_refused_at_both_ends(interface: str | None) -> None:
    found = attempts(listen(2, interface), terms=[{"version": "1"}, {"version": "2"}])
    for number, error in enumerate(found):
        assert isinstance(error, ChannelRefusedError)
        mine, yours = number + 1, 2 - number
        assert str(error) == (
            f"workers must agree before they exchange rows, got two that differ: version is '{mine}' at "
            f"worker {number} and '{yours}' at worker {1 - number}: install the same version of livegnn on "
            "all machines of the cluster"
        )


def test_a_key_that_is_not_in_the_plan_is_refused() -> None:
    """And the process of the plan is admitted."""
    zero, one, other = Listener(0, {1: LOOPBACK}), Listener(1, {}), Listener(1, {})
    plan = plan_for([zero], 1)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(zero.connect, {1: Peer(key=one.key)}, TERMS, patience=PATIENT)
        with pytest.raises(ChannelRefusedError) as refused:
            other.connect(plan, TERMS, patience=PATIENT)
        channels = [one.connect(plan, TERMS, patience=PATIENT), waiting.result()]
    assert str(refused.value) == (
        f"worker 0 at {zero.addresses[1]} does not admit the key of this process: give it the public key of "
        "this process in its plan"
    )
    for channel in channels:
        in_threads([channel.close])


def test_keys_that_were_refused_are_named(caplog: pytest.LogCaptureFixture) -> None:
    zero, other = Listener(0, {1: LOOPBACK}), Listener(1, {})
    with ThreadPoolExecutor(1) as threads:
        refused = threads.submit(
            in_threads, [lambda: other.connect(plan_for([zero], 1), TERMS, patience=PATIENT)]
        )
        wait_until(lambda: is_readable(zero._sockets.admission.socket))  # its request is there
        error = _refusal(zero, {1: Peer(key=Keys.create().public)})
        assert isinstance(refused.result()[0], ChannelRefusedError)
    assert str(error) == (
        "worker 0 must be answered by all workers of the plan within 0.2 seconds, got none of [1], and "
        f"refused the key {other.key}, which is not in the plan: connect all workers by one plan, with the "
        "keys and incarnations of their processes of now"
    )
    assert caplog.messages == [f"the key {other.key} was refused, from 127.0.0.1 for worker 1"]


def test_a_process_with_another_key_at_the_address_is_refused() -> None:
    zero, one = Listener(0, {1: LOOPBACK}), Listener(1, {})
    plan = {0: Peer(address=zero.addresses[1], key=Keys.create().public)}
    with pytest.raises(
        ChannelRefusedError, match="does not have the key of worker 0 in the plan: its process was"
    ):
        one.connect(plan, TERMS, patience=PATIENT)
    zero.close()


def test_a_process_that_does_not_know_this_key_is_named() -> None:
    """As long as the one of the plan is waited for."""
    zero, one, other = Listener(0, {1: LOOPBACK}), Listener(1, {}), Listener(1, {})
    wrong = {0: Peer(address=zero.addresses[1], key=Keys.create().public)}
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(zero.connect, {1: Peer(key=one.key)}, TERMS, patience=PATIENT)
        wait_until(lambda: zero._sockets.handshakes)
        with pytest.raises(ChannelRefusedError):
            other.connect(wrong, TERMS, patience=PATIENT)
        (handshakes,) = zero._sockets.handshakes
        wait_until(lambda: handshakes.refused)
        channels = [one.connect(plan_for([zero], 1), TERMS, patience=PATIENT), waiting.result()]
    assert handshakes.refused == "a process at the address for worker 1 without the key of this one"
    in_threads([channel.close for channel in channels])


def connecting(listener: Listener, plan: dict[int, Peer], **others: Any) -> Callable[[], object]:
    """A call that returns the channel or its error."""

    def connect() -> object:
        try:
            return listener.connect(plan, others.pop("terms", TERMS), patience=PATIENT, **others)
        except (ChannelError, InputError) as error:
            return error

    return connect


def close(*channels: object) -> None:
    in_threads([channel.close for channel in channels if isinstance(channel, ZmqChannel)])


@pytest.mark.parametrize("interface", [None, LOOPBACK], ids=["ipc", "tcp"])
@pytest.mark.parametrize("before", ["connected", "failed", "closed"])
def test_a_listener_connects_once(before: str, interface: str | None) -> None:
    """Two channels on the same sockets ended the process. The first one stays as it was."""
    listeners = listen(2, interface)
    plans = [plan_for(listeners, number) for number in range(2)]
    channels: list[object] = []
    if before == "connected":
        channels = in_threads([connecting(*each) for each in zip(listeners, plans, strict=True)])
    for listener, plan in zip(listeners, plans, strict=True):
        if before == "failed":
            with pytest.raises(DeadLinkError):
                listener.connect(plan, TERMS, patience=SHORT)
        if before == "closed":
            listener.close()
        for _ in range(2):
            with pytest.raises(InputError) as refused:
                listener.connect(plan, TERMS, patience=PATIENT)
            assert str(refused.value) == (
                f"worker {listener.here.number} must connect with a new listener: this one "
                f"{'was closed' if before == 'closed' else 'has connected before'}. Close it and what it has "
                "connected to, make one with the next incarnation at each worker, and give all workers the "
                "plan of these"
            )
            listener.close()
    for channel in channels:
        assert isinstance(channel, ZmqChannel)
    assert in_threads([lambda c=c: run_rounds(c, 3, 2, 1) for c in channels]) == [None] * len(channels)
    close(*channels)


def test_of_threads_that_connect_one_listener_one_does() -> None:
    zero, one = listen(2, None)
    calls = [connecting(zero, plan_for([zero, one], 0)) for _ in range(4)]
    found = in_threads([*calls, connecting(one, plan_for([zero, one], 1))])
    assert sorted(type(each).__name__ for each in found) == ["InputError"] * 3 + ["ZmqChannel"] * 2
    close(*found)


def test_arguments_that_do_not_fit_leave_a_listener_as_it_was() -> None:
    zero, one = listen(2, LOOPBACK)
    plan = plan_for([zero, one], 0)
    bad: list[tuple[Any, Any, dict[str, Any]]] = [
        ({}, TERMS, {}),
        ({1: Peer()}, TERMS, {}),
        (plan, {"version": 1}, {}),
        (plan, TERMS, {"epoch": 0}),
        (plan, TERMS, {"patience": 5}),
    ]
    for its, terms, others in bad:
        with pytest.raises(InputError):
            zero.connect(its, terms, **others)
    found = in_threads([connecting(zero, plan), connecting(one, plan_for([zero, one], 1))])
    assert [type(each) for each in found] == [ZmqChannel] * 2
    close(*found)


def test_a_listener_that_is_forgotten_is_closed() -> None:
    """In whatever order its parts are collected: an exception often keeps it in a cycle."""
    listener = Listener(0, {1: None, 2: LOOPBACK})
    folder = Path(listener.addresses[1].removeprefix("ipc://")).parent
    listener.addresses[3] = [listener]  # type: ignore[assignment]
    del listener
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_of_two_processes_with_one_incarnation_one_is_refused(late: bool) -> None:
    zero, one, twin = Listener(0, {1: None}), Listener(1, {}), Listener(1, {})
    plan = plan_for([zero], 1)
    calls = [connecting(zero, {1: Peer()}), connecting(one, plan), connecting(twin, plan)]
    found = in_threads(calls[:2]) + in_threads(calls[2:]) if late else in_threads(calls)
    channels = [each for each in found if isinstance(each, ZmqChannel)]
    (error,) = [each for each in found if not isinstance(each, ZmqChannel)]
    assert isinstance(error, ChannelRefusedError)
    assert str(error) == (
        "worker 0 exchanges rows with another process 1 of worker 1: end this one, or give all workers a "
        "plan in which a new process has the next incarnation"
    )
    assert in_threads([lambda c=c: run_rounds(c, 10, 3, 2) for c in channels]) == [None] * 2
    close(*channels)


@pytest.mark.parametrize("interface", [None, LOOPBACK], ids=["ipc", "tcp"])
def test_a_process_that_has_gone_is_not_greeted(interface: str | None) -> None:
    """Though its hello lies in the socket."""
    zero, one = listen(2, interface)
    for listener, plan in ((one, plan_for([zero], 1)), (zero, {1: Peer(key=one.key)})):
        error = _refusal(listener, plan)
        assert isinstance(error, DeadLinkError)


def test_the_hello_of_a_process_that_has_gone_refuses_no_other() -> None:
    zero, gone, one = Listener(0, {1: None}), Listener(1, {}), Listener(1, {})
    plan = plan_for([zero], 1)
    with pytest.raises(DeadLinkError):
        gone.connect(plan, {"version": "2"}, patience=SHORT)
    found = in_threads([connecting(zero, {1: Peer()}), connecting(one, plan)])
    assert [type(each) for each in found] == [ZmqChannel] * 2
    close(*found)


class Clock:
    """A clock that can be set ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


OLDER = {  # incarnations of 0 and 1, as they know each other's, their epochs; which of them is refused
    "epoch of 0": ((1, 1), (1, 1), (1, 2), 0),
    "epoch of 1": ((1, 1), (1, 1), (2, 1), 1),
    "0 was replaced": ((1, 1), (2, 1), (1, 1), 0),
    "1 was replaced": ((1, 1), (1, 2), (1, 1), 1),
    "0 knows an earlier 1": ((1, 2), (1, 1), (1, 1), 0),
    "1 knows an earlier 0": ((2, 1), (1, 1), (1, 1), 1),
}


@pytest.mark.parametrize("interface", [None, LOOPBACK], ids=["ipc", "tcp"])
@pytest.mark.parametrize("case", OLDER.values(), ids=OLDER)
def test_both_ends_hear_of_a_replacement(
    case: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int],
    interface: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The earlier one is refused at once; the later one waits for the process of its plan."""
    incarnations, known, epochs, older = case
    clock = Clock()
    monkeypatch.setattr("livegnn.channels.zmq.time", clock)
    zero = Listener(0, {1: interface}, incarnation=incarnations[0])
    one = Listener(1, {}, incarnation=incarnations[1])
    calls = [
        connecting(zero, {1: Peer(known[1], key=one.key)}, epoch=epochs[0]),
        connecting(one, {0: Peer(known[0], zero.addresses[1], zero.key)}, epoch=epochs[1]),
    ]
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(call) for call in calls]
        error = waiting[older].result()
        wait_until(lambda: caplog.messages)
        clock.ahead = 2 * PATIENCE
        other = waiting[1 - older].result()
    assert isinstance(error, ChannelRefusedError)
    assert "was replaced" in str(error)
    assert isinstance(other, DeadLinkError)
    assert str(other) == (
        f"worker {1 - older} must be answered by all workers of the plan within {PATIENCE} seconds, got none "
        f"of [{older}], and refused process {incarnations[older]} of worker {older}, whose plan is of epoch "
        f"{epochs[older]} and has process {known[1 - older]} of worker {1 - older}: connect all workers by "
        "one plan, with the keys and incarnations of their processes of now"
    )


def test_a_stranger_without_keys_is_not_answered() -> None:
    """And disturbs nobody."""
    listeners = listen(2, LOOPBACK)
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(listeners[0].addresses[1])
        for _ in range(3):
            with suppress(zmq.Again):
                stranger.send(b"hello", zmq.NOBLOCK)
        assert all(isinstance(one, ZmqChannel) for one in attempts(listeners))
        assert stranger.poll(0) == 0


def test_an_address_that_nobody_answers_is_named(tmp_path: Path) -> None:
    error = _refusal(Listener(1, {}), {0: Peer(address=f"ipc://{tmp_path}/nobody")})
    assert isinstance(error, DeadLinkError)
    assert str(error) == (
        "worker 1 must be answered by all workers of the plan within 0.2 seconds, got nothing of [0]: start "
        "them, or check the addresses in the plan and the network"
    )


def _refusal(listener: Listener, plan: dict[int, Peer]) -> Exception:
    with pytest.raises((InputError, ChannelError)) as raised:
        listener.connect(plan, TERMS, patience=SHORT)
    listener.close()
    return raised.value


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({}, r"those after 0 being \[1\], which it listens for, got \[\]"),
        ({1: Peer(), 2: Peer()}, r"those after 0 being \[1\], which it listens for, got \[1, 2\]"),
        ({0: Peer(), 1: Peer()}, r"peers must be the other workers"),
        ({1: Peer()}, "worker 1 at tcp://127.0.0.1:[0-9]+ must have a public key, got None"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan: dict[int, Peer], says: str) -> None:
    error = _refusal(Listener(0, {1: LOOPBACK}), plan)
    assert isinstance(error, InputError)
    assert error.args
    with pytest.raises(InputError, match=says):
        raise error


@pytest.mark.parametrize("interface", ["0.0.0.0", "::", "localhost", "*", ""])
def test_an_interface_is_an_address_that_peers_can_reach(interface: str) -> None:
    with pytest.raises(
        InputError, match="an interface must be an IP address of this machine that the peer can"
    ):
        Listener(0, {1: interface})


def test_an_interface_of_another_machine_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"must listen at an address of this machine, got tcp://192.0.2.1:\*"
    ):
        Listener(0, {1: "192.0.2.1"})


def test_an_epoch_fits_in_a_message() -> None:
    with pytest.raises(InputError, match="epoch must be an integer from 1 to 4294967295, got 0"):
        Listener(0, {}).connect({}, TERMS, epoch=0)


def test_only_later_workers_are_listened_for() -> None:
    with pytest.raises(InputError, match="a peer in interfaces must be an integer from 2 to 65535, got 1"):
        Listener(1, {1: None})


def test_without_encryption_there_is_no_link_over_tcp() -> None:
    with pytest.raises(
        InputError, match=r"worker 1 connects: links over TCP are encrypted, .* from its wheels"
    ):
        require_keys(None, "worker 1 connects")


# -- files


def test_sockets_lie_where_no_other_user_can_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    listener = Listener(0, {1: None})
    path = Path(listener.addresses[1].removeprefix("ipc://"))
    assert path.parent.parent == tmp_path
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    listener.close()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(
        InputError, match=r"the path of a socket must have at most 107 bytes, got .* set XDG_RUNTIME_DIR"
    ):
        Listener(0, {1: None})
    assert list(long.iterdir()) == []


def test_a_closed_channel_leaves_nothing() -> None:
    with connected(2) as channels:
        folder = Path(channels[0]._sockets.path_for("any")).parent
        assert folder.is_dir()
    assert not folder.exists()
    assert not any(channel._service.is_alive() for channel in channels)
