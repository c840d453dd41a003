"""When a channel is read from and written to: slow readers, and clients whose last packet takes longer.

It is read from unless it is `congested` (too much waits for it) or `paused` (busy with a background task, metered,
faster than the delivery store, or publishing while the disk has too little room). It is written to once a turn; what
the socket does not take goes when it does, and who takes nothing for `write_timeout` is cut off.
"""

from __future__ import annotations

import logging
import time
from functools import partial

from mypy_extensions import mypyc_attr

from headwater.node.config import Config
from headwater.node.hooks import Hooks
from headwater.node.plane.background import BackgroundTask
from headwater.node.plane.channel import BUSY, STORING, Channel
from headwater.node.plane.timers import Timer
from headwater.node.protocol.core import ClientTask, Core
from headwater.session.connection import CLOSING
from headwater.wire.reasons import UNSPECIFIED_ERROR

log = logging.getLogger("headwater.server")


@mypyc_attr(allow_interpreted_subclasses=True)
class Flow(Core):
    def __init__(self, config: Config, hooks: Hooks) -> None:
        super().__init__(config, hooks)
        self.stalls: dict[Channel, Timer] = {}
        """Those with bytes that their sockets have not taken, and when to look at them again."""
        self.outrunners: list[Channel] = []
        """Those that wait for the delivery store, or for room on the disk."""

    # ---- reading -----------------------------------------------------------------------------------------------

    def pause(self, channel: Channel, why: int) -> None:
        """Do not read from this channel until `resume`."""
        channel.paused |= why
        self.plane.watch(channel, False, channel.backlog_size > 0)

    def resume(self, channel: Channel, why: int) -> None:
        channel.paused &= ~why
        if channel.fd >= 0 and not channel.paused:
            self.plane.watch(channel, not channel.congested, channel.backlog_size > 0)

    def outruns_store(self, channel: Channel) -> None:
        if channel.fd >= 0 and not channel.paused & STORING:
            self.outrunners.append(channel)
            self.pause(channel, STORING)

    def store_keeps_up(self) -> None:
        """The backlog is below `max_pending`: resume paused publishers, if the disk has room."""
        if self.outrunners and not self.hot.no_room:
            channels = self.outrunners
            self.outrunners = []
            for channel in channels:
                self.resume(channel, STORING)

    # ---- long work ---------------------------------------------------------------------------------------------

    def be_busy(self, channel: Channel, size: int = 0) -> None:
        """Deal with nothing else of this channel until `go_on`; so many bytes of its last packet are kept as long."""
        self.hot.be_busy(channel, size)
        if not channel.paused & BUSY:
            self.pause(channel, BUSY)

    def go_on(self, channel: Channel) -> None:
        """What took long is done: deal with what came behind it."""
        if channel.busy:
            kept = self.hot.take_kept(channel)
            self.resume(channel, BUSY)
            if kept and channel.state != CLOSING:
                self.hot.feed(channel, kept)

    def begin(self, task: ClientTask) -> None:
        """Do what a packet asks for; if the turn has no time left for all of it, go on later."""
        channel = task.channel
        while task.step():
            if channel.waits is not None:
                self.be_busy(channel, task.size)
                break
            if time.monotonic() > self.hot.until:
                self.be_busy(channel, task.size)
                self.background.add(task)
                break

    def do(self, task: BackgroundTask) -> None:
        """The same for what nobody waits for."""
        while task.piece():
            if time.monotonic() > self.hot.until:
                self.background.add(task)
                break

    def postponed(self, channel: Channel) -> None:
        if channel.peer is not None:
            channel.peer.postponed()
        else:
            self.read_on_later(channel)

    def read_on_later(self, channel: Channel) -> None:
        """Deal with the channel's other packets when there is time."""
        self.be_busy(channel)
        channel.postponed = True
        self.background.add(_Rest(self, channel))

    # ---- writing -----------------------------------------------------------------------------------------------

    def writable_wanted(self, channel: Channel) -> None:
        self.plane.watch(channel, channel.peer is not None or not channel.congested, True)
        if channel not in self.stalls:
            self._look_for_stall(channel, self.hot.now)

    def _look_for_stall(self, channel: Channel, progress_at: float) -> None:
        when = progress_at + self.config.write_timeout
        self.stalls[channel] = self.timers.at(when, partial(self._check_stalled, channel))

    def _check_stalled(self, channel: Channel) -> None:
        del self.stalls[channel]
        if channel.backlog_size == 0:
            return
        if self.hot.now >= channel.progress_at + self.config.write_timeout:
            log.info("%r (%s) reads nothing; cut off", channel.client_id, channel.address)
            self.close(channel, UNSPECIFIED_ERROR, with_will=True)
            self.lost(channel)
        else:
            self._look_for_stall(channel, channel.progress_at)

    def exhausted(self, channel: Channel) -> None:
        log.info(
            "%r (%s) reads too slowly, and max_queue_memory is used up; cut off", channel.client_id, channel.address
        )
        self.lost(channel)

    def overfull(self, channel: Channel) -> None:
        if channel.peer is not None:
            return  # two nodes that did not read because the other does not would wait for ever
        self.plane.watch(channel, False, channel.backlog_size > 0)

    def relieved(self, channel: Channel) -> None:
        channel.congested = False
        self.plane.watch(channel, True, True)
        self.hot.delivering.drain(channel)

    def written(self, channel: Channel) -> None:
        channel.congested = False
        self.plane.watch(channel, True, False)
        if channel.peer is not None:
            channel.peer.written()
            return
        if channel.waits is not None:
            self.background.add(channel.waits)
            channel.waits = None
        if not channel.finishing:
            self.hot.delivering.drain(channel)
        elif channel.withheld is None:
            self.shut(channel)


class _Rest(BackgroundTask):
    """The packets that were read together with others, when there was no time left for them."""

    def __init__(self, flow: Flow, channel: Channel) -> None:
        self.flow = flow
        self.channel = channel

    def piece(self) -> bool:
        channel = self.channel
        channel.postponed = False
        if channel.busy and channel.state != CLOSING:
            hot = self.flow.hot
            hot.feed(channel, hot.take_kept(channel))
            self._resume()
        if not channel.postponed:  # again
            self.flow.hot.send_held_back(channel)
        return False

    def _resume(self) -> None:
        if not self.channel.busy:  # again
            self.flow.resume(self.channel, BUSY)
