"""The judge of a cluster is judged: what it lets pass, and what it finds."""

from __future__ import annotations

import contextlib
import socket

import pytest

from headwater.wire.encode import encode
from headwater.wire.packets import V311, Publish
from headwater_lab.chaos.connection import Connection
from headwater_lab.chaos.history import (
    HEAD,
    Acknowledged,
    Asked,
    Connected,
    Connecting,
    Disconnected,
    Event,
    History,
    Leaving,
    Note,
    Oddity,
    Received,
    Sent,
    Shown,
    Subscribed,
    Subscribing,
    payload_of,
)
from headwater_lab.cluster_chaos.checker import ACKNOWLEDGED, CLOCK, KILL, Calm, ClusterChecker, Fault
from headwater_lab.cluster_chaos.roving import GROUP, Member
from headwater_lab.cluster_chaos.world import ClusterWorld


class Story:
    """A history that is told event by event, a tenth of a second each."""

    def __init__(self) -> None:
        self.history = History()
        self.now = 0.0

    def tell(self, *events: Event) -> Story:
        for event in events:
            event.at = self.now
            self.history.add(event)
            self.now += 0.1
        return self

    def subscriber(self, name: str, topic_filter: str, qos: int) -> Story:
        self.connect(name)
        return self.tell(Subscribing(0, name, topic_filter, qos), Subscribed(0, name, topic_filter))

    def connect(self, name: str, will: int = 0, present: bool = False) -> Story:
        return self.tell(Connecting(0, name, False, None, will), Connected(0, name, present))

    def publish(self, topic: str, qos: int, retain: bool = False) -> int:
        """By a client that moves; acknowledged."""
        number = self.history.next_message()
        self.history.note(Note(number, "rover", topic, qos, retain))
        self.tell(Sent(0, number), Acknowledged(0, number))
        return number

    def will(self, name: str) -> int:
        number = self.history.next_message()
        self.history.note(Note(number, name, "wills/1", 2, will=True))
        self.connect(name, number, present=True)
        return number

    def receive(self, client: str, message: int) -> Story:
        note = self.history.notes[message]
        qos = 1 if note.topic.startswith("jobs") else note.qos
        return self.tell(Received(0, client, message, note.topic, qos, False, False, True, None))

    def kinds(self, may_begin_anew: bool = False) -> list[str]:
        return [each.kind for each in ClusterChecker(self.history, 1.0, may_begin_anew).check()]


def crew() -> Story:
    return Story().subscriber("one", GROUP, 1).subscriber("two", GROUP, 1)


def test_a_message_of_a_group_that_comes_to_two_members_is_found() -> None:
    story = crew()
    message = story.publish("jobs/1", 1)
    assert story.receive("one", message).kinds() == []
    assert story.receive("two", message).kinds() == ["group_twice"]
    assert story.tell(Disconnected(0, "one")).kinds() == ["group_twice"], "it ended too late to be why"


def test_a_member_whose_connection_has_ended_is_read_before_who_gets_its_message() -> None:
    """Both are ready in one turn of the driver, and who got the message second is read first."""
    with contextlib.ExitStack() as stack:
        world = ClusterWorld(1, {})
        ends = {}
        for name in ("first", "second"):
            member = Member(world, name, V311, {GROUP: 1})
            world.clients.append(member)
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            member.connection = Connection(listening.getsockname()[1], V311)
            stack.callback(member.connection.close)
            ends[name] = stack.enter_context(listening.accept()[0])
            member.ready = True
            world.watch(member)
        note = world.history.note(Note(world.history.next_message(), "rover", "jobs/1", 1))
        publish = encode(Publish("jobs/1", payload_of(note.message, HEAD), 1, packet_id=1), V311)
        first, second = world.clients
        ends["first"].sendall(publish)
        ends["first"].close()
        ends["second"].sendall(publish)
        second.read()
        seen = [(type(event), getattr(event, "client", "")) for event in world.history.events]
        assert seen == [(Received, "first"), (Disconnected, "first"), (Received, "second")]
        first.read()
        assert len(world.history.events) == 3


@pytest.mark.parametrize("waits, kinds", [(0.0, []), (ACKNOWLEDGED + 1, ["group_twice"])])
def test_a_message_of_a_group_comes_again_only_if_who_had_it_went_soon_after(waits: float, kinds: list[str]) -> None:
    story = crew()
    message = story.publish("jobs/1", 1)
    story.receive("one", message)
    story.now += waits
    assert story.tell(Disconnected(0, "one")).receive("two", message).kinds() == kinds


def test_a_message_of_a_group_that_was_sent_twice_may_come_twice() -> None:
    story = crew()
    number = story.history.next_message()
    story.history.note(Note(number, "rover", "jobs/1", 1))
    story.tell(Sent(0, number), Sent(0, number), Acknowledged(0, number))
    assert story.receive("one", number).receive("two", number).kinds() == []


def test_what_nobody_of_a_group_got_is_lost() -> None:
    story = crew()
    story.publish("jobs/1", 1)
    assert story.kinds() == ["lost"]


def mortal_with_a_will() -> tuple[Story, int]:
    story = Story().subscriber("watcher@a", "wills/#", 2)
    story.connect("mortal")
    story.tell(Disconnected(0, "mortal"))
    return story, story.will("mortal")


def test_wills_come_once() -> None:
    story, will = mortal_with_a_will()
    story.tell(Disconnected(0, "mortal"))
    assert story.kinds() == ["wills_missing"]
    assert story.receive("watcher@a", will).kinds() == []
    assert story.receive("watcher@a", will).kinds() == ["wills_twice"]


@pytest.mark.parametrize("is_calm, kinds", [(True, ["strange"]), (False, [])])
def test_a_will_that_was_called_off_does_not_come_unless_something_was_wrong(is_calm: bool, kinds: list[str]) -> None:
    story, will = mortal_with_a_will()
    story.tell(Calm(0, is_calm), Leaving(0, "mortal", False), Disconnected(0, "mortal"))
    story.receive("watcher@a", will)
    story.now += 5
    story.connect("mortal", present=True)
    assert story.kinds() == kinds


def test_retained_messages_are_the_same_everywhere_and_the_latest() -> None:
    story = Story()
    older, newer = story.publish("register/1", 1, True), story.publish("register/1", 1, True)
    place = story.history.add(Asked(story.now, "probe@a", "register/#"))

    def shown(node: str, message: int) -> Shown:
        return Shown(0, f"probe@{node}", "register/#", place, {"register/1": message})

    assert story.tell(shown("a", newer), shown("b", newer)).kinds() == []
    story.tell(shown("b", older))
    assert set(story.kinds()) == {"retained_divergent"}
    assert story.tell(shown("b", newer)).kinds() == []
    story.tell(shown("a", older), shown("b", older))
    assert set(story.kinds()) == {"retained_divergent"}
    story.tell(Fault(0, f"begins: {CLOCK} a"))
    assert story.kinds() == []


def test_a_qos_2_message_twice_and_what_does_not_end_have_names_of_their_own() -> None:
    story = Story().subscriber("rover-sub", "roam/#", 2)
    message = story.publish("roam/1", 2)
    story.receive("rover-sub", message).receive("rover-sub", message)
    story.tell(Oddity(0, "rover-sub", "never came to its end: connected"))
    assert sorted(set(story.kinds())) == ["qos2_twice", "stuck"]


def begun_anew(qos: int) -> tuple[Story, int]:
    """A message comes while its subscriber's session cannot be reached, and the subscriber begins anew."""
    story = Story().tell(Calm(0, False), Fault(0, f"begins: {KILL} a")).subscriber("rover-sub", "roam/#", 2)
    story.tell(Disconnected(0, "rover-sub"))
    message = story.publish("roam/1", qos)
    return story.subscriber("rover-sub", "roam/#", 2), message


def test_a_client_that_begins_anew_is_owed_qos_1_of_its_former_session() -> None:
    story, message = begun_anew(1)
    assert sorted(story.kinds()) == ["lost", "session"]
    assert story.kinds(may_begin_anew=True) == ["lost"]
    assert story.receive("rover-sub", message).kinds(may_begin_anew=True) == []


def test_nobody_begins_anew_while_nothing_is_wrong() -> None:
    story, _ = begun_anew(2)
    assert story.kinds(may_begin_anew=True) == []
    story.tell(Calm(0, True), Disconnected(0, "rover-sub")).connect("rover-sub")
    assert story.kinds(may_begin_anew=True) == ["session"]


def test_whoever_began_anew_and_says_nothing_is_told_so_again() -> None:
    story = Story().tell(Calm(0, False)).connect("rover-mortal").tell(Disconnected(0, "rover-mortal"))
    story.connect("rover-mortal").tell(Disconnected(0, "rover-mortal"), Calm(0, True)).connect("rover-mortal")
    assert story.kinds(may_begin_anew=True) == []
    assert story.kinds() == ["session", "session"]


@pytest.mark.parametrize("fault, kinds", [(f"{KILL} b", ["qos2_twice"]), ("partition b", [])])
def test_a_client_that_began_anew_gets_qos_2_once_unless_nodes_were_apart(fault: str, kinds: list[str]) -> None:
    """A node that is cut off cannot know that it did."""
    story, _ = begun_anew(2)
    message = story.tell(Fault(0, f"begins: {fault}"), Fault(0, f"is over: {fault}")).publish("roam/1", 2)
    assert story.kinds(may_begin_anew=True) == (["lost"] if kinds else [])
    story.receive("rover-sub", message).receive("rover-sub", message)
    assert sorted(set(story.kinds(may_begin_anew=True))) == kinds


def test_order_is_that_of_clients_that_stay() -> None:
    story = Story().subscriber("sub@a", "t", 1)
    first, second = story.publish("t", 1), story.publish("t", 1)
    story.receive("sub@a", second).receive("sub@a", first)
    assert story.kinds() == []
    for note in story.history.notes.values():
        note.publisher = "pub@b"
    assert story.kinds() == ["reordered"]


def test_a_client_may_be_told_to_come_back_later() -> None:
    story = Story().tell(Oddity(0, "sub@a", "refused with 0x88"))
    assert story.kinds() == []
    assert story.tell(Oddity(0, "sub@a", "refused with 0x87")).kinds() == ["protocol"]
