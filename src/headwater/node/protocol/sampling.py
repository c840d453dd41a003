"""What the connections of group members tell by themselves: bytes that wait, and how long the way is.

Theory. A member that neither reports nor acknowledges still shows that it is behind: its socket takes no more, and
bytes wait. They are counted by ticks and not by messages. A group whose dispatcher `wants_samples` asks for a look at
a member when it is sent something (`watch`), once; each tick looks at those, and goes on with the ones where something
waits. So a tick costs as much as there is to see, and without traffic there is none.

What waits is ours (the channel's backlog) and the kernel's. Of the kernel's, only bytes that were not sent count: the
peer's window is closed, or the network takes no more. What was sent and is not acknowledged by TCP is on its way, or at
the peer, whose kernel may take 40 ms to say so; it would tell of distance and of nothing else. What waits in the peer's
own receive buffer cannot be seen.

The way is half of the least round trip time that TCP has seen in the last minutes, not of the mean: a peer's kernel
waits with the acknowledgement for an answer to send it with, so the mean of a member that processes a message before it
acknowledges is its processing time. It counts in steps of WAY_STEP, at least one: who is near is as near as others.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, cast

from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import Channel
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import Core
from headwater.routing.dispatcher import Member
from headwater.routing.shared import Group, Watcher
from headwater.session.session import Session

TICK: Final = 0.1  # seconds
WAY_INTERVAL: Final = 1.0  # seconds
WAY_STEP: Final = 0.0001  # seconds

SOME: Final = 8
"""Members that are looked at between two looks at the clock."""

# In Linux's struct tcp_info, since 4.6: tcpi_notsent_bytes and, behind it, tcpi_min_rtt in microseconds.
NOT_SENT: Final = 144
INFO_SIZE: Final = 152
NOT_SEEN: Final = 0xFFFFFFFF


class _Tick(BackgroundTask):
    """A look at all who are watched: a client may be in thousands of groups."""

    def __init__(self, sampling: Sampling, watched: list[tuple[Group, Member]]) -> None:
        self.sampling = sampling
        self.watched = watched
        self.at = 0

    def piece(self) -> bool:
        behind = self.at + SOME
        self.sampling.look_at(self.watched[self.at : behind])
        self.at = behind
        if behind < len(self.watched):
            return True
        self.sampling.go_on()
        return False


class Sampling(Watcher):
    def __init__(self, core: Core) -> None:
        self.core = core
        self.watched: list[tuple[Group, Member]] = []
        self.timer: Timer | None = None

    def watch(self, group: Group, member: Member) -> None:
        member.watched = True
        self.watched.append((group, member))
        if self.timer is None:
            self._again()

    def _again(self) -> None:
        self.timer = self.core.timers.at(self.core.hot.now + TICK, self.tick)

    def tick(self) -> None:
        watched = self.watched
        self.watched = []
        self.timer = None
        self.core.do(_Tick(self, watched))

    def look_at(self, watched: list[tuple[Group, Member]]) -> None:
        now = self.core.hot.now
        for group, member in watched:
            if self._sample(group, member, now):
                self.watched.append((group, member))
            else:
                member.watched = False

    def go_on(self) -> None:
        """All were looked at."""
        if self.watched and self.timer is None:
            self._again()

    def _sample(self, group: Group, member: Member, now: float) -> bool:
        """Look at a member's connection; whether to look again even if it is sent nothing."""
        session = cast(Session, member.key)
        channel = cast("Channel | None", session.connection)
        if channel is None or group.member(session) is not member or not group.dispatcher.wants_samples:
            return False
        tells = member.waiting >= 0 or bool(member.in_flight_since)  # by reports or acknowledgements
        if tells and now < channel.way_until:
            member.way = channel.way
            return False
        unsent = self._look(channel, now)
        member.way = channel.way
        if tells:
            return False
        group.sampled(member, unsent, now)
        return unsent > 0

    def _look(self, channel: Channel, now: float) -> int:
        """The bytes that wait for a channel's socket; renews its way from time to time. What is written in this turn
        does not wait yet."""
        unsent = channel.backlog_size
        connection = channel.socket
        if not isinstance(connection, socket.socket):
            return unsent
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, INFO_SIZE)
        except OSError:
            return unsent
        if len(info) == INFO_SIZE:
            not_sent, round_trip = struct.unpack_from("=II", info, NOT_SENT)
            unsent += not_sent
            if now >= channel.way_until and round_trip != NOT_SEEN:
                channel.way_until = now + WAY_INTERVAL
                channel.way = max(1, round(round_trip / 2e6 / WAY_STEP)) * WAY_STEP
        return unsent
