"""What one user may have of the broker: sessions and subscriptions (retained messages: routing/retained.py). Clients
without a user name have no such bound; they are bounded together by the settings for all."""

from __future__ import annotations

from headwater.node.access.settings import AccessSettings
from headwater.session.session import Session


class Quotas:
    def __init__(self, settings: AccessSettings) -> None:
        self.sessions = settings.max_sessions_per_user
        self.subscriptions = settings.max_subscriptions_per_user
        self._users: dict[str, set[Session]] = {}

    def take_over(self, old: Quotas) -> None:
        """Go on counting where other bounds ended."""
        self._users = old._users

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
