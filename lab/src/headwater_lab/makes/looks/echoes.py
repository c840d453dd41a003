"""What a client that subscribes and publishes gets back of its own: whether, how often, and in which order."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from headwater.wire.packets import V5, V311, Connect, Publish, SubscribeRequest
from headwater_lab.makes.hand import Hand
from headwater_lab.makes.looks.ground import NO, YES, Ground, Look, expect_mark

LAST: Final = b"last"
MANY: Final = 1000
WINDOW: Final = 16
"""Mosquitto drops what is beyond the receive maximum that it names, 20."""


def _stays_away(ground: Ground, hand: Hand, request: SubscribeRequest) -> bool:
    hand.subscribe(request)
    hand.publish(Publish(request.filter, b"own", 1))
    with ground.hand() as other:
        expect_mark(hand, other, request.filter, 1)
    return b"own" not in hand.payloads()


def no_local(ground: Ground) -> str:
    with ground.hand(version=V5) as hand:
        away = _stays_away(ground, hand, SubscribeRequest(ground.name("local"), 1, no_local=True))
        return YES if away else NO


def bridge_bit(ground: Ground) -> str:
    with ground.hand(Connect(bridge=True), V311) as hand:
        return YES if _stays_away(ground, hand, SubscribeRequest(ground.name("bridge"), 1)) else NO


def retain_of_bridges(ground: Ground) -> str:
    with ground.hand(Connect(bridge=True), V311) as hand:
        return _live(ground, hand, SubscribeRequest(ground.name("live"), 1))


def retain_as_published(ground: Ground) -> str:
    with ground.hand(version=V5) as hand:
        return _live(ground, hand, SubscribeRequest(ground.name("live"), 1, retain_as_published=True))


def retain_live(ground: Ground) -> str:
    with ground.hand() as hand:
        return _live(ground, hand, SubscribeRequest(ground.name("live"), 1))


def _live(ground: Ground, hand: Hand, request: SubscribeRequest) -> str:
    with ground.hand() as other:
        hand.subscribe(request)
        other.publish(Publish(request.filter, b"kept", 1, retain=True))
        hand.until(lambda: bool(hand.messages))
        other.publish(Publish(request.filter, b"", 1, retain=True))
    return YES if hand.messages[0].retain else NO


def copies(filters: tuple[str, str], ground: Ground) -> str:
    """The first with QoS 0, the second with 1; one message of QoS 1."""
    topic = ground.name("over")
    with ground.hand() as hand, ground.hand() as other:
        for qos, each in enumerate(filters):
            hand.subscribe(SubscribeRequest(each.format(topic), qos))
        other.publish(Publish(f"{topic}/x", b"copy", 1))
        expect_mark(hand, other, f"{topic}/x", 1)
        deadline = time.monotonic() + 0.3  # the marker's own second copy may be all that is behind it
        while time.monotonic() < deadline:
            hand.barrier()
        return ", ".join(sorted(f"QoS {each.qos}" for each in hand.messages if each.payload == b"copy"))


def fence(qos: int, ground: Ground) -> str:
    """Own messages sent at once and a marker behind them: does it come back last, and what is before it in order?"""
    topic = ground.name("fence")
    with ground.hand() as hand:
        hand.subscribe(SubscribeRequest(f"{topic}/#", qos))
        for number in range(MANY):
            hand.publish(Publish(f"{topic}/{number % 7}", b"%06d" % number, qos), wait=False)
            hand.until(lambda: hand.unacknowledged < WINDOW, "no acknowledgement")
        hand.publish(Publish(f"{topic}/mark", LAST, qos), wait=False)
        hand.until(lambda: LAST in hand.payloads(), "the marker does not come")
        hand.barrier()
        came = hand.payloads()
        if came == sorted(came):
            return YES if len(came) == MANY + 1 else f"{MANY + 1 - len(came)} are lost"
        return "the marker is not last" if came[-1] != LAST else "out of order"


LOOKS: Final = (
    Look("No Local", no_local, needs_v5=True),
    Look("Mosquitto's bridge bit: own messages stay away", bridge_bit),
    Look("Mosquitto's bridge bit: RETAIN as published", retain_of_bridges),
    Look("Retain As Published", retain_as_published, needs_v5=True),
    Look("RETAIN of what comes live", retain_live),
    Look("subscribed to `x/#` and `x/x`: copies", partial(copies, ("{}/#", "{}/x"))),
    Look("subscribed to `x/#` and `x/+`: copies", partial(copies, ("{}/#", "{}/+"))),
    Look("subscribed again with a higher QoS: copies", partial(copies, ("{}/x", "{}/x"))),
    Look("own messages of QoS 0 come back in order", partial(fence, 0)),
    Look("own messages of QoS 1 come back in order", partial(fence, 1)),
)
