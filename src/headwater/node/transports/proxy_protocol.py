"""The PROXY protocol, version 2: a load balancer says, before anything else, whose connection it passes on.

    12 bytes signature | version and command | family | length of the rest, 2 bytes | addresses | TLVs

Read to the byte and not further, because what follows may be TLS, which reads its socket itself. Version 1, a line of
text, is refused. A header must come: whoever could leave it out could also claim to be anybody by sending one.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from headwater.node.transports.sockets import address_text

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
HEAD: Final = 16
LARGEST: Final = 4096
"""Bytes of addresses and TLVs. The longest address, a Unix one, has 216; the rest is for TLVs, which nobody reads."""

LOCAL: Final = 0x20
PROXY: Final = 0x21
UNSPECIFIED: Final = 0x00
TCP4: Final = 0x11
TCP6: Final = 0x21
UNIX_STREAM: Final = 0x31
ADDRESS_SIZES: Final = {UNSPECIFIED: 0, TCP4: 12, TCP6: 36, UNIX_STREAM: 216}
TLV_HEAD: Final = 3


class ProxyError(Exception):
    """Not a header of the PROXY protocol as it is understood here."""


class Source(NamedTuple):
    """Where a connection comes from; an empty host: from the proxy itself, or it does not say."""

    host: str
    port: int
    local: bool
    """The proxy's own connection, such as a health check: its socket's address counts."""

    def __str__(self) -> str:
        return self.host if self.host.startswith("unix:") else address_text(self.host, self.port)


def rest_length(head: bytes) -> int:
    """How many bytes follow these first 16; raises ProxyError. A shorter beginning may be given to fail early."""
    if not SIGNATURE.startswith(head[:12]) and head[:12] != SIGNATURE:
        if b"PROXY ".startswith(head[:6]):
            raise ProxyError("version 1 of the PROXY protocol, which is not supported; send version 2")
        raise ProxyError("no header of the PROXY protocol")
    if len(head) < HEAD:
        return 0
    if head[12] not in (LOCAL, PROXY):
        raise ProxyError(f"version and command 0x{head[12]:02X} are not known")
    if head[13] not in ADDRESS_SIZES and head[12] != LOCAL:
        raise ProxyError(f"address family and protocol 0x{head[13]:02X} are not known")
    length = int.from_bytes(head[14:16], "big")
    if length > LARGEST:
        raise ProxyError(f"a header of {length} bytes is too long")
    return length


def source(head: bytes, rest: bytes) -> Source:
    """What a whole header says; raises ProxyError."""
    if head[12] == LOCAL:
        return Source("", 0, True)
    family = head[13]
    size = ADDRESS_SIZES[family]
    if len(rest) < size:
        raise ProxyError("the addresses are cut off")
    if family == UNSPECIFIED:
        return Source("", 0, False)  # whatever follows is to be ignored
    _check_tlvs(rest, size)
    if family == UNIX_STREAM:
        return Source("unix:" + rest[:108].split(b"\0", 1)[0].decode("utf-8", "replace"), 0, False)
    width = 4 if family == TCP4 else 16
    port = int.from_bytes(rest[2 * width : 2 * width + 2], "big")
    return Source(str(ipaddress.ip_address(rest[:width])), port, False)


def _check_tlvs(rest: bytes, start: int) -> None:
    at = start
    while at < len(rest):
        if at + TLV_HEAD > len(rest):
            raise ProxyError("a TLV is cut off")
        at += TLV_HEAD + int.from_bytes(rest[at + 1 : at + 3], "big")
    if at != len(rest):
        raise ProxyError("a TLV is cut off")
