"""Enhanced authentication (MQTT 5.0, 4.12): challenges and answers before CONNACK.

CONNECT(method, start) -> [AUTH(challenge) -> AUTH(answer)]* -> CONNACK(finish)
"""

from __future__ import annotations

from headwater.wire.errors import RemoteProtocolError
from headwater.wire.packets import Auth, Connack, Properties
from headwater.wire.reasons import CONTINUE_AUTHENTICATION, PROTOCOL_ERROR


class Authentication:
    """Subclass it for a method, such as SCRAM-SHA-256; the calls come anew for each connection."""

    method: str

    def start(self) -> bytes | None:
        """What CONNECT says first."""
        return None

    def answer(self, challenge: bytes | None) -> bytes | None:
        """What to say to a challenge of the server."""
        raise NotImplementedError

    def finish(self, data: bytes | None) -> bool:
        """The server has accepted us, with its last word; whether we accept the server."""
        return True


def offer(authentication: Authentication, properties: Properties) -> None:
    """Put the beginning into CONNECT's properties."""
    properties.authentication_method = authentication.method
    properties.authentication_data = authentication.start()


def answer(authentication: Authentication, packet: Auth) -> Auth:
    """The answer to an AUTH before CONNACK."""
    said = packet.properties or Properties()
    if packet.reason != CONTINUE_AUTHENTICATION or said.authentication_method != authentication.method:
        raise RemoteProtocolError(PROTOCOL_ERROR, "an AUTH that does not belong here")  # [MQTT-4.12.0-5]
    data = authentication.answer(said.authentication_data)
    properties = Properties(authentication_method=authentication.method, authentication_data=data)
    return Auth(CONTINUE_AUTHENTICATION, properties)


def check(authentication: Authentication, connack: Connack) -> None:
    """CONNACK ends the exchange; a server that we do not accept is left."""
    said = connack.properties or Properties()
    if said.authentication_method != authentication.method or not authentication.finish(said.authentication_data):
        raise RemoteProtocolError(PROTOCOL_ERROR, "the server did not prove who it is")  # [MQTT-4.12.0-5]
