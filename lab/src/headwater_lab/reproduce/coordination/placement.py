"""Which client is at which broker.

A topic's publishers are at one broker, topic t at broker t modulo brokers. Its subscribers are there too (`local`), or
each at another one (`scattered`): subscriber s of topic t at broker t + s modulo brokers, so that all have the same
number. With one broker both are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater_lab.reproduce.coordination.plan import LOCAL, PLACEMENTS, PUBLISHERS, SUBSCRIBERS, TOPICS


class Client(NamedTuple):
    """`kind` is publisher or subscriber, `broker` a number."""

    kind: str
    broker: int
    topic: int


def place(placement: str, brokers: int) -> list[Client]:
    if placement not in PLACEMENTS:
        raise ValueError(f"a placement is {' or '.join(PLACEMENTS)}, not {placement!r}")
    return list(_placed(placement == LOCAL, brokers))


def _placed(is_local: bool, brokers: int) -> Iterator[Client]:
    for topic in range(TOPICS):
        home = topic % brokers
        for _ in range(PUBLISHERS):
            yield Client("publisher", home, topic)
        for number in range(SUBSCRIBERS):
            yield Client("subscriber", home if is_local else (topic + number) % brokers, topic)


def plan_text(clients: Sequence[Client], ports: Sequence[int]) -> str:
    """What paced.c reads."""
    return "".join(f"{each.kind} {ports[each.broker]} {each.topic}\n" for each in clients)


def pairs(ports: Sequence[int]) -> list[tuple[int, int]]:
    """Where probes are published and subscribed: at the first broker, and from the first to the last."""
    near = (ports[0], ports[0])
    return [near] if len(ports) == 1 else [near, (ports[0], ports[-1])]
