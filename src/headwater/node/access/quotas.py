"""What sessions have the broker keep, beside messages: in total, and by user.

Theory. A client id, a user name, a topic filter, a will, a topic alias: each is the client's choice, up to 64 KiB or
the size of a packet, and stays as long as a session does. So all of them count, in bytes as they are in memory, with
what the objects around them take; where there is no room, what asks for more is refused. Sums are kept as things come
and go, by user as well, so that a refusal costs no more than a look-up. A session knows what it counts with
(`Session.kept_bytes`) and takes that along when another user connects to it. What is here already may exceed a bound
that was lowered; it stays.

Clients without a user name are bounded together only. Retained messages have sums of their own (routing/retained.py).
"""

from __future__ import annotations

from typing import Final

from headwater.message import Message, Subscription, text_size
from headwater.node.access.settings import AccessSettings
from headwater.routing.conditions.condition import size_of
from headwater.session.session import Session
from headwater.session.waiting import UserQueues

SESSION_SIZE: Final = 1344
"""Bytes of the objects of a session (measured, compiled, as what follows)."""
SUBSCRIPTION_SIZE: Final = 416
"""Of a subscription, with its places in the session and in the tree of filters."""
RECEIVED_SIZE: Final = 64
"""Of a packet id in a set."""
FREE_IDS: Final = 16
"""Packet ids of QoS 2 messages that a session may have open without being counted."""


def subscription_size(subscription: Subscription) -> int:
    """The filter is there as it was written, and level by level; that of a shared one also in its two parts."""
    texts = 2 if subscription.share is None else 4
    return SUBSCRIPTION_SIZE + texts * text_size(subscription.name) + size_of(subscription.condition)


def session_size(client_id: str, username: str | None) -> int:
    return SESSION_SIZE + text_size(client_id) + (0 if username is None else text_size(username))


class Usage:
    """What one user has."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.subscriptions = 0
        self.used = 0
        self.queues = UserQueues(0)


class Quotas:
    def __init__(self, settings: AccessSettings, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.users: dict[str, Usage] = {}
        self.use(settings)

    def use(self, settings: AccessSettings) -> None:
        self.max_sessions = settings.max_sessions_per_user
        self.max_subscriptions = settings.max_subscriptions_per_user
        self.limit_per_user = settings.max_session_memory_per_user
        self.max_queued_bytes = settings.max_queued_bytes_per_user
        for usage in self.users.values():
            usage.queues.limit = self.max_queued_bytes

    # ---- bytes -------------------------------------------------------------------------------------------------

    def has_room(self, username: str | None, size: int) -> bool:
        """Whether the user may have so many bytes more kept."""
        if size <= 0:
            return True
        if self.used + size > self.limit:
            return False
        if username is None or not self.limit_per_user:
            return True
        usage = self.users.get(username)
        return (0 if usage is None else usage.used) + size <= self.limit_per_user

    def keep(self, session: Session, size: int) -> bool:
        """Count so many bytes more for a session; False: there is no room, and nothing is counted."""
        if not self.has_room(session.username, size):
            return False
        self.count(session, size)
        return True

    def count(self, session: Session, size: int) -> None:
        """The same whether there is room or not; less, if `size` is negative."""
        if session.counted:
            session.kept_bytes += size
            self._count(session.username, size)

    def _count(self, username: str | None, size: int) -> None:
        self.used += size
        if username is not None:
            self.users[username].used += size

    # ---- sessions ----------------------------------------------------------------------------------------------

    def joined(self, session: Session, before: str | None) -> None:
        """The session is its user's now; `before` it was somebody else's, or it is new."""
        if session.counted:
            if before == session.username:
                return
            kept, base = session.kept_bytes, session_size(session.client_id, before)
            self._part(session, before)
        else:
            kept = base = 0
        session.counted = True
        if session.username is not None:
            usage = self.users.get(session.username)
            if usage is None:
                usage = self.users[session.username] = Usage()
                usage.queues.limit = self.max_queued_bytes
            session.outbound.move_to(usage.queues)
            usage.sessions[session.client_id] = session
            usage.subscriptions += len(session.subscriptions)
        self.count(session, kept - base + session_size(session.client_id, session.username))

    def restored(self, session: Session) -> None:
        """A session was on disk, with all that it has; it is not refused anything."""
        self.joined(session, None)
        self.set_will(session, session.will)
        while len(session.received) > session.received_room:
            self.count(session, session.received_room * RECEIVED_SIZE)
            session.received_room *= 2
        self.count(session, sum([subscription_size(each) for each in session.subscriptions.values()]))

    def left(self, session: Session) -> None:
        """The session has ended; what is still to be taken apart counts no more."""
        if session.counted:
            self._part(session, session.username)

    def _part(self, session: Session, username: str | None) -> None:
        self._count(username, -session.kept_bytes)
        session.kept_bytes = 0
        session.counted = False
        usage = None if username is None else self.users.get(username)
        if usage is not None and username is not None:
            session.outbound.move_to(None)
            usage.sessions.pop(session.client_id, None)
            usage.subscriptions -= len(session.subscriptions)
            if not usage.sessions:
                del self.users[username]

    def room_for_session(self, username: str | None, client_id: str) -> bool:
        usage = None if username is None else self.users.get(username)
        if not self.max_sessions or usage is None:
            return True
        return len(usage.sessions) < self.max_sessions or client_id in usage.sessions

    # ---- what they have ----------------------------------------------------------------------------------------

    def room_for_subscription(self, session: Session, subscription: Subscription) -> bool:
        usage = None if session.username is None else self.users.get(session.username)
        if self.max_subscriptions and usage is not None and usage.subscriptions >= self.max_subscriptions:
            return False
        return self.has_room(session.username, subscription_size(subscription))

    def subscribed(self, session: Session, subscription: Subscription) -> None:
        """The session has one subscription more."""
        self._subscribed(session, 1, subscription_size(subscription))

    def unsubscribed(self, session: Session, subscription: Subscription) -> None:
        self._subscribed(session, -1, -subscription_size(subscription))

    def _subscribed(self, session: Session, number: int, size: int) -> None:
        if session.counted:
            self.count(session, size)
            if session.username is not None:
                self.users[session.username].subscriptions += number

    def room_for_another(self, session: Session, old: Subscription, new: Subscription) -> bool:
        """Whether a subscription may take the place of an older one with the same filter."""
        return self.has_room(session.username, subscription_size(new) - subscription_size(old))

    def replaced(self, session: Session, old: Subscription, new: Subscription) -> None:
        self.count(session, subscription_size(new) - subscription_size(old))

    def set_will(self, session: Session, will: Message | None) -> None:
        """The session has this will now, or none; whether there is room was asked before."""
        size = 0 if will is None else will.size()
        self.count(session, size - session.will_bytes)
        session.will_bytes = size
        session.will = will

    def room_for_received(self, session: Session) -> bool:
        """Whether one more QoS 2 message may be open. The set of their ids grows by doubling, and does not shrink."""
        if len(session.received) < session.received_room:
            return True
        if not self.keep(session, session.received_room * RECEIVED_SIZE):
            return False
        session.received_room *= 2
        return True

    def none_received(self, session: Session) -> None:
        """No QoS 2 message is open: give back what many needed."""
        if session.received_room > FREE_IDS:
            self.count(session, (FREE_IDS - session.received_room) * RECEIVED_SIZE)
            session.received_room = FREE_IDS
            session.received = set()
