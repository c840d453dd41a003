"""The extended PINGREQ: a status report in the one packet that a client sends in any case.

It comes from a master's thesis (轟木 皓平, dynamic load balancing by the state of the subscribers in MQTT shared
subscriptions, Hiroshima University): PINGREQ is the only packet that does not depend on QoS or on having received
something. It is extended by a property block, of User Properties alone, that says something about the payload, and by
a payload:

    1100 0000 | remaining length | property length | User Properties … | payload …

What the source lacks is consent. MQTT 5.0 has a PINGREQ of two bytes (3.12), and to any other server a longer one is
malformed. So a client asks in CONNECT and reports only if CONNACK grants it, both by a User Property named
`status-report-ms`, once. Its value in CONNECT is the longest time there will be between two reports, in CONNACK the
shortest there may be, in milliseconds as decimal digits. MQTT 3.1.1 has no properties and so no reports.
docs/status-reports.md shows it byte by byte.
"""

from __future__ import annotations

from typing import Final

from .packets import PINGREQ, Properties
from .primitives import Reader, encode_varint
from .properties import decode_properties, encode_properties

CONSENT: Final = "status-report-ms"
LONGEST_INTERVAL: Final = 86_400_000
"""Milliseconds, a day: no interval in CONNECT or CONNACK may be longer."""
PINGREQ_BYTE: Final = PINGREQ << 4


class StatusReport:
    """An extended PINGREQ."""

    def __init__(self, payload: bytes, user_properties: list[tuple[str, str]] | None = None) -> None:
        self.payload = payload
        self.user_properties = user_properties

    def __repr__(self) -> str:
        return f"StatusReport({self.payload!r}, {self.user_properties!r})"


def encode_status(report: StatusReport) -> bytes:
    """The whole packet."""
    properties = Properties(user_properties=report.user_properties) if report.user_properties else None
    body = encode_properties(properties, PINGREQ) + report.payload
    return bytes((PINGREQ_BYTE,)) + encode_varint(len(body)) + body


def decode_status(body: bytes) -> StatusReport:
    """From what follows the fixed header, which is not empty; RemoteProtocolError if it is malformed."""
    reader = Reader(body, 0, len(body))
    properties = decode_properties(reader, PINGREQ)
    return StatusReport(reader.rest(), None if properties is None else properties.user_properties)


def interval_of(properties: Properties | None) -> int:
    """The milliseconds that CONNECT or CONNACK name in consent to status reports; 0 if they do not consent. User
    Properties are anybody's, so one of this name that means something else (no number from 1 to LONGEST_INTERVAL, or
    there twice) is no consent, and no error."""
    named = [value for name, value in (properties.user_properties or () if properties else ()) if name == CONSENT]
    if len(named) != 1:
        return 0
    digits = named[0]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(LONGEST_INTERVAL))):
        return 0
    interval = int(digits)
    return interval if interval <= LONGEST_INTERVAL else 0


def consent(milliseconds: int) -> tuple[str, str]:
    """The User Property that names the interval."""
    return CONSENT, str(milliseconds)
