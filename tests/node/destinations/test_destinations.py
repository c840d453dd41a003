"""A new kind of destination needs a class and a source, and nothing of the hot path: here, a link to somewhere else."""

from __future__ import annotations

import pytest

from headwater.message import Message
from headwater.node.config import Config
from headwater.node.destinations.destination import Destination, Run, Source
from headwater.node.destinations.fanouts import Fanouts
from headwater.routing.topics import matches
from headwater.session.session import Session
from headwater.wire.packets import Properties, Puback, Publish
from headwater.wire.reasons import NO_MATCHING_SUBSCRIBERS, SUCCESS
from tests.node.memory import MemoryBroker
from tests.node.protocol.test_server import payloads, subscribed


class Link(Destination):
    """Keeps the topics and payloads of all it takes, by the form in which they came."""

    def __init__(self) -> None:
        self.reaches_clients = False
        self.taken: list[tuple[str, bytes]] = []
        self.forms: list[str] = []
        self.room = True

    def take0(self, run: Run) -> None:
        self.forms.append(f"run of {run.count}")
        body = run.body - run.start
        for start in range(run.start, run.end, run.size):
            self.taken.append((run.topic.decode(), run.data[start + body : start + run.size]))

    def take1(self, run: Run) -> None:
        self.forms.append("packet")
        self.taken.append((run.topic.decode(), run.tail[run.properties :]))

    def deliver(self, message: Message, publisher: Session | None) -> None:
        self.forms.append("message")
        self.taken.append((message.topic, message.payload))

    def has_room(self, publisher: Session | None) -> bool:
        return self.room


class Links(Source):
    """One link, to which the topics of some filters go."""

    def __init__(self, fanouts: Fanouts, link: Link) -> None:
        self._fanouts = fanouts
        self._link = link
        self._filters: list[str] = []
        self.asked = 0
        fanouts.remote = self
        fanouts.remote_changed()

    def destinations(self, topic: str) -> list[Destination]:
        self.asked += 1
        return [self._link] if any(matches(filter, topic) for filter in self._filters) else []

    def learn(self, *filters: str) -> None:
        self._filters = list(filters)
        self._fanouts.remote_changed()


def linked(broker: MemoryBroker) -> tuple[Link, Links]:
    link = Link()
    return link, Links(broker.server.hot.fanouts, link)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("hot", [True, False])
def test_a_link_takes_what_matches_once(version: int, qos: int, hot: bool) -> None:
    broker = MemoryBroker(hot=hot)
    link, links = linked(broker)
    links.learn("far/#")
    reader, publisher = subscribed(broker, "r", "far/both"), broker.client("p", version=version)
    topics = ["far/a", "far/a", "near", "far/both"]
    publisher.send(
        *(
            Publish(topic, b"%d" % number, qos, packet_id=number + 1 if qos else 0)
            for number, topic in enumerate(topics)
        )
    )
    assert link.taken == [("far/a", b"0"), ("far/a", b"1"), ("far/both", b"3")]
    assert payloads(reader) == [b"3"]


def test_like_packets_come_as_one_run() -> None:
    broker = MemoryBroker()
    link, links = linked(broker)
    links.learn("#")
    reader, publisher = subscribed(broker, "r", "t"), broker.client("p", version=5)
    publisher.send(*(Publish("t", b"%d" % number, properties=Properties(content_type="x")) for number in range(9)))
    assert link.forms == ["run of 9"] and [payload for _, payload in link.taken] == payloads(reader)


def test_a_link_is_asked_for_once_per_topic_not_per_packet() -> None:
    broker = MemoryBroker()
    link, links = linked(broker)
    links.learn("t")
    publisher = broker.client("p")
    links.asked = 0
    for number in range(1, 51):
        kinds = [Publish("t", b"m", qos, packet_id=number if qos else 0) for qos in range(3)]
        publisher.send(*kinds)
    assert len(link.taken) == 150 and links.asked == 1


def test_news_from_afar_leave_local_parts_as_they_are() -> None:
    """A batch of local members is the same object before and after, so its topics still share it."""
    broker = MemoryBroker()
    link, links = linked(broker)
    reader, publisher = subscribed(broker, "r", "t"), broker.client("p")
    fanouts = broker.server.hot.fanouts
    publisher.send(Publish("t", b"1"))
    before = list(fanouts.topics[b"t"].destinations)
    links.learn("t")
    publisher.send(Publish("t", b"2"))
    assert fanouts.topics[b"t"].destinations == [*before, link]
    assert fanouts.local.by_subscribers, "nothing of it was forgotten"
    links.learn()
    publisher.send(Publish("t", b"3"))
    assert fanouts.topics[b"t"].destinations == before
    assert payloads(reader) == [b"1", b"2", b"3"] and link.taken == [("t", b"2")]


@pytest.mark.parametrize("hot", [True, False])
def test_puback_says_nobody_unless_a_destination_counts(hot: bool) -> None:
    broker = MemoryBroker(hot=hot)
    link, links = linked(broker)
    publisher = broker.client("p", version=5)

    def answer(topic: str) -> int:
        publisher.send(Publish(topic, b"m", 1, packet_id=1))
        (packet,) = publisher.packets()
        assert isinstance(packet, Puback)
        return packet.reason

    assert answer("t") == NO_MATCHING_SUBSCRIBERS
    links.learn("t")
    assert answer("t") == SUCCESS
    link.counts = False
    broker.server.hot.fanouts.forget("#")  # what is true of a destination does not change otherwise
    assert answer("t") == NO_MATCHING_SUBSCRIBERS


def test_a_full_link_refuses_what_it_would_be_owed() -> None:
    broker = MemoryBroker(Config(sys_interval=0, queue_full="refuse"))
    link, links = linked(broker)
    link.owed = True
    links.learn("far")
    publisher = broker.client("p", version=5)
    link.room = False
    broker.server.budget.full_queues += 1  # as whoever fills a queue of its own does
    publisher.send(Publish("far", b"m", 1, packet_id=1), Publish("near", b"m", 1, packet_id=2))
    reasons = [packet.reason for packet in publisher.packets() if isinstance(packet, Puback)]
    assert reasons == [0x97, NO_MATCHING_SUBSCRIBERS] and not link.taken
