"""Who may connect, and what they may do: what the rest of the broker asks of this package.

    CONNECT -> admit (bans, rates) -> authenticate (certificate, token, password, nobody) -> receive (ban, quota)
            -> established (rights, meter)

Theory. An identity is a user name, or none. It comes, in this order, from the client's certificate, from a token in the
password field, or from user name and password. Verifying goes on in threads; the client waits, the others do not. From
the identity follow the rights: an object that the connection and its session hold as long as the rules stay as they
are. `reload` reads all files again and, if all of them can be used, gives new rights to everybody, at once.

What is refused is logged with who and where from, never with what they sent as a secret.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from headwater.message import NEVER
from headwater.node.access.errors import AccessError, read_text
from headwater.node.access.limits import (
    ADDRESS,
    CLIENT,
    USER,
    AddressRates,
    Ban,
    Bans,
    Failures,
    Meter,
    host_of,
    shortened,
)
from headwater.node.access.logins import Logins
from headwater.node.access.passwords import PasswordFile, readable_by_others
from headwater.node.access.quotas import Quotas
from headwater.node.access.rights_book import ReceiveGate, RightsBook
from headwater.node.access.rules import RuleRights, RuleSet, parse_rules
from headwater.node.access.settings import AccessSettings
from headwater.node.access.tokens import Identity, Tokens
from headwater.node.access.verifying import Verifying
from headwater.node.bridge.inside import PREFIX, Inside
from headwater.node.hooks import Refusal
from headwater.node.plane.channel import METERED, Channel
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import Core
from headwater.node.protocol.deciding import Answer
from headwater.session.connection import CONNECTED
from headwater.session.session import Session
from headwater.web.addresses import is_within, network_of
from headwater.wire.packets import Connect
from headwater.wire.reasons import (
    BANNED,
    CLIENT_IDENTIFIER_NOT_VALID,
    CONNECTION_RATE_EXCEEDED,
    MESSAGE_RATE_TOO_HIGH,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
)

if TYPE_CHECKING:
    from headwater.node.protocol.subscribing import Subscribing

log = logging.getLogger("headwater.access")


class _Loaded:
    """What the files say. AccessError: one of them cannot be used."""

    def __init__(self, settings: AccessSettings) -> None:
        self.passwords: PasswordFile | None = None
        self.tokens: Tokens | None = None
        self.rules: RuleSet | None = None
        if settings.password_file:
            self.passwords = PasswordFile.load(settings.password_file)
            if readable_by_others(settings.password_file):
                log.warning("%s can be read by others; `chmod 600` it", settings.password_file)
        if settings.jwt_key_file:
            self.tokens = Tokens(settings)
        if settings.acl_file:
            self.rules = parse_rules(read_text(settings.acl_file, "file of rules"), settings.acl_file)


class Access:
    subscribing: Subscribing

    def __init__(self, core: Core, settings: AccessSettings) -> None:
        self.core = core
        self.bans = Bans()
        self.refused_publishes = 0
        """Messages that were refused because their publisher may not publish there."""
        self.verifying = Verifying(settings.verify_threads, settings.max_verifying)
        self._identities: dict[Channel, Identity] = {}
        self._expiries: dict[Channel, Timer] = {}
        self.logins = Logins(core, self.verifying, settings, self.known, self.failed)
        self.rights = RightsBook()
        self.generation = 0
        """Another number whenever rights that were given before may not be the same any more."""
        self.changed: Callable[[], None] = _nothing
        """Called after the generation or the bans have changed."""
        self.quotas = Quotas(settings, core.config.max_session_memory)
        self._use(settings, _Loaded(settings))

    def _use(self, settings: AccessSettings, loaded: _Loaded) -> None:
        self.settings = settings
        self.generation += 1
        self.logins.use(settings, loaded.passwords, loaded.tokens)
        self.rights.use(settings, loaded.rules)
        self._exempt = tuple(settings.ban_exempt)
        self._rates = AddressRates(settings.connection_rate, settings.connection_burst)
        self._failures = Failures(settings.ban_window)
        self._metered = bool(settings.message_rate or settings.byte_rate)
        self.quotas.use(settings)
        retained = self.core.router.retained
        retained.max_messages_per_user = settings.max_retained_per_user
        retained.max_bytes_per_user = settings.max_retained_bytes_per_user
        self.verifying.use(settings.verify_threads, settings.max_verifying)
        if self.core.router.gate is None and (loaded.rules is not None or loaded.tokens is not None):
            self.core.router.use_gate(ReceiveGate())
        self.changed()

    # ---- CONNECT -----------------------------------------------------------------------------------------------

    def admit(self, channel: Channel, packet: Connect) -> Refusal | None:
        """Before anybody is asked for a password: bans, and how often this address connects."""
        if isinstance(channel.entrance, Inside):
            return None
        if packet.client_id.startswith(PREFIX):
            return Refusal(CLIENT_IDENTIFIER_NOT_VALID, f"{PREFIX} is for bridges")
        if self.is_address_banned(channel):
            return Refusal(BANNED)
        if not channel.is_known_by_user and self._is_banned(CLIENT, packet.client_id):
            return Refusal(BANNED)  # `receive` would refuse it too, but a password may be computed until then
        if self.settings.connection_rate:
            network = network_of(host_of(channel.address))
            if not self._rates.take(network, self.core.hot.now):
                return Refusal(CONNECTION_RATE_EXCEEDED)
        return None

    def is_address_banned(self, channel: Channel) -> bool:
        return self._is_banned(ADDRESS, network_of(host_of(channel.address)))

    def _is_banned(self, kind: str, value: str | None) -> bool:
        return bool(value) and bool(self.bans) and self.bans.find(kind, value or "", self.core.hot.now) is not None

    def authenticate(self, channel: Channel, packet: Connect) -> Answer:
        """Who this is: None when that is settled, a refusal, or somebody to wait for."""
        if isinstance(channel.entrance, Inside):
            return self.known(channel, Identity(None))
        if channel.identity is not None:
            return self.known(channel, Identity(channel.identity))
        password = packet.password
        asks = self._asks(channel)
        if asks and password is not None and self.logins.takes_token(password):
            return self.logins.token(channel, packet, password)
        if packet.username is not None and asks:
            if self._is_banned(USER, packet.username):
                return Refusal(BANNED)
            return self.logins.password(channel, packet, packet.username, password)
        if packet.username is None and self.anonymous(channel):
            return self.known(channel, Identity(None))
        if not asks and self.anonymous(channel):
            return self.known(channel, Identity(packet.username))
        return Refusal(NOT_AUTHORIZED, "anonymous clients are not allowed here")

    def anonymous(self, channel: Channel) -> bool:
        """Whether nobody need say who it is here: where that is stated; where nothing is, only on this machine and
        only if no passwords or tokens are asked for."""
        allowed = channel.allow_anonymous
        return bool(allowed) or (allowed is None and channel.loopback and not self._asks(channel))

    def _asks(self, channel: Channel) -> bool:
        """Whether clients have to show that they are who they say."""
        return self.settings.authenticates and channel.use_passwords

    def known(self, channel: Channel, identity: Identity) -> Refusal | None:
        """The identity is certain."""
        channel.username = identity.username
        self._identities[channel] = identity
        return None

    def introduced(self, channel: Channel) -> Identity:
        """Who it is that was let in and makes no session."""
        return self._identities.pop(channel, None) or Identity(channel.username)

    def receive(self, channel: Channel) -> Refusal | None:
        """All agree on who it is, and its client id is the one that it will have; what speaks against it now is a ban,
        a quota, or that the id is another user's."""
        name = channel.username
        if self._is_banned(USER, name) or self._is_banned(CLIENT, channel.client_id):
            return Refusal(BANNED)
        if not self._may_use_id(channel):
            return Refusal(CLIENT_IDENTIFIER_NOT_VALID, "this client id is not yours")
        if not self.quotas.room_for_session(name, channel.client_id):
            return Refusal(QUOTA_EXCEEDED, "this user has as many sessions as it may have")
        return None

    def _may_use_id(self, channel: Channel) -> bool:
        """Whether the client id may be this user's. Who gives none is given one that nobody has."""
        client_id = channel.client_id
        if not client_id or isinstance(channel.entrance, Inside):
            return True
        if self.settings.client_id_pattern and not self._fits(client_id, channel.username):
            return False
        session = self.core.sessions.get(client_id) if self.settings.client_ids == "owned" else None
        return session is None or session.username == channel.username

    def _fits(self, client_id: str, user: str | None) -> bool:
        if not user:
            return False
        pattern = self.settings.client_id_pattern
        text = pattern.removesuffix("*").replace("%u", user)
        return client_id.startswith(text) if pattern.endswith("*") else client_id == text

    def failed(self, channel: Channel, packet: Connect, why: str, user: str | None = None) -> Refusal:
        """What was shown is wrong: that is counted, and may become a ban. `user`: whose password it was to be."""
        settings = self.settings
        now = self.core.hot.now
        log.info("%r as %r (%s) is refused: %s", packet.client_id, packet.username, channel.address, why)
        self.failed_at(channel.address)
        if user is None:
            self._count_failure(CLIENT, packet.client_id, settings.ban_user_failures, now)
        else:
            self._count_failure(USER, user, settings.ban_user_failures, now)
        return Refusal(NOT_AUTHORIZED)

    def failed_at(self, address: str) -> None:
        """Somebody there has shown what is wrong."""
        host = host_of(address)
        self.logins.standing.failed(network_of(host), self.core.hot.now)
        if not is_within(host, self._exempt):
            self._count_failure(ADDRESS, network_of(host), self.settings.ban_failures, self.core.hot.now)

    def _count_failure(self, kind: str, value: str, limit: int, now: float) -> None:
        if not limit or not value or self._failures.add(kind, value, now) < limit:
            return
        self._failures.forget(kind, value)
        self.bans.add(kind, value, now + self.settings.ban_seconds, "too many failures")
        self.changed()
        log.warning("%s %r is banned for %g s: too many failures", kind, value, self.settings.ban_seconds)

    # ---- connections -------------------------------------------------------------------------------------------

    def established(self, channel: Channel, session: Session, before: str | None) -> None:
        """The channel is connected to its session, whose user was `before` another one perhaps."""
        identity = self._identities.get(channel)
        if identity is None:
            identity = self._identities[channel] = Identity(channel.username)  # a hook has found out who it is
        now = self.core.hot.now
        self.quotas.joined(session, before)
        self._give_rights(channel, session, identity)
        if self._metered and not session.client_id.startswith(PREFIX):
            settings = self.settings
            channel.meter = Meter(settings.message_rate, settings.byte_rate, settings.rate_burst, now)
        if identity.seconds is not None:
            self._expiries[channel] = self.core.timers.at(now + identity.seconds, partial(self._expired, channel))

    def restored(self, session: Session) -> None:
        """A session that was on disk. Rights that a token gave are not known until its client comes with another."""
        self._give_rights(None, session, Identity(session.username))

    def ended(self, channel: Channel) -> None:
        self._identities.pop(channel, None)
        timer = self._expiries.pop(channel, None)
        if timer is not None:
            self.core.timers.cancel(timer)

    def _expired(self, channel: Channel) -> None:
        self._expiries.pop(channel, None)
        if channel.state == CONNECTED:
            self.core.disconnect(channel, NOT_AUTHORIZED, "the token has expired")

    # ---- rights ------------------------------------------------------------------------------------------------

    def _give_rights(self, channel: Channel | None, session: Session, identity: Identity) -> None:
        rights = self.rights.of(identity, session.client_id)
        if channel is not None:
            if not channel.use_rules:
                rights = None
            channel.rights = rights
        if session.rights is rights:
            return
        session.rights = rights
        self.core.router.session_changed([each.filter for each in session.subscriptions.values()])
        for name, subscription in list(session.subscriptions.items()):
            if subscription.share is None or rights is None or rights.may_subscribe(subscription.filter, True):
                continue
            del session.subscriptions[name]
            self.subscribing.remove(session, subscription)

    def reload(self, settings: AccessSettings) -> None:
        """Read all files again; live connections have their new rights when this returns, and those whose password is
        another one now, or whose user is gone, end. AccessError: a file cannot be used, and everything is as before."""
        loaded = _Loaded(settings)
        had_rules = self.rights.rules is not None
        self._use(settings, loaded)
        for session in list(self.core.sessions.values()):
            channel = cast("Channel | None", session.connection)
            identity = None if channel is None else self._identities.get(channel)
            if channel is None and isinstance(session.rights, RuleRights) and session.rights.of_token:
                continue  # the token is not here any more; its rights are those of the session until another comes
            if channel is None and session.rights is None and had_rules:
                continue  # it was last connected where there are no rules
            self._give_rights(channel, session, identity or Identity(session.username))
            if channel is not None:
                if identity is not None and not self._still_valid(identity):
                    self.core.disconnect_soon(channel, NOT_AUTHORIZED, "the password has changed")
                now = self.core.hot.now
                rates = settings.message_rate, settings.byte_rate, settings.rate_burst
                metered = self._metered and not session.client_id.startswith(PREFIX)
                channel.meter = Meter(*rates, now) if metered else None
        self.core.router.feed.everything_changed()

    def _still_valid(self, identity: Identity) -> bool:
        if identity.encoded is None or identity.username is None:
            return True
        return self.logins.still_holds(identity)

    # ---- rates -------------------------------------------------------------------------------------------------

    def used(self, channel: Channel, size: int, messages: int) -> None:
        """So much was read from a client that is metered."""
        now = self.core.hot.now
        wait = cast(Meter, channel.meter).used(size, messages, now)
        if wait <= 0:
            return
        if self.settings.rate_policy == "disconnect":
            self.core.disconnect_soon(channel, MESSAGE_RATE_TOO_HIGH)
        elif not channel.paused & METERED:
            self.core.pause(channel, METERED)
            self.core.timers.at(now + wait, partial(self.core.resume, channel, METERED))

    # ---- bans --------------------------------------------------------------------------------------------------

    def ban(self, kind: str, value: str, seconds: float | None, reason: str) -> Ban:
        """Refuse an address, user or client (id) from now on, and end its connections. None: until it is lifted."""
        now = self.core.hot.now
        self.generation += 1
        ban = self.bans.add(kind, value, NEVER if seconds is None else now + seconds, reason)
        self.changed()
        for channel in list(self.core.channels):
            found = {
                ADDRESS: network_of(host_of(channel.address)),
                USER: channel.username,
                CLIENT: channel.client_id,
            }[kind]
            if found is not None and shortened(found) == ban.value:
                self.core.disconnect_soon(channel, NOT_AUTHORIZED, "banned")
        return ban

    def stop(self) -> None:
        self.verifying.stop()


def _nothing() -> None:
    pass


__all__ = ["Access", "AccessError"]
