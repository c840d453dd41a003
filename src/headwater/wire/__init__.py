"""Bytes <-> packets for MQTT 3.1.1 and 5.0, without I/O.

A stream is cut into (first byte, body) by `PacketReader`, a body becomes a packet by `decode`, a packet becomes bytes
by `encode`. What the peer did wrong is a RemoteProtocolError, what we did wrong a LocalProtocolError. The packets
themselves are in `packets`, the reason codes in `reasons`.
"""

from __future__ import annotations

from .decode import FROM_CLIENT, FROM_SERVER, UnsupportedVersionError, decode, decode_connect
from .encode import encode, encode_publish
from .errors import LocalProtocolError, RemoteProtocolError
from .framing import PacketReader
from .packets import V5, V31, V311
from .primitives import Reader, encode_binary, encode_string, encode_varint
from .properties import WILL, decode_properties, encode_properties

__all__ = [
    "FROM_CLIENT",
    "FROM_SERVER",
    "V5",
    "V31",
    "V311",
    "WILL",
    "LocalProtocolError",
    "PacketReader",
    "Reader",
    "RemoteProtocolError",
    "UnsupportedVersionError",
    "decode",
    "decode_connect",
    "decode_properties",
    "encode",
    "encode_binary",
    "encode_properties",
    "encode_publish",
    "encode_string",
    "encode_varint",
]
