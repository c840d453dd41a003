"""RabbitMQ sends back what a proxy hands over, keeps it for the proxy's session, and sends it again if it was killed
before it noted that it was acknowledged: nobody else gets a message of QoS 2 twice."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from headwater.wire.packets import Connect, Publish, SubscribeRequest
from headwater_lab.check_broker.contestants import Node, running
from headwater_lab.makes.fabric import OURS, Member, connected, fabric
from headwater_lab.makes.hand import Closed, Hand
from headwater_lab.makes.nodes import MAKES
from tests.makes.conftest import there

TOPIC = "echoes/x"
RATE = 300.0
"""Messages in a second: enough that some are under way at each moment."""
SECONDS = 1.0
PATIENCE = 40.0
BETWEEN = 0.05
"""Seconds between two attempts to connect to a broker that starts."""


class Load:
    """One publisher and one subscriber at the same door, and the subscriber's copies."""

    def __init__(self, publisher: Hand, subscriber: Hand) -> None:
        self.published = 0
        self._publisher = publisher
        self._subscriber = subscriber
        subscriber.subscribe(SubscribeRequest("echoes/#", 2))

    def go_on(self, seconds: float) -> None:
        began, first = time.monotonic(), self.published
        while (passed := time.monotonic() - began) < seconds:
            if self.published - first < passed * RATE and self._publisher.unacknowledged < 50:
                self._publisher.publish(Publish(TOPIC, b"%d" % self.published, 2), wait=False)
                self.published += 1
            self._publisher._exchange(0.002)
            self._subscriber._exchange(0)

    def copies(self) -> Counter[bytes]:
        """When all have come."""
        hand = self._subscriber
        hand.until(lambda: len({each.payload for each in self._of_load()}) == self.published, patience=PATIENCE)
        return Counter(each.payload for each in self._of_load())

    def _of_load(self) -> list[Publish]:
        return [each for each in self._subscriber.messages if each.topic == TOPIC]

    def wait_for_what_is_published_at(self, member: Member) -> None:
        """It comes behind echoes that wait for the proxy."""
        topic = f"echoes/{self.published}"
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with Hand(member.port) as hand:
                    hand.connect("behind")
                    hand.publish(Publish(topic, b"", 1))
                break
            except (Closed, OSError):  # it is starting
                assert time.monotonic() < deadline
                time.sleep(BETWEEN)
        hand = self._subscriber
        hand.until(lambda: topic in {each.topic for each in hand.messages}, patience=PATIENCE)


@pytest.mark.parametrize("victim", ["broker", "proxy"])
def test_who_is_killed_brings_no_message_twice(tmp_path: Path, victim: str) -> None:
    rabbitmq = there(next(make for make in MAKES if make.name == "rabbitmq"))
    with (
        fabric(tmp_path, [rabbitmq.name, OURS]) as (home, ours),
        connected(ours, "publisher") as publisher,
        connected(ours, "subscriber") as subscriber,
    ):
        want(home)
        load = Load(publisher, subscriber)
        load.go_on(SECONDS)
        kill(home.broker if victim == "broker" else home.door)
        for _ in range(2):  # the second time, behind echoes of what went again
            load.wait_for_what_is_published_at(home)
            load.go_on(SECONDS)
        load.wait_for_what_is_published_at(home)
        assert max(load.copies().values()) == 1


def test_what_rabbitmq_sends_again_after_kill_has_dup(tmp_path: Path) -> None:
    """Without any proxy. By this an echo that comes again is told from a client's message that is like it."""
    rabbitmq = there(next(make for make in MAKES if make.name == "rabbitmq"))
    with running(rabbitmq.make, tmp_path) as nodes:
        broker = nodes[-1]
        sent = [b"%d" % number for number in range(5)]
        with Hand(broker.port) as subscriber, Hand(broker.port) as publisher:
            subscriber.connect("session", Connect(clean_start=False))
            subscriber.subscribe(SubscribeRequest(TOPIC, 1))
            subscriber.withholds = True
            publisher.connect("publisher")
            for payload in sent:
                publisher.publish(Publish(TOPIC, payload, 1))
            subscriber.until(lambda: subscriber.payloads() == sent)
            assert not any(each.dup for each in subscriber.messages)
        kill(broker)
        again = connected_again(broker)
        with again:
            again.until(lambda: again.payloads() == sent)
            assert all(each.dup for each in again.messages)


def connected_again(broker: Node) -> Hand:
    """RabbitMQ listens before it takes clients."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(Closed, OSError), contextlib.ExitStack() as stack:
            hand = stack.enter_context(Hand(broker.port))
            assert hand.connect("session", Connect(clean_start=False)).session_present
            stack.pop_all()
            return hand
        time.sleep(BETWEEN)
    raise AssertionError("RabbitMQ takes no clients")


def want(home: Member) -> None:
    """A session at the home broker."""
    with Hand(home.port) as hand:
        hand.connect("wants", Connect(clean_start=False))
        hand.subscribe(SubscribeRequest("echoes/#", 1))


def kill(node: Node) -> None:
    """With `kill -9`, and start it again."""
    commands = next(iter(node.faults(("kill",))))
    for command in (commands.start, commands.heal):
        subprocess.run(command, shell=True, check=True)
