"""Who somebody is by what it shows: a password or a token, checked by a thread when its turn has come.

    password, token  ->  a refusal, if that needs no look  ->  a place (verifying.py)  ->  a verdict, on the loop

Nothing here is a coroutine, because a flood of logins would be a flood of tasks, whose steps all others wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headwater.node.access.limits import host_of
from headwater.node.access.passwords import PasswordFile
from headwater.node.access.settings import AccessSettings
from headwater.node.access.tokens import Identity, TokenError, Tokens, looks_like_token
from headwater.node.access.verifying import Overloaded, RecentSuccesses, Standing, Verifying, Waiter
from headwater.node.hooks import Refusal
from headwater.node.plane.channel import Channel
from headwater.node.protocol.core import Core
from headwater.node.protocol.deciding import Answer
from headwater.web.addresses import network_of
from headwater.wire.packets import Connect
from headwater.wire.reasons import SERVER_BUSY

Known = Callable[[Channel, Identity], Refusal | None]
"""Told of who it is; what speaks against it all the same."""
Failed = Callable[[Channel, Connect, str, str | None], Refusal]
"""Told of what was wrong, and whose password it was to be, if it was to be one."""


class Logins:
    def __init__(
        self, core: Core, verifying: Verifying, settings: AccessSettings, known: Known, failed: Failed
    ) -> None:
        self._core = core
        self._verifying = verifying
        self._known = known
        self._failed = failed
        self.standing = Standing(settings.ban_window)
        self.use(settings, None, None)

    def use(self, settings: AccessSettings, passwords: PasswordFile | None, tokens: Tokens | None) -> None:
        """From now on. Which passwords were right is forgotten; from where users came in is not."""
        self._passwords = passwords
        self._tokens = tokens
        self._recent = RecentSuccesses(settings.password_cache_seconds)
        self.standing.seconds = settings.ban_window

    # ---- passwords ---------------------------------------------------------------------------------------------

    def password(self, channel: Channel, packet: Connect, user: str, password: bytes | None) -> Answer:
        if not password or self._passwords is None:
            return self._failed(channel, packet, "not a token" if password else "no password", user)
        encoded = self._passwords.entries.get(user)
        if encoded is not None and self._recent.knows(user, encoded, password, self._core.hot.now):
            return self._known(channel, Identity(user, encoded=encoded))
        # An unknown user costs the same time as a known one, so that nobody can find out who there is.
        compared = encoded or self._passwords.typical
        judge = partial(self._judge_password, channel, packet, encoded, password)
        if not compared:
            return judge(lambda: False)
        return self._verifying.password(compared, password, self._waiter(channel, user), judge)

    def _judge_password(
        self, channel: Channel, packet: Connect, encoded: str | None, password: bytes, computed: Callable[[], bool]
    ) -> Refusal | None:
        user = packet.username or ""
        try:
            right = computed()
        except Overloaded:
            return _too_many()
        if encoded is None or not right:
            return self._failed(channel, packet, "wrong user name or password", user)
        if self._passwords is None or self._passwords.entries.get(user) != encoded:
            return Refusal(SERVER_BUSY, "the users have just changed")
        self._recent.add(user, encoded, password, self._core.hot.now)
        self.standing.succeeded(network_of(host_of(channel.address)), user)
        return self._known(channel, Identity(user, encoded=encoded))

    def still_holds(self, identity: Identity) -> bool:
        """Whether somebody's password is the one with which it came in."""
        user = identity.username
        return (
            self._passwords is not None and user is not None and self._passwords.entries.get(user) == identity.encoded
        )

    # ---- tokens ------------------------------------------------------------------------------------------------

    def takes_token(self, password: bytes) -> bool:
        """Whether this is to be a token, and tokens are taken."""
        return self._tokens is not None and looks_like_token(password)

    def token(self, channel: Channel, packet: Connect, token: bytes) -> Answer:
        assert self._tokens is not None
        judge = partial(self._judge_token, channel, packet)
        return self._verifying.run(partial(self._tokens.verify, token), self._waiter(channel, ""), judge)

    def _judge_token(self, channel: Channel, packet: Connect, computed: Callable[[], Identity]) -> Refusal | None:
        try:
            identity = computed()
        except Overloaded:
            return _too_many()
        except TokenError as error:
            return self._failed(channel, packet, f"token: {error}", None)
        return self._known(channel, identity)

    def _waiter(self, channel: Channel, user: str) -> Waiter:
        network = network_of(host_of(channel.address))
        trusted = self.standing.is_trusted(network, user, self._core.hot.now)
        return Waiter(network, trusted, channel.has_hung_up)


def _too_many() -> Refusal:
    return Refusal(SERVER_BUSY, "too many clients connect at once")
