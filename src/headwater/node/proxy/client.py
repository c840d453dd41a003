"""The own client of a proxy, as its parts know it: the session, what is handed over, what is caught.

    wanted here  --subscriptions of the session--> router --> queue, windows --> PUBLISH to the home broker
    home broker  --PUBLISH on own subscriptions--> fan-outs of links --> other nodes

The session is named with a character that no client id has [MQTT-1.5.4-2]: no client of another node is taken for it.
`Home` (home.py) is the whole; what it adds, and others call, is declared here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headwater.message import Delivery, Message, Subscription
from headwater.node.protocol.server import Server
from headwater.node.proxy.abilities import Abilities
from headwater.node.proxy.calling import Caller
from headwater.node.proxy.catching import Copies
from headwater.node.proxy.channel import OWN_TOPICS
from headwater.node.proxy.settings import ProxySettings
from headwater.node.proxy.suspects import Suspects
from headwater.session.waiting import REFUSE
from headwater.wire.packets import Publish, Suback, Unsuback
from headwater.wire.primitives import FOR_EVER

if TYPE_CHECKING:
    from headwater.node.links.links import Links
    from headwater.node.proxy.connection import HomeConnection

log = logging.getLogger("headwater.proxy")

HOME: Final = "\0home"
"""The id of the session."""
TELL_AGAIN: Final = 60.0
"""Seconds between two lines of the log about the same."""


class OwnClient:
    def __init__(self, server: Server, settings: ProxySettings, links: Links) -> None:
        """Raises ConfigError, CertificateError."""
        self.server = server
        self.settings = settings
        self.links = links
        self.own_topics = f"{OWN_TOPICS}{links.node}/"
        self.keeps_groups = settings.groups == "proxy"
        self.fanouts = links.fanouts_of_home(self.keeps_groups)
        self.caller = Caller(server, settings)
        self.connection: HomeConnection | None = None
        """The current one, from CONNECT on; the session has it when the home broker has accepted it."""
        self.abilities: Abilities | None = None
        """None: not tried yet."""
        self.copies: Copies | None = None
        """None: no two filters at the broker overlap, or it sends one copy anyway."""
        self.messages_caught = 0
        """All that came from the home broker."""
        self.swallowed = 0
        """Echoes."""
        self.copied = 0
        """Second copies of messages that matched two filters."""
        self.refusals = 0
        """Messages that the home broker has refused."""
        self.session = server.sessions.get(HOME) or server.attaching.new_session(HOME)
        self.session.expiry_interval = FOR_EVER
        self.session.outbound.policy = REFUSE  # what finds no room waits at the nodes that it came from
        self.suspects = Suspects(server, self.session)
        self._told_of: dict[str, float] = {}

    # ---- of the whole --------------------------------------------------------------------------------------------

    def refuses(self, connection: HomeConnection, reason: int) -> None:
        """By CONNACK."""
        raise NotImplementedError

    def connected(self, connection: HomeConnection, is_present: bool) -> None:
        """`is_present`: the home broker goes on with the session."""
        raise NotImplementedError

    def disconnected(self, connection: HomeConnection, was_up: bool) -> None:
        raise NotImplementedError

    def is_alive(self) -> None:
        """PINGRESP came."""
        raise NotImplementedError

    def is_own(self, packet: Publish) -> bool:
        """A message of the proxy to itself, which is dealt with; or one of another proxy at this broker."""
        raise NotImplementedError

    def subscribed(self, packet: Suback | Unsuback) -> None:
        raise NotImplementedError

    def came(self, message: Message) -> None:
        """A message on the own subscriptions."""
        raise NotImplementedError

    def try_held_soon(self) -> None:
        """What found no room waits in the connection."""
        raise NotImplementedError

    def look_soon(self) -> None:
        """What is to be caught has changed: look at it before this turn ends."""
        raise NotImplementedError

    def is_caught(self, topic: str) -> bool:
        raise NotImplementedError

    @property
    def tells_again(self) -> bool:
        """Whether the home broker may be telling what is retained there: 3.1.1 does with each SUBSCRIBE."""
        raise NotImplementedError

    # ---- what is caught ------------------------------------------------------------------------------------------

    def caught(self, message: Message) -> None:
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

    # ---- what is handed over -------------------------------------------------------------------------------------

    def want(self, filter: str) -> bool:
        """A client of the home broker wants this: other nodes are told. False: there is no room for it."""
        server, session = self.server, self.session
        if filter in session.subscriptions:
            return True
        subscription = Subscription(filter, self.qos, retain_handling=2)
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
    def qos(self) -> int:
        connection = self.connection
        return 2 if connection is None or self.abilities is None else min(connection.granted_qos, self.abilities.qos)

    def resubscribe(self) -> None:
        """With the QoS that the home broker takes at most."""
        server, session, qos = self.server, self.session, self.qos
        for filter, subscription in list(session.subscriptions.items()):
            if subscription.qos != qos:
                changed = Subscription(filter, qos, retain_handling=2)
                session.subscriptions[filter] = changed
                server.router.subscribe(session, changed)
                server.subscribing.keep(session, filter, changed)

    def hand_over(self, message: Message) -> None:
        """Publish it at the home broker, retained if it is."""
        self.server.delivering.offer(self.session, Delivery(message, min(message.qos, self.qos), message.retain))

    def refused(self, reason: int) -> None:
        """A message that was handed over."""
        self.refusals += 1
        self.tell(f"message {reason}", f"the home broker refuses messages of other nodes (0x{reason:02X})")

    # ---- the log -------------------------------------------------------------------------------------------------

    def tell(self, what: str, text: str) -> None:
        """Once in a while."""
        now = self.server.hot.now
        if now >= self._told_of.get(what, 0.0):
            self._told_of[what] = now + TELL_AGAIN
            log.warning("%s", text)
