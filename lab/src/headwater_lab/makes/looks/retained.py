"""Retained messages, and wills."""

from __future__ import annotations

import contextlib
from typing import Final

from headwater.wire.packets import Connect, Publish, SubscribeRequest, Will
from headwater_lab.makes.hand import SHORT, Closed
from headwater_lab.makes.looks.ground import NO, YES, Ground, Look, expect_mark


def keep(ground: Ground, payload: bytes = b"kept", topic: str = "") -> str:
    """A new topic that has a retained message."""
    topic = topic or ground.name("kept")
    with ground.hand() as other:
        other.publish(Publish(topic, payload, 1, retain=True))
    return topic


def kept(ground: Ground, topic: str) -> str:
    """amqtt sends others' as well (`unasked`)."""

    def came() -> list[Publish]:
        return [each for each in hand.messages if each.topic == topic]

    with ground.hand() as hand:
        hand.subscribe(SubscribeRequest(topic, 1))
        with contextlib.suppress(Closed):
            hand.until(lambda: bool(came()), patience=SHORT)
        if not came():
            return NO
        return YES if came()[0].retain else "without RETAIN"


def unasked(ground: Ground) -> str:
    """To a client that has subscribed to nothing, while another has."""
    topic = keep(ground)
    with ground.hand() as other:
        other.subscribe(SubscribeRequest(topic, 1))
        with ground.hand() as hand:
            other.publish(Publish(topic, b"", 1, retain=True))
            hand.barrier()
            return YES if hand.unasked else NO


def exact(ground: Ground) -> str:
    return kept(ground, keep(ground))


def by_wildcard(ground: Ground) -> str:
    topic = ground.name("kept")
    keep(ground, b"a", f"{topic}/a/c")
    keep(ground, b"b", f"{topic}/b/c")
    with ground.hand() as hand:
        hand.subscribe(SubscribeRequest(f"{topic}/#", 1))
        try:
            hand.until(lambda: len(hand.below(topic)) == 2, patience=SHORT)
        except Closed:
            return f"{len(hand.below(topic))} of 2"
        return YES if all(each.retain for each in hand.below(topic)) else "without RETAIN"


def empty_deletes(ground: Ground) -> str:
    topic = keep(ground)
    keep(ground, b"", topic)
    return YES if kept(ground, topic) == NO else NO


def empty_live(ground: Ground) -> str:
    topic = ground.name("kept")
    with ground.hand() as hand, ground.hand() as other:
        hand.subscribe(SubscribeRequest(topic, 1))
        other.publish(Publish(topic, b"", 1, retain=True))
        expect_mark(hand, other, topic, 1)
        return YES if b"" in hand.payloads() else NO


def over_term(ground: Ground) -> str:
    topic = keep(ground)
    ground.restart("term")
    return kept(ground, topic)


def over_kill(ground: Ground) -> str:
    topic = keep(ground)
    ground.restart("kill")
    return kept(ground, topic)


def will(ground: Ground) -> str:
    return _will(ground, ground.name("will"), retain=False)


def will_retained(ground: Ground) -> str:
    topic = ground.name("will")
    _will(ground, topic, retain=True)
    return kept(ground, topic)


def _will(ground: Ground, topic: str, *, retain: bool) -> str:
    with ground.hand() as hand:
        hand.subscribe(SubscribeRequest(topic, 1))
        ground.hand(Connect(will=Will(topic, b"gone", 1, retain))).cut()
        hand.until(lambda: bool(hand.messages), NO)
        return YES


def will_at_take_over(ground: Ground) -> str:
    topic, client_id = ground.name("will"), ground.name("taken")
    with ground.hand() as hand:
        hand.subscribe(SubscribeRequest(topic, 1))
        with (
            ground.hand(Connect(will=Will(topic, b"gone", 1)), client_id=client_id),
            ground.hand(client_id=client_id),
        ):
            hand.until(lambda: bool(hand.messages), NO, SHORT)
            return YES


LOOKS: Final = (
    Look("retained message, subscribed to its topic", exact),
    Look("retained messages, subscribed with wildcards", by_wildcard),
    Look("retained messages come without a subscription", unasked),
    Look("an empty retained message deletes", empty_deletes),
    Look("an empty retained message comes live", empty_live),
    Look("will of a client that is cut", will),
    Look("will that is retained", will_retained),
    Look("will of a client that is taken over", will_at_take_over),
)
