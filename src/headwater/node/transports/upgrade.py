"""The HTTP request that begins a WebSocket connection, checked and answered. The protocol's part is wsproto's."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, RejectConnection, Request
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from headwater.node.plane.channel import Channel

log = logging.getLogger("headwater.transports")

SUB_PROTOCOLS = ("mqtt", "mqttv3.1")
"""What clients may offer. The second is what those of MQTT 3.1 say, and others that are as old."""
BAD_REQUEST = 400
FORBIDDEN = 403
NOT_FOUND = 404


class Upgrade:
    def __init__(self, path: str, origins: Sequence[str]) -> None:
        self._path = path
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)

    def __call__(self, channel: Channel, head: bytes) -> tuple[bool, bytes]:
        """Whether the request, headers and empty line included, is accepted, and the response."""
        connection = WSConnection(ConnectionType.SERVER)
        advice: Event | None = None
        request: Event | None = None
        try:
            connection.receive_data(head)
            request = next(connection.events(), None)
        except RemoteProtocolError as error:
            advice = error.event_hint  # which versions there are, say
        if not isinstance(request, Request):
            log.info("%s asked for no WebSocket", channel.address)
            return False, self._refusal(connection, advice or RejectConnection(status_code=BAD_REQUEST))
        status, why = self._judge(request)
        if status:
            log.info("%s was refused a WebSocket: %s", channel.address, why)
            return False, self._refusal(connection, RejectConnection(status_code=status))
        chosen = next(name for name in SUB_PROTOCOLS if name in request.subprotocols)
        return True, connection.send(AcceptConnection(subprotocol=chosen))  # [MQTT-6.0.0-4]

    def _judge(self, request: Request) -> tuple[int, str]:
        """The status to refuse it with, and why; 0: it is fine."""
        if self._path not in ("/", request.target.partition("?")[0]):
            return NOT_FOUND, f"there is nothing at {request.target!r}"
        if not any(name in request.subprotocols for name in SUB_PROTOCOLS):  # [MQTT-6.0.0-3]
            return BAD_REQUEST, "the sub-protocol mqtt was not offered"
        origin = next((value for name, value in request.extra_headers if name.lower() == b"origin"), None)
        if self._origins and origin is not None and origin.decode("latin-1").lower() not in self._origins:
            return FORBIDDEN, f"origin {origin!r}"
        return 0, ""

    @staticmethod
    def _refusal(connection: WSConnection, event: Event) -> bytes:
        try:
            return connection.send(event)
        except LocalProtocolError:  # what came was not even HTTP
            return b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
