"""Bytes that wait for the disk, and what else happens to their connections meanwhile."""

from __future__ import annotations

import pytest

from headwater.disk.errors import StorageError
from headwater.node.config import Config
from headwater.wire.packets import Disconnect, Puback, Pubrec
from tests.node.persistence.durable import DurableBroker
from tests.node.persistence.test_journal import connect, passing, publish, subscribe


def test_an_overfull_connection_is_not_asked_whether_it_can_be_written_to() -> None:
    """It can, and nothing may be: the loop would turn and turn until the disk is ready."""
    broker = DurableBroker(config=Config(sys_interval=0, outbound_buffer=4096))
    subscribe(broker, connect(broker, "a"), "t", 1)
    both = passing(broker, "both")
    subscribe(broker, both, "news", 0)
    news = passing(broker, "news")
    publish(both, "t")
    publish(news, "news", bytes(10_000), qos=0)
    assert both.channel.congested
    assert both.watched == (False, False)
    broker.settle()
    assert both.watched == (True, False)


def test_last_words_that_wait_for_the_disk_are_said_when_the_socket_takes_bytes_sooner() -> None:
    broker = DurableBroker()
    subscribe(broker, connect(broker, "a"), "t", 1)
    both = connect(broker, "p")
    subscribe(broker, both, "news", 0)
    both.socket.room = 100
    publish(passing(broker, "news"), "news", bytes(10_000), qos=0)
    publish(both, "t")
    connect(broker, "p", settle=False)  # takes over
    both.unblock()
    assert not both.socket.shut
    broker.settle()
    assert [type(packet) for packet in both.packets()][-2:] == [Puback, Disconnect]
    assert both.socket.shut


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("terse", [True, False])
def test_a_failure_in_the_middle_of_a_message_lets_no_acknowledgement_out(terse: bool, qos: int) -> None:
    """What is dropped is read for those who want to know, and the disk fails just then."""
    settings = {"max_queued_messages": 1, "queue_full": "drop_oldest", "queue_memory": 0, "terse": terse}
    broker = DurableBroker(config=Config(sys_interval=0, **settings))  # type: ignore[arg-type]
    reader = connect(broker, "a")
    subscribe(broker, reader, "t", 2)
    reader.lose()
    broker.hooks.add("publish_dropped", lambda *_: None)
    publisher = passing(broker)
    publish(publisher, "t", packet_id=1)
    broker.settle()
    publisher.packets()

    def fail(key: bytes) -> bytes:
        raise StorageError("cannot read")

    broker.committer.read = fail  # type: ignore[method-assign]
    publish(publisher, "t", qos=qos, packet_id=2)
    assert broker.server.stats.failures == 1
    assert not [packet for packet in publisher.packets() if isinstance(packet, (Puback, Pubrec))]
