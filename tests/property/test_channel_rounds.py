"""Rounds through a network that loses, doubles, delays and damages messages: each worker gets the rounds that
the others have sent, in their order, or an error; never other rows, and never a part of a round.
"""

from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given, settings

from channel_network import Faults, Network, Simulated, Turn, plain, sections_for, simulate
from gate import draws
from livegnn.channels.channel import Round
from livegnn.channels.errors import ChannelError
from livegnn.channels.exchange import Exchange
from livegnn.channels.greeting import End
from livegnn.channels.health import Patience
from livegnn.channels.link import Limits

SMALL = Limits(part_bytes=60, window_bytes=150)  # a row of five floats takes 40
TURNS = st.lists(
    st.builds(
        Turn,
        rounds=st.integers(1, 4),
        aborts=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 3)),
    ),
    min_size=1,
    max_size=5,
)
RUNS = {
    "workers": st.integers(2, 3),
    "turns": TURNS,
    "seed": st.integers(0, 2**32),
    "limits": st.sampled_from([Limits(), SMALL]),
}


def run(workers: int, turns: Sequence[Turn], seed: int, faults: Faults, limits: Limits) -> list[Simulated]:
    made = [
        Simulated(
            Exchange(
                End(number, 1),
                {peer: 1 for peer in range(workers) if peer != number},
                1,
                {"version": "1"},
                patience=Patience(),
                limits=limits,
                now=0.0,
            ),
            turns,
            seed,
        )
        for number in range(workers)
    ]
    simulate(made, Network(faults))
    return made


def check_got(worker: Simulated, turns: Sequence[Turn], workers: int, seed: int) -> None:
    """What a worker has got are the first rounds of each turn, whole, as the others have sent them."""
    here = worker.exchange.here.number
    got: dict[int, int] = {}
    for round, sections in worker.got:
        assert round == Round(round.turn, 0, got.get(round.turn, 0), 10 * round.turn)
        got[round.turn] = round.number + 1
        assert sections == {
            peer: plain(sections_for(seed, peer, here, round)) for peer in range(workers) if peer != here
        }
    reached = max([*got, *worker.ended], default=0)
    for number, turn in enumerate(turns[: reached if worker.error else len(turns)], 1):
        aborts = turn.aborts is not None and turn.aborts[0] < workers and turn.aborts[1] < turn.rounds
        if number in worker.ended:
            assert aborts
            assert got.get(number, 0) <= turn.rounds
        elif number < reached or not worker.error:
            assert got.get(number, 0) == turn.rounds


@settings(max_examples=draws(80, 3000))
@given(**RUNS, share=st.floats(0, 0.7), delay=st.sampled_from([0.01, 2.0, 30.0]))
def test_any_faults_give_the_same_rounds_or_an_error(
    workers: int, turns: list[Turn], seed: int, share: float, delay: float, limits: Limits
) -> None:
    for worker in run(workers, turns, seed, Faults(seed, share, longest_delay=delay), limits):
        check_got(worker, turns, workers, seed)
        assert worker.error is None or isinstance(worker.error, ChannelError)


@settings(max_examples=draws(80, 3000))
@given(
    **RUNS,
    most=st.integers(0, 30),
)
def test_some_faults_are_healed(
    workers: int, turns: list[Turn], seed: int, most: int, limits: Limits
) -> None:
    for worker in run(workers, turns, seed, Faults(seed, 0.5, most=most), limits):
        check_got(worker, turns, workers, seed)
        assert worker.error is None
