"""Sessions without a connection: they wait, publish their wills, expire, end.

A session that lost its connection waits for its expiry interval; a will waits for its delay, but not longer than its
session [MQTT-3.1.3-9]. Both are timers here.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import Final

from headwater.message import Delivery, Message
from headwater.node.access.access import Access
from headwater.node.hooks import Refusal
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.plane.counters import SESSION_ENDED
from headwater.node.plane.timers import Timer
from headwater.node.protocol.admission import CLIENT, WILL, Admission, Publication
from headwater.node.protocol.core import Core
from headwater.node.protocol.delivering import Delivering
from headwater.node.protocol.publishing import Publishing
from headwater.node.protocol.sharing import Sharing
from headwater.node.protocol.subscribing import Subscribing
from headwater.session.outbound import Flight
from headwater.session.session import Session
from headwater.session.translate import will_message
from headwater.wire.packets import Will
from headwater.wire.primitives import FOR_EVER
from headwater.wire.reasons import PACKET_TOO_LARGE

log = logging.getLogger("headwater.server")

SOME: Final = 16
"""Waiting messages that are given up between two looks at the clock."""


class _GivingUp(BackgroundTask):
    """What was on its way in a session that has ended."""

    def __init__(
        self, delivering: Delivering, session: Session, flights: list[Flight], waiting: deque[Delivery]
    ) -> None:
        self.delivering = delivering
        self.session = session
        self.flights = flights
        self.waiting = waiting

    def piece(self) -> bool:
        delivering = self.delivering
        for flight in self.flights[-SOME:]:
            delivering.landed(flight)
        del self.flights[-SOME:]
        for _ in range(min(SOME, len(self.waiting))):
            delivering.dropped(self.session, self.waiting.popleft(), SESSION_ENDED)
        return bool(self.flights or self.waiting)


class Ending:
    def __init__(
        self,
        core: Core,
        access: Access,
        admission: Admission,
        delivering: Delivering,
        publishing: Publishing,
        sharing: Sharing,
        subscribing: Subscribing,
    ) -> None:
        self.core = core
        self.access = access
        self.admission = admission
        self.delivering = delivering
        self.publishing = publishing
        self.sharing = sharing
        self.subscribing = subscribing
        self.expiries: dict[Session, Timer] = {}
        self.wills: dict[Session, Timer] = {}

    def called_off(self, session: Session) -> None:
        """Its client is back: it neither expires nor publishes its will."""
        for timers in (self.expiries, self.wills):
            timer = timers.pop(session, None)
            if timer is not None:
                self.core.timers.cancel(timer)

    def wait(self, session: Session) -> None:
        """Its client has gone, and it is to outlive that."""
        core = self.core
        now = core.hot.now
        if session.will is not None:
            delay = min(session.will_delay, session.expiry_interval)
            if delay == 0:
                self.publish_will(session)
            else:
                self.publish_will_at(session, now + delay)
        if session.expiry_interval != FOR_EVER:
            self.expire_at(session, now + session.expiry_interval)
        if core.journal is not None:
            core.journal.session_changed(session)

    def publish_will_at(self, session: Session, when: float) -> None:
        session.will_at = when
        if self.core.wills is not None:
            self.core.wills.waits(session)
        self.wills[session] = self.core.timers.at(when, partial(self.publish_will, session))

    def expire_at(self, session: Session, when: float) -> None:
        session.expires_at = when
        self.expiries[session] = self.core.timers.at(when, partial(self._expire, session))

    def _expire(self, session: Session) -> None:
        self.core.stats.expired += 1
        self.remove(session)
        self.core.hooks.tell("client_expired", session.client_id)

    def publish_will(self, session: Session) -> None:
        """[MQTT-3.1.2-8] Publish a will now, once."""
        timer = self.wills.pop(session, None)
        if timer is not None:
            self.core.timers.cancel(timer)
        will = session.will
        self.access.quotas.set_will(session, None)
        if will is not None and self.core.journal is not None:
            self.core.journal.session_changed(session)
        if will is None:
            return
        if session.will_expiry is not None:
            will.expires_at = self.core.hot.now + session.will_expiry
        will = self.core.hooks.transform("will", will, session.client_id)
        publication = Publication(WILL, will, session)
        publication.address = "will"
        denied = self.admission.admit(publication)
        if denied is not None:
            log.debug("the will of %.200r to %.200r is dropped: %s", session.client_id, will.topic, denied.text)
            self.discarded(session)
        elif self.core.wills is None or not self.core.wills.holds(session, will):
            self.send(will, session.client_id)

    def send(self, will: Message, client_id: str) -> None:
        """Publish a will that was admitted."""
        self.publishing.route(will, None)
        self.core.hooks.tell("will_sent", will, client_id)

    def discard_will(self, session: Session) -> None:
        """It is not to be published."""
        timer = self.wills.pop(session, None)
        if timer is not None:
            self.core.timers.cancel(timer)
        self.access.quotas.set_will(session, None)
        self.discarded(session)
        if self.core.journal is not None:
            self.core.journal.session_changed(session)

    def discarded(self, session: Session) -> None:
        """Other nodes need not know its will any more."""
        if self.core.wills is not None:
            self.core.wills.discarded(session)

    def check_will(self, channel: Channel, will: Will) -> Refusal | None:
        """When it is set: as a PUBLISH of its client, as far as that cannot change until it is published."""
        publication = Publication(CLIENT, will_message(will, channel.client_id), None)
        publication.max_qos = channel.max_qos
        denied = self.admission.check(publication)
        if denied is not None:
            return Refusal(denied.reason, f"the will: {denied.text}")
        if self.admission.is_too_large(will.payload):
            return Refusal(PACKET_TOO_LARGE, "the will's payload is too large")
        return None

    def remove(self, session: Session) -> None:
        """The session ends: its subscriptions and messages go, a will that waits is published."""
        core = self.core
        timer = self.expiries.pop(session, None)
        if timer is not None:
            core.timers.cancel(timer)
        if core.sessions.get(session.client_id) is session:
            del core.sessions[session.client_id]
            if core.gate is not None:
                core.gate.ended(session)
        self.access.quotas.left(session)
        back = self.sharing.take_back(session, True)
        self.subscribing.remove_all(session)
        self.sharing.again(back)
        if core.hooks.listens("qos_dropped"):
            for packet_id in session.outbound.flights:
                core.hooks.tell("qos_dropped", session.client_id, packet_id)
        flights = list(session.outbound.flights.values())
        self.publish_will(session)
        if core.journal is not None:
            core.journal.session_ended(session)
        core.do(_GivingUp(self.delivering, session, flights, session.outbound.clear()))
