"""Topics that are refused or changed, sizes, and how much a client may leave unacknowledged."""

from __future__ import annotations

from functools import partial
from typing import Final

from headwater.wire.packets import Publish, SubscribeRequest
from headwater_lab.makes.hand import SHORT, Closed
from headwater_lab.makes.looks.ground import NO, YES, Ground, Look, expect_mark


def everything(ground: Ground) -> str:
    with ground.hand() as hand, ground.hand() as other:
        reason = hand.subscribe(SubscribeRequest("#", 1))[0]
        if reason > 2:
            return f"refused with 0x{reason:02x}"
        other.publish(Publish(ground.name("deep/er/"), b"", 1))
        expect_mark(hand, other, ground.name("deep/er/"), 1)
        inner = sorted({f"`{each.topic.split('/')[0]}`" for each in hand.messages if each.topic.startswith("$")})
        return YES + (f", and {', '.join(inner)}" if inner else "")


def topic(name: str, ground: Ground) -> str:
    try:
        with ground.hand() as hand, ground.hand() as other:
            hand.subscribe(SubscribeRequest(name, 1))
            other.publish(Publish(name, b"there", 1), wait=False)
            other.barrier()
            hand.until(lambda: bool(hand.messages), "nothing comes", SHORT)
            return YES if hand.messages[0].topic == name else f"comes as `{hand.messages[0].topic}`"
    except Closed as problem:
        return str(problem)


WINDOW: Final = 2000


def window(ground: Ground) -> str:
    name = ground.name("window")
    with ground.hand() as hand, ground.hand() as other:
        hand.subscribe(SubscribeRequest(name, 1))
        hand.withholds = True
        for number in range(WINDOW):
            other.publish(Publish(name, b"%d" % number, 1), wait=number % 16 == 15)
        try:
            hand.until(lambda: len(hand.messages) == WINDOW, patience=SHORT)
        except Closed:
            return f"{len(hand.messages):,}"
        return f"{WINDOW:,} or more"


def held_back(ground: Ground) -> str:
    name = ground.name("held")
    with ground.hand() as hand, ground.hand() as other:
        hand.subscribe(SubscribeRequest(name, 1))
        hand.withholds = True
        for number in range(48):
            other.publish(Publish(name, b"%d" % number, 1), wait=number % 16 == 15)
        other.publish(Publish(name, b"zero", 0))
        try:
            hand.until(lambda: b"zero" in hand.payloads(), patience=SHORT)
        except Closed:
            return YES
        return NO


def largest(ground: Ground) -> str:
    came = NO
    for size, text in ((1 << 16, "64 KB"), (1 << 20, "1 MB"), (1 << 23, "8 MB"), (17 << 20, "17 MB")):
        name = ground.name("large")
        try:
            with ground.hand() as hand, ground.hand() as other:
                hand.subscribe(SubscribeRequest(name, 1))
                other.publish(Publish(name, bytes(size), 1), wait=False)
                hand.until(lambda: bool(hand.messages) or not other.is_open())
                if not hand.messages:
                    return came
        except (Closed, OSError):
            return came
        came = text
    return f"{came} or more"


TOPICS: Final = ("/lead", "trail/", "in//between", "with.dot", "with space", "größe", "star*", "a>b", "$own/x")

LOOKS: Final = (
    Look("`#` brings everything", everything),
    *(Look(f"topic `{each}`", partial(topic, each)) for each in TOPICS),
    Look("messages of QoS 1 to a client that does not acknowledge", window),
    Look("QoS 0 waits behind QoS 1 that is not acknowledged", held_back),
    Look("largest payload that comes (of 64 KB, 1, 8, 17 MB)", largest, is_slow=True),
)
