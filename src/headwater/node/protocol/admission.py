"""Whether a message is let in, whoever publishes it: `admit` asks all there is to ask, in one order.

Theory. Messages come in by four doors: a PUBLISH (a bridge's is one), REST, a will, and the program around the broker.
Each makes a `Publication`. If `admit` returns None, the door routes `publication.message`; if it returns a `Denied`,
the door says so in its own words. What is not asked at a door is said once, by its `Door`:

    question, in this order            PUBLISH            REST      will               program
    ---------------------------------- ------------------ --------- ------------------ --------------
    QoS, retain flag                   ends 0x9B, 0x9A    422       when set: CONNACK  -
    topic: valid, length, levels       ends 0x90          422       when set: CONNACK  InvalidTopicName
    may it publish there, by the rules 0x87               403       dropped            -
    payload                            0x83               413       when set: CONNACK  -
    room on the disk, store's backlog  - (not read from)  503       -                  -
    room in queues, if QoS 1 or 2      0x97, or it waits  503       -                  -
    guards (`acl_check`)               their reason       403       dropped            -
    filters                            `publish`          `publish` `will`, first      -
    room among retained messages       0x97, or delivered 507       delivered          delivered
    topics of the store                0x97               507       dropped            TooManyTopics

The differences are meant. Who publishes by MQTT is stopped by not being read from when the disk has too little room
(hotpath.py, once a read); REST has no connection to hold back. A will was promised when it was set, so it is kept
whatever room there is, and so is what the program publishes. "Delivered": who cannot be told (QoS 0, 3.1.1, a will) has
its message delivered and not retained, which is counted and logged. In 3.1.1 all that is refused behind the topic is
acknowledged as if it was published, which is counted and logged, too (`acknowledged`), but for lack of room in queues
(publisher_waits.py). A bridge may publish everywhere, and drops by itself what would end its connection.

The order is part of it. Hooks come behind what is cheap and behind room in queues, because a publisher that waits is
asked about again and a filter must not see its message twice; so room is that of the topic as it came. The store's
topics come last, because to ask takes a place: what is refused for another reason must not have one.

Room in queues. An acknowledgement says that the message is ours now, so what cannot be kept is not acknowledged. Two
things can be in the way: `max_queue_memory` is used up, or, with `queue_full = "refuse"`, the queue of a session or
group that it is for is full.
"""

from __future__ import annotations

import logging
from typing import Final

from headwater.message import NEVER, Message
from headwater.node.access.access import Access
from headwater.node.access.publish_rights import may_publish
from headwater.node.destinations.destination import StoreDestination
from headwater.node.plane.counters import TOO_MANY_TOPICS as DROPPED_AS_TOO_MANY_TOPICS
from headwater.node.protocol.core import Core
from headwater.routing.topics import check_name
from headwater.session.session import Session
from headwater.wire.reasons import (
    IMPLEMENTATION_SPECIFIC_ERROR,
    NOT_AUTHORIZED,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    TOPIC_NAME_INVALID,
)

log = logging.getLogger("headwater.server")
log_access = logging.getLogger("headwater.access")
log_store = logging.getLogger("headwater.store")

TELL_AGAIN: Final = 60.0
"""Seconds between two lines of the log about the same lack."""

BAD_QOS: Final = 1
NO_RETAIN: Final = 2
BAD_TOPIC: Final = 3
FORBIDDEN: Final = 4
TOO_LARGE: Final = 5
DISK_FULL: Final = 6
DISK_BEHIND: Final = 7
NO_ROOM: Final = 8
CANNOT_RETAIN: Final = 9
TOO_MANY_TOPICS: Final = 10


class Denied:
    """`why` is one of the above, `reason` what MQTT 5.0 says, `text` what people are told."""

    def __init__(self, why: int, reason: int, text: str) -> None:
        self.why = why
        self.reason = reason
        self.text = text


class Door:
    """How messages come in, and what is asked there beside topic, rights, guards and what the store takes."""

    def __init__(self, *, bounded: bool = False, disk: bool = False) -> None:
        self.bounded = bounded
        """QoS, retain flag and payload are bounded, there has to be room in queues, and filters of `publish` apply."""
        self.disk = disk
        """There has to be room on the disk."""


CLIENT: Final = Door(bounded=True)
REST: Final = Door(bounded=True, disk=True)
WILL: Final = Door()
PROGRAM: Final = Door()


class Publication:
    """A message that somebody wants published. `publisher` is the session whose rights and quotas count; None: the
    program's own, which may be published everywhere."""

    def __init__(self, door: Door, message: Message, publisher: Session | None) -> None:
        self.door = door
        self.message = message
        """What is to be routed: filters may have put another in its place."""
        self.publisher = publisher
        self.client: object = publisher
        """Who is shown to guards and filters."""
        self.address = ""
        self.max_qos = 2
        self.own_bytes = 0
        """Bytes of its publisher that are in memory because of it, and not in its way."""
        self.is_trusted = False
        """Whether guards are not asked, and topics that steer the broker are not closed to it."""
        self.is_told = False
        """Whether its publisher learns that it was refused, and can try again."""
        self.is_checked = False


class Admission:
    def __init__(self, core: Core, access: Access) -> None:
        self.core = core
        self.access = access
        config = core.config
        self.retain_available = config.retain_available
        self.max_topic_length = config.max_topic_length
        self.max_topic_levels = config.max_topic_levels
        self.max_payload_size = config.max_payload_size
        self._told_of_queues = -NEVER
        self._told_of_retained = -NEVER
        self._told_of_acknowledged = -NEVER
        self._told_of_topics = -NEVER

    # ---- the questions -----------------------------------------------------------------------------------------

    def admit(self, publication: Publication) -> Denied | None:
        """Everything, in the order of the table above; None: route `publication.message` now."""
        return (
            (None if publication.is_checked else self.check(publication))
            or self._check_rights(publication)
            or self._check_size(publication)
            or self._check_room(publication)
            or self._ask_hooks(publication)
            or self._check_retained(publication)
            or self._check_store(publication)
        )

    def check(self, publication: Publication) -> Denied | None:
        """What is wrong with it whenever it is published: QoS, retain flag, topic. `admit` does not ask again."""
        publication.is_checked = True
        message = publication.message
        if publication.door.bounded:
            if message.qos > publication.max_qos:  # [MQTT-3.2.2-11] [MQTT-3.2.2-12]
                return Denied(BAD_QOS, QOS_NOT_SUPPORTED, f"QoS {message.qos} is not supported")
            if message.retain and not self.retain_available:  # [MQTT-3.2.2-13] [MQTT-3.2.2-14]
                return Denied(NO_RETAIN, RETAIN_NOT_SUPPORTED, "retained messages are not supported")
        flaw = self.flaw(message.topic)
        return Denied(BAD_TOPIC, TOPIC_NAME_INVALID, flaw) if flaw else None

    def flaw(self, topic: str) -> str:
        """Why nobody may publish to this topic; "" if nothing is wrong with it."""
        try:
            if len(topic.encode()) > self.max_topic_length:
                return f"the topic name has more than {self.max_topic_length} bytes"
            check_name(topic, self.max_topic_levels)
        except ValueError as error:  # lone surrogates, too
            return str(error)
        return ""

    @property
    def largest_payload(self) -> int:
        return self.max_payload_size or self.core.config.max_packet_size  # which may change while the broker runs

    def is_too_large(self, payload: bytes) -> bool:
        return len(payload) > self.largest_payload

    def _check_rights(self, publication: Publication) -> Denied | None:
        publisher = publication.publisher
        if publisher is None:
            return None
        topic, rights = publication.message.topic, publisher.rights
        steers = publication.is_trusted or self.access.rights.may_steer(rights, publisher.client_id)
        if may_publish(topic, rights, steers):
            return None
        self.access.refused_publishes += 1
        log_access.debug("%r (%s) may not publish to %.200r", publisher.client_id, publication.address, topic)
        return Denied(FORBIDDEN, NOT_AUTHORIZED, "you may not publish to this topic")

    def _check_size(self, publication: Publication) -> Denied | None:
        if not publication.door.bounded or not self.is_too_large(publication.message.payload):
            return None
        text = f"a payload has at most {self.largest_payload} bytes here"
        return Denied(TOO_LARGE, IMPLEMENTATION_SPECIFIC_ERROR, text)  # 0x95 is not for acknowledgements

    def _check_room(self, publication: Publication) -> Denied | None:
        core, door, message = self.core, publication.door, publication.message
        if door.disk:
            if core.hot.no_room:
                text = "the disk has too little room; try again when there is more"
                return Denied(DISK_FULL, QUOTA_EXCEEDED, text)
            if core.coordinator is not None and core.coordinator.too_much:
                return Denied(DISK_BEHIND, QUOTA_EXCEEDED, "the disk does not keep up; try again")
        if not door.bounded or message.qos == 0:
            return None
        if self.has_room(message.topic, publication.publisher, publication.own_bytes):
            return None
        core.stats.no_room += 1
        self._tell_of_queues()
        return Denied(NO_ROOM, QUOTA_EXCEEDED, "there is no room in queues; try again")

    def _ask_hooks(self, publication: Publication) -> Denied | None:
        hooks = self.core.hooks
        if not hooks.slow or publication.publisher is None:
            return None
        if not publication.is_trusted:
            refusal = hooks.allow("acl_check", publication.client, publication.message.topic, True)
            if refusal is not None:
                return Denied(FORBIDDEN, refusal.reason, "you may not publish to this topic")
        if publication.door.bounded:
            publication.message = hooks.transform("publish", publication.message, publication.client)
        return None

    def _check_retained(self, publication: Publication) -> Denied | None:
        """Where there is no room, and its publisher does not learn of that, it is let in and will not be retained."""
        message = publication.message
        if not message.retain:
            return None
        if publication.publisher is not None:
            message.user = publication.publisher.username
        if not message.payload or self.core.router.retained.fits(message):
            return None
        journal = self.core.journal
        if journal is not None and journal.has_left_out(message.topic):
            return None
        self.core.stats.retained_refused += 1
        self._tell_of_retained(message)
        if not publication.is_told:
            return None
        return Denied(CANNOT_RETAIN, QUOTA_EXCEEDED, "there is no room for more retained messages")

    def _check_store(self, publication: Publication) -> Denied | None:
        if self.is_stored(publication.message):
            return None
        most = self.core.config.store.max_topics
        return Denied(TOO_MANY_TOPICS, QUOTA_EXCEEDED, f"the store has as many topics as it may have ({most})")

    def is_stored(self, message: Message) -> bool:
        """Whether the delivery store takes what is published here, or need not; False: its topic would be one too many,
        and whoever has to know that it is dropped has been told."""
        return self.has_place(message, self.core.hot.own_fanouts.store)

    def has_place(self, message: Message, store: StoreDestination | None) -> bool:
        """The same of any message that goes to this store."""
        core = self.core
        if store is None or not store.stores(message.topic) or store.room_for(message.topic.encode()):
            return True
        core.stats.drops[DROPPED_AS_TOO_MANY_TOPICS] += 1
        self._tell_of_topics(message)
        core.hooks.tell("publish_dropped", message.publisher, message)
        return False

    def has_room(self, topic: str, publisher: Session | None, own: int = 0) -> bool:
        """Whether a message of QoS 1 or 2 can be kept for all that it is for; `own` bytes that count are not in its
        way."""
        core = self.core
        budget = core.budget
        is_full = budget.used - own >= budget.limit
        if not is_full and not budget.full_queues:
            return True
        fanout = core.hot.fanouts.of(topic)
        if is_full:
            return not fanout.owed
        return all(destination.has_room(publisher) for destination in fanout.destinations)

    def acknowledged(self, publication: Publication, denied: Denied) -> None:
        """A client of 3.1.1 is about to be told that this message was published, because it cannot be told that not:
        the end of its connection would make it send the message again, for ever, as time changes none of this."""
        core = self.core
        core.stats.acknowledged_refused += 1
        now = core.hot.now
        if now < self._told_of_acknowledged + TELL_AGAIN:
            return
        self._told_of_acknowledged = now
        publisher = publication.publisher
        log.warning(
            "%.200r (%s), a 3.1.1 client: a message to %.200r is acknowledged and dropped: %s; %d until now",
            publisher.client_id if publisher is not None else "",
            publication.address,
            publication.message.topic,
            denied.text,
            core.stats.acknowledged_refused,
        )

    # ---- the log -----------------------------------------------------------------------------------------------

    def _tell_of_queues(self) -> None:
        core = self.core
        now = core.hot.now
        if now < self._told_of_queues + TELL_AGAIN:
            return
        self._told_of_queues = now
        why = "queues are full"
        if core.budget.used >= core.budget.limit:
            why = f"max_queue_memory ({core.budget.limit} bytes) is used up"
        log.warning(
            "%s: messages of QoS 1 and 2 are refused (0x97), or their publishers wait; %d until now",
            why,
            core.stats.no_room,
        )

    def _tell_of_retained(self, message: Message) -> None:
        now = self.core.hot.now
        if now < self._told_of_retained + TELL_AGAIN:
            return
        self._told_of_retained = now
        log.warning(
            "no room for a retained message of %.200r (user %.200r): see max_retained, max_retained_bytes and the "
            "same per user; %d until now",
            message.topic,
            message.user,
            self.core.stats.retained_refused,
        )

    def _tell_of_topics(self, message: Message) -> None:
        now = self.core.hot.now
        if now < self._told_of_topics + TELL_AGAIN:
            return
        self._told_of_topics = now
        log_store.warning(
            "%.200r is a topic too many for the store (store.max_topics): its messages are refused (0x97), or dropped "
            "where nobody can be told; %d until now",
            message.topic,
            self.core.stats.drops[DROPPED_AS_TOO_MANY_TOPICS],
        )
