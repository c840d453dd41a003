"""The retained messages that new subscriptions get, as fast as the client takes them.

Theory. A SUBSCRIBE is answered at once; the retained messages of its filters follow, found by a walk over the topics
that can stop at any time (routing/topic_tree.py). A message is looked up when it is sent, so it is its topic's last
one. The walk goes on while the socket takes everything, nothing waits in the session, and the window has room for what
comes next; else it waits for the socket, or for acknowledgements. So the queue stays free for what is published
meanwhile, which goes first, and no retained message is ever dropped for want of room. What the session holds is the
subscriptions that are not served yet and one place in the tree: nothing that grows with the topics.

Order. A message that is published meanwhile must not be followed by an older retained one of its topic. So who is still
to get the retained one gets it right before the newer one, and not again: such topics are noted (`ahead`) until the
filter is served. Beyond `AHEAD` of them, or without memory for them, a retained message may come once more, behind
newer ones, with RETAIN set.

A session that outlives its connection keeps its place, and gets the rest when its client is back. On disk there is only
that a subscription has not got everything; after a restart its walk begins again, so that some may come twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from headwater.message import Delivery, Message, Subscription
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.node.protocol.delivering import Delivering
from headwater.routing.topic_tree import Walk
from headwater.session.connection import CONNECTED
from headwater.session.session import Session
from headwater.session.waiting import DROP_OLDEST, Budget

LOOKS: Final = 32
"""Topics that are looked at between two looks at the clock."""
SOME: Final = 8
"""Messages that are sent between two looks at the clock."""
MUCH: Final = 65536
"""Bytes after which the socket is asked whether it takes them."""
AHEAD: Final = 10_000
"""Topics of one session that are noted at most, because a message went ahead of the walk."""
NOTE: Final = 128
"""Bytes that each is counted with, beside the topic's length."""
RETRY: Final = 0.1
"""Seconds until a session that waits for others' memory looks again."""

DONE: Final = 0
MORE: Final = 1
UNREAD: Final = 2
FULL: Final = 3


class PendingRetained:
    """What a session is still to get: the walk is that of the first subscription."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.subscriptions: OrderedDict[str, Subscription] = OrderedDict()  # in which the first is found at once
        self.walk: Walk | None = None
        self.ready: list[str] = []
        """Topics that the walk has found, the next one last."""
        self.ahead: dict[str, set[str]] = {}
        """By filter, the topics whose message was sent before the walk came there."""
        self.brought = 0
        self.brought_bytes = 0
        self.worker: BackgroundTask | None = None
        """Who goes on with it; None: it waits for acknowledgements, or for its client."""
        self.retries = False

    def first(self) -> Subscription:
        return next(iter(self.subscriptions.values()))

    def add(self, subscription: Subscription) -> None:
        """All messages of this subscription are to be sent, from the beginning."""
        self.remove(subscription.filter)
        self.subscriptions[subscription.filter] = subscription

    def remove(self, filter: str) -> None:
        if filter not in self.subscriptions:
            return
        if self.first().filter == filter:
            self.walk = None
            self.ready = []
        del self.subscriptions[filter]
        topics = self.ahead.pop(filter, None)
        if topics is not None:
            self.brought -= len(topics)
            self._count(-sum([NOTE + len(topic) for topic in topics]))

    def has_to_come(self, subscription: Subscription, topic: str) -> bool:
        """Whether a topic that matches this subscription, which is one of these, is still to be sent."""
        if topic in self.ahead.get(subscription.filter, ()):
            return False
        if self.walk is None or self.first() is not subscription:
            return True
        return topic in self.ready or self.walk.will_find(topic)

    def bring_ahead(self, filter: str, topic: str) -> None:
        """The topic's message was sent before its turn came."""
        size = NOTE + len(topic)
        if self.brought < AHEAD and self.budget.used + size <= self.budget.limit:
            self.ahead.setdefault(filter, set()).add(topic)
            self.brought += 1
            self._count(size)

    def clear(self) -> None:
        self.subscriptions = OrderedDict()
        self.ahead = {}
        self.brought = 0
        self._count(-self.brought_bytes)
        self.walk = None
        self.ready = []

    def _count(self, size: int) -> None:
        self.brought_bytes += size
        self.budget.used += size


def pending_of(session: Session) -> PendingRetained | None:
    return cast("PendingRetained | None", session.pending_retained)


class _Work(BackgroundTask):
    """Goes on with what a session is to get, when its client has acknowledged or read something."""

    def __init__(self, sender: RetainedSender, channel: Channel, session: Session, pending: PendingRetained) -> None:
        self.sender = sender
        self.channel = channel
        self.session = session
        self.pending = pending

    def piece(self) -> bool:
        if self.pending.worker is not self:
            return False
        result = self.sender.step(self.channel, self.session)
        if result == UNREAD:
            self.channel.waits = self
        return result == MORE

    def failed(self) -> None:
        self.sender.core.crashed(self.channel)


class RetainedSender:
    def __init__(self, core: Core, delivering: Delivering, may_still_publish: Callable[[Message], bool]) -> None:
        self.core = core
        self.may_still_publish = may_still_publish
        """Whether who retained a message could do so today."""
        self.delivering = delivering
        self.placing = False

    # ---- what is owed ------------------------------------------------------------------------------------------

    def owe(self, session: Session, subscription: Subscription) -> None:
        """From now on the session is to get this subscription's retained messages."""
        pending = pending_of(session)
        if pending is None:
            pending = PendingRetained(session.outbound.budget)
            session.pending_retained = pending
        pending.add(subscription)
        channel = cast("Channel | None", session.connection)
        if channel is not None:
            channel.held = True  # what comes now has to be looked at

    def replace(self, session: Session, old: Subscription, new: Subscription) -> None:
        """The subscription has other options now, and did not ask for retained messages again."""
        pending = pending_of(session)
        if pending is not None and old.retained_pending:
            pending.subscriptions[new.filter] = new

    def cancel(self, session: Session, subscription: Subscription) -> None:
        pending = pending_of(session)
        if pending is not None and subscription.retained_pending:
            pending.remove(subscription.filter)
            if not pending.subscriptions:
                self._ended(session)

    def forget(self, session: Session) -> None:
        """The session ends."""
        pending = pending_of(session)
        if pending is not None:
            pending.clear()
            pending.worker = None
            session.pending_retained = None

    def pause(self, session: Session) -> None:
        """Its client has gone."""
        pending = pending_of(session)
        if pending is not None:
            pending.worker = None

    def _served(self, session: Session, pending: PendingRetained, subscription: Subscription) -> None:
        pending.remove(subscription.filter)
        subscription.retained_pending = False
        if self.core.journal is not None:
            self.core.journal.subscribed(session, subscription.name, subscription)
        if not pending.subscriptions:
            self._ended(session)

    def _ended(self, session: Session) -> None:
        self.forget(session)
        channel = cast("Channel | None", session.connection)
        if channel is not None:
            self.delivering.drain(channel)

    # ---- sending -----------------------------------------------------------------------------------------------

    def resume(self, channel: Channel, session: Session) -> None:
        """There is room again, or the client is back."""
        pending = pending_of(session)
        if pending is not None and pending.worker is None:
            work = _Work(self, channel, session, pending)
            pending.worker = work
            self.core.background.add(work)  # many may acknowledge in one turn

    def take_over(self, session: Session, worker: BackgroundTask) -> None:
        """This task goes on with it from now on."""
        pending = pending_of(session)
        if pending is not None:
            pending.worker = worker

    def step(self, channel: Channel, session: Session) -> int:
        """Look for some, or send some. MORE: go on; UNREAD: go on when the client has read; FULL: when it has
        acknowledged something (`resume`); DONE: nothing is left."""
        pending = pending_of(session)
        if pending is None or channel.session is not session:
            return DONE
        if channel.backlog_size or channel.congested:
            return UNREAD
        outbound = session.outbound
        if outbound.queue or outbound.unsent:
            return self._wait(session, pending)
        subscription = pending.first()
        walk = pending.walk
        if walk is None:
            walk = pending.walk = self.core.router.retained.walk(subscription.filter)
        if not pending.ready:
            pending.ready = walk.some(LOOKS)
            pending.ready.reverse()
        result = self._send_some(channel, session, pending, subscription)
        if result == MORE and not pending.ready and walk.is_done:
            self._served(session, pending, subscription)
            return MORE if session.pending_retained is pending else DONE
        return result

    def _send_some(
        self, channel: Channel, session: Session, pending: PendingRetained, subscription: Subscription
    ) -> int:
        ready = pending.ready
        outbound = session.outbound
        ahead = pending.ahead.get(subscription.filter)
        for _ in range(min(SOME, len(ready))):
            topic = ready[-1]
            delivery = None if ahead is not None and topic in ahead else self._delivery(session, subscription, topic)
            if delivery is None:
                ready.pop()
                continue
            if delivery.qos and not outbound.may_fly():
                return self._wait(session, pending)
            ready.pop()
            self._place(session, subscription, delivery)
            if channel.out_size > MUCH:
                self.core.hot.transmit(channel)
                if channel.state != CONNECTED:
                    return DONE
                if channel.backlog_size:
                    return UNREAD
        return MORE

    def _wait(self, session: Session, pending: PendingRetained) -> int:
        """For acknowledgements; if there are none to come, it is memory that others use."""
        pending.worker = None
        if not session.outbound.flights and not pending.retries:
            pending.retries = True
            self.core.timers.at(self.core.hot.now + RETRY, partial(self._retry, session, pending))
        return FULL

    def _retry(self, session: Session, pending: PendingRetained) -> None:
        pending.retries = False
        channel = cast("Channel | None", session.connection)  # perhaps another one by now
        if channel is not None and session.pending_retained is pending:
            self.delivering.drain(channel)

    def _delivery(self, session: Session, subscription: Subscription, topic: str) -> Delivery | None:
        """The topic's message for this subscription; None: there is none."""
        core = self.core
        message = core.router.retained.alive(topic, core.hot.now)
        if message is None or (subscription.no_local and message.publisher == session.client_id):
            return None
        if session.rights is not None and not session.rights.receives(topic):
            return None
        if message.owner is not None and not self.may_still_publish(message):
            return None
        if subscription.condition is not None and not core.conditions.holds_first(subscription, message):
            return None
        identifiers = [subscription.identifier] if subscription.identifier else None
        delivery = Delivery(message, min(message.qos, subscription.qos), True, identifiers)
        delivery.positions = subscription.positions
        return delivery

    def _place(self, session: Session, subscription: Subscription, delivery: Delivery) -> None:
        message = delivery.message
        if subscription.memory is not None:
            self.core.conditions.sent(subscription, message, self.core.hot.now)
        self.placing = True
        try:
            self.delivering.offer(session, delivery)
        finally:
            self.placing = False
        if session.connection is not None:
            self.core.hooks.tell("retain_published", session.connection, message)

    # ---- order -------------------------------------------------------------------------------------------------

    def before(self, session: Session, newer: Delivery) -> bool:
        """A message is about to go to the session: first the retained one of its topic, if the session is still to get
        it. False: there is no room for that one, and so none for both."""
        pending = pending_of(session)
        if pending is None or self.placing or newer.group is not None:
            return True
        topic = newer.message.topic
        retained = self.core.router.retained.get(topic)
        if retained is None or retained is newer.message:
            return True
        for subscribers in self.core.router.trie.match(topic):
            subscription = subscribers.get(session)
            if subscription is None or not subscription.retained_pending:
                continue
            if pending.has_to_come(subscription, topic):
                delivery = self._delivery(session, subscription, topic)
                if delivery is None:
                    continue
                if session.outbound.policy != DROP_OLDEST and not session.outbound.has_room(delivery):
                    return False
                self._place(session, subscription, delivery)
                pending.bring_ahead(subscription.filter, topic)
        return True
