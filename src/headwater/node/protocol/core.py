"""What all parts of the protocol share, and what each may ask of the server without knowing the others.

The parts (connecting, publishing, subscribing, delivering, sharing, ending …) name the few others that they need in
their constructors. Everything else they have in common is here: settings, hooks, counters, routes, sessions, the turn
that is going on, what is kept on disk; and what can be done with a connection, which `Flow` and `Server` do.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from mypy_extensions import mypyc_attr

from headwater.disk.room import Room
from headwater.message import Message
from headwater.node.config import Config
from headwater.node.delivery.coordinator import Coordinator
from headwater.node.destinations.destination import Fanout
from headwater.node.hooks import Hooks
from headwater.node.persistence.journal import Journal
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel, Entrance, Slow
from headwater.node.plane.counters import Counters
from headwater.node.plane.loop import Plane
from headwater.node.plane.timers import Timers
from headwater.node.protocol.hotpath import HotPath
from headwater.routing.conditions.condition import Conditions
from headwater.routing.dispatcher_rules import DispatcherRules
from headwater.routing.retained import Retained
from headwater.routing.router import Router
from headwater.routing.shared import Groups
from headwater.session.connection import CLOSING
from headwater.session.session import Session
from headwater.session.waiting import DISCONNECT_WHEN_FULL, DROP_NEWEST, DROP_OLDEST, REFUSE, Budget
from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import Connect, Packet

POLICIES: Final[dict[str, int]] = {
    "drop_newest": DROP_NEWEST,
    "drop_oldest": DROP_OLDEST,
    "disconnect": DISCONNECT_WHEN_FULL,
    "refuse": REFUSE,
}


class OutsideTurn:
    """A turn of somebody who is not a socket: the clock is looked at first, and what was left is sent soon after."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def __enter__(self) -> None:
        self.core.hot.now = time.monotonic()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.core.plane.wake()


@mypyc_attr(allow_interpreted_subclasses=True)
class InterestGate:
    """What this node's clients want, told to other nodes (links/links.py)."""

    def hold(self, task: ClientTask) -> bool:
        """Whether the task has to wait until other nodes know what is wanted: then `ClientTask.released` is called."""
        raise NotImplementedError

    def retain(self, message: Message) -> None:
        """A message is about to be retained here, or one deleted: all other nodes are to do the same."""
        raise NotImplementedError

    def spread(self, message: Message, publisher: Session | None, fanout: Fanout, is_retained: bool) -> None:
        """Send it to the nodes that it does not go to anyway."""
        raise NotImplementedError

    def take_retained(self, message: Message) -> bool:
        """Another node sent it: retain it, if it is later than what is here. True: it has gone to all who are to get it
        at this node."""
        raise NotImplementedError

    def pass_on_retained(self, message: Message, fanout: Fanout) -> None:
        """It was handed over: send it to the nodes behind this one that it has not gone to."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionGate:
    """Client ids are of all nodes: a client that comes takes its session along (links/sessions.py)."""

    def claim(self, channel: Channel, packet: Connect, auth_data: bytes | None) -> bool:
        """Whether the client may be served at once. Else it waits, and `Connecting.claimed` is called."""
        raise NotImplementedError

    def waits(self, channel: Channel) -> bool:
        raise NotImplementedError

    def attached(self, channel: Channel, session: Session) -> None:
        raise NotImplementedError

    def detached(self, channel: Channel, session: Session) -> None:
        raise NotImplementedError

    def ended(self, session: Session) -> None:
        raise NotImplementedError

    def refused(self, channel: Channel) -> None:
        """It is not served after all."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class WillGate:
    """The wills of this node's clients, of which other nodes know (links/wills.py)."""

    def recovered(self, go_on: Callable[[], None]) -> None:
        """All that was on disk is here: `go_on` is called when other nodes can be asked for wills."""
        raise NotImplementedError

    def set(self, session: Session) -> None:
        """Its connection has a will from now on."""
        raise NotImplementedError

    def discarded(self, session: Session) -> None:
        """The will that it may have is void."""
        raise NotImplementedError

    def waits(self, session: Session) -> None:
        """Its will waits until `will_at`."""
        raise NotImplementedError

    def holds(self, session: Session, will: Message) -> bool:
        """A will is due. True: it is the gate's now, which has it published when no other node can (`Ending.send`)."""
        raise NotImplementedError

    def elsewhere(self, client_id: str, stamp: int) -> None:
        """The client has connected somewhere, by a claim with this stamp (links/sessions.py)."""
        raise NotImplementedError

    def is_waiting(self) -> bool:
        """Whether a will is due that the gate holds, and another node is being asked."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Core(Slow):
    def __init__(self, config: Config, hooks: Hooks) -> None:
        self.config = config
        self.hooks = hooks
        self.stats = Counters()
        self.budget = Budget(config.max_queue_memory)
        self.dispatcher_rules = DispatcherRules(config.shared_dispatcher, list(config.shared_dispatchers.items()))
        retained = Retained(config.max_retained, config.max_retained_bytes)
        self.router = Router(retained, Groups(self.dispatcher_rules.new), config.overlapping == "merge")
        self.timers = Timers()
        self.conditions = Conditions(config.conditions.max_payload, config.conditions.max_memory)
        self.hot = HotPath(self.router, self.stats, self.budget)
        self.hot.conditions = self.conditions
        self.hot.slow = self
        self.background = self.hot.background
        self.plane = Plane(self.hot, self.timers)
        self.policy = POLICIES[config.queue_full]
        self.broker_id = config.broker_id or token_hex(8)
        self.sessions: dict[str, Session] = {}
        self.channels: set[Channel] = set()
        self.stopping = False
        self.journal: Journal | None = None
        self.coordinator: Coordinator | None = None
        self.interest: InterestGate | None = None
        """Where SUBACK waits for other nodes, if there are any."""
        self.gate: SessionGate | None = None
        """Where CONNACK waits for other nodes."""
        self.came_from = ""
        """The node that sent what is being published; "": a client of this one did."""
        self.moved: list[Session] = []
        """Sessions on disk that were leaving for another node when the process ended."""
        self.wills: WillGate | None = None
        self.room: Room | None = None
        """That of the disk on which the journal is."""

    def turn(self) -> OutsideTurn:
        """`with core.turn():` around what is done on the broker's loop and not by a packet: REST, the admin API,
        bridges, the program that embeds the broker."""
        return OutsideTurn(self)

    def has_wills_to_send(self) -> bool:
        return self.wills is not None and self.wills.is_waiting()

    def promise(self, channel: Channel) -> None:
        """What was written to the channel in this turn may go out only when all changes until now are on disk."""
        if self.journal is not None:
            self.journal.promise(channel)

    def presence_changed(self, session: Session, online: bool) -> None:
        """A session's client came or went: what leads to it has to be found anew."""
        self.router.set_online(session, [each.filter for each in session.subscriptions.values()], online)

    # ---- connections, by server.py -----------------------------------------------------------------------------

    def accept(self, connection: socket.socket, address: str, loopback: bool, entrance: Entrance | None = None) -> None:
        """Serve a new socket, that came in by this entrance; None: a plain one, to which nothing special applies."""
        raise NotImplementedError

    def send(self, channel: Channel, packet: Packet) -> int:
        """Send a packet; its size, or 0 when the client does not take packets of its size."""
        raise NotImplementedError

    def watch_keep_alive(self, channel: Channel) -> None:
        """[MQTT-3.1.2-22] One and a half times the keep alive without a packet ends the connection."""
        raise NotImplementedError

    def disconnect(self, channel: Channel, reason: int, text: str = "", server_reference: str | None = None) -> None:
        """End a connection from our side: DISCONNECT for those who understand it, will included."""
        raise NotImplementedError

    def disconnect_soon(
        self, channel: Channel, reason: int, text: str = "", server_reference: str | None = None
    ) -> None:
        """`disconnect` at the end of this turn: whoever is in the middle of a delivery, or of a packet of this client,
        finds the session as it was. Only the first reason counts."""
        raise NotImplementedError

    def close(self, channel: Channel, reason: int, with_will: bool, linger: bool = True) -> None:
        """The protocol has ended: part from the session, let the client read what we sent (`linger`), then close."""
        raise NotImplementedError

    def shut(self, channel: Channel) -> None:
        """Say that nothing more comes. Closing at once could destroy what the client has not read yet."""
        raise NotImplementedError

    # ---- when a channel is read from, and long work, by flow.py ------------------------------------------------

    def pause(self, channel: Channel, why: int) -> None:
        """Do not read from this channel until `resume`."""
        raise NotImplementedError

    def resume(self, channel: Channel, why: int) -> None:
        raise NotImplementedError

    def be_busy(self, channel: Channel, size: int = 0) -> None:
        """Deal with nothing else of this channel until `go_on`; so many bytes of its last packet are kept as long."""
        raise NotImplementedError

    def go_on(self, channel: Channel) -> None:
        """What took long is done: deal with what came behind it."""
        raise NotImplementedError

    def begin(self, task: ClientTask) -> None:
        """Do what a packet asks for; if the turn has no time left for all of it, go on later."""
        raise NotImplementedError

    def do(self, task: BackgroundTask) -> None:
        """The same for what nobody waits for."""
        raise NotImplementedError

    def store_keeps_up(self) -> None:
        """The backlog is below `max_pending`: resume paused publishers, if the disk has room."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class ClientTask(BackgroundTask):
    """What one packet asks for, where a turn may have too little time for it. Its client is busy until it is done,
    unless that is at once (`Core.begin`)."""

    def __init__(self, core: Core, channel: Channel) -> None:
        self.core = core
        self.channel = channel
        self.size = 0
        """Bytes of the packet that it keeps."""

    def step(self) -> bool:
        """Do a little of it; False: it is done. `Channel.waits` may be set to this: go on when the client has read."""
        raise NotImplementedError

    def released(self) -> None:
        """It need not wait any more (`InterestGate`)."""

    def piece(self) -> bool:
        channel = self.channel
        if not channel.busy or channel.state == CLOSING:
            return False  # it has gone
        try:
            if self.step():
                return channel.waits is None
            self.core.go_on(channel)
        except RemoteProtocolError as error:
            self.core.failed(channel, error)
        except Exception:
            self.core.crashed(channel)
        return False
