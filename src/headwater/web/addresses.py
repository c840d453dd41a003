"""What counts as one address, and which are within a network."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address; of IPv6 the network of 64 bits, which one customer has whole."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address, ip_network

    try:
        address = IPv6Address(host.partition("%")[0].partition("/")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address) >> 64 << 64, 64)))


@lru_cache(maxsize=4096)
def is_within(host: str, networks: tuple[str, ...]) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in ip_network(network) for network in networks)
