"""The own client at the home broker, over all its connections: dialing, versions, its session, what it hands over.

    wanted here  --subscriptions of `$home`--> router --> queue, windows --> PUBLISH to the home broker
    home broker  --PUBLISH on own subscriptions--> fan-outs of links --> other nodes

The session of the proxy is named with a character that no client id has [MQTT-1.5.4-2]: no client of another node is
taken for it.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headwater.message import Delivery, Message, Subscription
from headwater.node.plane.timers import Timer
from headwater.node.protocol.server import Server
from headwater.node.proxy.calling import Caller
from headwater.node.proxy.catches import Catches
from headwater.node.proxy.catching import EVERYTHING, Copies, catching
from headwater.node.proxy.channel import OWN_TOPICS, HomeChannel
from headwater.node.proxy.connection import UP, HomeConnection
from headwater.node.proxy.echo import FENCES, Echoes, Outstanding, Remembered
from headwater.node.proxy.probe import Abilities, Probe
from headwater.node.proxy.settings import ProxySettings
from headwater.session.waiting import REFUSE
from headwater.wire.packets import (
    V5,
    V311,
    Connect,
    Properties,
    Publish,
    Suback,
    Subscribe,
    SubscribeRequest,
    Unsuback,
    Unsubscribe,
)
from headwater.wire.primitives import FOR_EVER
from headwater.wire.reasons import UNSUPPORTED_PROTOCOL_VERSION

if TYPE_CHECKING:
    from headwater.node.links.links import Links

log = logging.getLogger("headwater.proxy")

HOME: Final = "\0home"
"""The id of the session."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between two attempts to connect, which double."""
AGAIN: Final = 0.02
"""Seconds between two attempts to take what found no room."""
MOST_TRIES: Final = 3
"""Attempts with a version that has worked before, until others are tried."""
TELL_AGAIN: Final = 60.0

Way = tuple[int, bool]
"""A version of MQTT, and whether to say that this is a bridge."""
WAYS: Final[dict[str, list[Way]]] = {
    "auto": [(V5, False), (V311, True), (V311, False)],
    "5.0": [(V5, False)],
    "3.1.1-bridge": [(V311, True)],
    "3.1.1": [(V311, False)],
}


class Home:
    def __init__(self, server: Server, settings: ProxySettings, links: Links, folder: Path | None) -> None:
        """`folder`: where the node keeps what outlives it, if it does."""
        self.server = server
        self.settings = settings
        self.links = links
        self.is_kept = folder is not None
        self.client_id = settings.client_id or f"headwater-proxy-{links.node}"
        self.own_topics = f"{OWN_TOPICS}{links.node}/"
        self.fanouts = links.fanouts_of_home()
        self.catches = Catches(folder, links.caught)
        self.caller = Caller(server, settings)
        self.connection: HomeConnection | None = None
        self.abilities: Abilities | None = None
        """None: not tried yet."""
        self.echoes: Echoes | None = None
        self.copies: Copies | None = None
        """None: no two filters at the broker overlap, or it sends one copy anyway."""
        self.swallowed = 0
        self.copied = 0
        self.refusals = 0
        self.handed_over = 0
        self.reconnects = 0
        self.why = "it has not been reached yet"
        """Why there is no connection."""
        self.session = server.sessions.get(HOME) or server.attaching.new_session(HOME)
        self.session.expiry_interval = FOR_EVER
        self.session.outbound.policy = REFUSE  # what finds no room waits at the nodes that it came from
        self._ways = list(WAYS[settings.protocol])
        self._way = 0
        self._has_worked = False
        self._failures = 0
        self._probe: Probe | None = None
        self._is_stopping = False
        self._pinged = False
        self._heartbeat: Timer | None = None
        self._fences: Timer | None = None
        self._held_again: Timer | None = None
        self._told_of: dict[str, float] = {}
        self._seen = False
        """Whether a connection of this process was accepted before."""

    # ---- from start to stop --------------------------------------------------------------------------------------

    def start(self) -> None:
        server, session = self.server, self.session
        server.access.quotas.joined(session, None)
        if server.journal is not None:
            server.journal.attached(session)
        self.links.coordination.be_gated()
        self.links.interest_changed = self.look_at_interest
        self.look_at_interest()
        self._dial()

    def stop(self) -> None:
        """What the home broker was sent is sent; what waits is kept."""
        self._is_stopping = True
        self.caller.close()
        if self.connection is not None:
            self.connection.good_bye()
            self.connection.close("this proxy stops")

    # ---- connecting ----------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        if not self._is_stopping:
            self.caller.call(self._called)

    def _called(self, channel: HomeChannel | None, reason: str) -> None:
        if channel is None:
            self._tell("unreachable", f"the home broker at {self.settings.home} cannot be reached: {reason}")
            self.why = reason
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
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._failures)
        self._failures += 1
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
        self._tell(f"refused {reason}", f"the home broker refuses the proxy's own client (0x{reason:02X})")

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
        self._resubscribe_home(min(connection.granted_qos, abilities.qos))
        connection.attach()
        self.catches.up(self._subscribe, self._unsubscribe, is_present)
        self.up()

    def up(self) -> None:
        """The home broker is there, and all that it can do is known."""

    def disconnected(self, connection: HomeConnection, was_up: bool) -> None:
        if self.connection is not connection:
            return
        self.connection = None
        self._probe = None
        self.copies = None
        for timer in (self._heartbeat, self._fences):
            if timer is not None:
                self.server.timers.cancel(timer)
        self._heartbeat = self._fences = None
        self.why = connection.why or "the connection was lost"
        self.catches.down()
        if was_up and self._is_stopping:
            log.info("home broker at %s: connection ended: %s", connection.channel.address, self.why)
        elif was_up:
            log.warning("home broker at %s: connection ended: %s", connection.channel.address, self.why)
        elif not connection.why.startswith("refused") and (not self._has_worked or self._failures >= MOST_TRIES):
            self._way += 1  # some say nothing to a version that they do not know
        self._dial_later()

    def _tell(self, what: str, text: str) -> None:
        """Once in a while."""
        now = self.server.hot.now
        if now >= self._told_of.get(what, 0.0):
            self._told_of[what] = now + TELL_AGAIN
            log.warning("%s", text)

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
        connection.ping()
        self._heartbeat = self.server.timers.at(self.server.hot.now + self.settings.keep_alive / 2, self._beat)

    def is_alive(self) -> None:
        """PINGRESP came."""
        self._pinged = False
        if self._probe is not None:
            self._probe.answered()

    # ---- echoes --------------------------------------------------------------------------------------------------

    def _choose_echoes(self, connection: HomeConnection, abilities: Abilities) -> None:
        how = self.settings.echo
        if how == "auto":
            if abilities.no_local:
                self.echoes = None
                return
            how = "property" if connection.channel.version == V5 else "count"
        if self.echoes is None:
            memory = self.settings.echo_memory
            self.echoes = Remembered(memory, self.settings.echo_seconds) if how == "paper" else Outstanding(memory)
        is_marked = how == "property" and connection.channel.version == V5
        connection.channel.expect_echoes(self.echoes, f"{self.links.node}/{self.links.boot}/" if is_marked else "")
        self._fences = self.server.timers.at(self.server.hot.now + self.settings.fence_interval, self._fence)

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

    # ---- what other nodes want -----------------------------------------------------------------------------------

    def look_at_interest(self) -> None:
        """What they want may have changed: subscribe to it at the home broker."""
        coordination = self.links.coordination
        wanted, is_sure = coordination.wanted()
        if self.settings.catch == "all":
            wanted = None
        filters = self._catching(wanted)
        if not is_sure and filters is not None:
            filters |= self.catches.at_broker & self.catches.wanted if self._seen else self.catches.at_broker
        self.catches.want(catching(filters, self.settings.max_filters), coordination.heard())

    def _catching(self, wanted: set[str] | None) -> set[str] | None:
        if wanted is None:
            return None
        found = set()
        for each in wanted:
            filter = each
            if each.startswith("$share/"):
                filter = each.split("/", 2)[2]
            found.add(filter)
        return found

    def _subscribe(self, filters: list[str]) -> None:
        connection = self.connection
        assert connection is not None
        packet_id = connection.reserve()
        if not packet_id:
            self.server.timers.at(self.server.hot.now + AGAIN, partial(self._subscribe_again, connection, filters))
            return
        is_new = connection.channel.version == V5
        no_local = is_new and self.echoes is None
        requests = [
            SubscribeRequest(each, 2, no_local=no_local, retain_as_published=is_new, retain_handling=2 if is_new else 0)
            for each in filters
        ]
        connection.write(Subscribe(packet_id, requests))

    def _subscribe_again(self, connection: HomeConnection, filters: list[str]) -> None:
        if connection is self.connection:
            self._subscribe(filters)

    def _unsubscribe(self, filters: list[str]) -> None:
        connection = self.connection
        assert connection is not None
        packet_id = connection.reserve()
        if not packet_id:
            return  # it is looked at again with the next change
        connection.write(Unsubscribe(packet_id, filters))

    def subscribed(self, packet: Suback | Unsuback) -> None:
        if self._probe is not None:
            self._probe.subscribed(packet)
            return
        if isinstance(packet, Suback):
            self._look_for_copies()
        elif self.copies is not None:
            self.copies.is_over_for_qos0 = True
            self._copies_end(self.copies)
        self.catches.acknowledged(packet.reasons)

    def _look_for_copies(self) -> None:
        """A step is subscribed to; what it takes the place of is still there."""
        catches, abilities, connection = self.catches, self.abilities, self.connection
        old = catches.at_broker - catches.wanted
        if old and abilities is not None and abilities.copies and connection is not None:
            self.copies = Copies(old, catches.wanted)
            connection.choose_way()

    def _copies_end(self, copies: Copies) -> None:
        """When what the broker has queued until now has come: which takes no longer than an echo."""
        connection = self.connection
        if connection is not None and self.copies is copies:
            self.server.timers.at(self.server.hot.now + self.settings.fence_interval, partial(self._no_copies, copies))

    def _no_copies(self, copies: Copies) -> None:
        if self.copies is copies and not self.catches.is_busy:
            self.copies = None
            if self.connection is not None:
                self.connection.choose_way()

    # ---- what is caught ------------------------------------------------------------------------------------------

    def caught(self, message: Message, packet: Publish) -> None:
        """A message that the home broker's clients have published."""
        server = self.server
        fanout = self.fanouts.of(message.topic)
        gate = server.interest
        if message.retain and gate is not None:
            gate.retain(message)
            is_retained = server.router.retain(message) or not message.payload
            server.hot.changed = server.hot.changed or server.journal is not None
            gate.spread(message, self.session, fanout, is_retained)
        for destination in fanout.destinations:
            destination.deliver(message, self.session)

    def try_held_soon(self) -> None:
        if self._held_again is None:
            self._held_again = self.server.timers.at(self.server.hot.now + AGAIN, self._try_held)

    def _try_held(self) -> None:
        self._held_again = None
        if self.connection is not None:
            self.connection.take_held()

    # ---- what is handed over -------------------------------------------------------------------------------------

    def want(self, filter: str) -> bool:
        """A client of the home broker wants this: other nodes are told. False: there is no room for it."""
        server, session = self.server, self.session
        if filter in session.subscriptions:
            return True
        subscription = Subscription(filter, self._qos, retain_handling=2)
        if not server.access.quotas.room_for_subscription(session, subscription):
            return False
        session.subscriptions[filter] = subscription
        server.router.subscribe(session, subscription)
        server.subscribing.keep(session, filter, subscription)
        server.subscribing.count += 1
        server.access.quotas.subscribed(session, subscription)
        return True

    def want_no_more(self, filter: str) -> None:
        subscription = self.session.subscriptions.pop(filter, None)
        if subscription is not None:
            self.server.subscribing.remove(self.session, subscription)

    @property
    def _qos(self) -> int:
        connection = self.connection
        return 2 if connection is None or self.abilities is None else min(connection.granted_qos, self.abilities.qos)

    def _resubscribe_home(self, qos: int) -> None:
        """The broker takes this QoS at most."""
        server, session = self.server, self.session
        for filter, subscription in list(session.subscriptions.items()):
            if subscription.qos != qos:
                changed = Subscription(filter, qos, retain_handling=2)
                session.subscriptions[filter] = changed
                server.router.subscribe(session, changed)
                server.subscribing.keep(session, filter, changed)

    def hand_over(self, message: Message) -> None:
        """Publish it at the home broker, retained if it is."""
        self.server.delivering.offer(self.session, Delivery(message, min(message.qos, self._qos), message.retain))

    def refused(self, reason: int) -> None:
        """A message that was handed over."""
        self.refusals += 1
        self._tell(f"message {reason}", f"the home broker refuses messages of other nodes (0x{reason:02X})")


def wants_everything(filters: set[str]) -> bool:
    return EVERYTHING in filters
