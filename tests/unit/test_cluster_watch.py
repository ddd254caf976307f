"""Who is replaced, and where: decisions without Ray, on clocks of the tests' own."""

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from livegnn.cluster.watch import End, Node, Patience, Role, Start, Watch, choose_node, pause_after, roles_of

PATIENCE = Patience(silent_seconds=10, stuck_seconds=60, start_seconds=100)
A, B = Node("a"), Node("b")
SAMPLING, SERVING = Role("sampling", 0), Role("serving", 0)


def watching(*roles: Role) -> Watch:
    watch = Watch(PATIENCE)
    watch.wanted = set(roles)
    return watch


def look_until(watch: Watch, nodes: list[Node], begin: float, end: float) -> list[End | Start]:
    """Decides each second from `begin` to `end`; returns what is to be done."""
    return [action for now in np.arange(begin, end + 0.5) for action in watch.decide(nodes, float(now))]


def test_what_is_wanted_is_started_once_and_spread() -> None:
    watch = watching(*roles_of(2, {0: 1, 1: 2}))
    actions = watch.decide([A, B], 0)
    assert {action.role for action in actions} == watch.wanted
    assert sorted(watch.nodes.values()) == ["a", "a", "a", "b", "b"]
    assert watch.nodes[Role("serving", 1)] != watch.nodes[Role("serving", 1, 1)]
    assert watch.decide([A, B], 1) == []
    watch.wanted = roles_of(2, {0: 1, 1: 1})
    assert watch.decide([A, B], 2) == [End(Role("serving", 1, 1), "it is not wanted any more")]


def test_nothing_is_started_without_a_node() -> None:
    watch = watching(SAMPLING)
    assert watch.decide([], 0) == []
    assert watch.decide([A], 1) == [Start(SAMPLING, "a")]


def test_nothing_is_started_on_a_drained_node() -> None:
    watch = watching(*roles_of(2, {0: 1}))
    watch.drained = {"a"}
    assert {action.node for action in watch.decide([A, B], 0) if isinstance(action, Start)} == {"b"}
    watch.lose(SAMPLING, "its process has ended")
    assert watch.decide([A], 1) == [End(SAMPLING, "its process has ended")] + [
        End(role, "its node is lost") for role in sorted(watch.wanted - {SAMPLING})
    ]
    watch.drained = set()
    assert Start(SAMPLING, "a") in watch.decide([A], 2)


def test_a_process_that_ends_is_replaced_at_once_and_then_less_and_less_often() -> None:
    watch, now, starts = watching(SAMPLING), 0.0, []
    while now < 100:
        for action in watch.decide([A], now):
            if isinstance(action, Start):
                starts.append(now)
                watch.lose(SAMPLING, "its process has ended")
        now += 0.5
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    assert pauses[:6] == [0.5, 1.5, 2.5, 4.5, 8.5, 16.5]  # the end is seen half a second later
    assert max(pauses) <= 30.5
    assert [pause_after(failures) for failures in (0, 1, 2, 3, 50)] == [0, 0, 1, 2, 30]


def test_a_worker_that_was_well_for_long_is_replaced_at_once() -> None:
    watch, now = watching(SAMPLING), 0.0
    for _ in range(5):
        assert watch.decide([A], now)[-1] == Start(SAMPLING, "a")
        for _ in range(10):
            now += 9
            watch.hear(SAMPLING, now)
            assert watch.decide([A], now) == []
        watch.lose(SAMPLING, "its process has ended")


def test_a_silent_worker_is_given_up_and_its_node_avoided() -> None:
    watch = watching(SAMPLING, SERVING)
    assert watch.decide([A, B], 0) == [Start(SAMPLING, "a"), Start(SERVING, "b")]
    for now in (1, 8, 10):
        watch.hear(SERVING, now)
    watch.hear(SAMPLING, 1)
    assert look_until(watch, [A, B], 1, 11) == []
    assert watch.decide([A, B], 11.4) == [
        End(SAMPLING, "it has not answered for 10 seconds"),
        Start(SAMPLING, "b"),
    ]


def test_an_only_node_is_used_though_it_was_silent() -> None:
    watch = watching(SAMPLING)
    watch.decide([A], 0)
    watch.hear(SAMPLING, 1)
    assert look_until(watch, [A], 1, 12)[-1] == Start(SAMPLING, "a")


def test_who_was_away_itself_blames_nobody() -> None:
    watch = watching(SAMPLING)
    watch.decide([A], 0)
    watch.hear(SAMPLING, 1)
    assert look_until(watch, [A], 100, 105) == []
    assert isinstance(watch.decide([A], 105.5)[0], End)


def test_who_begins_may_take_longer_than_who_answers() -> None:
    watch = watching(SAMPLING)
    watch.decide([A], 0)
    assert look_until(watch, [A], 1, 100) == []
    assert isinstance(watch.decide([A], 101)[0], End)


def test_work_that_stands_still_and_failures_are_ends() -> None:
    watch = watching(SAMPLING)
    watch.decide([A], 0)
    watch.hear(SAMPLING, 70, stuck_seconds=60)
    assert watch.decide([A], 70) == []
    watch.hear(SAMPLING, 71, stuck_seconds=61)
    assert watch.decide([A], 71)[0] == End(SAMPLING, "its work has stood still for 61 seconds")
    watch.hear(SAMPLING, 80, failure="LogError: gone")
    assert watch.decide([A], 80)[0] == End(SAMPLING, "it failed: LogError: gone")
    watch.hear(Role("serving", 7), 80)  # of nobody
    watch.lose(Role("serving", 7), "its process has ended")


def test_workers_of_a_node_that_is_gone_go_to_others() -> None:
    watch = watching(*roles_of(4, {0: 1}))
    watch.decide([A, B], 0)
    gone = [role for role, node in watch.nodes.items() if node == "a"]
    actions = watch.decide([B], 1)
    assert sorted(action.role for action in actions if isinstance(action, Start)) == sorted(gone)
    assert set(watch.nodes.values()) == {"b"}


def test_nodes_meant_for_a_kind_come_first_and_others_in_need() -> None:
    sampling, serving = Node("a", frozenset({"sampling"})), Node("b", frozenset({"serving"}))
    taken: dict[Role, str] = {}
    for number in range(3):
        role = Role("sampling", number)
        assert choose_node(role, [sampling, serving], taken) == "a"
        taken[role] = "a"
    assert choose_node(Role("sampling", 4), [serving], taken) == "b"
    assert choose_node(Role("sampling", 4), [sampling, serving], taken, {"a"}) == "b"
    assert choose_node(SAMPLING, [], {}) is None


def test_workers_that_were_found_are_not_started_again() -> None:
    watch = watching(SAMPLING)
    watch.adopt(SAMPLING, "a", 0)
    assert watch.decide([A], 1) == []
    watch.hear(SAMPLING, 5)
    assert look_until(watch, [A], 5, 15) == []
    assert isinstance(watch.decide([A], 16)[0], End)


@given(st.integers(0, 2**32))
def test_whatever_happens_all_roles_are_filled_in_the_end(seed: int) -> None:
    """Nodes come and go, workers die, fall silent, fail: each role has at most one worker, on a node that is
    there, and when all is quiet each has one.
    """
    rng = random.Random(seed)
    watch = Watch(PATIENCE)
    names = ["a", "b", "c"]
    alive, running, now = set(names), {}, 0.0
    for step in range(150):
        quiet = step >= 100
        now += 9.0 if quiet else rng.uniform(0, 5)
        if rng.random() < 0.1 or step == 0:
            watch.wanted = roles_of(rng.randint(1, 3), {n: rng.randint(1, 2) for n in range(2)})
        if quiet:
            alive = {*alive, "a"}
        elif rng.random() < 0.2:
            alive ^= {rng.choice(names)}
        for role in list(running):
            if quiet or rng.random() < 0.7:
                stuck = 0 if quiet else rng.choice([0, 0, 0, 100])
                watch.hear(role, now, stuck, None if quiet or rng.random() < 0.9 else "it broke")
            elif rng.random() < 0.3:
                watch.lose(role, "its process has ended")
        for action in watch.decide([Node(name) for name in sorted(alive)], now):
            if isinstance(action, End):
                del running[action.role]
            else:
                assert action.role not in running
                assert action.node in alive
                running[action.role] = action.node
        assert running == watch.nodes
        assert set(running.values()) <= alive
    assert running.keys() == watch.wanted
