"""What nodes say to each other beside their clients' messages: notes and letters, for whoever does something together.

Theory. A `Service` (sessions that move, groups that span nodes) needs two ways to another node. A note is sent at once
over the link that is up, and is gone with it. A letter goes through the spool of the peer: it is on disk with the
commit of whatever was changed together with it, survives cuts and kills of both nodes, comes once, in the order of all
letters and messages of QoS 1 and 2 for that node, and what the peer makes of it is in one commit with its being taken.
So to move something from one node to another is to delete it here and put it into a letter, in one turn.

Both are PUBLISH packets in runs, to topics that clients can neither publish nor subscribe to: `$headwater/<service>`.
They are for one peer, so they do not go on: where messages are relayed (`cluster.neighbours`), only neighbours are
reached.

Versions. A node names its services in its Hello, and is sent nothing for others: it has no note or letter for a service
that it does not know, and the service does not hear that it is linked. What comes all the same (a letter that had been
waiting when the node was replaced by an older one) is skipped and counted, and the link goes on.
"""

from __future__ import annotations

import logging
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.node.links.end import PeerEnd
from headwater.node.links.sending import OutgoingRuns
from headwater.peering.frames import v1
from headwater.peering.spool import SpooledRun
from headwater.wire.encode import encode
from headwater.wire.packets import V5, Publish

log = logging.getLogger("headwater.cluster")

PREFIX: Final = "$headwater/"
LARGEST: Final = (1 << 28) - 4096
"""Bytes of one letter or note: an MQTT packet around it is not larger than may be."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Service:
    """Something that nodes do together, of those that have it. Calls come in turns of the node."""

    name = ""

    def link_up(self, node: str) -> None:
        """It can be sent notes from now on."""

    def link_down(self, node: str) -> None:
        pass

    def forgotten(self, node: str) -> None:
        """It is no member any more: letters for it are void."""

    def leaving(self) -> None:
        """This node is about to leave the cluster for good."""

    def has_room(self, node: str, body: bytes) -> bool:
        """False: a letter has to wait, with all that comes behind it."""
        return True

    def received(self, node: str, body: bytes, is_letter: bool) -> None:
        """Raises MalformedFrame."""
        raise NotImplementedError

    def beat(self, now: float) -> None:
        """From time to time: every `heartbeat`."""


class Post:
    def __init__(self, outgoing: OutgoingRuns) -> None:
        self._outgoing = outgoing
        self._services: dict[str, Service] = {}

    def add(self, service: Service) -> None:
        assert service.name, "a service that others cannot name"
        self._services[service.name] = service

    @property
    def services(self) -> list[Service]:
        return list(self._services.values())

    def link_up(self, end: PeerEnd) -> None:
        for service in self.services:
            if end.has_service(service.name):
                service.link_up(end.peer)

    def link_down(self, end: PeerEnd) -> None:
        for service in self.services:
            if end.has_service(service.name):
                service.link_down(end.peer)

    def note(self, node: str, service: Service, body: bytes, is_needed: bool = False) -> bool:
        """Whether it is on its way: there is a link, not too much waits for it (unless `is_needed`), and the node has
        the service."""
        outgoing = self._outgoing
        end = outgoing.spooling.ends.get(node)
        channel = None if end is None else end.channel
        if end is None or channel is None:
            return False
        if channel.backlog_size + channel.withheld_size > outgoing.link_buffer and not is_needed:
            return False
        if not end.has_service(service.name):
            return False
        outgoing.settle()
        data = _packet(service, body, 0)
        forwarding = outgoing.forwarding
        number = end.number_of("", V5)
        head = v1.run_head(V5, 0, 1, number, forwarding.number0(1), b"", forwarding.boot, 0, len(data))
        end.write_run(channel, head, data, 0)
        return True

    def letter(self, node: str, service: Service, body: bytes) -> bool:
        """Kept until the node has taken it, in the next commit. False: it is no member, none that letters reach, or it
        does not have the service."""
        outgoing = self._outgoing
        end = outgoing.spooling.ends.get(node)
        if end is None or not end.has_service(service.name):
            return False
        outgoing.settle()
        data = _packet(service, body, 1)
        forwarding = outgoing.forwarding
        counter = forwarding.number1(1)
        outgoing.spooling.touch()
        end.spool.append(SpooledRun(V5, 0, 1, counter, forwarding.node, forwarding.boot, "", data))
        if not end.spool.has_room():
            outgoing.spooling.is_full(end, None)
        outgoing.spooling.appended()
        return True

    def is_for_services(self, topic: str) -> bool:
        return topic.startswith(PREFIX)

    def has_room(self, end: PeerEnd, topic: str, body: bytes) -> bool:
        service = self._services.get(topic[len(PREFIX) :])
        return service is None or service.has_room(end.peer, body)

    def received(self, end: PeerEnd, topic: str, body: bytes, is_letter: bool) -> None:
        """Raises MalformedFrame."""
        service = self._services.get(topic[len(PREFIX) :])
        if service is None:
            if not end.skipped:
                log.info("node %s sends %.100r, which this node does not know: skipped", end.peer, topic)
            end.skipped += 1
            return
        service.received(end.peer, body, is_letter)


def _packet(service: Service, body: bytes, qos: int) -> bytes:
    assert len(body) <= LARGEST
    return encode(Publish(PREFIX + service.name, body, qos, False, False, qos), V5)
