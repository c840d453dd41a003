"""What is known of a client that connects, from its CONNECT until its session is here (claiming.py)."""

from __future__ import annotations

from headwater.node.plane.channel import Channel
from headwater.node.plane.timers import Timer
from headwater.peering.sessions.messages import Claim, Move
from headwater.wire.packets import Connect


class PendingClaim:
    """Of a client that waits."""

    def __init__(self, channel: Channel, packet: Connect, auth_data: bytes | None, move: Move) -> None:
        self.channel = channel
        self.packet = packet
        self.auth_data = auth_data
        self.move = move
        self.asked: set[str] = set()
        """Nodes that have not answered."""
        self.without: set[str] = set()
        """Nodes that are linked, and have said that they have nothing of this client."""
        self.elsewhere: set[str] = set()
        """Nodes that the session is on its way to, which tell when it is there."""
        self.successor: Claim | None = None
        """A later claim of another node, which has ended this one and waits for what comes of it."""
        self.timer: Timer | None = None


class Grant:
    """`olds`: the nodes that could not be asked and have a session of the client. `begins_anew`: there may be one that
    could not be found. `is_alone`: all other nodes have nothing of the client."""

    def __init__(
        self, move: Move, is_clean: bool, olds: list[str], begins_anew: bool = False, is_alone: bool = False
    ) -> None:
        self.move = move
        self.is_clean = is_clean
        self.olds = olds
        self.begins_anew = begins_anew
        self.is_alone = is_alone


class NextClaim:
    """A claim of another node of a session that is itself still arriving."""

    def __init__(self, move: Move, is_clean: bool) -> None:
        self.move = move
        self.is_clean = is_clean
        self.marked: list[str] = []
        """Nodes that have marked their streams already."""
        self.has_begun_anew = False
        """That node has a session of the client, which gets what is published by now."""
