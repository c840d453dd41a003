"""CONNECT, AUTH and DISCONNECT (3.1, 3.2, 3.14, 3.15).

    CONNECT -> checks -> guards (connect, authenticate or AUTH) -> session made or resumed -> CONNACK -> what waits

One with 64 KiB of client id and as much of user name takes 50 µs, most of it for decoding and hashing them: if there is
no time left behind the first, the others come in later turns (`connect_later`).
What CONNACK grants is in granting.py, how sessions and connections find each other in attaching.py.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from functools import partial

from headwater.node.access.access import Access
from headwater.node.access.quotas import session_size
from headwater.node.access.tokens import Identity
from headwater.node.hooks import Refusal, give_up
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.protocol.attaching import Attaching
from headwater.node.protocol.core import Core
from headwater.node.protocol.deciding import Answer, Deciding, both
from headwater.node.protocol.delivering import SOME, Delivering
from headwater.node.protocol.ending import Ending
from headwater.node.protocol.granting import Granting
from headwater.node.protocol.sharing import Sharing
from headwater.node.protocol.strangers import connect_size
from headwater.session.connection import AUTHENTICATING, CLOSING, CONNECTED
from headwater.session.translate import will_message
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import V5, V31, Auth, Connack, Connect, Disconnect, Packet, Properties
from headwater.wire.reasons import (
    BAD_AUTHENTICATION_METHOD,
    CLIENT_IDENTIFIER_NOT_VALID,
    CONNACK_311,
    CONTINUE_AUTHENTICATION,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    QUOTA_EXCEEDED,
    REAUTHENTICATE,
    SERVER_BUSY,
    SUCCESS,
    USE_ANOTHER_SERVER,
)

log = logging.getLogger("headwater.server")


class _LongConnect(BackgroundTask):
    """The channel is busy meanwhile, and what is decided on counts as a stranger's."""

    def __init__(self, connecting: Connecting, channel: Channel, packet: Connect, size: int) -> None:
        self.connecting = connecting
        self.channel = channel
        self.packet = packet
        self.size = size
        self.is_hashed = False

    def piece(self) -> bool:
        channel = self.channel
        if not channel.busy or channel.state == CLOSING:
            return False  # it has gone
        if not self.is_hashed:
            self.is_hashed = True
            hash(self.packet.client_id)  # each text remembers its own
            hash(self.packet.username)
            return True
        core = self.connecting.core
        core.keeps(channel, -self.size)
        try:
            self.connecting.connect(channel, self.packet)
        except Exception:
            core.crashed(channel)
        if not self.connecting.waits(channel):
            core.go_on(channel)
        return False


class Connecting:
    def __init__(
        self,
        core: Core,
        access: Access,
        attaching: Attaching,
        deciding: Deciding,
        delivering: Delivering,
        ending: Ending,
        granting: Granting,
        sharing: Sharing,
    ) -> None:
        self.core = core
        self.access = access
        self.attaching = attaching
        self.deciding = deciding
        self.delivering = delivering
        self.ending = ending
        self.granting = granting
        self.sharing = sharing

    def packet(self, channel: Channel, packet: Packet) -> bool:
        """Deal with a packet if it is one of these."""
        if isinstance(packet, Connect):
            self.connect(channel, packet)
        elif isinstance(packet, Disconnect):
            self.disconnect(channel, packet)
        elif isinstance(packet, Auth):
            self.auth(channel, packet)
        else:
            return False
        return True

    # ---- CONNECT -----------------------------------------------------------------------------------------------

    def connect(self, channel: Channel, packet: Connect) -> None:
        channel.learn(packet)
        if self.core.config.terse:
            channel.wants_problem_information = False
        if channel.identity is not None or channel.authentication_method is not None:
            channel.username = channel.identity  # the one in CONNECT does not count; an exchange will say another
        core = self.core
        refusal = self.access.admit(channel, packet) or self._check(channel, packet)
        if refusal is None:
            refusal = core.hooks.allow("connect", channel, packet)
        if refusal is None and channel.authentication_method is not None:
            if not core.keeps(channel, connect_size(packet)):
                return
            channel.username = None  # until the exchange has proved who it is
            channel.pending_connect = packet
            channel.state = AUTHENTICATING
            self._challenge(channel, None if packet.properties is None else packet.properties.authentication_data)
            return
        answer = self.authenticate(channel, packet) if refusal is None else refusal
        if answer is None or isinstance(answer, Refusal):
            self._enter(channel, packet, None, answer)
        else:
            self._wait_for(channel, packet, answer)

    def connect_later(self, channel: Channel, packet: Connect) -> None:
        """The same in later turns."""
        size = connect_size(packet)
        if self.core.keeps(channel, size):
            self.core.be_busy(channel)
            self.core.background.add(_LongConnect(self, channel, packet, size))

    def _enter(self, channel: Channel, packet: Connect, auth_data: bytes | None, refusal: Refusal | None) -> None:
        if refusal is None and channel.is_known_by_user:
            channel.client_id = channel.username or ""
            if not channel.client_id:
                refusal = Refusal(NOT_AUTHORIZED, "clients are known by their user names here")
            elif channel.client_id.startswith("$"):
                refusal = Refusal(CLIENT_IDENTIFIER_NOT_VALID, "such ids are the broker's own")
        if refusal is None:
            refusal = self.access.receive(channel) or self._room(channel.client_id)
            refusal = refusal or self._check_memory(channel, packet)
        if refusal is not None:
            self._refused(channel, refusal)
        elif self.core.gate is None or self.core.gate.claim(channel, packet, auth_data):
            self._accept(channel, packet, auth_data)
        elif self.core.keeps(channel, connect_size(packet)):
            channel.state = AUTHENTICATING
            if not channel.busy:
                self.core.be_busy(channel)

    def claimed(self, channel: Channel, packet: Connect, auth_data: bytes | None, refusal: Refusal | None) -> None:
        """It may be served now, after it has waited for other nodes, or not at all."""
        if not channel.busy or channel.state != AUTHENTICATING:
            return  # it has gone
        core = self.core
        try:
            refusal = refusal or self._room(channel.client_id) or self._check_memory(channel, packet)
            if refusal is not None:
                self._refused(channel, refusal)
            else:
                self._accept(channel, packet, auth_data)
        except Exception:
            core.crashed(channel)
        core.go_on(channel)

    def waits(self, channel: Channel) -> bool:
        """Whether the answer to its CONNECT is still to come."""
        gate = self.core.gate
        return self.deciding.decides(channel) or (gate is not None and gate.waits(channel))

    def _check_memory(self, channel: Channel, packet: Connect) -> Refusal | None:
        """Whether what the session would have us keep has room: itself, if it is new, and its will."""
        session = self.core.sessions.get(channel.client_id)
        size = 0 if packet.will is None else will_message(packet.will, channel.client_id).size()
        if session is None or packet.clean_start:
            size += session_size(channel.client_id, channel.username)
        if session is not None and session.username == channel.username:
            size -= session.kept_bytes if packet.clean_start else session.will_bytes
        if self.access.quotas.has_room(channel.username, size):
            return None
        return Refusal(QUOTA_EXCEEDED, "no memory for what this session would keep (max_session_memory)")

    def _wait_for(self, channel: Channel, packet: Connect, answer: Awaitable[Refusal | None]) -> None:
        """The answer to CONNECT comes later: nothing else of this channel is dealt with until then."""
        if not self.core.keeps(channel, connect_size(packet)):
            give_up(answer)
            return
        channel.state = AUTHENTICATING
        if not channel.busy:
            self.core.be_busy(channel)
        self.deciding.start(channel, answer, partial(self._answered, channel, packet))

    def _answered(self, channel: Channel, packet: Connect, refusal: Refusal | None) -> None:
        if not channel.busy:
            return  # it has gone, or took too long
        core = self.core
        try:
            self._enter(channel, packet, None, refusal)
        except Exception:
            core.crashed(channel)
        if not self.waits(channel):
            core.go_on(channel)
        core.plane.wake()

    def _check(self, channel: Channel, packet: Connect) -> Refusal | None:
        config = self.core.config
        if config.server_reference:
            return Refusal(USE_ANOTHER_SERVER, "", config.server_reference)
        refusal = None if channel.is_known_by_user else self._room(packet.client_id)  # before anything is computed
        if refusal is not None:
            return refusal
        if not packet.client_id and not self._may_be_given_an_id(channel, packet):
            return Refusal(CLIENT_IDENTIFIER_NOT_VALID)
        will = packet.will
        return None if will is None else self.ending.check_will(channel, will)

    def _room(self, client_id: str) -> Refusal | None:
        """What speaks against one more connection, and perhaps session, with this id."""
        config = self.core.config
        if self.attaching.connected >= config.max_connections and not self._takes_over(client_id):
            return Refusal(SERVER_BUSY, "the server has as many connections as it may have")
        if len(self.core.sessions) >= config.max_sessions and client_id not in self.core.sessions:
            return Refusal(QUOTA_EXCEEDED, "the server has as many sessions as it may have")
        return None

    def _may_be_given_an_id(self, channel: Channel, packet: Connect) -> bool:
        if packet.version == V31 or (packet.version != V5 and not packet.clean_start):
            return False  # [MQTT-3.1.3-8 of 3.1.1]; 3.1 knows no empty id at all
        entrance = channel.entrance
        allowed = None if entrance is None else entrance.allow_empty_client_id
        return self.core.config.allow_empty_client_id if allowed is None else allowed

    def _takes_over(self, client_id: str) -> bool:
        session = self.core.sessions.get(client_id)
        return session is not None and session.connection is not None

    def authenticate(self, channel: Channel, packet: Connect) -> Answer:
        """Guards decide, or the files and settings of `access`; where there are both, both must agree."""
        core = self.core
        hooks = core.hooks
        if not hooks.listens("connect_authenticate"):
            return self.access.authenticate(channel, packet)
        answer = hooks.ask("connect_authenticate", channel, packet)
        if not self.access.settings.authenticates or isinstance(answer, Refusal):
            return answer
        return both(answer, self.access.authenticate(channel, packet))

    def refuse(self, channel: Channel, reason: int, text: str, server_reference: str | None = None) -> None:
        """A CONNACK that says no, in the client's version; silence where 3.1.1 has no code for it."""
        self.core.stats.refused += 1
        if channel.version == V5:
            properties = channel.problem(text)
            if server_reference:
                properties = properties or Properties()
                properties.server_reference = server_reference
            if not self.core.send(channel, Connack(False, reason, properties)):
                self.core.send(channel, Connack(False, reason))
        elif reason in CONNACK_311:
            self.core.send(channel, Connack(False, CONNACK_311[reason]))

    def _refused(self, channel: Channel, refusal: Refusal) -> None:
        if self.core.gate is not None:
            self.core.gate.refused(channel)
        if refusal.text:  # those without one were logged when they were found out, or come too often (bans, rates)
            log.info("%r (%s) is refused: %s", channel.client_id, channel.address, refusal.text)
        self.refuse(channel, refusal.reason, refusal.text, refusal.server_reference)
        self.core.close(channel, refusal.reason, with_will=False)  # [MQTT-3.2.2-7]

    # ---- AUTH --------------------------------------------------------------------------------------------------

    def auth(self, channel: Channel, packet: Auth) -> None:
        if channel.authentication_method is None:  # [MQTT-4.12.0-6]
            raise RemoteProtocolError(PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT")
        properties = packet.properties
        method = None if properties is None else properties.authentication_method
        if method != channel.authentication_method:  # [MQTT-4.12.0-5]
            raise RemoteProtocolError(PROTOCOL_ERROR, "the authentication method changed")
        expected = CONTINUE_AUTHENTICATION if channel.challenged else REAUTHENTICATE
        if packet.reason != expected:
            raise RemoteProtocolError(PROTOCOL_ERROR, f"AUTH with reason 0x{packet.reason:02X} is out of place")
        self._challenge(channel, None if properties is None else properties.authentication_data)

    def _challenge(self, channel: Channel, data: bytes | None) -> None:
        """Ask the guards for the next step of an exchange, before or after CONNACK [MQTT-4.12.0-2 … 4.12.1-2]."""
        again = channel.state == CONNECTED
        method = channel.authentication_method or ""
        answer = self.core.hooks.challenge(method, channel, data, again)
        if answer is None:
            answer = Refusal(BAD_AUTHENTICATION_METHOD)
        if not isinstance(answer, Refusal) and again and answer.done and answer.username != channel.username:
            answer = Refusal(NOT_AUTHORIZED, "a connection cannot become another user's")
        if isinstance(answer, Refusal):
            if answer.reason == NOT_AUTHORIZED:
                self.access.failed_at(channel.address)
            if again:
                self.core.disconnect(channel, answer.reason, answer.text)
            else:
                self._refused(channel, answer)
            return
        if answer.done and not again:
            self.access.known(channel, Identity(answer.username))
            packet = channel.pending_connect
            assert packet is not None
            channel.pending_connect = None
            channel.challenged = False
            self._enter(channel, packet, answer.data, None)
            return
        channel.challenged = not answer.done
        reason = SUCCESS if answer.done else CONTINUE_AUTHENTICATION
        properties = Properties(authentication_method=method, authentication_data=answer.data)
        self.core.send(channel, Auth(reason, properties))

    # ---- accepted ----------------------------------------------------------------------------------------------

    def _accept(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> None:
        core = self.core
        core.hooks.tell("session_establish", channel, packet)
        properties = self.granting.grants(channel, packet)
        if channel.version == V5 and channel.authentication_method is not None:
            properties.authentication_method = channel.authentication_method
            properties.authentication_data = auth_data
        session = self.attaching.take_over(channel, packet)
        present = session is not None and not session.is_unknown_to_client
        if session is None:
            session = self.attaching.new_session(channel.client_id)
        self.attaching.attach(channel, session, packet)
        core.promise(channel)
        if not self.granting.send(channel, present and packet.version != V31, properties):
            self._refused(channel, Refusal(PACKET_TOO_LARGE))  # it takes no packet that could say what we grant
            return
        core.watch_keep_alive(channel)
        core.presence_changed(session, True)
        session.outbound.connected(min(channel.receive_maximum, core.config.max_inflight))
        self.sharing.connected(channel, session)
        self.delivering.resend(channel, session, session.outbound.resume(SOME))
        self.delivering.drain(channel)
        core.hooks.tell("session_established", channel, present)

    # ---- the end -----------------------------------------------------------------------------------------------

    def disconnect(self, channel: Channel, packet: Disconnect) -> None:
        session = channel.session
        properties = packet.properties
        if session is not None and properties is not None and properties.session_expiry_interval is not None:
            if session.expiry_interval == 0 and properties.session_expiry_interval:
                raise RemoteProtocolError(PROTOCOL_ERROR, "a session that was to end cannot be kept")  # [3.14.2.2.2]
            session.expiry_interval = min(properties.session_expiry_interval, self.core.config.max_session_expiry)
        # [MQTT-3.14.4-3] Only a normal disconnection discards the will.
        self.core.close(channel, packet.reason, with_will=packet.reason != SUCCESS, linger=False)
