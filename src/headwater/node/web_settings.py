"""Settings that REST and the admin API have in common: how much of the node those who call by HTTP may have."""

from __future__ import annotations

import logging
import resource
from ipaddress import ip_network
from typing import Final

from pydantic import Field, field_validator

from headwater.node.settings import Settings
from headwater.web.admission import SPARE, Bounds

log = logging.getLogger("headwater")

SHARE: Final = 8
"""Each HTTP listener has at most one in so many of the files that the process may open; the rest is for MQTT."""
LONGEST_HEAD: Final = 256 << 10
"""Bytes: room for the longest topic or client id, each byte written as three."""


class WebSettings(Settings):
    max_connections: int = Field(
        default=128,
        ge=1,
        description="Connections at a time, and never more than an eighth of the files that the process may open. One "
        "more takes the place of the one that has waited longest for its caller; if all are being answered, it gets "
        "503, health excepted.",
    )
    max_connections_per_address: int = Field(
        default=64, ge=1, description="The same for one address (of IPv6: a /64), but for `trusted_proxies`."
    )
    first_byte_timeout: float = Field(
        default=5.0, gt=0, description="Seconds from a connection to its first byte, the TLS handshake included."
    )
    head_timeout: float = Field(default=10.0, gt=0, description="Seconds from there to the end of a request's head.")
    body_timeout: float = Field(default=30.0, gt=0, description="Seconds from there to the end of its body.")
    idle_timeout: float = Field(default=30.0, gt=0, description="Seconds from an answer to the next request.")
    write_timeout: float = Field(
        default=30.0, gt=0, description="Seconds for which a caller may leave unread what was written for it."
    )
    max_head_size: int = Field(default=LONGEST_HEAD, ge=1024, le=16 << 20, description="Bytes of a request's head.")
    max_heads_size: int = Field(
        default=4 << 20, ge=1024, description="Bytes of all unfinished heads; above, the oldest is cut off."
    )
    trusted_proxies: list[str] = Field(
        default=[],
        description="Addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed; "
        "from others they are ignored.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks_are_networks(cls, networks: list[str]) -> list[str]:
        for each in networks:
            ip_network(each)  # raises ValueError
        return networks

    def bounds(self, name: str) -> Bounds:
        """As far as the process may open files."""
        most = most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if self.max_connections > most:
            log.warning(
                "%s.max_connections is %d: an eighth of the files that the process may open (ulimit -n)", name, most
            )
        return Bounds(
            min(self.max_connections, most),
            self.max_connections_per_address,
            self.first_byte_timeout,
            self.head_timeout,
            self.body_timeout,
            self.idle_timeout,
            self.write_timeout,
            self.max_head_size,
            self.max_heads_size,
            tuple(self.trusted_proxies),
        )


def most_connections(files: int) -> int:
    """Of one HTTP listener, where the process may have so many files open; without a limit, any number."""
    return 1 << 30 if files == resource.RLIM_INFINITY else max(1, files // SHARE - SPARE)
