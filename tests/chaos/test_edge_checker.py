"""The judge of an edge is judged: what it lets pass, and what it finds."""

from __future__ import annotations

import pytest

from headwater.edge.status import EdgeStatus, Stretch
from headwater_lab.chaos.history import HEAD, Acknowledged, Disconnected, Event, History, Note, Sent
from headwater_lab.chaos.stored import Row
from headwater_lab.cluster_chaos.checker import Calm
from headwater_lab.edge_chaos.checker import EdgeChecker
from headwater_lab.edge_chaos.moving import Moved
from headwater_lab.edge_chaos.pauses import waits
from headwater_lab.edge_chaos.population import Arrived, Ended
from headwater_lab.edge_chaos.stores import StoredRow


class Story:
    """A history that is told event by event, a tenth of a second each; and what was stored where."""

    def __init__(self, *stretches: Stretch) -> None:
        self.history = History()
        self.stored: list[StoredRow] = []
        self.status = EdgeStatus("north", "d1", stores=stretches)
        self.harmed: dict[str, list[tuple[float, float]]] = {}
        self.broken: list[float] = []
        self.now = 0.0
        self._next = {"d1": 1, "d2": 1}

    def tell(self, *events: Event) -> Story:
        for event in events:
            event.at = self.now
            self.history.add(event)
            self.now += 0.1
        return self

    def publish(self, qos: int = 1, publisher: str = "device@r1", times: int = 1) -> int:
        """Acknowledged, but for QoS 0."""
        number = self.history.next_message()
        self.history.note(Note(number, publisher, "t", qos))
        self.tell(*(Sent(0, number) for _ in range(times)))
        if qos:
            self.tell(Acknowledged(0, number))
        return number

    def store(self, node: str, *messages: int, at: float | None = None) -> Story:
        for message in messages:
            note = self.history.notes[message]
            row = Row(self._next[node], note.topic, message, HEAD, note.qos, note.publisher)
            self._next[node] += 1
            self.stored.append(StoredRow(node, f"s-{node}", row, self.now if at is None else at))
        return self

    def kinds(self) -> list[str]:
        checker = EdgeChecker(self.history, self.stored, self.status, self.harmed, self.broken)
        return [each.kind for each in checker.check()]


def stretch(node: str, epoch: int, first: int, last: int | None = None) -> Stretch:
    return Stretch(f"s-{node}", node, "", ("t",), "t", epoch, first, last)


def moved(last: int = 1) -> Story:
    """The topic has gone from d1, where it has positions up to the last one, to d2."""
    return Story(stretch("d1", 1, 1, last), stretch("d2", 2, 1))


@pytest.mark.parametrize("qos", [1, 2])
def test_each_message_is_in_one_store(qos: int) -> None:
    story = moved()
    first, second = story.publish(qos), story.publish(qos)
    assert story.store("d1", first).kinds() == ["not stored"]
    assert story.store("d2", second).kinds() == []
    assert "stored twice" in story.store("d2", first).kinds()


def test_a_message_of_qos_1_may_be_there_as_often_as_it_was_sent() -> None:
    story = moved()
    message = story.publish(1, times=2)
    assert story.store("d1", message).store("d2", message).kinds() == []
    message = story.publish(2, times=2)
    assert story.store("d2", message, message).kinds() == ["stored twice"]


def test_a_position_that_no_stretch_has_is_unreadable() -> None:
    story = moved(last=1)
    first, second = story.publish(), story.publish()
    assert story.store("d1", first, second).kinds() == ["unreadable"]


def test_a_gap_is_unreadable() -> None:
    story = moved(last=3)
    story.store("d1", story.publish())
    story._next["d1"] = 3
    assert story.store("d1", story.publish()).kinds() == ["unreadable"]


def test_what_is_something_else_than_was_sent_is_unreadable() -> None:
    story = moved()
    message = story.publish()
    story.store("d1", message)
    story.history.notes[message].size = 99
    assert story.kinds() == ["unreadable"]


def test_order_is_that_of_stretches() -> None:
    story = moved()
    first, second = story.publish(), story.publish()
    assert story.store("d2", first, at=2.0).store("d1", second, at=2.0).kinds() == ["out of order"]


def test_who_follows_both_stores_sees_what_was_there_too_early() -> None:
    story = moved()
    first, second = story.publish(), story.publish()
    assert story.store("d1", first, at=5.0).store("d2", second, at=4.0).kinds() == ["out of order"]


def test_the_order_of_a_client_that_moves_is_that_of_each_visit() -> None:
    story = moved().tell(Arrived(0, "rover", "r1"))
    first = story.publish(publisher="rover")
    story.tell(Arrived(0, "rover", "r2"))
    second = story.publish(publisher="rover")
    assert story.store("d2", first).store("d1", second).kinds() == []
    third, fourth = story.publish(publisher="rover"), story.publish(publisher="rover")
    assert story.store("d2", fourth, third).kinds() == ["out of order"]


def test_qos_0_may_be_lost_where_something_broke() -> None:
    story = moved().tell(Calm(0, True))
    story.now += 2
    sent = story.now
    story.publish(0)
    story.now += 3
    story.tell(Calm(0, False))
    assert story.kinds() == ["not stored"]
    story.broken = [sent + 0.5]
    assert story.kinds() == [], "a link ended"
    story.broken = []
    story.history.events.insert(-1, Disconnected(sent + 0.5, "device@r1"))
    assert story.kinds() == [], "its publisher went"


def test_connections_end_only_because_something_befell_the_node() -> None:
    story = moved().tell(Calm(0, True))
    story.now += 5
    story.tell(Ended(0, "device@r1", "r1"))
    assert story.kinds() == ["device reconnects"]
    story.harmed["r1"] = [(story.now, story.now)]
    assert story.kinds() == []


def test_how_long_publishers_waited_while_a_filter_moved() -> None:
    story = Story().tell(Calm(0, True))
    story.publish()
    since = story.now
    story.publish()
    story.tell(Moved(0, "t", "d2", since))
    story.now += 1
    story.publish()
    story.tell(Calm(0, False))
    found = waits(story.history)
    assert [round(each, 3) for each in found.moving] == [0.1]
    assert [round(each, 3) for each in found.still] == [0.1, 0.1]
