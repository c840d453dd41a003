"""Version, quality of service end to end, MQTT 5's properties, shared subscriptions."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from headwater.wire.packets import V5, Properties, Publish, SubscribeRequest
from headwater_lab.makes.hand import SHORT
from headwater_lab.makes.looks.ground import YES, Ground, Look, expect_mark, version


def highest_version(ground: Ground) -> str:
    return "5.0" if version(ground) == V5 else "3.1.1"


def granted(ground: Ground) -> str:
    with ground.hand() as hand:
        return f"{hand.subscribe(SubscribeRequest(ground.name('granted'), 2))[0]}"


def end_to_end(published: int, subscribed: int, ground: Ground) -> str:
    topic = ground.name("end")
    with ground.hand() as reader, ground.hand() as writer:
        reader.subscribe(SubscribeRequest(topic, subscribed))
        writer.publish(Publish(topic, b"once", published))
        reader.until(lambda: bool(reader.messages))
        return f"{reader.messages[0].qos}"


def repeated(ground: Ground) -> str:
    topic = ground.name("repeated")
    with ground.hand() as reader, ground.hand() as writer:
        reader.subscribe(SubscribeRequest(topic, 2))
        writer.withholds = True
        for dup in (False, True):
            writer.send(Publish(topic, b"twice", 2, packet_id=77, dup=dup))
            writer.until(lambda: 77 in writer.received, "no PUBREC", SHORT)
            writer.received.clear()
        writer.release(77)
        writer.until(lambda: 77 in writer.acknowledged, "no PUBCOMP")
        expect_mark(reader, writer, topic, 1)
        return f"{len(reader.messages)}"


def released_again(ground: Ground) -> str:
    """As a session does that did not get the PUBCOMP."""
    with ground.hand() as writer:
        writer.publish(Publish(ground.name("released"), b"", 2))
        writer.acknowledged.clear()
        writer.release(1)
        writer.until(lambda: 1 in writer.acknowledged, "no PUBCOMP", SHORT)
        return YES


MANY: Final = 100


def mixed(ground: Ground) -> str:
    """QoS 0 and 2 in turn, on one connection to one subscriber."""
    topic = ground.name("mixed")
    with ground.hand() as reader, ground.hand() as writer:
        reader.subscribe(SubscribeRequest(topic, 2))
        for number in range(MANY):
            writer.publish(Publish(topic, b"zero", 0))
            writer.until(lambda: writer.unacknowledged < 8, "no PUBCOMP")
            writer.publish(Publish(topic, b"%d" % number, 2), wait=False)
        writer.until(lambda: not writer.unacknowledged, "no PUBCOMP")
        deadline = time.monotonic() + 3
        while len(set(reader.payloads()) - {b"zero"}) < MANY and time.monotonic() < deadline:
            reader.barrier()
        return YES if len(set(reader.payloads()) - {b"zero"}) == MANY else "some are lost"


GIVEN: Final = Properties(
    payload_format_indicator=1,
    message_expiry_interval=600,
    content_type="text",
    response_topic="answer",
    correlation_data=b"c",
    user_properties=[("a", "1"), ("a", "2")],
)


def properties(ground: Ground) -> str:
    topic = ground.name("properties")
    with ground.hand(version=V5) as hand, ground.hand(version=V5) as other:
        hand.subscribe(SubscribeRequest(topic, 1))
        other.publish(Publish(topic, b"with", 1, properties=GIVEN))
        hand.until(lambda: bool(hand.messages))
        lost = lost_properties(hand.messages[0])
        return "all" if not lost else f"without {', '.join(lost)}"


def lost_properties(message: Publish) -> list[str]:
    came = message.properties or Properties()
    return [name for name, value in vars(GIVEN).items() if value is not None and not getattr(came, name)]


def shared(ground: Ground) -> str:
    topic = ground.name("shared")
    with ground.hand() as one, ground.hand() as two, ground.hand() as other:
        for each in (one, two):
            if each.subscribe(SubscribeRequest(f"$share/group/{topic}", 1))[0] > 2:
                return "refused"
        for number in range(6):
            other.publish(Publish(topic, b"%d" % number, 1))
        deadline = time.monotonic() + 1
        while len(one.messages) + len(two.messages) < 6 and time.monotonic() < deadline:
            one.barrier()
            two.barrier()
        came = len(one.messages) + len(two.messages)
        return YES if came == 6 else f"granted, {came} of 6 come" if came else "granted, nothing comes"


def end(published: int, subscribed: int) -> Look:
    row = f"published with QoS {published}, subscribed with {subscribed}: delivered with QoS"
    return Look(row, partial(end_to_end, published, subscribed))


LOOKS: Final = (
    Look("highest version of MQTT", highest_version),
    Look("QoS granted who asks for 2", granted),
    *(end(*pair) for pair in ((0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2))),
    Look("the same PUBLISH of QoS 2 twice before PUBREL: messages", repeated),
    Look("PUBREL once more after PUBCOMP is answered", released_again),
    Look("QoS 0 and 2 in turn on one connection: QoS 2 all come", mixed),
    Look("properties of a PUBLISH that come", properties, needs_v5=True),
    Look("shared subscriptions", shared),
)
