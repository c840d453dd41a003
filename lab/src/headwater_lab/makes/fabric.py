"""Brokers of several makes made one: each behind a proxy of its own, all proxies and nodes of ours in one cluster.

clients ──► proxy ──► mosquitto        Member("mosquitto"): its clients' port is the proxy's
              │
clients ──► node of ours               Member("headwater"): no proxy
              │
clients ──► proxy ──► nats
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from headwater.fleet.process import free_port
from headwater.wire.packets import Publish, SubscribeRequest
from headwater_lab.check_broker.contestants import HOST, Node, make_folder, running
from headwater_lab.makes.hand import Closed, Hand
from headwater_lab.makes.nodes import MAKES, Make

CLUSTER: Final = "fabric"
OURS: Final = "headwater"
WHOLE: Final = 60.0
"""Seconds until all are one."""


@dataclass(frozen=True)
class Member:
    """`broker` is the home broker, `door` where its clients connect: the proxy; with a node of ours, both are it."""

    name: str
    make: Make
    broker: Node
    door: Node

    @property
    def port(self) -> int:
        return self.door.port


def nodes_of(folder: Path, names: Sequence[str], settings: Sequence[str] = ()) -> tuple[list[Node], list[Member]]:
    """Brokers first, then proxies, in the order in which they start; `settings` of proxies and nodes are name=value."""
    links = {name: free_port() for name in names}
    words_of_all = [word for each in settings for word in ("--set", each)]
    brokers: list[Node] = []
    members: list[Member] = []
    for name in names:
        make = next(make for make in MAKES if make.name == name.split("-")[0])
        own = folder / name
        peers = [f"{HOST}:{link}" for other, link in links.items() if other != name]
        cluster = ["--cluster", CLUSTER, "--node", name, "--cluster-port", str(links[name]), *words_of_all]
        if make.name == OURS:
            home = make.make(own)
            home[-1].words += [*cluster, *(word for peer in peers for word in ("--join", peer))]
            door = home[-1]
        else:
            home = make.make(own)
            door = _proxy(own, home[-1].port, [*cluster, *(word for peer in peers for word in ("--peer", peer))])
        brokers += home
        members.append(Member(name, make, home[-1], door))
    return [*brokers, *(member.door for member in members if member.door is not member.broker)], members


def _proxy(folder: Path, broker: int, cluster: Sequence[str]) -> Node:
    own, port = make_folder(folder, "proxy"), free_port()
    words = [sys.executable, "-m", "headwater", "proxy", "--broker", f"{HOST}:{broker}", "--listen", f"{HOST}:{port}"]
    return Node(own, port, [*words, "--data-dir", str(own / "data"), *cluster])


@contextlib.contextmanager
def fabric(folder: Path, names: Sequence[str], settings: Sequence[str] = ()) -> Iterator[list[Member]]:
    """Running, and whole. Raises BrokerError and Closed."""
    nodes, members = nodes_of(folder, names, settings)
    with running(lambda _: nodes, folder):
        wait_until_whole(members)
        yield members


def wait_until_whole(members: Sequence[Member], patience: float = WHOLE) -> None:
    """Until a message of each comes to a subscriber at each. Raises Closed."""
    with contextlib.ExitStack() as stack:
        hands = [stack.enter_context(connected(member, f"whole-{member.name}")) for member in members]
        for hand in hands:
            hand.subscribe(SubscribeRequest("fabric/whole/+", 1))
        wanted = {f"fabric/whole/{member.name}" for member in members}
        for attempt in range(int(patience)):
            for member, hand in zip(members, hands, strict=True):
                hand.publish(Publish(f"fabric/whole/{member.name}", b"%d" % attempt, 1))
            with contextlib.suppress(Closed):
                for hand in hands:
                    hand.until(partial(_has_all, hand, wanted), patience=1)
                return
        missing = {
            member.name: sorted(wanted - {each.topic for each in hand.messages})
            for member, hand in zip(members, hands, strict=True)
        }
        raise Closed(f"the fabric is not whole; missing at {missing}")


def _has_all(hand: Hand, topics: set[str]) -> bool:
    return {each.topic for each in hand.messages} >= topics


def connected(member: Member, client_id: str) -> Hand:
    hand = Hand(member.port)
    hand.connect(client_id)
    return hand
