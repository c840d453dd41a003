"""Where looks are taken: a port to connect to, the version that is spoken there, and the broker's own process."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, V311, Connect, Publish, SubscribeRequest
from headwater_lab.check_broker.contestants import Node
from headwater_lab.makes.hand import Closed, Hand

YES: Final = "yes"
NO: Final = "no"
NOT_FOR_IT: Final = "–"
"""It lacks what the look needs, which is a row of its own."""
RESTARTS: Final = 90.0


@dataclass
class Ground:
    port: int
    node: Node | None = None
    version: int = V311
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def name(self, what: str) -> str:
        return f"{what}{next(self._numbers)}"

    def hand(self, connect: Connect | None = None, version: int = 0, client_id: str = "") -> Hand:
        """Connected. Raises Closed."""
        hand = Hand(self.port, version or self.version)
        try:
            connack = hand.connect(client_id or self.name("client"), connect)
            if connack.reason:
                raise Closed(f"CONNACK 0x{connack.reason:02x}")
        except BaseException:
            hand.cut()
            raise
        return hand

    def restart(self, way: str) -> None:
        """`kill` or `term`, and until it serves again."""
        assert self.node is not None
        faults = next(iter(self.node.faults([way])))
        subprocess.run(["sh", "-c", faults.start], check=True)
        subprocess.run(["sh", "-c", faults.heal], check=True)
        self.wait_until_it_serves()

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + RESTARTS
        while True:
            try:
                with self.hand() as hand:
                    hand.subscribe(SubscribeRequest("serves", 0))
                    return
            except (Closed, OSError, RemoteProtocolError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@dataclass(frozen=True)
class Look:
    """`row` is its place in the table."""

    row: str
    see: Callable[[Ground], str]
    needs_v5: bool = False
    ends_it: bool = False
    """The broker is ended and started again."""
    is_slow: bool = False
    """So that it says more of the machine than of a proxy."""


def version(ground: Ground) -> int:
    """The highest that it speaks. Raises Closed."""
    for number in (V5, V311):
        try:
            with Hand(ground.port, number) as hand:
                if hand.connect(ground.name("client")).reason == 0:
                    return number
        except (Closed, RemoteProtocolError):
            continue
    raise Closed("neither MQTT 5.0 nor 3.1.1")


def see(look: Look, ground: Ground) -> str:
    if look.needs_v5 and ground.version != V5:
        return NOT_FOR_IT
    try:
        return look.see(ground)
    except RemoteProtocolError:
        return "malformed packet"
    except (Closed, OSError) as problem:
        return str(problem)


def expect_mark(reader: Hand, publisher: Hand, topic: str, qos: int) -> None:
    """All that was published before is there, or will not come. Raises Closed."""
    mark = b"mark-%d" % time.monotonic_ns()
    publisher.publish(Publish(topic, mark, qos))
    reader.until(lambda: any(each.payload == mark for each in reader.messages), "the marker does not come")
    reader.messages = [each for each in reader.messages if each.payload != mark]
