"""What can go wrong for a client: it does not get in, it is thrown out, or one request is refused."""

from __future__ import annotations

from typing import Final

from headwater.wire import reasons
from headwater.wire.packets import Properties

_AMBIGUOUS: Final = {0x00: "success", 0x01: "granted QoS 1", 0x02: "granted QoS 2"}

REASON_OF_RETURN_CODE: Final[dict[int, int]] = {
    1: reasons.UNSUPPORTED_PROTOCOL_VERSION,
    2: reasons.CLIENT_IDENTIFIER_NOT_VALID,
    3: reasons.SERVER_UNAVAILABLE,
    4: reasons.BAD_USER_NAME_OR_PASSWORD,
    5: reasons.NOT_AUTHORIZED,
}
"""CONNACK return code of MQTT 3.1.1 -> the MQTT 5.0 reason that means the same."""


def reason_words(reason: int) -> str:
    """A reason code in words, from the name it has in `wire.reasons`."""
    if reason in _AMBIGUOUS:
        return _AMBIGUOUS[reason]
    for name, value in vars(reasons).items():
        if name.isupper() and not name.startswith("_") and isinstance(value, int) and value == reason:
            return name.lower().replace("_", " ")
    return f"reason 0x{reason:02x}"


def explain(reason: int, properties: Properties | None) -> str:
    """A reason code in words, with what the server added to it."""
    text = reason_words(reason)
    if properties is not None and properties.reason_string:
        text += f" ({properties.reason_string})"
    if properties is not None and properties.server_reference:
        text += f"; the server to use is {properties.server_reference}"
    return text


class MqttError(Exception):
    """Base of the three. `reason` is an MQTT 5.0 reason code, or None if the other side did not give one."""

    def __init__(self, text: str, reason: int | None = None, properties: Properties | None = None) -> None:
        super().__init__(text)
        self.reason = reason
        self.properties = properties


class ConnectError(MqttError):
    """No connection was made: the server was not reached, did not answer or refused."""


class Disconnected(MqttError):
    """The connection ended before we ended it: the server said so, the network broke, or a party broke the protocol."""


class Rejected(MqttError):
    """The server did not accept one request, or said beforehand that it would not; the connection lives on."""
