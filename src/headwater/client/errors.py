"""What can go wrong for a client: it does not get in, it is thrown out, or one request is refused."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

from headwater.wire import reasons
from headwater.wire.packets import Properties
from headwater.wire.words import reason_words

REASON_OF_RETURN_CODE: Final[dict[int, int]] = {
    1: reasons.UNSUPPORTED_PROTOCOL_VERSION,
    2: reasons.CLIENT_IDENTIFIER_NOT_VALID,
    3: reasons.SERVER_UNAVAILABLE,
    4: reasons.BAD_USER_NAME_OR_PASSWORD,
    5: reasons.NOT_AUTHORIZED,
}
"""CONNACK return code of MQTT 3.1.1 -> the MQTT 5.0 reason that means the same."""


TLS_REASONS: Final = (
    ("CERTIFICATE_REQUIRED", "the server asks for a certificate of ours"),
    ("CERTIFICATE_EXPIRED", "the server says that our certificate has expired"),
    ("CERTIFICATE_REVOKED", "the server says that our certificate was revoked"),
    ("ALERT_UNKNOWN_CA", "the server does not know who signed our certificate"),
    ("BAD_CERTIFICATE", "the server does not accept our certificate"),
    ("CERTIFICATE_UNKNOWN", "the server does not accept our certificate"),
    ("HANDSHAKE_FAILURE", "the server agrees to none of our ciphers, or asks for a certificate of ours"),
    ("PROTOCOL_VERSION", "the server speaks no version of TLS that we do"),
    ("WRONG_VERSION_NUMBER", "TLS is not spoken there"),
    ("UNEXPECTED_EOF", "the server closed the connection in the middle of TLS"),
)
"""What OpenSSL's names for reasons, or parts of them, mean."""


def explain(reason: int, properties: Properties | None) -> str:
    """A reason code in words, with what the server added to it."""
    text = reason_words(reason)
    if properties is not None and properties.reason_string:
        text += f" ({properties.reason_string})"
    if properties is not None and properties.server_reference:
        text += f"; the server to use is {properties.server_reference}"
    return text


def why(error: Exception) -> str:
    """The cause in words; asyncio joins the errors of several addresses into one text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"
    if isinstance(error, ssl.SSLError):
        return _why_tls(error.reason or str(error))
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    refused = errno.ECONNREFUSED
    if isinstance(error, OSError) and (error.errno == refused or f"[Errno {refused}]" in str(error)):
        return "nobody listens there (is a broker running?)"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return text or "the server closed the connection in the middle of the TLS handshake; TLS may not be spoken there"


def _why_tls(reason: str) -> str:
    """In words, with OpenSSL's name for it."""
    for sign, words in TLS_REASONS:
        if sign in reason:
            return f"{words} ({reason})"
    return f"TLS failed: {reason}"


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
