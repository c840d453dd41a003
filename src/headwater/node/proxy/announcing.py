"""The header of the PROXY protocol by which the relay tells the home broker whose connection it passes on.

Version 1 is a line of text, version 2 is binary (node/transports/proxy_protocol.py reads it). A client whose address is
not one of TCP (a Unix socket) is passed on as unknown.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Literal

from headwater.node.transports.proxy_protocol import PROXY, SIGNATURE, TCP4, TCP6, UNSPECIFIED

Version = Literal["v1", "v2"]
UNKNOWN: Final = b"PROXY UNKNOWN\r\n"


def proxy_header(version: Version, client: str, door: str) -> bytes:
    """`client` and `door`, where it came in, as `host:port`."""
    source, destination = _address(client), _address(door)
    if source is None or destination is None:
        return UNKNOWN if version == "v1" else SIGNATURE + bytes((PROXY, UNSPECIFIED, 0, 0))
    (host, port), (to_host, to_port) = source, destination
    if host.version != to_host.version:  # one is IPv4: both are written as IPv6
        host, to_host = _as_v6(host), _as_v6(to_host)
    if version == "v1":
        return f"PROXY TCP{host.version} {host} {to_host} {port} {to_port}\r\n".encode()
    body = host.packed + to_host.packed + port.to_bytes(2, "big") + to_port.to_bytes(2, "big")
    family = TCP4 if host.version == 4 else TCP6
    return SIGNATURE + bytes((PROXY, family)) + len(body).to_bytes(2, "big") + body


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(text: str) -> tuple[Address, int] | None:
    """Of `host:port`; a mapped IPv4 address is one of IPv4. None: it is none of TCP."""
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        number = int(port)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, number


def _as_v6(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv6Address):
        return address
    return ipaddress.IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
