"""Whole clusters in the simulator: they converge, find who died, spare who lives, and are quiet.

The bounds here are those that docs/adr/0024-membership.md and docs/limits.md state. Everything is seeded.
"""

from __future__ import annotations

import pytest

from headwater.peering.membership.health import MAX_SCORE
from headwater.peering.membership.phi import LONGEST_SILENCE
from headwater.peering.membership.roster import State

from .simulator import TIMING, Simulator

CONVERGED = 12
"""Ticks in which a cluster of up to 50 nodes agrees, from nothing."""
FOUND = 20
"""Ticks in which all others hold a crashed node for dead, with up to 10 % loss."""
MOST_PATIENT = (LONGEST_SILENCE + TIMING.dead_after) * (1 + MAX_SCORE)
"""The same whatever was measured before, for one who has lost most others and doubts itself."""
HEALED = 40
"""Ticks in which a cluster agrees again after a cut."""


def converged(seed: int, nodes: int, loss: float = 0.0, rates: tuple[float, float] = (1.0, 1.0)) -> Simulator:
    simulator = Simulator(seed, loss=loss)
    simulator.start_many(nodes, rates)
    simulator.run_until(simulator.converged, CONVERGED)
    return simulator


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("nodes", [3, 5, 10])
def test_a_crashed_node_is_found_by_all(nodes: int, seed: int) -> None:
    simulator = converged(seed, nodes, loss=0.1)
    simulator.run(30)
    simulator.crash(nodes - 1)
    simulator.run_until(lambda: simulator.all_say(nodes - 1, State.DEAD), FOUND)
    assert simulator.converged()
    assert simulator.wrong_alarms(State.DEAD) == 0


def test_when_most_crash_the_rest_finds_it_and_trusts_itself_again() -> None:
    simulator = converged(2, 7)
    for number in range(2, 7):
        simulator.crash(number)
    simulator.run(10)
    assert simulator.nodes["node-0"].membership.patience > 1
    simulator.run(MOST_PATIENT)
    assert all(simulator.all_say(number, State.DEAD) for number in range(2, 7))
    assert [each.membership.patience for each in simulator.nodes.values()] == [1, 1]


def test_fifty_nodes_converge_and_find_who_crashed() -> None:
    simulator = converged(1, 50, loss=0.05)
    simulator.crash(17)
    simulator.run_until(lambda: simulator.all_say(17, State.DEAD), FOUND)
    assert simulator.wrong_alarms(State.SUSPECTED) == 0
    simulator.run_until(simulator.converged, 1)


@pytest.mark.parametrize("seed", range(3))
def test_maps_converge_while_they_change(seed: int) -> None:
    simulator = converged(seed, 6, loss=0.2)
    for step in range(60):
        node = simulator.rng.choice(list(simulator.nodes.values()))
        key = f"k{simulator.rng.randrange(5)}"
        if step % 3:
            node.membership.set(key, simulator.rng.randbytes(simulator.rng.randrange(900)))
        else:
            node.membership.delete(key, node.clock(simulator.now))
        simulator.run(simulator.rng.random() * 3)
    simulator.run_until(simulator.converged, CONVERGED)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_comes_back_at_the_same_or_another_address(seed: int) -> None:
    simulator = converged(seed, 5, loss=0.05)
    simulator.crash(2)
    simulator.run(simulator.rng.choice((1, 30)))
    simulator.start(2, address="elsewhere:1" if seed % 2 else None)
    simulator.run_until(simulator.converged, CONVERGED)
    [view] = [each for each in simulator.nodes["node-0"].membership.view(0.0) if each.node == "node-2"]
    assert (view.generation, view.address) == (2, "elsewhere:1" if seed % 2 else "a2:1")


def test_a_node_finds_the_others_though_all_seeds_have_moved() -> None:
    simulator = converged(4, 5)
    for number in (0, 1):
        simulator.crash(number)
        simulator.start(number, address=f"elsewhere-{number}:1")
        simulator.run_until(simulator.converged, CONVERGED)
    simulator.crash(4)
    simulator.run(30)
    simulator.start(4)
    simulator.run_until(simulator.converged, CONVERGED)


def test_a_node_that_lost_count_of_its_generations_is_back_all_the_same() -> None:
    simulator = converged(3, 5)
    simulator.run(20)
    simulator.crash(2)
    simulator.run(3)
    simulator.generations.clear()
    simulator.start(2, address="elsewhere:1")
    simulator.run_until(simulator.converged, CONVERGED)
    assert simulator.nodes["node-2"].membership.generation == 2


@pytest.mark.parametrize("both", [True, False], ids=["both ways", "one way"])
@pytest.mark.parametrize("length", [10, 60])
def test_after_a_cut_all_agree_again(length: int, both: bool) -> None:
    simulator = converged(length, 8)
    simulator.cut(range(3), range(3, 8), both)
    simulator.run(length)
    # What the count of wrong alarms is worth: a cut does cause them.
    assert simulator.wrong_alarms(State.SUSPECTED) > 0
    simulator.cuts.clear()
    simulator.run_until(simulator.converged, HEALED)


def test_halves_find_together_by_asking_the_dead() -> None:
    simulator = converged(6, 6)
    for node in simulator.nodes.values():
        node.membership.seek([])
    simulator.cut(range(3), range(3, 6))
    simulator.run(MOST_PATIENT)
    assert simulator.nodes["node-0"].membership.live() == ["node-1", "node-2"]
    assert simulator.nodes["node-5"].membership.state_of("node-1") == State.DEAD
    simulator.cuts.clear()
    simulator.run_until(simulator.converged, HEALED)


def test_halves_that_have_forgotten_each_other_find_together_by_seeds() -> None:
    simulator = converged(5, 4)
    simulator.cut([0, 2], [1, 3])
    simulator.run(TIMING.forget_after + MOST_PATIENT)
    assert simulator.nodes["node-2"].membership.state_of("node-3") is None
    simulator.cuts.clear()
    simulator.run_until(simulator.converged, HEALED)


def test_a_cut_between_two_nodes_only_is_no_alarm() -> None:
    """Others carry the news of both."""
    simulator = converged(3, 5)
    simulator.cut([1], [2])
    simulator.run(60)
    assert simulator.wrong_alarms(State.SUSPECTED) == 0
    assert simulator.converged()


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_self_does_not_call_others_dead(seed: int) -> None:
    """It sleeps for up to 20 s between ticks, and reads what came meanwhile only after it has judged."""
    simulator = converged(seed, 6)
    slow = simulator.nodes["node-3"]
    slow.pause = 20.0
    since = simulator.now
    simulator.run(200)
    changes = [change for time, change in slow.changes if time >= since]
    assert [each for each in changes if each.after in (State.SUSPECTED, State.DEAD)] == []
    assert slow.membership.patience > 1
    slow.pause = 0.0
    simulator.run_until(simulator.converged, HEALED)


def alarms_of_a_deaf_node(seed: int) -> int:
    """Nine of ten messages to it are lost: how often it suspects another one in 300 ticks."""
    simulator = converged(seed, 5)
    deaf = simulator.nodes["node-2"]
    deaf.deaf = 0.9
    simulator.run(300)
    assert simulator.wrong_alarms(State.DEAD) == 0
    return simulator.wrong_alarms(State.SUSPECTED)


def test_a_node_that_hears_little_does_not_call_others_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lifeguard's multiplier is what spares the others: without it there are alarms."""
    assert sum(alarms_of_a_deaf_node(seed) for seed in range(3)) == 0
    monkeypatch.setattr("headwater.peering.membership.health.MAX_SCORE", 0)
    assert sum(alarms_of_a_deaf_node(seed) for seed in range(3)) >= 3


def test_a_node_that_is_stopped_for_long_wakes_without_an_alarm() -> None:
    simulator = converged(4, 5)
    stopped = simulator.nodes["node-4"]
    simulator.run(2)
    since = simulator.now
    stopped.stopped = True
    simulator.run(40)
    assert simulator.all_say(4, State.DEAD)
    stopped.stopped = False
    simulator.run_until(simulator.converged, HEALED)
    changes = [change for time, change in stopped.changes if time >= since]
    assert [each for each in changes if each.after in (State.SUSPECTED, State.DEAD)] == []


def test_a_node_whose_data_plane_stands_still_is_found_though_it_gossips() -> None:
    simulator = converged(2, 6)
    simulator.run(20)
    simulator.nodes["node-5"].works = False
    simulator.run_until(lambda: simulator.all_say(5, State.DEAD), FOUND)
    simulator.nodes["node-5"].works = True
    simulator.run_until(simulator.converged, CONVERGED)


def test_clocks_that_run_at_different_speed_cause_no_alarm() -> None:
    simulator = converged(6, 8, loss=0.05, rates=(0.6, 1.5))
    simulator.run(150)
    assert simulator.wrong_alarms(State.SUSPECTED) == 0
    simulator.crash(1)
    simulator.run_until(lambda: simulator.all_say(1, State.DEAD), 2 * FOUND)


def test_wrong_alarms_are_rare_even_with_a_fifth_lost_and_slow_messages() -> None:
    """10 nodes judge 9 others 600 times each: 54,000 judgements."""
    simulator = Simulator(9, loss=0.2, delay=(0.01, 1.5))
    simulator.start_many(10)
    simulator.run_until(simulator.converged, 2 * CONVERGED)
    since = simulator.now
    simulator.run(600)
    assert simulator.wrong_alarms(State.SUSPECTED, since) <= 2
    assert simulator.wrong_alarms(State.DEAD, since) == 0


def test_leave_and_forget_need_no_restart_of_others() -> None:
    simulator = converged(7, 6, loss=0.05)
    leaver = simulator.nodes["node-5"]
    for each in leaver.membership.leave():
        simulator._send(leaver, each.address, each.data)
    simulator.run(2)
    simulator.crash(5)
    simulator.run_until(lambda: simulator.all_say(5, State.LEFT), CONVERGED)
    simulator.crash(4)
    simulator.run_until(lambda: simulator.all_say(4, State.DEAD), FOUND)
    node = simulator.nodes["node-0"]
    node.membership.forget("node-4", node.clock(simulator.now))
    simulator.run_until(lambda: simulator.all_say(4, None), CONVERGED)
    simulator.run(40)
    assert simulator.all_say(4, None), "old gossip brought it back"
    simulator.start(6)
    simulator.run_until(simulator.converged, CONVERGED)
    simulator.start(4)
    simulator.run_until(simulator.converged, CONVERGED)


@pytest.mark.parametrize(("nodes", "most"), [(3, 500), (10, 2000), (30, 6000)])
def test_a_quiet_cluster_says_little(nodes: int, most: int) -> None:
    """Bytes that a node sends in a second when nothing changes: digests alone."""
    simulator = converged(8, nodes)
    simulator.run(5)
    before, messages = simulator.bytes, simulator.messages
    simulator.run(20)
    assert (simulator.bytes - before) / 20 / nodes <= most
    # Three questions and three answers a tick at most, and no deltas.
    assert (simulator.messages - messages) / 20 / nodes <= 6.3


@pytest.mark.parametrize("seed", range(6))
def test_a_cluster_survives_anything_in_any_order(seed: int) -> None:
    """Random crashes, restarts, moves, cuts, slow nodes and writes; in the end all agree."""
    simulator = Simulator(seed, loss=0.1)
    simulator.start_many(7, rates=(0.8, 1.2))
    rng = simulator.rng
    for _ in range(25):
        number = rng.randrange(7)
        node = simulator.nodes.get(f"node-{number}")
        match rng.randrange(6):
            case 0 if node is not None and len(simulator.nodes) > 3:
                simulator.crash(number)
            case 1 if node is None:
                # Somebody has to be where those look who know nobody else.
                address = f"b{number}-{simulator.now}:1" if number > 1 and rng.random() < 0.5 else None
                simulator.start(number, address)
            case 2:
                simulator.cut([number], rng.sample(range(7), 3), both=rng.random() < 0.5)
            case 3:
                simulator.cuts.clear()
            case 4 if node is not None:
                node.pause = rng.choice((0.0, 5.0))
            case 5 if node is not None:
                node.membership.set(f"k{rng.randrange(3)}", rng.randbytes(rng.randrange(500)))
        simulator.run(rng.randrange(15))
    simulator.cuts.clear()
    for node in simulator.nodes.values():
        node.pause = 0.0
    simulator.run_until(simulator.converged, 2 * HEALED)
