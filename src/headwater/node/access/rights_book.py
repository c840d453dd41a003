"""What identities may do, by the rules of today: looked up when a client connects, and for what it has retained.

Where no rule names client ids, all connections of a user share one object of rights, and with it the answers that are
remembered (session/rights.py).
"""

from __future__ import annotations

from typing import Final, cast

from headwater.message import Message
from headwater.node.access.rules import Rule, RuleRights, RuleSet, filled_in
from headwater.node.access.settings import AccessSettings
from headwater.node.access.tokens import Identity
from headwater.node.bridge.inside import PREFIX
from headwater.routing.router import Gate
from headwater.session.rights import Remembered, Rights
from headwater.session.session import Session

MAX_SHARED_RIGHTS: Final = 4096
"""Users whose rights are kept for their next connection; those in use are kept by their connections."""


class ReceiveGate(Gate):
    """Routes lead only to sessions that may receive the topic."""

    def may_receive(self, session: object, topic: str) -> bool:
        rights = cast(Session, session).rights
        return rights is None or rights.receives(topic)


class RightsBook:
    def __init__(self) -> None:
        self.rules: RuleSet | None = None
        """None: everybody may do everything."""
        self._shared: dict[str | None, Rights] = {}
        self._remembered = Remembered()

    def use(self, settings: AccessSettings, rules: RuleSet | None) -> None:
        """These hold from now on; rights that were given before do not change."""
        self.settings = settings
        self.rules = rules
        self._shared.clear()

    def of(self, identity: Identity, client_id: str) -> Rights | None:
        """What an identity may do with this client id; None: everything."""
        if client_id.startswith(PREFIX):
            return None
        name = identity.username
        if identity.rules is not None:
            return self._rights(filled_in(identity.rules, name, client_id), True)
        rules = self.rules
        if rules is None:
            return None
        if rules.by_client:
            return self._rights(rules.of(name, client_id))
        rights = self._shared.get(name)
        if rights is None:
            if len(self._shared) >= MAX_SHARED_RIGHTS:
                self._shared.clear()
            rights = self._shared[name] = self._rights(rules.of(name, client_id))
        return rights

    def _rights(self, rules: list[Rule], of_token: bool = False) -> RuleRights:
        return RuleRights(rules, self.settings.acl_subscribe, of_token, self._remembered)

    def may_steer(self, rights: Rights | None, client_id: str) -> bool:
        """Whether who may publish to a guarded topic (`$headwater/…`) by its rights may really: where there are no
        rules nobody may, but bridges, whose topics were settled by the one who wrote the settings."""
        return rights is not None or client_id.startswith(PREFIX)

    def owner(self, publisher: Session | None) -> str | None:
        """Whose rights count, later, for a message that this session has retained; None: nobody's."""
        rights = None if publisher is None else publisher.rights
        if publisher is None or rights is None or not self.settings.acl_retained:
            return None
        if isinstance(rights, RuleRights) and rights.of_token:
            return None  # the token may be gone by then
        return publisher.username or ""

    def may_still_publish(self, message: Message) -> bool:
        """Whether who retained a message could do so today."""
        rights = self.of(Identity(message.owner or None), message.publisher)
        return rights is None or rights.publishes(message.topic.encode())
