"""What one broker counts. Counters only grow; rates and averages are made from differences.

A counter is one line here (metric.py says what may be declared), and the line that counts it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.metric import counter, gauge

# Why a message was not delivered.
QUEUE_FULL: Final = "queue_full"
SLOW_READER: Final = "slow_reader"
EXPIRED: Final = "expired"
TOO_LARGE: Final = "too_large"
NOT_AUTHORIZED: Final = "not_authorized"
SESSION_ENDED: Final = "session_ended"
TOO_MANY_TOPICS: Final = "too_many_topics"
DROP_REASONS: Final = {
    QUEUE_FULL: "",
    SLOW_READER: "QoS 0 above `outbound_buffer`",
    EXPIRED: "",
    TOO_LARGE: "for the client",
    NOT_AUTHORIZED: "any more, when its turn came",
    SESSION_ENDED: "or its group, and it waited there",
    TOO_MANY_TOPICS: "the delivery store refused it: `store.max_topics`",
}


def no_drops() -> dict[str, int]:
    """All reasons are there from the beginning, so that rates can be computed from the first drop on."""
    return dict.fromkeys(DROP_REASONS, 0)


@dataclass
class Counters:
    received: int = counter(
        "Packets of any kind from clients.",
        name="packets_received",
        topics=("messages/received",),
        loads=("messages/received",),
    )
    sent: int = counter(
        "Packets of any kind to clients.", name="packets_sent", topics=("messages/sent",), loads=("messages/sent",)
    )
    bytes_received: int = counter(
        "Bytes from clients.",
        name="received_bytes",
        topics=("bytes/received",),
        loads=("bytes/received",),
        flow=("in", "bytes"),
    )
    bytes_sent: int = counter(
        "Bytes to clients.", name="sent_bytes", topics=("bytes/sent",), loads=("bytes/sent",), flow=("out", "bytes")
    )
    messages_received: int = counter(
        "PUBLISH packets from clients.",
        topics=("publish/messages/received",),
        loads=("publish/received",),
        flow=("in", "messages"),
    )
    messages_sent: int = counter(
        "PUBLISH packets to clients.",
        topics=("publish/messages/sent",),
        loads=("publish/sent",),
        flow=("out", "messages"),
    )
    no_room: int = counter(
        "Messages of QoS 1 and 2 refused or made to wait for lack of room in queues.",
        name="messages_no_room",
        doc="With 0x97 (REST: 503), or by not reading on (3.1.1): `max_queue_memory` is used up, or a queue is full: "
        '`queue_full = "refuse"`.',
    )
    retained_refused: int = counter(
        "Retained messages for which there was no room.", doc="Of all or of their user: `max_retained` and others."
    )
    acknowledged_refused: int = counter(
        "Messages of QoS 1 and 2 that were refused, and acknowledged all the same.",
        name="messages_acknowledged_refused",
        doc="3.1.1 has no word for a refusal: rules, guards, `max_payload_size`, `store.max_topics`. Counted beside "
        "the reason, if that is counted.",
    )
    sockets_opened: int = counter(
        "Connections of sockets, with or without a CONNECT.", loads=("sockets", "connections")
    )
    refused: int = counter("CONNECTs that were refused.", name="connects_refused")
    protocol_errors: int = counter("Connections that ended because the client broke the protocol.")
    expired: int = counter(
        "Sessions that ended by their expiry interval.", name="sessions_expired", topics=("clients/expired",)
    )
    connections_maximum: int = gauge(
        "Most clients connected at the same time since the start.", topics=("clients/maximum",)
    )
    reports: int = counter(
        "Status reports from clients.",
        topics=("reports/received",),
        labels=("outcome",),
        samples=lambda now: {("used",): now.reports - now.reports_bad - now.reports_early},
    )
    reports_bad: int = counter(
        "Status reports that could not be believed and were ignored.",
        name="reports",
        topics=("reports/ignored/bad",),
        labels=("outcome",),
        samples=lambda now: {("bad",): now.reports_bad},
    )
    reports_early: int = counter(
        "Status reports that came earlier than allowed and were ignored.",
        name="reports",
        topics=("reports/ignored/early",),
        labels=("outcome",),
        samples=lambda now: {("early",): now.reports_early},
    )
    failures: int = 0
    """Packets whose handling raised. `Statistics` adds others to it."""
    drops: dict[str, int] = field(default_factory=no_drops)

    @property
    def publish_dropped(self) -> int:
        return sum(self.drops.values())
