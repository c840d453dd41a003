"""What comes from a broker behind a proxy to a node of ours, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, Connect, Publish, SubscribeRequest, Will
from headwater_lab.makes.hand import Closed, Hand
from headwater_lab.makes.looks.ground import NO, NOT_FOR_IT, YES, Ground
from headwater_lab.makes.looks.qos import GIVEN, lost_properties

CROSSES: Final = 5.0
"""Seconds until something has come to the other side, or does not come."""


@dataclass(frozen=True)
class Crossing:
    """`look` has the publisher's side and the subscriber's; `is_back`: the publisher is at the node of ours."""

    row: str
    look: Callable[[Ground, Ground], str]
    is_back: bool = False
    needs_v5: bool = False

    def see(self, home: Ground, ours: Ground) -> str:
        """`home` is the make's side."""
        if self.needs_v5 and home.version != V5:
            return NOT_FOR_IT
        try:
            return self.look(ours, home) if self.is_back else self.look(home, ours)
        except RemoteProtocolError:
            return "malformed packet"
        except (Closed, OSError) as problem:
            return str(problem)


def qos(published: int, far: Ground, near: Ground) -> str:
    topic = far.name("crossing/qos")
    with near.hand() as reader, far.hand() as writer:
        reader.subscribe(SubscribeRequest(topic, 2))
        writer.publish(Publish(topic, b"once", published))
        reader.until(lambda: bool(reader.messages), "nothing comes", CROSSES)
        return f"{reader.messages[0].qos}"


def retained(far: Ground, near: Ground) -> str:
    """To who subscribes later, until it comes."""
    topic = far.name("crossing/kept")
    with far.hand() as writer:
        writer.publish(Publish(topic, b"kept", 1, retain=True))
        return YES if _is_kept(near, topic, b"kept") else NO


def retained_deleted(far: Ground, near: Ground) -> str:
    topic = far.name("crossing/kept")
    with far.hand() as writer:
        writer.publish(Publish(topic, b"kept", 1, retain=True))
        if not _is_kept(near, topic, b"kept"):
            return NO
        writer.publish(Publish(topic, b"", 1, retain=True))
        return YES if _is_kept(near, topic, None) else "it is still there"


def _is_kept(ground: Ground, topic: str, payload: bytes | None) -> bool:
    """Whether a new subscriber gets this one in the end; None: nothing."""
    for _ in range(int(CROSSES)):
        with ground.hand() as hand:
            hand.subscribe(SubscribeRequest(topic, 1))
            with contextlib.suppress(Closed):
                hand.until(lambda hand=hand: bool(_of(hand, topic)), patience=1)  # type: ignore[misc]
            if [each.payload for each in _of(hand, topic)][:1] == ([] if payload is None else [payload]):
                return True
    return False


def _of(hand: Hand, topic: str) -> list[Publish]:
    return [each for each in hand.messages if each.topic == topic]


def will(far: Ground, near: Ground) -> str:
    topic = far.name("crossing/will")
    with near.hand() as reader:
        reader.subscribe(SubscribeRequest(topic, 1))
        far.hand(Connect(will=Will(topic, b"gone", 1))).cut()
        reader.until(lambda: bool(reader.messages), "nothing comes", CROSSES)
        return YES


def properties(far: Ground, near: Ground) -> str:
    topic = far.name("crossing/properties")
    with near.hand(version=V5) as reader, far.hand(version=V5) as writer:
        reader.subscribe(SubscribeRequest(topic, 1))
        writer.publish(Publish(topic, b"with", 1, properties=GIVEN))
        reader.until(lambda: bool(reader.messages), "nothing comes", CROSSES)
        lost = lost_properties(reader.messages[0])
        return "all" if not lost else f"without {', '.join(lost)}"


def same(far: Ground, near: Ground) -> str:
    """The same payload ten times, and how often it comes."""
    name = far.name("crossing/same")
    with near.hand() as reader, far.hand() as writer:
        reader.subscribe(SubscribeRequest(name, 1))
        for _ in range(10):
            writer.publish(Publish(name, b"the same", 1))
        writer.publish(Publish(name, b"last", 1))
        reader.until(lambda: b"last" in reader.payloads(), "nothing comes", CROSSES)
        return f"{reader.payloads().count(b'the same')}"


def _both_ways(text: str, look: Callable[[Ground, Ground], str], *, needs_v5: bool = False) -> list[Crossing]:
    return [
        Crossing(f"{text}, from it to a node of ours", look, needs_v5=needs_v5),
        Crossing(f"{text}, from a node of ours to it", look, is_back=True, needs_v5=needs_v5),
    ]


CROSSINGS: Final = (
    *_both_ways("published with QoS 0, subscribed with 2", partial(qos, 0)),
    *_both_ways("published with QoS 1, subscribed with 2", partial(qos, 1)),
    *_both_ways("published with QoS 2, subscribed with 2", partial(qos, 2)),
    *_both_ways("the same payload ten times: comes", same),
    *_both_ways("retained message for who comes later", retained),
    *_both_ways("an empty one deletes it", retained_deleted),
    *_both_ways("will", will),
    *_both_ways("properties", properties, needs_v5=True),
)
