"""The own client at the home broker, over all its connections: dialing, versions, what the broker can do, echoes."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.message import Message
from headwater.node.plane.timers import Timer
from headwater.node.protocol.server import Server
from headwater.node.proxy.abilities import Abilities
from headwater.node.proxy.channel import OWN_TOPICS, HomeChannel
from headwater.node.proxy.client import OwnClient
from headwater.node.proxy.connection import UP, HomeConnection
from headwater.node.proxy.echo import FENCES, Echoes, Outstanding, Remembered
from headwater.node.proxy.echo_file import FILE as ECHO_FILE
from headwater.node.proxy.echo_file import EchoFile
from headwater.node.proxy.probe import Probe
from headwater.node.proxy.retained import Retention
from headwater.node.proxy.settings import ProxySettings
from headwater.node.proxy.wanting import Wanting
from headwater.wire.packets import V5, V311, Connect, Properties, Publish, Suback, Unsuback
from headwater.wire.reasons import UNSUPPORTED_PROTOCOL_VERSION

if TYPE_CHECKING:
    from headwater.node.links.links import Links

log = logging.getLogger("headwater.proxy")

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to connect, which double until a connection lasts."""
DOUBLINGS: Final = 6
AGAIN: Final = 0.02
"""Seconds between two attempts to take what found no room."""
MOST_TRIES: Final = 3
"""Attempts with a version that has worked before, until others are tried."""

Way = tuple[int, bool]
"""A version of MQTT, and whether to say that this is a bridge."""
WAYS: Final[dict[str, list[Way]]] = {
    "auto": [(V5, False), (V311, True), (V311, False)],
    "5.0": [(V5, False)],
    "3.1.1-bridge": [(V311, True)],
    "3.1.1": [(V311, False)],
}


class Home(OwnClient):
    def __init__(
        self,
        server: Server,
        settings: ProxySettings,
        links: Links,
        folder: Path | None,
        is_caught_up: Callable[[], bool],
    ) -> None:
        """`folder`: where the node keeps what outlives it, if it does. `is_caught_up`: whether this node has what
        others have. Raises ConfigError, CertificateError."""
        super().__init__(server, settings, links)
        self.is_kept = folder is not None
        self.client_id = settings.client_id or f"headwater-proxy-{links.node}"
        self.wanting = Wanting(self, folder)
        self.retention = Retention(self, self.wanting, folder, is_caught_up) if settings.retained else None
        self.echoes: Echoes | None = None
        """None: nothing comes back, as far as is known."""
        self._echo_path = None if folder is None else folder / ECHO_FILE
        self._echo_file: EchoFile | None = None
        if self._echo_path is not None and self._echo_path.exists() and settings.echo != "paper":
            self.echoes = self._outstanding()  # echoes wait in the session, before anything can be tried
        self.reconnects = 0
        self.why = "it has not been reached yet"
        """Why there is no connection."""
        self._ways = list(WAYS[settings.protocol])
        self._way = 0
        self._has_worked = False
        self._failures = 0
        """Attempts since the home broker has accepted one."""
        self._pauses = 0
        """Since a connection has lasted."""
        self._probe: Probe | None = None
        self._is_stopping = False
        self._pinged = False
        self._heartbeat: Timer | None = None
        self._fences: Timer | None = None
        self._held_again: Timer | None = None
        self._seen = False
        """Whether a connection of this process was accepted before."""

    # ---- from start to stop --------------------------------------------------------------------------------------

    def start(self) -> None:
        server, session = self.server, self.session
        server.access.quotas.joined(session, None)
        if server.journal is not None:
            server.journal.attached(session)
        self.links.coordination.be_gated()
        self.links.interest_changed = self.wanting.look
        if self.retention is not None:
            self.retention.start()
        self.wanting.look()
        self._dial()

    def stop(self) -> None:
        """What the home broker was sent is sent; what waits is kept."""
        self._is_stopping = True
        self.caller.close()
        if self.connection is not None:
            self.connection.good_bye()
            self.connection.close("this proxy stops")
        if self._echo_file is not None:
            self._echo_file.close()

    # ---- connecting ----------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._is_stopping:
            self.caller.call(self._called)

    def _called(self, channel: HomeChannel | None, reason: str) -> None:
        if channel is None:
            self.tell("unreachable", f"the home broker at {self.settings.home} cannot be reached: {reason}")
            self.why = reason
            self.suspects.forget()
            self._dial_later()
            return
        version, is_bridge = self._ways[self._way % len(self._ways)]
        self.connection = HomeConnection(self, channel, self._connect(version, is_bridge))
        self.server.timers.at(
            self.server.hot.now + self.server.config.connect_timeout, partial(self._no_answer, self.connection)
        )

    def _no_answer(self, connection: HomeConnection) -> None:
        if connection.phase < UP:
            connection.close("it does not answer CONNECT")

    def _dial_later(self) -> None:
        if self._is_stopping:
            return
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._pauses, DOUBLINGS))
        self._failures += 1
        self._pauses += 1
        self.server.timers.at(self.server.hot.now + pause * random.uniform(0.8, 1.0), self._dial)

    def _connect(self, version: int, is_bridge: bool) -> Connect:
        settings = self.settings
        properties = None
        is_clean = not self.is_kept and not self._seen
        if version == V5:
            expiry = settings.session_expiry if self.is_kept else 60
            properties = Properties(session_expiry_interval=expiry, receive_maximum=self.server.config.receive_maximum)
        elif not self.is_kept:
            is_clean = True  # nobody would ever come back for what is kept there
        password = self.caller.password()
        return Connect(
            self.client_id,
            version,
            is_clean,
            settings.keep_alive,
            settings.username or None,
            None if password is None else password.encode(),
            None,
            properties,
            is_bridge,
        )

    def refuses(self, connection: HomeConnection, reason: int) -> None:
        """By CONNACK."""
        if reason in (UNSUPPORTED_PROTOCOL_VERSION, 1):
            self._way += 1
            return
        self.tell(f"refused {reason}", f"the home broker refuses the proxy's own client (0x{reason:02X})")

    def connected(self, connection: HomeConnection, is_present: bool) -> None:
        self._failures = 0
        self._has_worked = True
        self._pinged = False
        if self._seen:
            self.reconnects += 1
        self._seen = True
        self.why = ""
        self._told_of.clear()
        if not is_present:
            self.session.received.clear()
        if self.echoes is not None:
            self.echoes.connected(is_present)
            self._expect_echoes(connection)
        self._heartbeat = self.server.timers.at(self.server.hot.now + self.settings.keep_alive / 2, self._beat)
        version = "5.0" if connection.connect.version == V5 else "3.1.1, as a bridge"
        if connection.connect.version != V5 and not connection.connect.bridge:
            version = "3.1.1"
        log.info(
            "home broker at %s: connected as %s by MQTT %s%s",
            *(connection.channel.address, self.client_id, version, "" if is_present else ", with a new session"),
        )
        self._probe = Probe(self, connection, partial(self._probed, connection, is_present))
        self._probe.begin()

    def _probed(self, connection: HomeConnection, is_present: bool, abilities: Abilities) -> None:
        """What the broker can do is known: the channel is the session's."""
        self._probe = None
        if abilities != self.abilities:
            log.info("home broker: %s", abilities)
        self.abilities = abilities
        self._choose_echoes(connection, abilities)
        self.resubscribe()
        connection.attach(partial(self._attached, is_present))

    def _attached(self, is_present: bool) -> None:
        """What was in flight ends no connection: the rest begins."""
        if self.session.connection is None:
            return
        self.wanting.up(is_present, self.echoes is not None)
        if self.retention is not None:
            self.retention.up(not is_present)

    def disconnected(self, connection: HomeConnection, was_up: bool) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        self._probe = None
        for timer in (self._heartbeat, self._fences):
            if timer is not None:
                self.server.timers.cancel(timer)
        self._heartbeat = self._fences = None
        self.why = connection.why or "the connection was lost"
        if was_up and connection.is_steady:
            self._pauses = 0
        self.wanting.down()
        if self.retention is not None and was_up:
            self.retention.down()
        if was_up and self._is_stopping:
            log.info("home broker at %s: connection ended: %s", connection.channel.address, self.why)
        elif was_up:
            log.warning("home broker at %s: connection ended: %s", connection.channel.address, self.why)
        elif not connection.why.startswith("refused") and (not self._has_worked or self._failures >= MOST_TRIES):
            self._way += 1  # some say nothing to a version that they do not know
        self._dial_later()

    # ---- keep alive ----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        connection = self.connection
        if connection is None:
            return
        channel = connection.channel
        if self._pinged and not channel.paused and channel.last_seen + self.settings.keep_alive < self.server.hot.now:
            connection.close("it does not answer PINGREQ")
            return
        self._pinged = True
        if self.retention is not None:
            self.retention.alive()
        connection.ping()
        self._heartbeat = self.server.timers.at(self.server.hot.now + self.settings.keep_alive / 2, self._beat)

    def is_alive(self) -> None:
        """PINGRESP came."""
        self._pinged = False
        self.wanting.is_telling = self.wanting.catches.is_busy
        if self._probe is not None:
            self._probe.answered()

    # ---- echoes --------------------------------------------------------------------------------------------------

    def _choose_echoes(self, connection: HomeConnection, abilities: Abilities) -> None:
        how = self.settings.echo
        if how == "auto" and abilities.no_local:
            self._expect_none(connection)
            return
        if self.echoes is None:
            is_paper = how == "paper"
            memory, seconds = self.settings.echo_memory, self.settings.echo_seconds
            self.echoes = Remembered(memory, seconds) if is_paper else self._outstanding()
        self._expect_echoes(connection)
        self._fences = self.server.timers.at(self.server.hot.now + self.settings.fence_interval, self._fence)

    def _outstanding(self) -> Outstanding:
        made = Outstanding(self.settings.echo_memory)
        if self._echo_path is not None:
            self._echo_file = EchoFile(self._echo_path, made)
        return made

    def _expect_echoes(self, connection: HomeConnection) -> None:
        is_marked = self.settings.echo in ("auto", "property") and connection.channel.version == V5
        connection.channel.expect_echoes(self.echoes, f"{self.links.node}/{self.links.boot}/" if is_marked else "")

    def _expect_none(self, connection: HomeConnection) -> None:
        self.echoes = None
        connection.channel.expect_echoes(None, "")
        if self._echo_file is not None:
            self._echo_file.remove()
            self._echo_file = None

    def _fence(self) -> None:
        connection = self.connection
        if connection is None:
            return
        echoes = self.echoes
        if isinstance(echoes, Outstanding) and echoes.wants_fence:
            number = echoes.fence()
            for qos in FENCES:
                self.hand_over(Message(f"{self.own_topics}fence", b"%d %d" % (qos, number), qos))
        self._fences = self.server.timers.at(self.server.hot.now + self.settings.fence_interval, self._fence)

    def is_own(self, packet: Publish) -> bool:
        """A message of the proxy to itself, which is dealt with; or one of another proxy at this broker."""
        if not packet.topic.startswith(OWN_TOPICS):
            return False
        if packet.topic.startswith(self.own_topics):
            name = packet.topic[len(self.own_topics) :]
            if self._probe is not None:
                self._probe.came(name, packet)
            elif name == "fence" and isinstance(self.echoes, Outstanding):
                qos, _, number = packet.payload.partition(b" ")
                if qos.isdigit() and number.isdigit():
                    self.echoes.fence_came(int(number), int(qos))
        return True

    # ---- what is caught ------------------------------------------------------------------------------------------

    def subscribed(self, packet: Suback | Unsuback) -> None:
        if self._probe is not None:
            self._probe.subscribed(packet)
        else:
            self.wanting.acknowledged(packet)

    def look_soon(self) -> None:
        self.wanting.look_soon()

    def is_caught(self, topic: str) -> bool:
        return self.wanting.is_caught(topic)

    @property
    def tells_again(self) -> bool:
        return self.wanting.is_telling

    def came(self, message: Message) -> None:
        """A message on the own subscriptions."""
        retention = self.retention
        if retention is None:
            message.retain = False
        elif message.retain:
            if retention.is_known(message):
                return
        elif self.abilities is not None and not self.abilities.retain_as_published:
            message.retain = retention.was_tapped(message)
        self.caught(message)

    def try_held_soon(self) -> None:
        if self._held_again is None:
            self._held_again = self.server.timers.at(self.server.hot.now + AGAIN, self._try_held)

    def _try_held(self) -> None:
        self._held_again = None
        if self.connection is not None:
            self.connection.take_held()
