"""What is kept for a client that is away, and what the broker's own end leaves of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from headwater.wire.packets import V5, Connect, Properties, Publish, SubscribeRequest
from headwater_lab.makes.hand import SHORT, Closed, Hand
from headwater_lab.makes.looks.ground import NO, YES, Ground, Look
from headwater_lab.makes.looks.retained import over_kill, over_term

SENT: Final = 5


def away(qos: int, between: Callable[[Ground], None], ground: Ground) -> str:
    client_id, topic = ground.name("stays"), ground.name("away")
    kept = Properties(session_expiry_interval=600) if ground.version == V5 else None
    stays = Connect(clean_start=False, properties=kept)
    with ground.hand(stays, client_id=client_id) as hand:
        hand.subscribe(SubscribeRequest(topic, 1))
        hand.leave()
    with ground.hand() as other:
        other.barrier()
        for number in range(SENT):
            other.publish(Publish(topic, b"%d" % number, qos))
        other.barrier()
    between(ground)
    with Hand(ground.port, ground.version) as hand:
        present = hand.connect(client_id, stays).session_present
        with contextlib.suppress(Closed):
            hand.until(lambda: len(hand.messages) == SENT, patience=SHORT)
        return (YES if len(hand.messages) == SENT else NO) + ("" if present else ", the session is new")


def _nothing(ground: Ground) -> None:
    pass


def _terminate(ground: Ground) -> None:
    ground.restart("term")


def _kill(ground: Ground) -> None:
    ground.restart("kill")


LOOKS: Final = (
    Look("QoS 1 is kept for a session that is away", partial(away, 1, _nothing)),
    Look("QoS 0 is kept for a session that is away", partial(away, 0, _nothing)),
    Look("QoS 1 is kept for a session that is away, over SIGTERM", partial(away, 1, _terminate), ends_it=True),
    Look("QoS 1 is kept for a session that is away, over `kill -9`", partial(away, 1, _kill), ends_it=True),
    Look("retained message is kept over SIGTERM", over_term, ends_it=True),
    Look("retained message is kept over `kill -9`", over_kill, ends_it=True),
)
