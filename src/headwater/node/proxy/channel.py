"""The channel to a home broker that sends back what was handed over.

What goes out has to be known one by one then, so it goes the ordinary way (a packet size that every message fits into
keeps it off the hot path), where `publish_packet` and `published` see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headwater.message import Delivery
from headwater.node.plane.channel import Channel
from headwater.node.plane.turn import Turn
from headwater.node.proxy.echo import Echoes, digest
from headwater.wire.packets import V5, Properties, Publish

ECHO: Final = "headwater-echo"
"""The user property by which an echo is known."""
OWN_TOPICS: Final = "headwater/proxy/"
"""What is published there is of proxies, and goes to no other node."""
ANY_SIZE: Final = 268_435_460


class HomeChannel(Channel):
    def __init__(self, turn: Turn, fd: int, recv: Callable[[int], bytes], send: Callable[[bytes], int]) -> None:
        super().__init__(turn, fd, recv, send)
        self.echoes: Echoes | None = None
        """None: the home broker sends nothing back."""
        self.mark = ""
        """What the ids in user properties begin with; "": messages are known by their content."""
        self.marked = 0

    def expect_echoes(self, echoes: Echoes | None, mark: str) -> None:
        self.echoes = echoes
        self.mark = mark
        if echoes is not None and not self.max_packet_out:
            self.max_packet_out = ANY_SIZE

    def publish_packet(self, delivery: Delivery, packet_id: int, dup: bool, now: float) -> Publish:
        packet = super().publish_packet(delivery, packet_id, dup, now)
        if self.mark and self.version == V5:
            self.marked += 1
            properties = packet.properties
            if properties is None:
                properties = packet.properties = Properties()
            properties.user_properties = [*(properties.user_properties or []), (ECHO, f"{self.mark}{self.marked}")]
        return packet

    def published(self, packet: Publish, topic: str) -> None:
        super().published(packet, topic)
        if self.echoes is not None and not topic.startswith(OWN_TOPICS):
            self.echoes.handed_over(key_of(packet, topic), self.turn.now)


def key_of(packet: Publish, topic: str) -> bytes:
    """By which its echo is known."""
    properties = packet.properties
    if properties is not None and properties.user_properties is not None:
        for name, value in properties.user_properties:
            if name == ECHO:
                return digest("", value.encode())
    return digest(topic, packet.payload)


def without_mark(pairs: list[tuple[str, str]] | None) -> list[tuple[str, str]] | None:
    """The user properties of a message but for marks of proxies."""
    if pairs is None:
        return None
    return [pair for pair in pairs if pair[0] != ECHO] or None
