"""Two errors: the other side broke the protocol, or we tried to."""

from __future__ import annotations

from .reasons import PROTOCOL_ERROR


class RemoteProtocolError(Exception):
    """The peer sent what the standard forbids. `reason` is the MQTT 5.0 reason code to answer with."""

    def __init__(self, reason: int, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class MisplacedPacketError(RemoteProtocolError):
    """A packet that is whole but may not come now: a second CONNECT, an acknowledgement of another kind."""

    def __init__(self, text: str) -> None:
        super().__init__(PROTOCOL_ERROR, text)


class LocalProtocolError(Exception):
    """The caller asked for a packet that the standard does not allow."""
