"""Sessions and connections: a session is made or taken over by a new connection, and goes on, or ends, without it.

What becomes of a session without a connection is next door (ending.py).
"""

from __future__ import annotations

from typing import cast

from headwater.message import NEVER
from headwater.node.access.access import Access
from headwater.node.plane.channel import BUSY, Channel
from headwater.node.protocol.core import Core
from headwater.node.protocol.deciding import Deciding
from headwater.node.protocol.ending import Ending
from headwater.node.protocol.reporting import Reporting
from headwater.node.protocol.retained_sender import RetainedSender
from headwater.node.protocol.sharing import Sharing
from headwater.node.protocol.strangers import Strangers
from headwater.session.connection import CONNECTED
from headwater.session.outbound import Outbound
from headwater.session.session import Session
from headwater.session.translate import will_message
from headwater.wire.packets import V5, Connect
from headwater.wire.primitives import FOR_EVER
from headwater.wire.reasons import SESSION_TAKEN_OVER


class Attaching:
    def __init__(
        self,
        core: Core,
        access: Access,
        deciding: Deciding,
        ending: Ending,
        reporting: Reporting,
        retained_sender: RetainedSender,
        sharing: Sharing,
        strangers: Strangers,
    ) -> None:
        self.core = core
        self.access = access
        self.deciding = deciding
        self.ending = ending
        self.reporting = reporting
        self.retained_sender = retained_sender
        self.sharing = sharing
        self.strangers = strangers
        self.connected = 0

    def take_over(self, channel: Channel, packet: Connect) -> Session | None:
        """End an older connection of this client [MQTT-3.1.4-3]; the session to resume, if there is one."""
        core = self.core
        session = core.sessions.get(channel.client_id)
        if session is not None and session.connection is not None:
            core.disconnect(cast(Channel, session.connection), SESSION_TAKEN_OVER)
            session = core.sessions.get(channel.client_id)
        if session is not None and packet.clean_start:
            self.ending.remove(session)  # [MQTT-3.1.2-4]
            session = None
        return session

    def new_session(self, client_id: str) -> Session:
        """One that nobody is connected to yet."""
        core = self.core
        config = core.config
        outbound = Outbound(core.budget, config.max_queued_messages, config.max_queued_bytes, core.policy)
        session = core.sessions[client_id] = Session(client_id, outbound)
        return session

    def attach(self, channel: Channel, session: Session, packet: Connect) -> None:
        """The channel is connected, and the session its own, as CONNECT asks for."""
        core = self.core
        self.ending.called_off(session)
        properties = packet.properties
        asked = 0 if properties is None else properties.session_expiry_interval or 0
        if packet.version != V5:
            asked = 0 if packet.clean_start else FOR_EVER
        session.expiry_interval = min(asked, core.config.max_session_expiry)
        session.expires_at = NEVER
        before = session.username
        session.username = channel.username
        self.access.established(channel, session, before)
        will = packet.will
        message = None if will is None else will_message(will, channel.client_id)
        if message is not None:
            message.user = channel.username
        self.ending.discarded(session)
        self.access.quotas.set_will(session, message)
        if will is not None:
            session.will_expiry = None if will.properties is None else will.properties.message_expiry_interval
            session.will_delay = 0 if will.properties is None else will.properties.will_delay_interval or 0
        session.will_at = NEVER
        session.connection = channel
        channel.session = session
        if core.gate is not None:
            core.gate.attached(channel, session)
        if will is not None and core.wills is not None:
            core.wills.set(session)
        if core.journal is not None:
            core.journal.attached(session)
        channel.state = CONNECTED
        self.strangers.left(channel)
        channel.fast = channel.max_qos >= core.config.max_qos  # else each PUBLISH needs a look
        self.connected += 1
        core.stats.connections_maximum = max(core.stats.connections_maximum, self.connected)

    def detach(self, channel: Channel, with_will: bool) -> None:
        """The channel's session goes on without it, or ends."""
        session = channel.session
        if session is not None:
            self.access.quotas.count(session, -channel.alias_bytes)
            channel.alias_bytes = 0
        channel.session = None
        self.access.ended(channel)
        if channel.busy:
            channel.busy = False
            channel.waits = None
            self.core.resume(channel, BUSY)  # so that its end is seen
            self.deciding.cancel(channel)
        if session is None or session.connection is not channel:
            return
        core = self.core
        session.connection = None
        if core.gate is not None:
            core.gate.detached(channel, session)
        self.retained_sender.pause(session)
        self.connected -= 1
        session.outbound.disconnected()
        core.presence_changed(session, False)
        back = self.sharing.take_unsent(channel, session)
        self.sharing.again(back + self.sharing.take_back(session, session.expiry_interval == 0))
        if channel.report_grant is not None:
            self.reporting.ended(session)
        if not with_will:
            self.access.quotas.set_will(session, None)
            self.ending.discarded(session)
        if session.expiry_interval == 0:
            self.ending.remove(session)
            return
        self.ending.wait(session)
