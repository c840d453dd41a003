"""Wills in a cluster: published once, by their node or by its deputy, whoever is killed, stopped or cut off."""

from __future__ import annotations

import time

import pytest

from headwater.message import Message
from headwater.node.links import will_notes as said
from headwater.node.links.deputies import Copy, Owner
from headwater.node.persistence.records import record_of
from headwater.peering.frames.frame import MalformedFrame, Publisher, Refuse
from tests.node.links.memory import peer_of
from tests.node.links.test_receiving import message, run_of
from tests.node.links.will_world import NAMES, World


def others(world: World, *names: str) -> str:
    """The node that is none of these."""
    return next(name for name in world.names if name not in names)


def test_a_will_is_published_by_its_node_when_the_deputy_has_let_go() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    assert deputy in ("b", "c")
    assert world.nodes[deputy].wills.copies.size > 0
    world.lose("x")
    assert world.published == {}, "before the deputy has answered"
    world.settle()
    assert world.published == {b"1": 1}
    assert world.nodes[deputy].wills.copies.size == 0
    assert world.nodes["a"].wills.held == 0
    world.kill("a")
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}


def test_a_killed_nodes_wills_are_published_by_the_deputy_after_the_stated_time() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.kill("a")
    world.later(9)
    assert world.published == {}
    world.later(3)
    assert world.published == {b"1": 1}
    world.later(100)
    world.restart("a")
    world.later(700)
    assert world.published == {b"1": 1}
    assert world.nodes["a"].server.sessions["x"].will is None


def test_a_node_that_is_back_at_once_publishes_itself() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.kill("a")
    world.later(3)
    world.restart("a")
    world.settle()
    assert world.published == {b"1": 1}
    world.later(100)
    assert world.published == {b"1": 1}


def test_the_delay_counts_from_the_end_of_the_node() -> None:
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.settle()
    world.kill("a")
    world.later(39)
    assert world.published == {}
    world.later(3)
    assert world.published == {b"1": 1}
    world.restart("a")
    world.later(100)
    assert world.published == {b"1": 1}


def test_the_delay_goes_on_at_the_deputy() -> None:
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.settle()
    world.lose("x")
    world.later(25)
    world.kill("a")
    world.later(13)
    assert world.published == {}
    world.later(4)
    assert world.published == {b"1": 1}


def test_a_clean_disconnect_drops_it_everywhere() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.disconnect("x")
    world.settle()
    world.kill("a")
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {}


def test_a_client_that_is_back_in_time_drops_it_everywhere() -> None:
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.settle()
    world.lose("x")
    world.later(5)
    world.connect("a", "x", b"2", delay=40)
    world.settle()
    world.later(60)
    assert world.published == {}
    world.kill("a")
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {b"2": 1}


@pytest.mark.parametrize("keep", [0, None])
def test_a_kill_before_the_deputy_has_answered_leaves_it_to_the_restart(keep: int | None) -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.lose("x")
    world.sync()  # it is due on disk, and the deputy has not been asked
    world.move()
    world.kill("a", keep)
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}


def test_the_deputy_is_not_told_before_its_name_is_on_disk() -> None:
    """Else a killed node would publish without asking it."""
    world = World()
    world.connect("a", "x", b"1")
    while world.move():
        pass
    assert world.deputy("x")
    assert sum(node.wills.copies.size for node in world.nodes.values()) == 0
    world.settle()
    assert sum(node.wills.copies.size for node in world.nodes.values()) > 0


def test_a_node_that_is_cut_off_holds_its_wills_until_it_knows() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.isolate("a")
    world.later(8)
    world.lose("x")
    world.later(100)
    assert world.published == {b"1": 1}, "by the deputy, which has a majority"
    assert world.nodes["a"].wills.held == 1
    world.heal()
    world.later(100)
    assert world.published == {b"1": 1}
    assert world.nodes["a"].wills.held == 0


def test_a_deputy_that_is_cut_off_publishes_nothing() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    world.isolate(deputy)
    world.later(100)
    assert world.published == {}
    assert world.deputy("x") == others(world, "a", deputy), "another one was appointed"
    world.lose("x")
    world.later(1)
    assert world.published == {b"1": 1}
    world.heal()
    world.later(100)
    assert world.published == {b"1": 1}


def test_a_will_waits_for_the_lease_of_a_deputy_that_is_away() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.kill(world.deputy("x"))
    world.lose("x")
    world.later(30)
    assert world.published == {}
    world.later(12)
    assert world.published == {b"1": 1}
    world.later(100)
    assert world.published == {b"1": 1}


def test_a_deputy_that_was_given_up_is_not_asked_after_a_kill() -> None:
    world = World(("a", "b"))
    world.connect("a", "x", b"1")
    world.settle()
    world.kill("b")
    world.later(60)
    assert world.deputy("x") == ""
    world.kill("a")
    world.restart("a")
    assert world.published == {b"1": 1}


def test_a_deputy_that_was_appointed_later_publishes() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    first = world.deputy("x")
    world.kill(first)
    world.later(60)
    second = world.deputy("x")
    assert second == others(world, "a", first)
    world.restart(first)
    world.later(5)
    world.kill("a")
    world.later(20)
    assert world.published == {b"1": 1}
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}


def test_a_cut_between_node_and_deputy_alone() -> None:
    """The third one says that the node is there."""
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.cut(("a", world.deputy("x")))
    world.later(25)
    assert world.published == {}
    world.lose("x")
    world.later(30)
    assert world.published == {b"1": 1}
    world.kill("a")
    world.later(60)
    world.heal()
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}


@pytest.mark.parametrize("seconds", [3, 7, 20, 100])
def test_a_node_that_was_stopped(seconds: int) -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.connect("a", "y", b"2", delay=30)
    world.settle()
    world.stop("a")
    world.later(seconds)
    world.go_on("a")
    world.lose("x")
    world.lose("y")
    world.later(100)
    assert world.published == {b"1": 1, b"2": 1}
    world.kill("a")
    world.later(100)
    world.restart("a")
    world.later(100)
    assert world.published == {b"1": 1, b"2": 1}


def test_a_node_that_was_stopped_does_not_take_old_bytes_for_a_majority() -> None:
    """When it goes on, it first reads what the third node wrote before that gave it up."""
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    third = others(world, "a", deputy)
    world.cut(("a", deputy))
    world.later(8)
    world.lose("x")
    world.later(1)
    world.stop("a")
    world.later(60)
    assert world.published == {b"1": 1}, "by the deputy"
    world.go_on("a")
    wire = world.wires["a", third]
    assert wire.move(1)
    world.later(20)
    assert world.published == {b"1": 1}
    world.heal()
    world.later(20)
    assert world.published == {b"1": 1}
    assert world.nodes["a"].wills.held == 0


@pytest.mark.parametrize("seconds", [3, 7, 20, 100])
def test_a_deputy_that_was_stopped(seconds: int) -> None:
    """Its lease is over when it goes on, though it has heard nothing of that."""
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    world.stop(deputy)
    world.later(1)
    world.lose("x")
    world.later(seconds)
    world.kill("a")
    world.go_on(deputy)
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}


def test_a_deputy_that_publishes_and_is_killed_says_so_when_it_is_back() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    world.kill("a")
    world.later(12)
    assert world.published == {b"1": 1}
    world.kill(deputy)
    world.restart("a")
    world.later(300)
    assert world.nodes["a"].wills.held == 1
    world.restart(deputy)
    world.later(60)
    assert world.published == {b"1": 1}
    assert world.nodes["a"].wills.held == 0


def test_a_deputy_that_never_comes_back_is_waited_for_ten_minutes() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.kill(world.deputy("x"))
    world.kill("a")
    world.restart("a")
    world.later(590)
    assert world.published == {}
    world.later(20)
    assert world.published == {b"1": 1}


def test_a_deputy_that_is_forgotten_is_not_waited_for() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    deputy = world.deputy("x")
    world.kill(deputy)
    world.kill("a")
    world.restart("a")
    world.later(5)
    assert world.published == {}
    world.nodes["a"].links.forget(deputy)
    assert world.published == {b"1": 1}


def test_all_nodes_are_killed_at_once() -> None:
    world = World()
    for number, name in enumerate(NAMES):
        world.connect(name, f"x{number}", b"%d" % number)
    world.settle()
    for name in NAMES:
        world.kill(name)
    for name in NAMES:
        world.restart(name)
    world.later(60)
    assert world.published == {b"0": 1, b"1": 1, b"2": 1}


def test_two_nodes_the_one_with_the_smaller_id_goes_on_alone() -> None:
    world = World(("a", "b"))
    world.connect("a", "x", b"of a")
    world.connect("b", "y", b"of b")
    world.settle()
    world.cut(("a", "b"))
    world.later(20)
    assert world.published == {b"of b": 1}
    world.lose("x")
    world.lose("y")
    world.later(60)
    assert world.published == {b"of a": 1, b"of b": 1}
    world.heal()
    world.later(60)
    assert world.published == {b"of a": 1, b"of b": 1}


def test_two_nodes_the_one_with_the_larger_id_waits() -> None:
    world = World(("a", "b"))
    world.connect("a", "x", b"of a")
    world.connect("b", "y", b"of b")
    world.settle()
    world.kill("a")
    world.lose("y")
    world.later(1000)
    assert world.published == {}
    world.connect("b", "z", b"new")
    world.lose("z")
    world.later(1)
    assert world.published == {b"new": 1}, "nobody else knows of it"
    world.restart("a")
    world.later(60)
    assert world.published == {b"of a": 1, b"of b": 1, b"new": 1}


def test_a_client_that_is_elsewhere_before_the_delay_is_over() -> None:
    """[MQTT-3.1.3-9]"""
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.settle()
    world.kill("a")
    world.later(5)
    world.is_elsewhere("x")
    world.later(60)
    assert world.published == {}
    world.restart("a")
    world.later(100)
    assert world.published == {}


def test_a_client_that_is_elsewhere_while_its_node_is_stopped() -> None:
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.connect("a", "y", b"2")
    world.settle()
    world.stop("a")
    world.later(1)
    world.is_elsewhere("x")
    world.is_elsewhere("y")
    world.later(11)
    assert world.published == {b"2": 1}, "sooner than otherwise: it comes back in vain if the will comes after it"
    world.later(60)
    world.go_on("a")
    world.later(60)
    assert world.published == {b"2": 1}


def test_a_client_that_is_elsewhere_while_its_node_lives() -> None:
    world = World()
    world.connect("a", "x", b"1", delay=40)
    world.settle()
    world.lose("x")
    world.later(3)
    world.is_elsewhere("x")
    world.settle()
    world.later(60)
    world.kill("a")
    world.later(60)
    assert world.published == {}


def test_a_client_that_was_elsewhere_and_came_back() -> None:
    """What was said of it before does not count for its new connection."""
    world = World()
    world.is_elsewhere("x")
    world.connect("a", "x", b"1", delay=20)
    world.settle()
    world.kill("a")
    world.later(30)
    assert world.published == {b"1": 1}


def test_a_session_that_ends_with_its_connection() -> None:
    world = World()
    world.connect("a", "x", b"1", expiry=0)
    world.settle()
    world.lose("x")
    world.sync()
    world.kill("a")
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1}
    world.connect("a", "y", b"2", expiry=0)
    world.settle()
    world.kill("a")
    world.later(60)
    world.restart("a")
    world.later(60)
    assert world.published == {b"1": 1, b"2": 1}


def test_a_node_that_leaves_takes_its_wills_along() -> None:
    world = World()
    world.connect("a", "x", b"1")
    world.settle()
    world.nodes["a"].links.leave()
    world.settle()
    world.cut(("a", "b"), ("a", "c"))
    for name in ("b", "c"):
        assert world.nodes[name].wills.copies.size == 0
    world.later(60)
    assert world.published == {}
    world.lose("x")
    world.later(1)
    assert world.published == {b"1": 1}


def test_wills_beyond_the_room_are_left_to_their_node() -> None:
    world = World()
    for node in world.nodes.values():
        node.wills.copies.room = 3000
    for number in range(20):
        world.connect("a", f"x{number}", b"%d" % number)
    world.settle()
    kept = [node.wills.copies for name, node in world.nodes.items() if name != "a"]
    assert all(0 < each.size <= 3000 and each.refused for each in kept)
    world.kill("a")
    world.later(60)
    assert 0 < len(world.published) < 20
    world.restart("a")
    world.later(60)
    assert world.published == {b"%d" % number: 1 for number in range(20)}


RECORD = record_of(Message("w", b"1", 1), 0.0)
TOLD = said.Told(1, 2, 0.0, -1.0, -1.0, "x", RECORD)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\xff",
        bytes([said.ALL]) + bytes(8),  # a letter
        bytes([said.DROP]) + bytes(7),
        bytes([said.ASK]) + bytes(16),
        bytes([said.PING]) + bytes(3),
        bytes([said.VOTE]) + bytes(9),
        bytes([said.QUERY]) + bytes(8) + b"\xff",
        bytes([said.TELL]) + bytes(9),
        said.tell(TOLD._replace(epoch=2)),
        said.tell(TOLD._replace(record=RECORD[:-3])),
        said.tell(TOLD._replace(record=b"")),
        said.tell(TOLD._replace(delay=-1.0)),
        said.tell(TOLD._replace(left=float("nan"))),
    ],
)
def test_nonsense_about_wills_ends_the_link(body: bytes) -> None:
    node = World(("a",)).nodes["a"]
    peer = peer_of(node)
    right = [said.of_numbers(said.ASK, [1]), said.tell(TOLD), said.of_time(said.PONG, 1e9)]
    peer.send(Publisher(0, 4, ""), run_of(*[message(each, topic="$headwater/wills") for each in right]))
    assert not peer.is_closed and node.wills.copies.size > 0
    peer.send(run_of(message(body, topic="$headwater/wills"), counter=3))
    assert peer.is_closed
    assert any(isinstance(each, Refuse) for each in peer.heard())


def test_what_is_said_about_wills_has_one_form() -> None:
    assert said.told_in(said.tell(TOLD)) == TOLD
    assert said.numbers_in(said.of_numbers(said.DROP, [1, 1 << 63])) == [1, 1 << 63]
    assert said.time_in(said.of_time(said.QUERY, 1.5, "a")) == (1.5, "a")
    assert said.vote_in(said.vote(1.5, -1.0, "b")) == (1.5, -1.0, "b")
    with pytest.raises(MalformedFrame):
        said.number_in(said.of_numbers(said.ASK, []))


def test_claims_of_sessions_say_that_a_client_is_elsewhere() -> None:
    world = World(sessions=True)
    world.connect("a", "x", b"void", delay=40)
    world.connect("a", "y", b"at once")
    world.connect("a", "z", b"later", delay=40)
    world.settle()
    world.kill("a")
    world.later(2)
    world.connect("b", "x", b"new")
    world.connect("c", "y", b"newer")
    world.later(4)
    assert world.published == {b"at once": 1}
    world.later(60)
    assert world.published == {b"at once": 1, b"later": 1}
    world.restart("a")
    world.later(60)
    assert world.published == {b"at once": 1, b"later": 1}


def test_a_session_that_moves_leaves_its_will_behind() -> None:
    world = World(sessions=True)
    world.connect("a", "x", b"void", delay=40)
    world.connect("a", "y", b"at once")
    world.settle()
    world.connect("b", "x", b"new")
    world.connect("b", "y", b"newer")
    world.settle()
    assert world.published == {b"at once": 1}
    world.later(60)
    world.kill("a")
    world.later(60)
    assert world.published == {b"at once": 1}
    world.kill("b")
    world.restart("a")
    world.later(60)
    assert world.published == {b"at once": 1, b"new": 1, b"newer": 1}


def test_wills_of_two_clients_whose_claims_have_the_same_time_are_both_published() -> None:
    """A node whose clock was an hour ahead gave them times one after the other, and each move is one later."""
    world = World(sessions=True)
    ahead = world.nodes["c"].links.sessions
    assert ahead is not None
    ahead.claims.clock.last = int((time.time() + 3600) * 1000) << 16
    for name, client_id, payload in (
        *(("c", "x", b"x1"), ("c", "y", b"y1")),
        *(("b", "x", b"x2"), ("a", "x", b"x3"), ("a", "y", b"y2")),
    ):
        world.connect(name, client_id, payload)
        world.settle()
    assert world.published == {b"x1": 1, b"x2": 1, b"y1": 1}
    world.lose("x")
    world.lose("y")
    world.later(5)
    assert world.published == {b"x1": 1, b"x2": 1, b"y1": 1, b"x3": 1, b"y2": 1}
    world.kill("a")
    world.restart("a")
    world.later(60)
    assert world.published == {b"x1": 1, b"x2": 1, b"y1": 1, b"x3": 1, b"y2": 1}


def test_a_node_that_gives_one_stamp_to_two_wills_has_one_copy_of_them() -> None:
    owner = Owner("x")
    for client_id in ("one", "two"):
        owner.add(Copy(said.Told(1, 5, 0, 0, -1, client_id, b"will"), 0.0))
    assert owner.clients == {"two": 5}
    owner.pop(5)
    assert (owner.clients, owner.copies, owner.size) == ({}, {}, 0)
