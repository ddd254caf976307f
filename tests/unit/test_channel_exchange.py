"""The rounds of a worker over its links, without sockets and clock: hellos, losses, windows, silence."""

import itertools
from collections.abc import Callable, Mapping
from itertools import permutations

import numpy as np
import pytest

import livegnn._core as _core
from channel_network import plain
from livegnn.channels.channel import Round
from livegnn.channels.errors import (
    BatchAborted,
    ChannelError,
    ChannelRefusedError,
    DeadLinkError,
    SlowLinkError,
    SlowWorkerError,
)
from livegnn.channels.exchange import Exchange
from livegnn.channels.frames import Kind, Section, SectionKind, decode
from livegnn.channels.greeting import End
from livegnn.channels.health import LinkHealth, Patience, Pulse
from livegnn.channels.link import Limits
from livegnn.channels.terms import MOST_BYTES, check_same, check_terms, from_note, to_note
from livegnn.errors import InputError

ROWS = Section(SectionKind.ROWS, 0, np.arange(2, dtype=np.uint32), np.ones((2, 3), np.float32))
TERMS = {"version": "1", "model": "a"}
SMALL = Limits(part_bytes=100, window_bytes=200)


def exchange(
    number: int,
    *,
    patience: Patience | None = None,
    incarnation: int = 1,
    peer: int = 1,
    epoch: int = 1,
    terms: Mapping[str, str] = TERMS,
) -> Exchange:
    return Exchange(
        End(number, incarnation),
        {1 - number: peer},
        epoch,
        terms,
        patience=patience or Patience(),
        limits=SMALL,
        now=0.0,
    )


def carry(
    sender: Exchange, receiver: Exchange, now: float, lose: Callable[[int], bool] = lambda _: False
) -> int:
    """Brings all messages of one to the other, but those whose places are lost; how many."""
    link = sender.links[receiver.here.number]
    count = 0
    while (frames := link.outgoing()) is not None:
        link.note_sent()
        if not lose(count):
            receiver.receive(sender.here.number, [bytes(frame) for frame in frames], now)
        count += 1
    return count


def all_greeted(workers: int, patience: Patience | None = None) -> list[Exchange]:
    numbers = range(workers)
    made = [
        Exchange(
            End(number, 1),
            {peer: 1 for peer in numbers if peer != number},
            1,
            TERMS,
            patience=patience or Patience(),
            limits=SMALL,
            now=0.0,
        )
        for number in numbers
    ]
    for one in made:
        one.tick(0.0)
    for one, other in [*permutations(made, 2)] * 3:
        carry(one, other, 0.0)
    assert all(one.is_greeted() for one in made)
    return made


def pair(patience: Patience | None = None) -> tuple[Exchange, Exchange]:
    one, other = all_greeted(2, patience)
    return one, other


def test_hellos_are_said_until_both_have_one() -> None:
    one, other = exchange(0), exchange(1)
    one.tick(0.0)
    carry(one, other, 0.0, lose=lambda _: True)
    one.tick(0.1)
    assert carry(one, other, 0.1) == 0  # it is not due
    one.tick(0.2)
    carry(one, other, 0.2)
    assert not other.is_greeted()
    carry(other, one, 0.2)
    assert not one.is_greeted()
    carry(one, other, 0.2)
    assert other.is_greeted()
    carry(other, one, 0.2)
    assert one.is_greeted()
    assert carry(one, other, 0.2) == 0


@pytest.mark.parametrize("lost", range(4))
def test_a_hello_that_is_lost_is_repeated(lost: int) -> None:
    """Whichever of the four."""
    one, other = exchange(0), exchange(1)
    places = itertools.count()
    for step in range(1, 10):
        for sender, receiver in ((one, other), (other, one)):
            sender.tick(0.2 * step)
            carry(sender, receiver, 0.2 * step, lose=lambda _: next(places) == lost)
    assert one.is_greeted()
    assert other.is_greeted()


def test_an_answer_of_another_end_is_a_greeting_too() -> None:
    """An end that has heard nothing of its acceptance but a beat."""
    one, other = exchange(0), exchange(1)
    one.tick(0.0)
    carry(one, other, 0.0)
    carry(other, one, 0.0)
    carry(one, other, 0.0)
    carry(other, one, 0.0, lose=lambda _: True)
    assert not one.is_greeted()
    other.tick(0.2)
    carry(other, one, 0.2)
    assert one.is_greeted()


def test_a_hello_of_a_process_that_is_lost_greets_nobody() -> None:
    """It lies in a socket, as often as it was said. A replacement with other terms is greeted."""
    lost, new = exchange(1, terms={**TERMS, "model": "b"}), exchange(1)
    hellos = []
    for now in (0.0, 0.2, 0.4):
        lost.tick(now)
        hellos += sent(lost, exchange(0))
    zero = exchange(0)
    for frames in hellos:
        zero.receive(1, frames, 1.0, b"lost")
    assert not zero.is_greeted()
    zero.links[1].outgoing()
    assert zero.links[1].route == b"lost"
    zero.links[1].note_cut()
    greet(zero, (new, b"new"))
    assert zero.is_greeted()
    assert new.is_greeted()


def greet(zero: Exchange, *others: tuple[Exchange, bytes]) -> None:
    """All that the others and worker 0 have to say to each other, by the routes of the others."""
    for step in range(1, 6):
        for other, route in others:
            other.tick(0.2 * step)
            for frames in sent(other, zero):
                zero.receive(1, frames, 0.2 * step, route)
        zero.tick(0.2 * step)
        link = zero.links[1]
        while (answer := link.outgoing()) is not None:
            to = link.route
            copied = [bytes(frame) for frame in answer]
            link.note_sent()
            for other, route in others:
                if route == to:
                    other.receive(0, copied, 0.2 * step)


def test_of_two_processes_with_one_incarnation_the_second_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And receives nothing, and sends nothing that is taken."""
    zero, one, twin = exchange(0), exchange(1), exchange(1)
    greet(zero, (one, b"one"), (twin, b"twin"))
    assert zero.is_greeted()
    assert one.is_greeted()
    with pytest.raises(
        ChannelRefusedError,
        match="worker 0 exchanges rows with another process 1 of worker 1: end this one, or give all workers",
    ):
        twin.is_greeted()
    assert caplog.messages == ["worker 0 has refused a second process 1 of worker 1"]
    assert zero.links[1].refused == ["a second process 1 of worker 1"]
    for other in (one, twin):
        other.links[0]._greeting.is_greeted = True
        other._failure = None
        other.begin(Round(1, 0, 0), {0: [rows(3 if other is one else 5)]}, 2.0)
    for frames in sent(twin, zero):
        zero.receive(1, frames, 2.0, b"twin")
    zero.begin(Round(1, 0, 0), {1: [rows(4)]}, 2.0)
    carry_by_route(zero, one, b"one", 2.0)
    found = zero.finish(2.0)
    assert found is None
    for frames in sent(one, zero):
        zero.receive(1, frames, 2.0, b"one")
    found = zero.finish(2.0)
    assert found is not None
    assert plain(found[1]) == plain([rows(3)])


def carry_by_route(zero: Exchange, one: Exchange, route: bytes, now: float) -> None:
    link = zero.links[1]
    while (frames := link.outgoing()) is not None:
        assert link.route == route
        one.receive(0, [bytes(frame) for frame in frames], now)
        link.note_sent()


def test_messages_wait_for_the_next_connection() -> None:
    """Those with numbers: beats are not kept."""
    zero, one = exchange(0), exchange(1)
    greet(zero, (one, b"first"))
    one.begin(Round(1, 0, 0), {}, 2.0)
    zero.begin(Round(1, 0, 0), {1: [rows(4)]}, 2.0)
    zero.tick(2.0)
    link = zero.links[1]
    while link.outgoing() is not None:
        assert link.route == b"first"
        link.note_cut()
    assert zero.finish(2.0) is None
    for frames in sent(one, zero):
        zero.receive(1, frames, 2.1, b"second")
    carry_by_route(zero, one, b"second", 2.1)
    assert zero.finish(2.1) is not None
    found = one.finish(2.1)
    assert found is not None
    assert plain(found[0]) == plain([rows(4)])
    assert zero.counts()[1].resent == 0


@pytest.mark.parametrize(
    "name", ["version", "instruction_set", "model", "schema", "options", "owners", "else"]
)
def test_other_terms_are_refused_at_both_ends(name: str) -> None:
    one, other = exchange(0, terms={**TERMS, name: "mine"}), exchange(1, terms={**TERMS, name: "yours"})
    one.tick(0.0)
    carry(one, other, 0.0)
    carry(other, one, 0.0)
    carry(one, other, 0.0)
    for at, number, its, theirs in ((one, 0, "mine", "yours"), (other, 1, "yours", "mine")):
        said = f"{name} is '{its}' at worker {number} and '{theirs}' at worker {1 - number}: "
        with pytest.raises(ChannelRefusedError, match=said) as refused:
            at.is_greeted()
        assert len(str(refused.value).rpartition(": ")[2]) > 10  # it says what to do
        with pytest.raises(ChannelRefusedError):
            at.begin(Round(1, 0, 0), {}, 0.0)


def test_a_term_that_one_end_lacks_is_another() -> None:
    with pytest.raises(ChannelRefusedError, match="model is 'a' at worker 0 and None at worker 1"):
        check_same(0, TERMS, 1, {"version": "1"})
    check_same(0, TERMS, 1, from_note(to_note(TERMS), 1))
    for note in (b"", b"[]", b'{"a":1}', b"\xff"):
        with pytest.raises(ChannelError, match="the hello of worker 1 must have an object of texts"):
            from_note(note, 1)


@pytest.mark.parametrize("terms", [None, 5, [("a", "b")], {"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}])
def test_terms_are_texts(terms: Mapping[str, str]) -> None:
    with pytest.raises(InputError, match="terms must be a mapping of texts to texts, got "):
        check_terms(terms)


def test_terms_are_short() -> None:
    check_terms({"a": "x" * (MOST_BYTES - 8)})
    with pytest.raises(
        InputError,
        match="terms must have at most 65,536 bytes as JSON, got 65,537: give the digest of a long one",
    ):
        check_terms({"a": "x" * (MOST_BYTES - 7)})


def test_long_terms_are_cut_where_they_differ() -> None:
    long = "x" * 30_000
    with pytest.raises(ChannelRefusedError) as refused:
        check_same(0, {"model": long + "a"}, 1, {"model": long + "b"})
    said = str(refused.value)
    assert len(said) < 500
    assert ", which differ after 30,000 characters: give all workers the same model file" in said
    with pytest.raises(ChannelRefusedError, match="which differ after 30,000 characters") as refused:
        check_same(0, {"model": long}, 1, {"model": long + "b"})
    many = {str(number): "a" * 50 for number in range(1000)}
    with pytest.raises(ChannelRefusedError) as refused:
        check_same(0, many, 1, {})
    assert len(str(refused.value)) <= 2000


def test_another_number_of_workers_is_refused() -> None:
    one, other = (
        exchange(0),
        Exchange(End(1, 1), {0: 1, 2: 1}, 1, TERMS, patience=Patience(), limits=Limits(), now=0.0),
    )
    one.tick(0.0)
    carry(one, other, 0.0)
    carry(other, one, 0.0)
    carry(one, other, 0.0)
    with pytest.raises(
        ChannelRefusedError, match="workers is '3' at worker 1 and '2' at worker 0: start all"
    ):
        other.is_greeted()


def test_a_process_that_was_replaced_finds_out() -> None:
    """And its messages are dropped."""
    for outdated in ({"incarnation": 1}, {"incarnation": 2, "epoch": 1}):
        old, new = exchange(0, **outdated), exchange(1, peer=2, epoch=2 if "epoch" in outdated else 1)
        old.tick(0.0)
        carry(old, new, 0.0)
        carry(new, old, 0.0)
        assert not new.is_greeted()
        assert new.counts()[0].dropped == 1
        assert carry(old, new, 0.0) == 0  # the answer is not answered again
        with pytest.raises(ChannelRefusedError, match=r"worker 0 was replaced: .* End this process"):
            old.is_greeted()
        (said,) = new.links[0].refused
        assert said.endswith(" of worker 0, whose plan is of epoch 1 and has process 1 of worker 1")


def test_a_worker_that_does_not_know_of_a_replacement_finds_out() -> None:
    old, new = exchange(0, peer=1), exchange(1, incarnation=2)
    new.tick(0.0)
    carry(new, old, 0.0)
    with pytest.raises(
        ChannelRefusedError, match=r"worker 1 must be process 1, got 2: it was replaced. Make a new listener"
    ):
        old.is_greeted()
    assert old.counts()[1].dropped == 0
    carry(old, new, 0.0)
    assert new.links[0].refused == [
        "process 1 of worker 0, whose plan is of epoch 1 and has process 1 of worker 1"
    ]
    assert carry(new, old, 0.0) == 0


@pytest.mark.parametrize(
    "refused",
    [
        exchange(1, epoch=2),
        exchange(1, incarnation=2),
        Exchange(End(2, 1), {0: 1}, 1, TERMS, patience=Patience(), limits=SMALL, now=0.0),
    ],
    ids=["epoch", "incarnation", "number"],
)
def test_an_end_that_fails_tells_the_other_until_it_has_gone(refused: Exchange) -> None:
    zero = exchange(0)
    refused.tick(0.0)
    (hello,) = sent(refused, zero)
    zero.receive(1, hello, 0.0, b"it")
    with pytest.raises(ChannelRefusedError):
        zero.is_greeted()
    assert len(sent(zero, exchange(1))) == 1
    zero.say_bye()
    assert not zero.has_parted(0.0)
    assert len(sent(zero, exchange(1))) == 1
    zero.tick(0.0)  # with a hello to the process of the plan
    again = [frames for frames in sent(zero, exchange(1)) if len(frames)]
    assert len(again) == 2
    assert not zero.has_parted(0.1)
    zero.tick(0.2)
    assert zero.links[1].outgoing() is not None
    assert zero.links[1].route == b"it"
    zero.links[1].note_cut()
    assert zero.has_parted(0.2)
    refused.receive(0, again[0], 0.2)
    if refused.here.number == 2:
        with pytest.raises(ChannelRefusedError, match="got worker 0 that addresses worker 1: give each"):
            refused.is_greeted()
    else:
        assert refused.links[0].refused


def test_strangers_take_little_room() -> None:
    """Each by a connection of its own, as one that is cut and connects again has them."""
    zero, stranger = exchange(0, epoch=2), exchange(1)
    stranger.tick(0.0)
    (hello,) = sent(stranger, zero)
    for number in range(1000):
        zero.receive(1, hello, 0.0, b"%d" % number)
        if number % 3 == 0:
            sent(zero, stranger)
    greeting = zero.links[1]._greeting
    assert max(len(greeting.told), len(greeting.answers)) <= 64
    assert len(greeting.refused) == 1


def test_another_version_is_told_at_both_ends() -> None:
    one, other = exchange(0), exchange(1)
    other.tick(0.0)
    (hello,) = sent(other, one)
    header = bytearray(hello[0])
    header[4:6] = (99).to_bytes(2, "little")
    header[72:80] = bytes(8)
    header[72:80] = _core.hash_buffers([bytes(header[:80]), bytes(header[80:])]).to_bytes(8, "little")
    for _ in range(2):
        one.receive(1, [bytes(header)], 0.0, b"other")
        with pytest.raises(ChannelError, match="worker 1 must send messages of version 1, got 99: install"):
            one.is_greeted()
    answers = sent(one, other)
    one.receive(1, [bytes(header)], 0.0, b"other")
    assert [decode(frames).header.kind for frames in answers] == [Kind.HELLO]
    assert sent(one, other) == []  # the other end fails itself, and may answer in turn


def test_the_addresses_of_another_plan_are_refused() -> None:
    one = exchange(0)
    other = Exchange(End(2, 1), {1: 1}, 1, TERMS, patience=Patience(), limits=Limits(), now=0.0)
    other.tick(0.0)
    frames = other.links[1].outgoing()
    assert frames is not None
    one.receive(1, [bytes(frame) for frame in frames], 0.0)
    with pytest.raises(
        ChannelRefusedError, match="got worker 2 that addresses worker 1: give each worker the addr"
    ):
        one.is_greeted()


def rows(count: int, value: int = 0) -> Section:
    return Section(
        SectionKind.ROWS, value, np.arange(count, dtype=np.uint32), np.full((count, 3), value, np.float32)
    )


def test_a_beat_shows_what_was_lost() -> None:
    one, other = pair()
    round = Round(1, 0, 0)
    one.begin(round, {1: [rows(3)]}, 1.0)
    other.begin(round, {}, 1.0)
    carry(one, other, 1.0, lose=lambda _: True)
    carry(other, one, 1.0)
    assert other.finish(1.0) is None
    one.tick(1.0)
    carry(one, other, 1.0)  # the beat
    carry(other, one, 1.0)  # a request
    carry(one, other, 1.0)
    found = other.finish(1.0)
    assert found is not None
    assert plain(found[0]) == plain([rows(3)])
    assert one.finish(1.0) is not None
    assert one.counts()[1].resent == 1
    other.tick(1.2)
    carry(other, one, 1.2)
    assert not one.links[1]._kept  # it is received


def sent(one: Exchange, other: Exchange, most: int = 100) -> list[list[bytes]]:
    """Messages that are on their way."""
    link = one.links[other.here.number]
    found = []
    while len(found) < most and (frames := link.outgoing()) is not None:
        link.note_sent()
        found.append([bytes(frame) for frame in frames])
    return found


def requests(one: Exchange, other: Exchange) -> bool:
    """Whether a worker is about to request messages of another."""
    return Kind.RESEND in one.links[other.here.number]._controls


def test_requests_of_an_earlier_sweep_are_ignored() -> None:
    """Messages that were on their way when a sweep began do not begin another one."""
    one, other = pair()
    one.begin(Round(1, 0, 0), {1: [rows(8)]}, 1.0)
    _, second = sent(one, other)
    one.tick(1.2)
    (beat,) = sent(one, other)
    other.receive(0, second, 1.3)
    carry(other, one, 1.3)
    again = sent(one, other)
    assert len(again) == 2
    other.receive(0, beat, 1.4)
    assert requests(other, one)
    carry(other, one, 1.4)
    assert sent(one, other) == []
    for frames in again:
        other.receive(0, frames, 1.5)
    assert other.counts()[0].received == 2
    assert one.counts()[1].resent == 2


def test_a_beat_within_a_sweep_shows_no_loss() -> None:
    one, other = pair()
    one.begin(Round(1, 0, 0), {1: [rows(8)]}, 1.0)
    _, second = sent(one, other)
    other.receive(0, second, 1.1)
    carry(other, one, 1.1)
    other.receive(0, *sent(one, other, most=1), 1.2)
    one.tick(1.3)
    other.receive(0, *sent(one, other, most=1), 1.3)
    assert other.counts()[0].received == 1
    assert not requests(other, one)


def test_a_message_that_was_received_meanwhile_is_not_sent_again() -> None:
    """Its socket was full when it was to be sent again."""
    one, other = pair()
    one.begin(Round(1, 0, 0), {1: [rows(8)]}, 1.0)
    first, second = sent(one, other)
    other.receive(0, second, 1.1)
    carry(other, one, 1.1)
    assert one.links[1].outgoing() is not None
    other.receive(0, first, 1.2)
    other.receive(0, second, 1.2)
    other.tick(1.3)
    carry(other, one, 1.3)
    assert not one.links[1].has_unsent
    assert [one.counts()[1].resent, one.links[1]._in_flight, len(one.links[1]._kept)] == [0, 0, 0]


def test_a_turn_that_this_worker_ends_itself_ends_its_round() -> None:
    one, other = pair()
    one.begin(Round(1, 0, 0), {}, 1.0)
    one.abort(1, "the leader has said so")
    one.abort(1, "and again")
    with pytest.raises(BatchAborted, match="worker 0 has ended turn 1: the leader has said so"):
        one.finish(1.0)
    other.begin(Round(1, 0, 0), {}, 1.0)
    carry(one, other, 1.0)
    with pytest.raises(BatchAborted, match="worker 0 has ended turn 1: the leader has said so"):
        other.finish(1.0)


def test_a_turn_ends_though_its_sections_have_arrived() -> None:
    """A worker that waits for a third one hears that the second has ended the turn."""
    one, other, _ = all_greeted(3)
    one.begin(Round(1, 0, 0), {}, 1.0)
    other.begin(Round(1, 0, 0), {}, 1.0)
    carry(other, one, 1.0)
    assert one.finish(1.0) is None
    assert one.report(1.0).pulse.waits_for == {2}
    other.abort(1, "no memory")
    carry(other, one, 1.0)
    with pytest.raises(BatchAborted, match="worker 1 has ended turn 1: no memory"):
        one.finish(1.0)


def test_a_later_turn_that_ended_does_not_end_a_whole_round() -> None:
    """A worker may be one turn ahead."""
    one, other = pair()
    other.begin(Round(1, 0, 0), {0: [rows(3)]}, 1.0)
    other.abort(2, "no memory")
    carry(other, one, 1.0)
    one.begin(Round(1, 0, 0), {}, 1.0)
    assert one.finish(1.0) is None  # its own part is not sent
    carry(one, other, 1.0)
    found = one.finish(1.0)
    assert found is not None
    assert plain(found[1]) == plain([rows(3)])


def test_a_turn_ends_though_a_later_one_has_ended_too() -> None:
    """By a worker that has not received a part of it, and closes."""
    one, other = pair()
    other.begin(Round(1, 0, 0), {0: [rows(3)]}, 1.0)
    for turn in (1, 2):
        other.abort(turn, "no memory")
    other.say_bye()
    carry(other, one, 1.0)
    one.begin(Round(1, 0, 0), {1: [rows(3)]}, 1.0)
    with pytest.raises(BatchAborted, match="worker 1 has ended turn 2: no memory"):
        one.finish(1.0)


def test_the_last_round_arrives_before_the_bye() -> None:
    """However late."""
    one, other = waiting_for_other(Patience())
    other.begin(Round(1, 0, 0, 5), {0: [rows(3)]}, 1.0)
    carry(other, one, 1.0, lose=lambda _: True)
    other.say_bye()
    carry(other, one, 1.0)
    assert one.finish(1.0) is None
    assert not other.has_parted(1.0)
    carry(one, other, 1.0)  # a request
    carry(other, one, 1.0)
    assert one.finish(1.0) is not None
    carry(one, other, 1.0)
    assert other.has_parted(1.0)


def test_a_channel_closes_without_a_peer_that_is_lost() -> None:
    one, other = pair(Patience(silent_seconds=3.0))
    one.say_bye()
    assert not one.has_parted(3.0)
    assert one.has_parted(3.1)
    other.say_bye()
    carry(other, one, 1.0)
    assert one.has_parted(1.0)
    alone = exchange(0)
    alone.say_bye()
    assert alone.has_parted(0.0)


def test_a_window_is_not_exceeded() -> None:
    one, other = pair()
    given = rows(60)
    one.begin(Round(1, 0, 0), {1: [given]}, 1.0)
    other.begin(Round(1, 0, 0), {}, 1.0)
    carry(other, one, 1.0)
    assert one.finish(1.0) is None  # it is not sent
    while carried := carry(one, other, 1.0):
        assert carried <= 2
        carry(other, one, 1.0)
    assert one.finish(1.0) is not None
    found = other.finish(1.0)
    assert found is not None
    assert len(found[0]) > 5
    assert plain(found[0]) == plain([given])


def waiting_for_other(patience: Patience) -> tuple[Exchange, Exchange]:
    one, other = pair(patience)
    one.begin(Round(1, 0, 0, 5), {1: [rows(2)]}, 0.0)
    carry(one, other, 0.0)
    return one, other


def beat(one: Exchange, other: Exchange, now: float, later: float = 0.0) -> None:
    """A beat of one, and the other's echo."""
    one.tick(now)
    carry(one, other, now)
    carry(other, one, now + later)


def test_a_peer_that_sends_nothing_is_lost() -> None:
    one, other = waiting_for_other(Patience(silent_seconds=3.0))
    for now in (1.0, 2.0, 3.0):
        one.tick(now)
        assert one.finish(now) is None
    with pytest.raises(
        DeadLinkError, match=r"worker 1 must answer within 3.0 seconds, got nothing for 3.1 in round 0"
    ):
        one.finish(3.1)
    beat(one, other, 4.0)
    assert one.report(4.0).links[1].silent_seconds == 0.0


def test_a_peer_that_answers_and_computes_is_slow() -> None:
    one, other = waiting_for_other(Patience(round_seconds=5.0))
    for now in range(1, 6):
        beat(one, other, now)
        assert one.finish(now) is None
    with pytest.raises(
        SlowWorkerError, match=r"worker 1 answers, and has computed for 5.0 seconds since round 0"
    ):
        one.finish(5.1)


def test_a_link_with_late_echoes_is_slow() -> None:
    one, other = waiting_for_other(Patience(round_seconds=5.0, silent_seconds=30.0, slow_seconds=1.0))
    beat(one, other, 1.0, later=3.0)
    assert one.report(4.0).links[1].echo_seconds == 3.0
    with pytest.raises(SlowLinkError, match=r"worker 1 is reached in 3.0 seconds, so the link is slow"):
        one.finish(5.1)
    one, other = waiting_for_other(Patience(round_seconds=5.0, silent_seconds=30.0, slow_seconds=1.0))
    one.tick(1.0)
    carry(one, other, 1.0, lose=lambda _: True)
    assert one.report(4.0).links[1].echo_seconds == 3.0  # and there is none yet


def test_a_link_that_brings_no_rows_is_slow() -> None:
    """The other has sent its part, and waits itself."""
    one, other = waiting_for_other(Patience(round_seconds=5.0))
    other.begin(Round(1, 0, 0, 5), {}, 0.0)
    other.links[0].outgoing()
    other.links[0].note_sent()  # on its way
    for now in range(1, 6):
        one.tick(now)
        carry(one, other, now)
        carry(other, one, now, lose=lambda place: place > 0)
        one.links[1]._controls.clear()
    with pytest.raises(SlowLinkError, match=r"worker 1 is in round 0 of turn 1 .* and has sent its part"):
        one.finish(5.1)


def test_a_process_that_stood_still_itself_waits_longer() -> None:
    one, other = waiting_for_other(Patience(silent_seconds=3.0))
    one.tick(1.0)
    one.tick(100.0)
    assert one.finish(100.0) is None
    assert one.report(100.0).links[1] == LinkHealth(0.0, 0.0, Pulse())
    beat(one, other, 101.0)
    assert one.finish(103.0) is None


def test_a_channel_that_closes_ends_a_round() -> None:
    one, other = waiting_for_other(Patience())
    other.say_bye()
    carry(other, one, 1.0)
    with pytest.raises(DeadLinkError, match="worker 1 has closed its channel before round 0"):
        one.finish(1.0)


def test_notes_that_no_worker_writes_are_an_error() -> None:
    for kind in (Kind.BEAT, Kind.ECHO, Kind.RESEND):
        one, other = pair()
        other.links[0]._controls[kind] = (0, b"abc")
        carry(other, one, 1.0)
        with pytest.raises(
            ChannelError, match=f"as .* describes them, got b'abc' in a message of kind {kind.name}"
        ):
            one.begin(Round(1, 0, 0), {}, 1.0)
