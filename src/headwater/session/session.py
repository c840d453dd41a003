"""What outlives a connection: subscriptions, messages in flight and waiting, received QoS 2 ids, the will.

[MQTT-4.1.0-1] A session is kept while its connection lasts and, after it, for the session expiry interval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from headwater.message import NEVER, Delivery, Message, Subscription
from headwater.session.outbound import Flight, Outbound
from headwater.session.rights import Rights
from headwater.session.translate import message_of
from headwater.wire.decode import FROM_CLIENT, decode
from headwater.wire.packets import Publish
from headwater.wire.primitives import ANY_NUMBER

if TYPE_CHECKING:
    from headwater.session.connection import Connection


UNSEEN: Final = "?"


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionMove:
    """A session on its way from one node to another (node/links/moving.py)."""

    def offered(self, delivery: Delivery) -> bool:
        """A message is for the session. Whether that is dealt with; else it is delivered as ever."""
        raise NotImplementedError

    def record(self) -> dict[str, object]:
        """For the disk."""
        raise NotImplementedError


class RecoveredMove(SessionMove):
    """What was on disk of one, for whoever goes on with it."""

    def __init__(self, fields: dict[str, object]) -> None:
        self.fields = fields

    def offered(self, delivery: Delivery) -> bool:
        return False

    def record(self) -> dict[str, object]:
        return self.fields


class Session:
    """`connection` is None while the client is away; `expires_at` counts only then."""

    def __init__(self, client_id: str, outbound: Outbound) -> None:
        self.client_id = client_id
        self.outbound = outbound
        self.connection: Connection | None = None
        self.username: str | None = None
        self.rights: Rights | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self.in_groups = False
        """It is, or was, a member of a shared group, so that some of what it has may be a group's."""
        self.received: set[int] = set()
        self.pending_retained: object = None
        """Retained messages that its subscriptions are still to get (node/protocol/retained_sender.py); None: all were
        sent."""
        self.expiry_interval = 0
        self.expires_at = NEVER
        self.will: Message | None = None
        self.will_expiry: int | None = None
        self.will_delay = 0
        self.will_at = NEVER
        """When a will that waits is published."""
        self.will_stamp = 0
        """By which nodes of a cluster know the will (node/links/wills.py); 0: they do not."""
        self.will_deputy = ""
        """The node that publishes it if this one is killed."""
        self.counted = False
        """Whether it counts in what sessions keep (node/access/quotas.py), with `kept_bytes`."""
        self.kept_bytes = 0
        self.will_bytes = 0
        self.received_room = 16
        """Ids that may be in `received` without more being counted."""
        self.number = 0
        """By which a journal knows it; 0: it does not."""
        self.durable = False
        """Whether what it is to get is on disk."""
        self.claim_time = 0
        self.claim_node = ""
        """When which node of a cluster claimed it; 0: there was no cluster."""
        self.clean_time = 0
        """The time of the last claim that asked for a new one."""
        self.lineage = ""
        """Its first claim: what another node has of the same session has the same. `UNSEEN` is before it as long as
        nothing shows that the client knows of the session."""
        self.served_time = 0
        self.served_node = ""
        """The last claim that was answered by CONNACK: of two sessions of a client, it knows that of the later one."""
        self.moving: SessionMove | None = None

    @property
    def online(self) -> bool:
        return self.connection is not None

    @property
    def is_unknown_to_client(self) -> bool:
        """It began anew, in place of one that could not be reached, and nothing shows that its client has seen the
        CONNACK that said so: it has to be told again, or would rely on subscriptions that are not here."""
        return self.lineage.startswith(UNSEEN) and not (self.subscriptions or self.received)

    def flight_delivery(self, flight: Flight) -> Delivery:
        """The message of an unreleased flight, decoded now if the hot path kept only its bytes."""
        delivery = flight.delivery
        if delivery is None:
            packet = flight.head + b"\x00\x01" + flight.tail
            start = 2
            while packet[start - 1] & 0x80:
                start += 1
            publish = decode(packet[0], packet[start:], flight.version, FROM_CLIENT, ANY_NUMBER)
            assert isinstance(publish, Publish)
            message = message_of(publish, flight.publisher, 0.0)
            message.position = flight.position
            message.commit = flight.commit
            if flight.journaled is not None:
                message.journaled = flight.journaled.journaled
            delivery = Delivery(message, flight.qos, False, None, flight.group)
            flight.delivery = delivery
        return delivery
