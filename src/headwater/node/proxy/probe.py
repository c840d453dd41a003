"""What the home broker can do, tried out when the own client has connected, on topics of the proxy's own.

    SUBSCRIBE to five topics -> SUBACK -> PUBLISH to them, a fence last -> what came until the fence is what it can do

Where the fence does not come (the broker's rules forbid these topics, or a bridge gets nothing of its own back), the
time is over after `PATIENCE` seconds, and what the standard says is taken for true: MQTT 5.0 has No Local, 3.1.1 has
not.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headwater.node.proxy.abilities import Abilities
from headwater.wire.packets import V5, Publish, Suback, Subscribe, SubscribeRequest, Unsuback, Unsubscribe

if TYPE_CHECKING:
    from headwater.node.proxy.client import OwnClient
    from headwater.node.proxy.connection import HomeConnection

log = logging.getLogger("headwater.proxy")

PATIENCE: Final = 1.0
REFUSED: Final = 0x80


class Probe:
    """`done` is called once, with what was found, unless the connection ends before."""

    def __init__(self, home: OwnClient, connection: HomeConnection, done: Callable[[Abilities], None]) -> None:
        self._home = home
        self._connection = connection
        self._done: Callable[[Abilities], None] | None = done
        self._is_new = connection.channel.version == V5
        self._came: Counter[str] = Counter()
        self._is_flag_told = False
        self._qos = 0
        self._is_open = False
        self._names = ["local", "flag", "copies", "+/copies", "fence"]
        self._timer = home.server.timers.at(home.server.hot.now + PATIENCE, self._time_is_over)

    def _topic(self, name: str) -> str:
        """`+/copies` overlaps `copies`: the level before it is the node's."""
        if name.startswith("+/"):
            parent = self._home.own_topics.rstrip("/").rpartition("/")[0]
            return f"{parent}/{name}"
        return self._home.own_topics + name

    def begin(self) -> None:
        requests = [
            SubscribeRequest(
                self._topic(each),
                2,
                no_local=self._is_new and each == "local",
                retain_as_published=self._is_new,
                retain_handling=2 if self._is_new else 0,
            )
            for each in self._names
        ]
        self._connection.write(Subscribe(self._connection.reserve(), requests))

    def subscribed(self, packet: Suback | Unsuback) -> None:
        if isinstance(packet, Unsuback):
            self._end()
            return
        granted = [each for each in packet.reasons if each < REFUSED]
        self._qos = max(granted, default=2)
        self._is_open = len(granted) == len(self._names)
        for name in ("local", "copies"):
            self._connection.write(Publish(self._topic(name), b"probe"))
        self._connection.write(Publish(self._topic("flag"), b"probe", 0, True))
        self._connection.write(Publish(self._topic("flag"), b"", 0, True))
        self._connection.write(Publish(self._topic("fence"), b"probe"))
        self._connection.ping()

    def answered(self) -> None:
        """PINGRESP. Brokers route beside it; but Mosquitto, which knows bridges, has sent all that it would by now."""
        if self._connection.connect.bridge:
            self._part()

    def came(self, name: str, packet: Publish) -> None:
        self._came[name] += 1
        if name == "flag" and packet.retain and packet.payload:
            self._is_flag_told = True
        if name == "fence" and packet.payload == b"probe":
            self._part()

    def _time_is_over(self) -> None:
        self._part()

    def _part(self) -> None:
        """All that is to be known is known."""
        self._home.server.timers.cancel(self._timer)
        packet_id = self._connection.reserve() if self._done is not None else 0
        names = [each for each in self._names if each != "fence"]
        if packet_id:
            self._connection.write(Unsubscribe(packet_id, [self._topic(each) for each in names]))
            self._timer = self._home.server.timers.at(self._home.server.hot.now + PATIENCE, self._end)
        else:
            self._end()

    def _end(self) -> None:
        self._home.server.timers.cancel(self._timer)
        done, self._done = self._done, None
        if done is None or self._connection.phase != 1:
            return
        has_fence = self._came["fence"] > 0
        is_bridge = self._connection.connect.bridge
        done(
            Abilities(
                no_local=not self._came["local"] and (self._is_new or is_bridge),
                retain_as_published=self._is_flag_told if has_fence else self._is_new or is_bridge,
                copies=self._came["copies"] > 1,
                fences=has_fence,
                qos=self._qos,
                is_tried=has_fence or is_bridge,
            )
        )
