"""What one user may have of the broker: sessions, subscriptions, retained messages. Clients without a user name have
no such bound; they are bounded together by the settings for all."""

from __future__ import annotations

from headwater.node.access.settings import AccessSettings
from headwater.routing.retained import Retained
from headwater.session.session import Session


class Quotas:
    def __init__(self, settings: AccessSettings) -> None:
        self.sessions = settings.max_sessions_per_user
        self.subscriptions = settings.max_subscriptions_per_user
        self.retained = settings.max_retained_per_user
        self._users: dict[str, set[Session]] = {}
        self._owners: dict[str, str] = {}
        self._kept: dict[str, int] = {}

    def take_over(self, old: Quotas) -> None:
        """Go on counting where other bounds ended."""
        self._users, self._owners, self._kept = old._users, old._owners, old._kept

    # ---- sessions and their subscriptions ----------------------------------------------------------------------

    def joined(self, session: Session, before: str | None) -> None:
        """The session is its user's now; `before` it was somebody else's."""
        if before != session.username:
            self._part(session, before)
        if session.username is not None:
            self._users.setdefault(session.username, set()).add(session)

    def left(self, session: Session) -> None:
        self._part(session, session.username)

    def _part(self, session: Session, username: str | None) -> None:
        theirs = None if username is None else self._users.get(username)
        if theirs is not None and username is not None:
            theirs.discard(session)
            if not theirs:
                del self._users[username]

    def room_for_session(self, username: str | None, client_id: str) -> bool:
        if not self.sessions or username is None:
            return True
        theirs = self._users.get(username, set())
        return len(theirs) < self.sessions or any(session.client_id == client_id for session in theirs)

    def room_for_subscription(self, username: str | None) -> bool:
        if not self.subscriptions or username is None:
            return True
        theirs = self._users.get(username, set())
        return sum(len(session.subscriptions) for session in theirs) < self.subscriptions

    # ---- retained messages -------------------------------------------------------------------------------------

    def room_for_retained(self, username: str | None, topic: str, retained: Retained) -> bool:
        """Whether the user may keep a message here; replacing one of its own is not one more."""
        if not self.retained or username is None or self._owners.get(topic) == username:
            return True
        if self._kept.get(username, 0) >= self.retained:
            self._forget_gone(username, retained)
        return self._kept.get(username, 0) < self.retained

    def kept(self, username: str | None, topic: str) -> None:
        """A retained message is this user's now; None: it is nobody's, or gone."""
        if not self.retained:
            return
        before = self._owners.pop(topic, None)
        if before is not None:
            self._kept[before] -= 1
            if not self._kept[before]:
                del self._kept[before]
        if username is not None:
            self._owners[topic] = username
            self._kept[username] = self._kept.get(username, 0) + 1

    def _forget_gone(self, username: str, retained: Retained) -> None:
        """Messages that expired were not told of: count what is there."""
        for topic in [topic for topic, owner in self._owners.items() if owner == username]:
            if retained.get(topic) is None:
                self.kept(None, topic)
