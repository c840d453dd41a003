"""Clients that ask for more than a turn has time for: what becomes a chore of theirs (chores.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from headwater.node.channel import BUSY, Channel
from headwater.node.chores import Chore
from headwater.session.connection import CLOSING
from headwater.wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    from headwater.node.flow import Flow
    from headwater.node.server import Server


@mypyc_attr(allow_interpreted_subclasses=True)
class Task(Chore):
    """What one packet asks for. Its client is busy until it is done, unless that is at once (`Server.begin`)."""

    def __init__(self, server: Server, channel: Channel) -> None:
        self.server = server
        self.channel = channel

    def step(self) -> bool:
        """Do a little of it; False: it is done. `Channel.waits` may be set to this: go on when the client has read."""
        raise RuntimeError("nothing to do")

    def piece(self) -> bool:
        channel = self.channel
        if not channel.busy or channel.state == CLOSING:
            return False  # it has gone
        try:
            if self.step():
                return channel.waits is None
            self.server.go_on(channel)
        except RemoteProtocolError as error:
            self.server.failed(channel, error)
        except Exception:
            self.server.crashed(channel)
        return False


class Rest(Chore):
    """The packets that were read together with others, when there was no time left for them."""

    def __init__(self, flow: Flow, channel: Channel) -> None:
        self.flow = flow
        self.channel = channel

    def piece(self) -> bool:
        channel = self.channel
        if channel.busy and channel.state != CLOSING:
            hot = self.flow.hot
            hot.feed(channel, hot.take_kept(channel))
            self._resume()
        return False

    def _resume(self) -> None:
        if not self.channel.busy:  # again
            self.flow.resume(self.channel, BUSY)
