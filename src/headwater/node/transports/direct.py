"""The short way to a TLS connection's records (openssl.c), where this installation has it and it fits.

It is left out, and everything goes by `ssl`, where nothing was compiled, where Python's `ssl` has OpenSSL inside itself
and not as a library, and where Python's objects are not as they are known.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.node.transports.openssl import Handshakes, Records

openssl: Any
try:
    from headwater.node.transports import openssl
except ImportError:
    openssl = None


def handshakes() -> Handshakes | None:
    """A thread for steps of handshakes; None: `ssl` does them, here."""
    if openssl is None:
        return None
    try:
        made: Handshakes = openssl.Handshakes()
    except OSError:
        return None
    return made


def records_of(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> Records | None:
    """Of a connection whose handshake is over, between these two; None: `ssl` is the only way."""
    inner = getattr(tls, "_sslobj", None)
    if openssl is None or inner is None:
        return None
    try:
        made: Records = openssl.Records(inner, tls.context, incoming, outgoing)
    except ValueError:
        return None
    return made
